//! Keeps a stack of processes together, ours or a peer's: orphans of daemons are adopted by a reaper and not by init,
//! so their time is counted and all of them are ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

/// The first argument that makes this program a reaper.
pub const WORD: &str = "keep";

const START: Duration = Duration::from_secs(5);
const POLITE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// `muster-bench keep COMMAND…`: runs it and waits for it and all its descendants, until none is left.
pub fn run(mut words: impl Iterator<Item = String>) -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let program = words.next().context("keep what?")?;
    let mut command = Command::new(&program);
    // The process is waited for below, with all others.
    command.args(words).spawn().with_context(|| format!("{program} could not be started"))?;
    std::thread::spawn(end_with_parent);
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(()),
            Err(why) => return Err(why.into()),
        }
    }
}

/// If the benchmark is interrupted, all of its processes end.
fn end_with_parent() {
    let parent = rustix::process::getppid();
    while rustix::process::getppid() == parent {
        std::thread::sleep(Duration::from_millis(500));
    }
    end(std::process::id());
}

/// This program as the reaper of a command, whose arguments are still to be added.
pub fn words() -> Result<Vec<String>> {
    let own = std::env::current_exe()?.to_str().context("a path in UTF-8")?.to_owned();
    Ok(vec![own, WORD.to_owned()])
}

/// A process under a reaper. When it is dropped, everything that it started is ended.
pub struct Kept {
    reaper: Child,
    pub pid: u32,
}

impl Kept {
    pub fn start(words: &[String], set_up: impl FnOnce(&mut Command)) -> Result<Kept> {
        let reaper = self::words()?;
        let mut command = Command::new(&reaper[0]);
        // Ctrl-C is for the benchmark, not for its keepers.
        command.args(&reaper[1..]).args(words).process_group(0);
        set_up(&mut command);
        let mut kept = Kept { reaper: command.spawn()?, pid: 0 };
        kept.pid = first_child(kept.reaper.id())?;
        Ok(kept)
    }

    pub fn reaper(&mut self) -> &mut Child {
        &mut self.reaper
    }

    pub fn cpu(&self) -> Duration {
        cpu(self.reaper.id())
    }

    pub fn is_up(&mut self) -> bool {
        matches!(self.reaper.try_wait(), Ok(None))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Once it has been waited for, its process id may belong to another process.
        if read(self.pid).is_some_and(|process| process.parent == self.reaper.id()) {
            signal(self.pid, Signal::TERM);
        }
        let started = Instant::now();
        while started.elapsed() < POLITE && self.is_up() {
            std::thread::sleep(PAUSE);
        }
        end(self.reaper.id());
        let _ = self.reaper.kill();
        let _ = self.reaper.wait();
    }
}

/// The command's own process, which is the first child of a reaper.
pub fn first_child(reaper: u32) -> Result<u32> {
    let started = Instant::now();
    while started.elapsed() < START {
        // Until it executes another program, it is a copy of the reaper.
        let own = fs::read_link(format!("/proc/{reaper}/exe")).ok();
        let child = processes().into_iter().find(|(_, process)| process.parent == reaper);
        if let Some((pid, _)) = child
            && fs::read_link(format!("/proc/{pid}/exe")).ok() != own
        {
            return Ok(pid);
        }
        std::thread::sleep(PAUSE);
    }
    bail!("it did not start within {} s", START.as_secs())
}

/// The CPU time of a process and its descendants, including those that have ended.
pub fn cpu(root: u32) -> Duration {
    let processes = processes();
    let ticks: u64 =
        below(root, &processes).iter().map(|pid| processes.get(pid).map_or(0, |p| p.ticks)).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The resident memory of a process in bytes, without its children.
pub fn resident(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: u64 =
        resident.and_then(|text| text.trim().strip_suffix(" kB")).context("no VmRSS")?.parse()?;
    Ok(kilobytes * 1024)
}

/// Kills everything below a process, until nothing is left.
pub fn end(root: u32) {
    let started = Instant::now();
    while started.elapsed() < POLITE {
        let mut pids = below(root, &processes());
        pids.remove(&root);
        if pids.is_empty() {
            return;
        }
        for pid in pids {
            signal(pid, Signal::KILL);
        }
        std::thread::sleep(PAUSE);
    }
}

pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The process may have ended by itself.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Kills a process and waits until it has ended and released everything.
pub fn kill(pid: u32) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process")?;
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    rustix::process::pidfd_send_signal(&process, Signal::KILL)?;
    let mut ready = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ready, None)?;
    Ok(())
}

struct Process {
    parent: u32,
    /// The CPU time of the process and of the children that it has waited for.
    ticks: u64,
}

fn below(root: u32, processes: &BTreeMap<u32, Process>) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([root]);
    loop {
        let more: Vec<u32> = processes
            .iter()
            .filter(|(pid, process)| found.contains(&process.parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

fn processes() -> BTreeMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, read(pid)?))).collect()
}

fn read(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything. The parent is the second field after it; the 12th to 15th are
    // user and system time, its own and its children's.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(Process { parent: fields.get(1)?.parse().ok()?, ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_children_of_children_and_nothing_else() {
        let parents = [(1, 0), (2, 9), (9, 1), (3, 2), (4, 0), (5, 4)];
        let process = |(pid, parent)| (pid, Process { parent, ticks: 0 });
        let processes = parents.into_iter().map(process).collect();
        assert_eq!(below(9, &processes), BTreeSet::from([2, 3, 9]));
        assert_eq!(below(7, &processes), BTreeSet::from([7]));
    }

    #[test]
    fn time_of_a_child_stays_with_its_parent_when_it_is_gone() {
        let before = read(std::process::id()).unwrap().ticks;
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("/bin/sh").args(["-c", spin]).status().unwrap().success());
        let after = read(std::process::id()).unwrap();
        assert!(after.ticks > before, "{} after {before}", after.ticks);
        assert_eq!(after.parent, std::os::unix::process::parent_id());
    }
}
