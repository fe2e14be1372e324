//! `make bench`: how fast Muster is, each figure next to what this machine can do at best, measured in the same run.
//! Times differ from machine to machine; the ratio is what counts.

mod brain;
mod fair;
mod front;
mod nodes;
mod raw;
mod report;
mod server;
mod storage;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::report::Report;
use crate::server::Server;

const SUBMIT_TIME: Duration = Duration::from_secs(3);

#[global_allocator]
static HEAP: brain::Counting = brain::Counting;

#[tokio::main]
async fn main() -> Result<()> {
    let only = std::env::args().nth(1);
    if let Some(done) = only.as_deref().and_then(nodes::run_as) {
        return done;
    }
    let muster = std::env::current_exe()?.with_file_name("muster");
    anyhow::ensure!(muster.exists(), "{} is missing: run `make bench`", muster.display());
    let folder = tempfile::tempdir()?;
    let mut report = Report::new();
    let measured = match only.as_deref() {
        Some(part) => measure(part, &mut report, &muster, folder.path()).await,
        None => measure_all(&mut report, &muster, folder.path()).await,
    };
    println!("{report}");
    measured
}

/// Every part, in the order in which a run without arguments measures them.
const PARTS: [&str; 9] =
    ["replay", "brain", "front", "submits", "fair", "storage", "followers", "arrays", "nodes"];

/// A part that fails does not keep the next ones from being measured.
async fn measure_all(report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    let mut all = Ok(());
    for part in PARTS {
        let measured = measure(part, report, muster, folder).await;
        all = all.and(measured.context(part));
    }
    all
}

async fn measure(part: &str, report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    match part {
        "replay" => brain::replay(report),
        "brain" => brain::measure(report, folder),
        "front" => front::measure(report, muster, folder).await,
        "submits" => submits(report, muster, folder).await,
        "fair" => fair::measure(report, muster, folder).await,
        "storage" => storage::measure(report, muster, folder).await,
        "followers" => front::followers::measure(report, muster, folder).await,
        "arrays" => nodes::arrays::measure(report, muster, folder).await,
        "nodes" => nodes::measure(report, muster, folder).await,
        other => bail!("there is no part '{other}'; there are {}", PARTS.join(", ")),
    }
}

async fn submits(report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    eprintln!("measuring what this machine can do …");
    let sync_one = raw::durable_appends_per_second(folder, 1)?;
    let sync_eight = raw::durable_appends_per_second(folder, 8)?;
    let sync_many = raw::durable_appends_per_second(folder, 64)?;

    let server = Server::start(muster.to_owned(), folder.join("state")).await?;
    for (clients, limit) in [(1, sync_one), (8, sync_eight), (64, sync_many)] {
        eprintln!("durable submits with {clients} clients, {} s …", SUBMIT_TIME.as_secs());
        let rate = submit_rate(&server, clients).await?;
        let what = format!("durable submits, {clients} clients");
        report.rate(&what, rate, "append 256 B + fdatasync", limit);
    }
    server.end().await
}

/// Submits to a cluster that may not have nodes, so that nothing but the submission is measured.
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
