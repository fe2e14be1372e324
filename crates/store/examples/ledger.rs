//! Measures how many lines of the ledger are summed up per second, for each way of grouping them.
//!
//! `cargo run --release -p muster-store --example ledger -- [FOLDER] [LINES]`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use muster_core::catalogue::Catalogue;
use muster_core::ids::{ClusterId, Epoch, JobId, NodeId, PrincipalId, WorkspaceId};
use muster_core::model::{
    AttemptOutcome, Caller, Category, Job, JobKind, JobSpec, JobState, LedgerLine, Part, Principal,
    Resource, Served, SpecHash, WorkspaceKey,
};
use muster_core::time::{Elapsed, Now, Span, Wall};
use muster_core::{Change, Input, Settings, World, step};
use muster_store::{Durability, LedgerBy, LedgerQuery, Reader, SqliteReader, SqliteStore, Store};

type Failure = Box<dyn std::error::Error>;

const START: Wall = Wall(1_700_000_000_000_000);
const BATCH: u64 = 1_000;
/// Lines per job: it was prepared, it ran, and a node was idle after it.
const LINES_PER_JOB: u64 = 3;
const SPECS: u64 = 100;
const PEOPLE: u64 = 20;
/// The ids start after those that the core assigned.
const PERSON: u64 = 100;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| "target".to_owned());
    let lines: u64 = arguments.next().map_or(Ok(300_000), |text| text.parse())?;
    let scratch = tempfile::tempdir_in(folder)?;
    let path = scratch.path().join("muster.db");
    let end = fill(&path, lines)?;
    let mut reader = SqliteReader::open(&path)?;
    let middle = Wall(u64::midpoint(START.0, end.0));
    for since in [None, Some(START), Some(middle)] {
        for by in
            [LedgerBy::Cluster, LedgerBy::User, LedgerBy::Category, LedgerBy::Tag("team".into())]
        {
            let query = LedgerQuery { by, since, now: end };
            let begun = Instant::now();
            let sums = reader.ledger_by(&home(), &query)?;
            let took = begun.elapsed();
            let counted = if since == Some(middle) { lines / 2 } else { lines };
            let rate = counted as f64 / took.as_secs_f64();
            let (by, sums) = (&query.by, sums.len());
            println!(
                "{by:?} since {since:?}: {counted} lines in {took:.1?}, {rate:.0} a second, {sums} sums"
            );
        }
    }
    Ok(())
}

fn home() -> WorkspaceKey {
    WorkspaceKey::new("s", "g", "w")
}

/// A workspace with this many lines, and the time of the last one.
fn fill(path: &std::path::Path, lines: u64) -> Result<Wall, Failure> {
    let mut store = SqliteStore::open(path, Durability::None)?;
    let epoch = store.claim(1)?;
    let begun = Now { elapsed: Elapsed(1), wall: START };
    let catalogue = Arc::new(Catalogue::builtin());
    let mut world = World::rebuild(store.load()?, epoch, Settings::default(), catalogue, begun);
    let by = Caller { object_id: "o".into(), name: "owner".into() };
    let inputs = [
        Input::workspace(home(), "eastus", by.clone()),
        Input::PutCluster { workspace: home(), name: "cpu".into(), wanted: Box::default(), by },
    ];
    let mut changes = step(&mut world, &inputs, begun).changes;
    let cluster = world.clusters().next().ok_or("the cluster was refused")?;
    let place = (cluster.workspace, cluster.id);
    for id in 1..=PEOPLE {
        let (id, object_id) = (PrincipalId(PERSON + id), format!("o{id}").into());
        let name = format!("user {id}").into();
        changes.push(Change::PrincipalSeen(Principal { id, object_id, name }));
    }
    let mut now = START;
    for number in 0..lines / LINES_PER_JOB {
        let job = a_job(place, number);
        let served =
            Served { job: job.id, parent: None, epoch: Epoch(number), principal: job.principal };
        changes.push(Change::JobSubmitted { job, spec: a_spec(number) });
        for category in [Category::Prepare, Category::Run, Category::Idle] {
            let (from, to) = (now, now + Span::seconds(1));
            now = to;
            changes.push(Change::LedgerPosted(a_line(place, category, served, (from, to))));
        }
        if number % BATCH == BATCH - 1 {
            store.commit(&changes, now)?;
            changes.clear();
        }
    }
    store.commit(&changes, now)?;
    Ok(now)
}

fn a_spec(number: u64) -> Arc<JobSpec> {
    let team = format!("team {}", number % SPECS % 10);
    Arc::new(JobSpec {
        tags: BTreeMap::from([("team".to_owned(), team)]),
        ..JobSpec::new("cpu", format!("python train.py --seed {}", number % SPECS))
    })
}

fn a_job((workspace, cluster): (WorkspaceId, ClusterId), number: u64) -> Arc<Job> {
    Arc::new(Job {
        id: JobId(1_000 + number),
        workspace,
        cluster,
        name: format!("job-{number}").into(),
        kind: JobKind::Command,
        parent: None,
        principal: PrincipalId(PERSON + 1 + number % PEOPLE),
        nodes: 1,
        share: None,
        priority: Default::default(),
        spec: SpecHash::made_up(&format!("{}", number % SPECS)),
        submitted_at: START,
        attempts: 1,
        losses: 0,
        on_eviction: muster_core::model::OnEviction::default(),
        is_returned: false,
        environment: None,
        state: JobState::Completed { at: START },
    })
}

fn a_line(
    (workspace, cluster): (WorkspaceId, ClusterId),
    category: Category,
    served: Served,
    (from, to): (Wall, Wall),
) -> LedgerLine {
    let is_served = category != Category::Idle;
    LedgerLine {
        node: NodeId(300),
        workspace,
        cluster,
        resource: Resource::Node,
        category,
        outcome: if is_served { AttemptOutcome::Succeeded } else { AttemptOutcome::None },
        served: is_served.then_some(served),
        part: Part::WHOLE,
        from,
        to,
        price_micro_usd_per_hour: 290_000,
        tags: Arc::new(BTreeMap::from([("team".to_owned(), "all".to_owned())])),
    }
}
