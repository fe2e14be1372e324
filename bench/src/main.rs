//! `make bench`: how fast Muster is, each figure beside what this machine can do at all, measured in the same
//! run. Times move from machine to machine; the ratio is what counts.

mod brain;
mod front;
mod raw;
mod report;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::report::{Report, Samples};
use crate::server::Server;

const WARM_RUNS: usize = 100;
const COLD_RUNS: usize = 20;
const SUBMIT_TIME: Duration = Duration::from_secs(3);

#[global_allocator]
static HEAP: brain::Counting = brain::Counting;

#[tokio::main]
async fn main() -> Result<()> {
    let muster = std::env::current_exe()?.with_file_name("muster");
    anyhow::ensure!(muster.exists(), "{} is missing: run `make bench`", muster.display());
    let folder = tempfile::tempdir()?;
    let mut report = Report::new();
    // `muster-bench brain` leaves the server out, `replay` all but the traces, `front` all but reads and starts.
    let only = std::env::args().nth(1);
    if only.as_deref() == Some("front") {
        front::measure(&mut report, &muster, folder.path()).await?;
        println!("{report}");
        return Ok(());
    }
    brain::replay(&mut report)?;
    if only.as_deref() != Some("replay") {
        brain::measure(&mut report, folder.path())?;
    }
    if only.is_some() {
        println!("{report}");
        return Ok(());
    }

    front::measure(&mut report, &muster, folder.path()).await?;
    eprintln!("measuring what this machine can do …");
    let spawn = raw::spawn_latency(folder.path(), WARM_RUNS)?;
    let sync_one = raw::durable_appends_per_second(folder.path(), 1)?;
    let sync_eight = raw::durable_appends_per_second(folder.path(), 8)?;
    let sync_many = raw::durable_appends_per_second(folder.path(), 64)?;

    let server = Server::start(muster, folder.path().join("state")).await?;
    eprintln!("submit → process start on a warm node, {WARM_RUNS} times …");
    let warm = start_latency(&server, folder.path().join("warm"), "warm", 1, WARM_RUNS).await?;
    report.latency("submit → process start, warm node", &warm, "sh started directly", &spawn);
    eprintln!("submit → process start from zero nodes, {COLD_RUNS} times …");
    let cold = start_latency(&server, folder.path().join("cold"), "cold", 0, COLD_RUNS).await?;
    report.latency("submit → process start, from zero", &cold, "sh started directly", &spawn);
    for (clients, limit) in [(1, sync_one), (8, sync_eight), (64, sync_many)] {
        eprintln!("durable submits with {clients} clients, {} s …", SUBMIT_TIME.as_secs());
        let rate = submit_rate(&server, clients).await?;
        let what = format!("durable submits, {clients} clients");
        report.rate(&what, rate, "append 256 B + fdatasync", limit);
    }
    server.stop().await?;
    println!("{report}");
    Ok(())
}

/// From sending the submit to the first thing that the user's process does: writing the time.
async fn start_latency(
    server: &Server,
    folder: PathBuf,
    cluster: &str,
    nodes_min: u32,
    runs: usize,
) -> Result<Samples> {
    std::fs::create_dir_all(&folder)?;
    server.put_cluster(cluster, nodes_min, 1, 0).await?;
    server.wait_for_nodes(cluster, nodes_min as usize).await?;
    let mut samples = Samples::default();
    // The first run pays for what later ones find warm (connections, page cache): it is not counted.
    for run in 0..=runs {
        let stamp = folder.join(run.to_string());
        let command = raw::stamp_command(&stamp);
        let before = raw::unix_ns();
        let job = server.submit(&format!("{cluster}-{run}"), cluster, &command).await?;
        server.wait_until_over(&job).await?;
        let started = raw::read_stamp(&stamp).with_context(|| format!("{job} left no stamp"))?;
        if run > 0 {
            samples.add(Duration::from_nanos(started.saturating_sub(before)));
        }
        server.wait_for_nodes(cluster, nodes_min as usize).await?;
    }
    Ok(samples)
}

/// Submits to a cluster that may not have nodes, so that nothing but the submit is measured.
async fn submit_rate(server: &Server, clients: usize) -> Result<f64> {
    let cluster = format!("queue{clients}");
    server.put_cluster(&cluster, 0, 0, 0).await?;
    let started = std::time::Instant::now();
    let mut tasks = Vec::new();
    for client in 0..clients {
        let (server, cluster) = (server.connect()?, cluster.clone());
        tasks.push(tokio::spawn(async move {
            let mut done = 0u64;
            while started.elapsed() < SUBMIT_TIME {
                server.submit(&format!("s{clients}-{client}-{done}"), &cluster, "true").await?;
                done += 1;
            }
            anyhow::Ok(done)
        }));
    }
    let mut done = 0;
    for task in tasks {
        done += task.await??;
    }
    Ok(done as f64 / started.elapsed().as_secs_f64())
}
