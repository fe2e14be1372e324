//! The figures without a server: a loop that starts the command, directly or in bubblewrap.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Bulk, Figures, NO_OP, PATIENCE, SLOTS, STAMP, keep};
use crate::raw::unix_ns;
use crate::report::Samples;

/// The first argument that makes this program such a loop.
pub const WORD: &str = "loop";

pub const PLAIN: &str = "sh started directly";
const BUBBLEWRAP: [&str; 11] = [
    "bwrap",
    "--unshare-all",
    "--die-with-parent",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
    "--",
];

pub fn plain(runs: usize, tasks: usize) -> Result<Figures> {
    measure(PLAIN, &[], runs, tasks)
}

pub fn bubblewrap(runs: usize, tasks: usize) -> Result<Figures> {
    measure("sh in bubblewrap", &BUBBLEWRAP, runs, tasks)
}

fn measure(
    name: &'static str,
    prefix: &[&'static str],
    runs: usize,
    tasks: usize,
) -> Result<Figures> {
    let mut warm = Samples::default();
    for _ in 0..runs {
        let before = unix_ns();
        let output = shell(prefix, STAMP).stderr(Stdio::null()).output();
        let output = output.with_context(|| format!("{name} could not be started"))?;
        ensure!(output.status.success(), "{name} failed: {}", output.status);
        let started = parse_stamp(&String::from_utf8_lossy(&output.stdout))?;
        warm.add(Duration::from_nanos(started.saturating_sub(before)));
    }
    Ok(Figures { name, warm, bulk: bulk(name, prefix, tasks)?, crash: None })
}

/// The no-op tasks alone, started directly.
pub fn plain_bulk(tasks: usize) -> Result<Bulk> {
    bulk(PLAIN, &[], tasks)
}

fn bulk(name: &str, prefix: &[&'static str], tasks: usize) -> Result<Bulk> {
    // Bubblewrap does not wait for what it starts, so a reaper has to, for its time to be counted.
    let reaper = keep::words()?;
    let before = keep::cpu(std::process::id());
    let mut command = Command::new(&reaper[0]);
    command.args(&reaper[1..]).args([&reaper[0], WORD, &tasks.to_string()]).args(prefix);
    let output = command.stderr(Stdio::null()).output()?;
    let cpu = keep::cpu(std::process::id()).saturating_sub(before);
    let took = String::from_utf8_lossy(&output.stdout).trim().parse();
    let took = Duration::from_nanos(took.with_context(|| format!("{name} failed"))?);
    Ok(Bulk { tasks, took, cpu })
}

/// `muster-bench loop TASKS [PREFIX…]`: runs this many no-op tasks, and prints how long that took.
pub fn run(mut words: impl Iterator<Item = String>) -> Result<()> {
    let tasks: usize = words.next().context("how many?")?.parse()?;
    let prefix: Vec<String> = words.collect();
    let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
    let (next, started) = (AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        let worker = || -> Result<()> {
            while next.fetch_add(1, Ordering::Relaxed) < tasks {
                ensure!(started.elapsed() < PATIENCE, "it takes too long");
                ensure!(shell(&prefix, NO_OP).status()?.success(), "a task failed");
            }
            Ok(())
        };
        let workers: Vec<_> = (0..SLOTS).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
        }
        anyhow::Ok(())
    })?;
    println!("{}", started.elapsed().as_nanos());
    Ok(())
}

fn shell(prefix: &[&str], script: &str) -> Command {
    let mut words = prefix.iter().copied().chain(["/bin/sh", "-c", script]);
    let mut command = Command::new(words.next().unwrap_or("/bin/sh"));
    command.args(words);
    command
}

/// The time that the command printed in its first line.
pub fn parse_stamp(output: &str) -> Result<u64> {
    let line = output.lines().next().unwrap_or_default();
    line.trim().parse().with_context(|| format!("no time in its first line, '{line}'"))
}
