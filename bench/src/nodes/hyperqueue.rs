//! HyperQueue, from its Python package: server and worker are one process, and it has no journal.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::keep::{self, Kept};
use super::network::Network;
use super::{Bulk, Crash, Figures, PATIENCE, SLOTS, settle};
use crate::report::Samples;

pub const NAME: &str = "HyperQueue";
const DRIVER: &str = include_str!("hyperqueue.py");
/// Where `make bench` installs it.
const PYTHON: &str = ".venv-bench/bin/python";

pub fn measure(folder: &Path, runs: usize, tasks: usize, crash_tasks: usize) -> Result<Figures> {
    let python = python()?;
    let folder = prepare(&folder.join("hyperqueue"))?;
    let network = Network::make()?;
    let mut cluster = Cluster::start(&network, &python, &folder, SLOTS)?;
    let mut warm = Samples::default();
    cluster.ask("first-line")?;
    for _ in 0..runs {
        warm.add(cluster.ask("first-line")?);
    }
    let bulk = cluster.bulk(tasks)?;
    let lines = folder.join("lines");
    cluster.ask(&format!("append {crash_tasks} {}", lines.display()))?;
    settle::wait_for_half(&lines, crash_tasks)?;
    keep::signal(cluster.kept.pid, Signal::KILL);
    drop(cluster);
    let started = Instant::now();
    let again = Cluster::start(&network, &python, &folder, SLOTS)?;
    // After a crash it no longer knows the tasks that it had not run.
    let runs = settle::count(&lines, crash_tasks, || false);
    drop(again);
    let crash = Some(Crash::of(crash_tasks, &runs, started));
    Ok(Figures { name: NAME, warm, bulk, crash })
}

fn python() -> Result<String> {
    let python = std::env::var("MUSTER_BENCH_PYTHON").unwrap_or_else(|_| PYTHON.to_owned());
    ensure!(Path::new(&python).exists(), "there is no {python}; `make setup-peers` installs it");
    Ok(python)
}

fn prepare(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("driver.py"), DRIVER)?;
    Ok(folder.to_owned())
}

/// A cluster in a network of its own, for more than one measurement.
pub struct Instance {
    // It ends before its network does.
    cluster: Cluster,
    _network: Network,
}

impl Instance {
    /// With no slots there is no worker, so tasks wait.
    pub fn start(folder: &Path, slots: usize) -> Result<Instance> {
        let (python, folder) = (python()?, prepare(folder)?);
        let network = Network::make()?;
        let cluster = Cluster::start(&network, &python, &folder, slots)?;
        Ok(Instance { cluster, _network: network })
    }

    /// No-op tasks as one job, until all have ended.
    pub fn bulk(&mut self, tasks: usize) -> Result<Bulk> {
        self.cluster.bulk(tasks)
    }

    /// Submits no-op tasks as one job.
    pub fn queue(&mut self, tasks: usize) -> Result<()> {
        self.cluster.ask(&format!("queue {tasks}"))?;
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.cluster.kept.pid
    }
}

struct Cluster {
    kept: Kept,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Cluster {
    fn start(network: &Network, python: &str, folder: &Path, slots: usize) -> Result<Cluster> {
        let python: PathBuf = std::path::absolute(python)?;
        let driver = folder.join("driver.py");
        let words = [python.as_path(), &driver, folder].map(|path| path.display().to_string());
        let mut words = network.inside(words);
        words.push(slots.to_string());
        let mut kept = Kept::start(&words, |command| {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        })?;
        let input = kept.reaper().stdin.take().context("standard input is piped")?;
        let output = kept.reaper().stdout.take().context("standard output is piped")?;
        let (send, lines) = channel();
        // It ends when its pipe is closed.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let cluster = Cluster { kept, input, lines };
        while cluster.line()? != "ready" {}
        Ok(cluster)
    }

    fn line(&self) -> Result<String> {
        self.lines.recv_timeout(PATIENCE).context("no answer from HyperQueue in time")
    }

    fn bulk(&mut self, tasks: usize) -> Result<Bulk> {
        let before = self.kept.cpu();
        let took = self.ask(&format!("bulk {tasks}"))?;
        let cpu = self.kept.cpu().saturating_sub(before);
        Ok(Bulk { tasks, took, cpu })
    }

    fn ask(&mut self, command: &str) -> Result<Duration> {
        writeln!(self.input, "{command}")?;
        let answer = self.line()?;
        let took = answer.strip_prefix("took ").with_context(|| answer.clone())?;
        Ok(Duration::from_nanos(took.parse()?))
    }
}
