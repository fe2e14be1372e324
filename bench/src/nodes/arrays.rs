//! Arrays: how many no-op tasks of one array run per second, and the memory of tasks that wait, next to HyperQueue.

use std::path::Path;

use anyhow::{Context, Result};

use super::ours::{Sandboxes, Stack, no_op_array};
use super::table::{cpu_ms, figure, per_second};
use super::{Bulk, SLOTS, hyperqueue, keep, local};
use crate::report::Report;
use crate::server::Server;

/// Each round measures everything in turn. The figures are those of the round with the median speed.
const ROUNDS: usize = 3;
const SPEED_GOAL: f64 = 1.3;
const CPU_GOAL_MS: f64 = 0.9;
/// The largest array whose memory is measured.
const WAITING_MAX: usize = 10_000;
/// Arrays that are queued first, because the first ones fill caches, and those over which memory is measured. One array
/// of ours is too small to be seen in the memory of a process.
const OURS: (usize, usize) = (10, 90);
const THEIRS: (usize, usize) = (2, 5);
const WAITING_GOAL_BYTES: f64 = 300.0;

pub async fn measure(report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    let folder = folder.join("arrays");
    std::fs::create_dir_all(&folder)?;
    let tasks = super::tasks()?;
    speed(report, muster, &folder, tasks).await?;
    memory(report, muster, &folder, tasks.min(WAITING_MAX)).await
}

async fn speed(report: &mut Report, muster: &Path, folder: &Path, tasks: usize) -> Result<()> {
    let stack = Stack::start(muster, folder, Sandboxes::Shared).await?;
    let mut peer = hyperqueue::Instance::start(&folder.join("hyperqueue"), SLOTS);
    let (mut ours, mut plain, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        eprintln!("an array of {tasks} no-op tasks, round {} of {ROUNDS} …", round + 1);
        plain.push(local::plain_bulk(tasks)?);
        if let Ok(peer) = &mut peer {
            theirs.push(peer.bulk(tasks)?);
        }
        ours.push(stack.array(&format!("array-{round}"), tasks).await?);
    }
    stack.end().await?;
    let what = format!("array of {tasks} no-op tasks, one sandbox");
    let ours = median(ours).context("there is a round")?;
    let plain = median(plain).context("there is a round")?;
    compare(report, &what, &ours, local::PLAIN, &plain);
    match (median(theirs), peer.err()) {
        (Some(theirs), _) => {
            compare(report, &what, &ours, hyperqueue::NAME, &theirs);
            let ratio = per_second(&ours) / per_second(&theirs);
            let goal = format!("{SPEED_GOAL}× {}", hyperqueue::NAME);
            report.goal(&what, format!("{ratio:.2}×"), &goal, ratio >= SPEED_GOAL);
        }
        (None, why) => left_out(report, why),
    }
    let cpu = cpu_ms(&ours);
    let goal = format!("{CPU_GOAL_MS} ms");
    report.goal(&what, format!("{cpu:.2} ms CPU each"), &goal, cpu <= CPU_GOAL_MS);
    Ok(())
}

fn compare(report: &mut Report, what: &str, ours: &Bulk, name: &str, theirs: &Bulk) {
    let speed = per_second(ours) / per_second(theirs);
    let cost = cpu_ms(ours) / cpu_ms(theirs);
    let ratio = format!("{speed:.2} of its speed, {cost:.1}× its CPU");
    report.beside(what, figure(ours), format!("{name}: {}", figure(theirs)), ratio);
}

fn median(mut rounds: Vec<Bulk>) -> Option<Bulk> {
    rounds.sort_by_key(|bulk| bulk.took);
    let middle = rounds.len() / 2;
    (!rounds.is_empty()).then(|| rounds.swap_remove(middle))
}

fn left_out(report: &mut Report, why: Option<anyhow::Error>) {
    let why = why.map(|why| format!("{why:#}")).unwrap_or_default();
    report.left_out(hyperqueue::NAME, &why);
}

async fn memory(report: &mut Report, muster: &Path, folder: &Path, tasks: usize) -> Result<()> {
    eprintln!("arrays of {tasks} waiting tasks …");
    let ours = our_waiting(muster, folder, tasks).await?;
    let what = format!("memory of a waiting task, arrays of {tasks}");
    let measured = format!("{ours:.1} bytes");
    let goal = format!("{WAITING_GOAL_BYTES:.0} bytes");
    report.goal(&what, measured.clone(), &goal, ours <= WAITING_GOAL_BYTES);
    match their_waiting(folder, tasks) {
        Ok(theirs) => {
            let beside = format!("{}: {theirs:.0} bytes", hyperqueue::NAME);
            report.beside(&what, measured, beside, format!("{:.3} of its memory", ours / theirs));
        }
        Err(why) => left_out(report, Some(why)),
    }
    Ok(())
}

/// How much the memory of the server grows for each waiting task.
async fn our_waiting(muster: &Path, folder: &Path, tasks: usize) -> Result<f64> {
    let server = Server::start(muster.to_owned(), folder.join("waiting")).await?;
    let pid = server.pid().context("the server runs")?;
    server.put_cluster("waiting", 0, 0, 0).await?;
    let spec = no_op_array("waiting", tasks)?;
    let (first, measured) = OURS;
    let mut before = 0;
    for array in 0..first + measured {
        if array == first {
            before = keep::resident(pid)?;
        }
        server.submit_spec(&format!("waiting-{array}"), &spec).await?;
    }
    let growth = keep::resident(pid)?.saturating_sub(before);
    server.end().await?;
    Ok(growth as f64 / (measured * tasks) as f64)
}

/// The same for HyperQueue without a worker.
fn their_waiting(folder: &Path, tasks: usize) -> Result<f64> {
    let mut peer = hyperqueue::Instance::start(&folder.join("hyperqueue-waiting"), 0)?;
    let (first, measured) = THEIRS;
    let mut before = 0;
    for job in 0..first + measured {
        if job == first {
            before = keep::resident(peer.pid())?;
        }
        peer.queue(tasks)?;
    }
    let growth = keep::resident(peer.pid())?.saturating_sub(before);
    Ok(growth as f64 / (measured * tasks) as f64)
}
