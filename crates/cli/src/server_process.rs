//! The process that serves a state directory. It is identified by its lock on the directory, which the kernel
//! guarantees: the process id in `connection.json` may have been reused by another process.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_server::state_dir::StateDir;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use crate::client;
use crate::env::shell_quoted;
use crate::failure::{CliResult, Failure};
use crate::server_location::Server;

/// Which process holds the directory's lock. `recorded` is the process that `connection.json` names: it is used where
/// the file system reports another device number than the kernel's list of locks.
///
/// Taking the lock to see whether it is free could keep a server from starting.
pub fn holder(dir: &StateDir, recorded: u32) -> Option<u32> {
    let lock = std::fs::metadata(dir.lock_file()).ok()?;
    let device = (rustix::fs::major(lock.dev()), rustix::fs::minor(lock.dev()));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holder_by(line, device, lock.ino(), recorded))
}

/// A line is `7: FLOCK ADVISORY WRITE 4321 08:01:1234 0 EOF`: the process follows the kind, then device and inode. A
/// waiting lock has an arrow before its kind.
fn holder_by(line: &str, device: (u32, u32), inode: u64, recorded: u32) -> Option<u32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", pid, place, ..] = words[..] else { return None };
    let pid: u32 = pid.parse().ok().filter(|pid| *pid > 0)?;
    let mut place = place.split(':');
    let mut hexadecimal = || u32::from_str_radix(place.next()?, 16).ok();
    let found = (hexadecimal()?, hexadecimal()?);
    let is_its = place.next()?.parse() == Ok(inode) && (found == device || pid == recorded);
    is_its.then_some(pid)
}

/// The command with which a user starts the server of this directory.
pub fn start_command(state_dir: &Path) -> String {
    let command = StateDir::new(state_dir).start_command();
    format!("{command} --state-dir {}", shell_quoted(&state_dir.to_string_lossy()))
}

/// When a process was started, by the kernel's clock.
pub fn started_at(pid: u32) -> Option<SystemTime> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name in brackets may contain any characters.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let machine = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = machine.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    let seconds = ticks / rustix::param::clock_ticks_per_second().max(1);
    Some(UNIX_EPOCH + Duration::from_secs(boot + seconds))
}

/// A handle to one process. It never refers to another process, even if the process id is reused.
pub struct Running {
    pid: u32,
    handle: AsyncFd<OwnedFd>,
}

impl Running {
    /// Returns `None` if the process has ended or no longer holds the directory.
    pub fn open(dir: &StateDir, pid: u32) -> CliResult<Option<Running>> {
        let failed =
            |why: std::io::Error| Failure::error(format!("cannot watch process {pid}: {why}"));
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        let handle = match pidfd_open(raw, PidfdFlags::NONBLOCK) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(why) => return Err(failed(why.into())),
        };
        // Checked again now that the handle is open: the process id could have been reused before.
        if holder(dir, pid) != Some(pid) {
            return Ok(None);
        }
        // SAFETY: the handle is one descriptor, which stays open and unchanged until it is dropped.
        let handle = unsafe { AsyncFd::register(handle) };
        Ok(Some(Running { pid, handle: handle.map_err(|why| failed(why.into()))? }))
    }

    pub fn signal(&self, signal: Signal) -> CliResult {
        match pidfd_send_signal(self.handle.get_ref(), signal) {
            // The process has just ended.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(rustix::io::Errno::PERM) => Err(Failure::error(format!(
                "the server (process {}) belongs to another user, and only that user may stop it; use sudo",
                self.pid
            ))),
            Err(why) => Err(Failure::error(format!("cannot signal process {}: {why}", self.pid))),
        }
    }

    /// Whether the process ends in time.
    pub async fn ends(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.handle.readable()).await.is_ok_and(|ready| ready.is_ok())
    }
}

/// A server's key figures, from its metrics.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub version: String,
    pub clusters: u64,
    pub nodes: u64,
    pub jobs_running: u64,
    pub jobs_queued: u64,
    /// The code of what keeps the store from accepting new work.
    pub store_trouble: Option<String>,
}

/// Queries the server of a directory, with its owner's key.
pub async fn figures(server: &Server, within: Duration) -> Result<Figures, client::NoMetrics> {
    client::metrics(server, within).await.map(|page| read(&page))
}

fn read(page: &str) -> Figures {
    let mut figures = Figures::default();
    for line in page.lines() {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let Some((labels, value)) = rest.rsplit_once('}') else { continue };
        let count: u64 = value.trim().parse().unwrap_or(0);
        match name {
            "muster_build_info" => {
                let version = labels.split('"').nth(1).unwrap_or_default();
                figures.version = version.to_owned();
            }
            "muster_cluster_target_nodes" => figures.clusters += 1,
            "muster_cluster_nodes" => figures.nodes += count,
            "muster_jobs" if labels.contains("status=\"Queued\"") => figures.jobs_queued += count,
            "muster_jobs" => figures.jobs_running += count,
            "muster_store_trouble" if count > 0 => {
                figures.store_trouble = labels.split('"').nth(1).map(str::to_owned);
            }
            _ => {}
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_by_its_file_and_not_by_a_number() {
        let locks = "1: POSIX  ADVISORY  WRITE 77 fd:00:9 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 4321 08:1a:1234 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 99 08:1a:1234 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 55 08:1a:77 0 EOF\n";
        let holder = |device, inode, recorded| {
            locks.lines().find_map(|line| holder_by(line, device, inode, recorded))
        };
        assert_eq!(holder((8, 26), 1234, 1), Some(4321), "the lock counts, not the file");
        assert_eq!(holder((0, 44), 1234, 4321), Some(4321), "a device with another number");
        assert_eq!(holder((0, 44), 1234, 1), None, "another file with that inode number");
        assert_eq!(holder((8, 26), 9, 77), None, "another kind of lock");
        assert_eq!(holder((8, 26), 77, 55), None, "a shared lock");
    }

    #[test]
    fn figures_are_read_from_metrics() {
        let page = "# HELP muster_jobs Jobs that are not over.\n\
                    muster_build_info{version=\"1.2.3\"} 1\n\
                    muster_cluster_nodes{cluster=\"a}\",state=\"idle\"} 2\n\
                    muster_cluster_nodes{cluster=\"b\",state=\"busy\"} 3\n\
                    muster_cluster_target_nodes{cluster=\"a}\"} 2\n\
                    muster_cluster_target_nodes{cluster=\"b\"} 3\n\
                    muster_jobs{cluster=\"b\",status=\"Queued\"} 40\n\
                    muster_jobs{cluster=\"b\",status=\"Running\"} 3\n\
                    muster_jobs{cluster=\"b\",status=\"Starting\"} 1\n\
                    muster_store_trouble{kind=\"StoreShortOfSpace\"} 0\n\
                    muster_store_trouble{kind=\"StoreReadOnly\"} 1\n\
                    muster_jobs_ended_total{cluster=\"b\",status=\"Completed\"} 9\n";
        let wanted = Figures {
            version: "1.2.3".to_owned(),
            clusters: 2,
            nodes: 5,
            jobs_running: 4,
            jobs_queued: 40,
            store_trouble: Some("StoreReadOnly".to_owned()),
        };
        assert_eq!(read(page), wanted);
    }

    #[test]
    fn a_process_was_started_before_now_and_after_the_machine() {
        let started = started_at(std::process::id()).expect("it runs");
        assert!(started <= SystemTime::now() + Duration::from_secs(2));
        assert_eq!(started_at(0), None);
    }
}
