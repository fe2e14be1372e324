//! Enforces what a job may use of its node, where the kernel does not: a job that exceeds a limit is ended, with the
//! reason.

mod disk;
mod groups;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use muster_core::model::{Exit, Scarce};
use muster_sandbox::cgroup::{Group, Groups};

use self::disk::{Used, full, hidden_by, used_by};
use self::groups::oom_kills;
pub(crate) use self::groups::{JobGroup, JobGroups};

/// Processes and threads of one job in a sandbox: enough for every worker that cores can feed, too few to choke a host.
pub(crate) const PROCESSES_MAX: u32 = 4096;
/// How often a folder is measured, and the largest part of the time that this may take.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_PART: u32 = 20;
/// A job that uses less than one part in this many of a full disk is not considered to have filled it.
const LARGE_PART: u64 = 4;

/// Watches one attempt.
#[derive(Debug)]
pub(crate) struct Watch {
    own_dir: PathBuf,
    /// The most that its folder may contain, if it has a limit.
    disk_bytes: Option<u64>,
    /// The largest size of one of its files.
    file_bytes: Option<u64>,
    /// The size of its folder when it was last measured.
    disk_used: Arc<AtomicU64>,
    memory: Option<Memory>,
    oom_kills: u64,
}

/// The memory that all jobs of a node share, or that of one job.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    group: Group,
    limit_bytes: u64,
    /// How many processes had been killed when the job took this group. `None` if it has no group of its own.
    oom_kills_before: Option<u64>,
}

impl Memory {
    /// The node's memory, if it is limited.
    pub(crate) fn of_this_node() -> Option<Memory> {
        Memory::of(&Groups::look().of_this_node())
    }

    /// The memory of a node's group. A group without a limit may be the host's, with all others below it.
    fn of(node: &Group) -> Option<Memory> {
        let limit_bytes = node.shortage().ok()??.limit_bytes?;
        // An old kernel represents the absence of a limit by a large number.
        let machine = rustix::system::sysinfo();
        let is_one = limit_bytes <= machine.totalram * u64::from(machine.mem_unit);
        is_one.then(|| Memory { group: node.clone(), limit_bytes, oom_kills_before: None })
    }

    fn oom_kills(&self) -> u64 {
        oom_kills(&self.group)
    }
}

impl Watch {
    /// Starts to watch now.
    pub(crate) fn new(own_dir: PathBuf, disk_bytes: Option<u64>, memory: Option<Memory>) -> Watch {
        // What other jobs of the node did before does not matter. The kills in a group of its own count from the moment
        // when the job took it: it may already have been killed.
        let kills_before =
            |memory: &Memory| memory.oom_kills_before.unwrap_or_else(|| memory.oom_kills());
        let oom_kills = memory.as_ref().map_or(0, kills_before);
        Watch {
            own_dir,
            disk_bytes,
            file_bytes: None,
            disk_used: Arc::default(),
            memory,
            oom_kills,
        }
    }

    /// The same, where the kernel ends a job that writes a larger file.
    pub(crate) fn with_file_bytes(self, file_bytes: Option<u64>) -> Watch {
        Watch { file_bytes, ..self }
    }

    /// The size of its folder, updated from time to time. `None` if it is not measured.
    pub(crate) fn disk_used(&self) -> Option<Arc<AtomicU64>> {
        self.disk_bytes.map(|_| Arc::clone(&self.disk_used))
    }

    /// Resolves when the job has used more of the disk than it may.
    pub(crate) async fn disk_is_over(&self) -> Exit {
        let Some(limit) = self.disk_bytes else { return std::future::pending().await };
        let most = Used::of_disk(limit);
        let (mut pause, mut hid_before) = (LOOK_EVERY, false);
        loop {
            // The wait comes first, because most jobs have ended before they could have written much.
            tokio::time::sleep(pause).await;
            let (began, folder) = (Instant::now(), self.own_dir.clone());
            let look = move || {
                let is_full = full(&folder, most.bytes).is_some();
                let hidden = if is_full { hidden_by(&folder) } else { Used::default() };
                (used_by(&folder, most), hidden)
            };
            // Without a result nothing is known.
            let (used, hidden) = tokio::task::spawn_blocking(look).await.unwrap_or_default();
            self.disk_used.store(used.bytes, Ordering::Relaxed);
            if let Some(over) = self.is_over(used, most) {
                return over;
            }
            // Space that is hidden once may belong to a file on its way to a process that is about to open it.
            match self.is_over(used.and(hidden), most) {
                Some(over) if hid_before => return over,
                hides => hid_before = hides.is_some(),
            }
            pause = LOOK_EVERY.max(began.elapsed() * LOOK_PART);
        }
    }

    /// Returns true if the job has exceeded its limit, or has a large part of a full disk. It is then ended, so that
    /// others can continue.
    fn is_over(&self, used: Used, most: Used) -> Option<Exit> {
        used.beyond(most).or_else(|| {
            let full = full(&self.own_dir, most.bytes);
            full.filter(|_| {
                used.bytes >= most.bytes / LARGE_PART || used.files >= most.files / LARGE_PART
            })
        })
    }

    /// Explains the end of a job if the kernel killed it for lack of memory or for too large a file, or if it ended
    /// with its node's disk full. A shell may succeed although a program in it could not write everything.
    pub(crate) fn explained(&self, exit: Exit) -> Exit {
        let is_by = |signal| exit == Exit::Signal(signal) || exit == Exit::Code(128 + signal);
        match (&self.memory, self.disk_bytes) {
            (Some(memory), _) if is_by(libc::SIGKILL) && memory.oom_kills() > self.oom_kills => {
                Exit::OverLimit { of: Scarce::Memory, most: memory.limit_bytes }
            }
            _ if is_by(libc::SIGXFSZ) && self.file_bytes.is_some() => {
                let most = self.file_bytes.unwrap_or_default();
                Exit::OverLimit { of: Scarce::FileLength, most }
            }
            (_, Some(limit)) if full(&self.own_dir, limit).is_some() => {
                // Another job of the node may have filled it.
                let most = Used::of_disk(limit);
                self.is_over(used_by(&self.own_dir, most), most).unwrap_or(exit)
            }
            _ => exit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_folder_that_grows_too_large_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::new(dir.path().to_path_buf(), Some(1 << 20), None);
        let path = dir.path().join("file");
        let grow = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            std::fs::write(&path, vec![1; 2 << 20]).unwrap();
            std::future::pending::<()>().await;
        };
        let over =
            tokio::select! { over = watch.disk_is_over() => over, () = grow => unreachable!() };
        assert_eq!(over, Exit::OverLimit { of: Scarce::Disk, most: 1 << 20 });
    }

    #[tokio::test]
    async fn files_count_also_if_there_is_nothing_in_them() {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::new(dir.path().to_path_buf(), Some(1 << 20), None);
        for number in 0..65 {
            std::fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        let over = watch.disk_is_over().await;
        assert_eq!(over, Exit::OverLimit { of: Scarce::Files, most: 64 });
    }

    #[test]
    fn an_end_without_a_full_memory_is_what_it_was() {
        let watch = Watch::new(PathBuf::from("/"), None, Memory::of_this_node());
        for exit in [Exit::Code(0), Exit::Code(137), Exit::Signal(9), Exit::Signal(15)] {
            assert_eq!(watch.explained(exit.clone()), exit);
        }
        let watch = Watch::new(PathBuf::from("/"), Some(1 << 20), None);
        let ended = [Exit::Signal(libc::SIGXFSZ), Exit::Code(128 + libc::SIGXFSZ)];
        for exit in ended.clone() {
            assert_eq!(watch.explained(exit.clone()), exit, "the limit is not ours");
        }
        let watch = watch.with_file_bytes(Some(2 << 20));
        let too_long = Exit::OverLimit { of: Scarce::FileLength, most: 2 << 20 };
        for exit in ended {
            assert_eq!(watch.explained(exit), too_long);
        }
    }
}
