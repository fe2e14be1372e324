//! Measures how many commits of one submitted job this disk handles per second, next to the disk's own limit: appending
//! the same number of bytes and syncing them.
//!
//! `cargo run --release -p muster-store --example commits -- [FOLDER] [COMMITS]`

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use muster_core::Change;
use muster_core::ids::{ClusterId, JobId, PrincipalId, WorkspaceId};
use muster_core::model::{Job, JobSpec, JobState};
use muster_core::time::Wall;
use muster_store::{Durability, SqliteStore, Store};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| "target".to_owned());
    let commits: u64 = arguments.next().map_or(Ok(3_000), |text| text.parse())?;
    let scratch = tempfile::tempdir_in(folder)?;
    for (durability, name) in [(Durability::Disk, "on disk"), (Durability::None, "not synced")] {
        for batch in [1, 8, 64] {
            let path = scratch.path().join(format!("{durability:?}-{batch}.db"));
            let (store, raw) = measure(&path, commits, batch, durability)?;
            println!(
                "{name}, {batch:>2} jobs a commit: {store}; append + fdatasync in turn with it: {raw}"
            );
        }
    }
    Ok(())
}

/// How many per second, and how long each took.
struct Rate(Vec<Duration>);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let total: Duration = sorted.iter().sum();
        let rate = sorted.len() as f64 / total.as_secs_f64();
        let [median, late, latest] = [500, 990, 1_000]
            .map(|per_mille| sorted[(sorted.len() * per_mille / 1_000).min(sorted.len() - 1)])
            .map(|duration| duration.as_secs_f64() * 1_000.0);
        write!(f, "{rate:.0}/s (median {median:.2} ms, p99 {late:.2} ms, max {latest:.1} ms)")
    }
}

/// The store and a plain file take turns, so that both see the same disk.
fn measure(
    path: &Path,
    commits: u64,
    batch: u64,
    durability: Durability,
) -> Result<(Rate, Rate), Failure> {
    let mut store = SqliteStore::open(path, durability)?;
    store.claim(1)?;
    let raw = path.with_extension("raw");
    let mut raw = OpenOptions::new().create_new(true).append(true).open(raw)?;
    let (mut in_store, mut in_raw) = (Rate(Vec::new()), Rate(Vec::new()));
    for commit in 0..commits {
        let changes: Vec<Change> = (0..batch).map(|n| submitted(1 + commit * batch + n)).collect();
        let start = Instant::now();
        store.commit(&changes, Wall(commit))?;
        in_store.0.push(start.elapsed());
        let text = serde_json::to_string(&changes)?;
        let start = Instant::now();
        raw.write_all(text.as_bytes())?;
        raw.sync_data()?;
        in_raw.0.push(start.elapsed());
    }
    Ok((in_store, in_raw))
}

fn submitted(number: u64) -> Change {
    // Spread out like real hashes: neighbours in time are not neighbours in the index.
    let hash = format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(4);
    let job = Job {
        id: JobId(number),
        workspace: WorkspaceId(1),
        cluster: ClusterId(1),
        name: format!("job-{}", &hash[..12]).into(),
        kind: <_>::default(),
        parent: None,
        principal: PrincipalId(1),
        nodes: 1,
        share: None,
        priority: Default::default(),
        spec: hash.parse().expect("64 hex digits"),
        submitted_at: Wall(number),
        attempts: 0,
        losses: 0,
        on_eviction: muster_core::model::OnEviction::default(),
        is_returned: false,
        environment: None,
        state: JobState::Queued,
    };
    let spec = JobSpec::new("cpu-cluster", format!("python train.py --learning-rate 0.{number}"));
    Change::JobSubmitted { job: job.into(), spec: spec.into() }
}
