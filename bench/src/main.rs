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

use std::time::Duration;

use anyhow::Result;

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
    // `muster-bench brain` measures the core only, `replay` only the traces, `front` only reads and starts, `fair` only
    // submissions next to another tenant, `nodes` only jobs on nodes, and `storage` only blobs and azure-ai-ml.
    if only.as_deref() == Some("front") {
        front::measure(&mut report, &muster, folder.path()).await?;
        println!("{report}");
        return Ok(());
    }
    if only.as_deref() == Some("fair") {
        let measured = fair::measure(&mut report, &muster, folder.path()).await;
        println!("{report}");
        return measured;
    }
    if only.as_deref() == Some("nodes") {
        nodes::measure(&mut report, &muster, folder.path()).await?;
        println!("{report}");
        return Ok(());
    }
    if only.as_deref() == Some("storage") {
        let measured = storage::measure(&mut report, &muster, folder.path()).await;
        println!("{report}");
        return measured;
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
    let sync_one = raw::durable_appends_per_second(folder.path(), 1)?;
    let sync_eight = raw::durable_appends_per_second(folder.path(), 8)?;
    let sync_many = raw::durable_appends_per_second(folder.path(), 64)?;

    let server = Server::start(muster.clone(), folder.path().join("state")).await?;
    for (clients, limit) in [(1, sync_one), (8, sync_eight), (64, sync_many)] {
        eprintln!("durable submits with {clients} clients, {} s …", SUBMIT_TIME.as_secs());
        let rate = submit_rate(&server, clients).await?;
        let what = format!("durable submits, {clients} clients");
        report.rate(&what, rate, "append 256 B + fdatasync", limit);
    }
    server.end().await?;
    let fair = fair::measure(&mut report, &muster, folder.path()).await;
    let storage = storage::measure(&mut report, &muster, folder.path()).await;
    let nodes = nodes::measure(&mut report, &muster, folder.path()).await;
    println!("{report}");
    fair.and(storage).and(nodes)
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
