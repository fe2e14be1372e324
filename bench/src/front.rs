//! The HTTP interface: reads over real connections next to nginx with the same bytes, the idle server, and its start.

pub mod followers;
mod load;
mod nginx;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use muster_core::model::WorkspaceKey;
use muster_wire::Route;

use crate::brain;
use crate::nodes::keep;
use crate::report::{Report, Samples};
use crate::server::Server;
use load::Caller;
pub use load::{Target, trusting};
pub use nginx::Nginx;

const CLUSTERS: u32 = 1_000;
const CONNECTIONS: usize = 4;
const RATE_TIME: Duration = Duration::from_secs(5);
const LISTS: usize = 100;
const IDLE_TIME: Duration = Duration::from_secs(10);
const FINISHED_JOBS: u32 = 100_000;
const STARTS: usize = 10;

const RATE_GOAL: f64 = 10_000.0;
const LIST_GOAL: Duration = Duration::from_millis(50);
const START_GOAL: Duration = Duration::from_millis(300);
const RESIDENT_GOAL_MB: f64 = 60.0;
const CORE_GOAL_PERCENT: f64 = 1.0;

pub async fn measure(report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    reads(report, muster, folder).await?;
    starts(report, muster, folder).await
}

async fn reads(report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    let state_dir = folder.join("front");
    fs::create_dir_all(&state_dir)?;
    brain::fill_with_clusters(&state_dir.join("muster.db"), CLUSTERS)?;
    let server = Server::start(muster.to_owned(), state_dir.clone()).await?;
    eprintln!("an idle server, {} s …", IDLE_TIME.as_secs());
    idle(report, server.pid().context("the server runs")?)?;

    let target = server.target(load::trusting(&state_dir.join("pki/ca.pem"))?)?;
    let version = [("api-version", "2025-12-01")];
    let one = Route::Compute { workspace: bench(), name: brain::name_of(7).into() };
    let one = one.url("", &version).context("an address")?;
    let all = Route::Computes(bench()).url("", &version).context("an address")?;
    let mut caller = target.connect()?;
    let (pages, mut bytes) = follow(&mut caller, &all, server.url())?;
    bytes.push(caller.get(&one)?.to_vec());
    let copies: Vec<String> = (0..bytes.len()).map(|number| format!("/{number}")).collect();
    let nginx = Nginx::start(&folder.join("nginx"), &state_dir.join("pki"), &target, &bytes)?;

    eprintln!("GET of a cluster on {CONNECTIONS} connections, {} s …", RATE_TIME.as_secs());
    let rate = |target: &Target, path: &str| target.rate(path, CONNECTIONS, RATE_TIME);
    let ours = rate(&target, &one)?;
    let theirs =
        nginx.as_ref().map(|nginx| rate(&nginx.target, &copies[pages.len()])).transpose()?;
    let peer = theirs.map(|theirs| (format!("{theirs:.0} per second"), ours / theirs));
    let figure = format!("{ours:.0} per second");
    report.peer("GET of a cluster", figure, "10,000 per second", ours >= RATE_GOAL, peer);

    eprintln!("list of {CLUSTERS} clusters, {} pages, {LISTS} times …", pages.len());
    let ours = target.latency(&pages, LISTS)?;
    let copies = &copies[..pages.len()];
    let theirs = nginx.as_ref().map(|nginx| nginx.target.latency(copies, LISTS)).transpose()?;
    let peer = theirs.map(|theirs| (theirs.to_string(), median_ratio(&theirs, &ours)));
    let is_met = ours.percentile(99) <= LIST_GOAL;
    report.peer("list of 1,000 clusters", ours.to_string(), "50 ms", is_met, peer);
    server.end().await
}

/// The pages of a list as paths, and their contents.
fn follow(caller: &mut Caller, first: &str, base: &str) -> Result<(Vec<String>, Vec<Vec<u8>>)> {
    let (mut paths, mut bytes, mut clusters) = (vec![first.to_owned()], Vec::new(), 0);
    loop {
        let path = paths.last().context("there is a first page")?;
        let body = caller.get(path)?.to_vec();
        let page: muster_wire::Page<muster_wire::compute::ComputeResource> =
            muster_wire::from_json(&body)?;
        bytes.push(body);
        clusters += page.value.len();
        let Some(next) = page.next_link else { break };
        paths.push(
            next.strip_prefix(base).context("the next page is on another server")?.to_owned(),
        );
    }
    anyhow::ensure!(clusters == CLUSTERS as usize, "{clusters} of {CLUSTERS} clusters are listed");
    Ok((paths, bytes))
}

/// How many times as fast the second is.
fn median_ratio(theirs: &Samples, ours: &Samples) -> f64 {
    theirs.percentile(50).as_secs_f64() / ours.percentile(50).as_secs_f64()
}

fn idle(report: &mut Report, pid: u32) -> Result<()> {
    // Work that is left over from the start does not count as idle.
    std::thread::sleep(Duration::from_secs(2));
    let before = cpu_time(pid)?;
    let started = Instant::now();
    std::thread::sleep(IDLE_TIME);
    let used = (cpu_time(pid)? - before).as_secs_f64();
    let percent = 100.0 * used / started.elapsed().as_secs_f64();
    let megabytes = keep::resident(pid)? as f64 / 1e6;
    let figure = format!("{megabytes:.1} MB");
    report.goal("idle server, 1,000 clusters", figure, "60 MB", megabytes < RESIDENT_GOAL_MB);
    let figure = format!("{percent:.2} % of a core");
    report.goal("idle server, 1,000 clusters", figure, "1 %", percent < CORE_GOAL_PERCENT);
    Ok(())
}

/// The CPU time of all threads of a process, since it started.
fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may contain anything; the 12th and 13th fields after it are user and system time.
    let fields = stat.rsplit_once(')').context("no stat")?.1;
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>).sum::<Result<_, _>>()?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

async fn starts(report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    let state_dir: PathBuf = folder.join("finished");
    fs::create_dir_all(&state_dir)?;
    eprintln!("a store with {FINISHED_JOBS} finished jobs …");
    let database = state_dir.join("muster.db");
    brain::fill_with_finished(&database, FINISHED_JOBS)?;
    let mut samples = Samples::default();
    // The first start creates keys and certificates; from the second on, the directory exists.
    for run in 0..=STARTS {
        let server = Server::start(muster.to_owned(), state_dir.clone()).await?;
        if run > 0 {
            samples.add(server.ready_after());
        }
        server.end().await?;
    }
    let megabytes = fs::metadata(&database)?.len() as f64 / 1e6;
    let is_met = samples.percentile(99) <= START_GOAL;
    let what = format!("start to ready, 100,000 finished jobs ({megabytes:.0} MB)");
    report.goal(&what, samples.to_string(), "300 ms", is_met);
    Ok(())
}

fn bench() -> WorkspaceKey {
    WorkspaceKey::new("bench", "bench", "bench")
}
