//! Nodes: how soon a job runs, how many run per second, what one costs, and what a crash of the server does to them,
//! next to plain processes without a server and next to two schedulers.

pub mod arrays;
mod hyperqueue;
pub mod keep;
mod local;
mod network;
mod ours;
mod settle;
mod slurm;
mod table;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::report::{Report, Samples};
use ours::{Sandboxes, Stack};
use settle::Runs;

const WARM_RUNS: usize = 100;
const COLD_RUNS: usize = 50;
/// The variable with the number of no-op tasks, and its default.
const TASKS: (&str, usize) = ("MUSTER_BENCH_TASKS", 10_000);
const CRASH_TASKS_MAX: usize = 1_000;
/// The number of tasks at once, for all but Slurm: the cores of the default VM size.
const SLOTS: usize = 4;
/// The same command for every peer, in a shell.
const NO_OP: &str = "true";
const STAMP: &str = "date +%s%N";
/// The time limit for all tasks of one measurement.
const PATIENCE: Duration = Duration::from_secs(1_200);

struct Bulk {
    tasks: usize,
    took: Duration,
    /// The CPU time of servers, workers and the tasks themselves. Clients are included only if they are not a separate
    /// process.
    cpu: Duration,
}

struct Crash {
    tasks: usize,
    lost: usize,
    again: usize,
    /// From the restart of the server to the end of the last task.
    over_after: Duration,
}

impl Crash {
    fn of(tasks: usize, seen: &Runs, started: Instant) -> Crash {
        let again = seen.runs.values().filter(|runs| **runs > 1).count();
        let over_after = seen.last_at.saturating_duration_since(started);
        Crash { tasks, lost: tasks.saturating_sub(seen.runs.len()), again, over_after }
    }
}

/// The figures of one way to run tasks.
struct Figures {
    name: &'static str,
    /// From the call that starts a task to its first line.
    warm: Samples,
    bulk: Bulk,
    crash: Option<Crash>,
}

/// Muster's own figures, including those that only Muster has.
struct Ours {
    cold: Samples,
    warm: Samples,
    walls: Bulk,
    shared: Bulk,
    crash: Crash,
    plain: Bulk,
}

/// The tasks that this program performs for itself, selected by its first argument.
pub fn run_as(word: &str) -> Option<Result<()>> {
    let words = std::env::args().skip(2);
    match word {
        keep::WORD => Some(keep::run(words)),
        local::WORD => Some(local::run(words)),
        _ => None,
    }
}

pub async fn measure(report: &mut Report, muster: &Path, folder: &Path) -> Result<()> {
    let tasks = tasks()?;
    let crash_tasks = tasks.min(CRASH_TASKS_MAX);
    eprintln!("{tasks} no-op tasks, by a loop, then by a loop with bubblewrap …");
    let plain = local::plain(WARM_RUNS, tasks)?;
    let wrapped = local::bubblewrap(WARM_RUNS, tasks);
    eprintln!("the same with HyperQueue …");
    let hyperqueue = hyperqueue::measure(folder, WARM_RUNS, tasks, crash_tasks);
    eprintln!("the same with Slurm, at most 1,000 …");
    let slurm = slurm::measure(folder, WARM_RUNS, tasks, crash_tasks);
    let ours = our_own(muster, folder, tasks, crash_tasks).await?;

    let mut peers = vec![plain];
    for (name, peer) in [("bubblewrap", wrapped), ("HyperQueue", hyperqueue), ("Slurm", slurm)] {
        match peer {
            Ok(figures) => peers.push(figures),
            Err(why) => report.left_out(name, &format!("{why:#}")),
        }
    }
    table::fill(report, &ours, &peers);
    Ok(())
}

async fn our_own(muster: &Path, folder: &Path, tasks: usize, crash_tasks: usize) -> Result<Ours> {
    let stack = Stack::start(muster, folder, Sandboxes::Own).await?;
    eprintln!("submit → first line on a warm node, {WARM_RUNS} times …");
    let warm = stack.first_line("warm", 1, WARM_RUNS).await?;
    eprintln!("submit → first line from zero nodes, {COLD_RUNS} times …");
    let cold = stack.first_line("cold", 0, COLD_RUNS).await?;
    eprintln!("{tasks} no-op jobs, a sandbox for each …");
    let walls = stack.bulk(tasks).await?;
    eprintln!("{crash_tasks} no-op jobs, the server killed at half …");
    let crash = stack.crash(crash_tasks).await?;
    eprintln!("{tasks} no-op jobs in the sandbox of their node …");
    let stack = Stack::start(muster, folder, Sandboxes::Shared).await?;
    let shared = stack.bulk(tasks).await?;
    stack.end().await?;
    eprintln!("{tasks} no-op jobs, no sandbox …");
    let stack = Stack::start(muster, folder, Sandboxes::None).await?;
    let plain = stack.bulk(tasks).await?;
    stack.end().await?;
    Ok(Ours { cold, warm, walls, shared, crash, plain })
}

fn tasks() -> Result<usize> {
    let (variable, usual) = TASKS;
    let Ok(text) = std::env::var(variable) else { return Ok(usual) };
    let wanted = text.parse().ok().filter(|count| (10..=100_000).contains(count));
    wanted.with_context(|| format!("{variable} is '{text}'; give a number from 10 to 100000"))
}
