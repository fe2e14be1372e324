//! What a job may use of its node, as far as the kernel does not refuse more by itself: whoever goes beyond is ended, and
//! told of what.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use muster_core::model::{Exit, Scarce};
use muster_sandbox::cgroup::{Group, Groups, Shortage};

/// How often a folder is looked through, and that this takes no more than a part of the time.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_PART: u32 = 20;
/// With less than this a disk is full: a write that does not fit still writes the part that does.
const FULL_BYTES: u64 = 64 * 1024;
/// A job that has less than one part in so many of a full disk is not what filled it.
const LARGE_PART: u64 = 4;
/// Where a process of a job has its folder, below what `/proc` says of it.
const INSIDE: &str = "root/job";
const BLOCK: u64 = 512;
/// For each so many bytes that a job may write it may have one file, as file systems have them: else it could take all
/// files of the disk without a byte in them.
const BYTES_PER_FILE: u64 = 16 * 1024;

/// Watches one attempt.
#[derive(Debug)]
pub(crate) struct Watch {
    work_dir: PathBuf,
    /// Of its folder, if it has a limit.
    disk_bytes: Option<u64>,
    memory: Option<Memory>,
    oom_kills: u64,
}

/// The memory that all jobs of a node share.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    node: Group,
    limit_bytes: u64,
}

impl Memory {
    /// If it is limited. A group without a limit may be the machine's, with all others below it.
    pub(crate) fn of_this_node() -> Option<Memory> {
        let node = Groups::look().of_this_node();
        let limit_bytes = node.shortage().ok()??.limit_bytes?;
        // What an old kernel calls no limit is a large one.
        let machine = rustix::system::sysinfo();
        let is_one = limit_bytes <= machine.totalram * u64::from(machine.mem_unit);
        is_one.then_some(Memory { node, limit_bytes })
    }

    fn oom_kills(&self) -> u64 {
        let shortage: Option<Shortage> = self.node.shortage().ok().flatten();
        shortage.and_then(|shortage| shortage.kills).unwrap_or(0)
    }
}

impl Watch {
    /// From now on.
    pub(crate) fn new(work_dir: PathBuf, disk_bytes: Option<u64>, memory: Option<Memory>) -> Watch {
        let oom_kills = memory.as_ref().map_or(0, Memory::oom_kills);
        Watch { work_dir, disk_bytes, memory, oom_kills }
    }

    /// Resolves when the job has taken more of the disk than it may.
    pub(crate) async fn disk_is_over(&self) -> Exit {
        let Some(limit) = self.disk_bytes else { return std::future::pending().await };
        let most = Used::of_disk(limit);
        let mut pause = LOOK_EVERY;
        loop {
            // First of all: most jobs are over before they could have written much.
            tokio::time::sleep(pause).await;
            let (began, folder) = (Instant::now(), self.work_dir.clone());
            let used = tokio::task::spawn_blocking(move || used_by(&folder, most)).await;
            if let Some(over) = used.ok().and_then(|used| self.is_over(used, most)) {
                return over;
            }
            pause = LOOK_EVERY.max(began.elapsed() * LOOK_PART);
        }
    }

    /// Whether it has more than it may have, or a good part of a disk that is full: then it goes, and others can go on.
    fn is_over(&self, used: Used, most: Used) -> Option<Exit> {
        used.beyond(most).or_else(|| {
            let full = full(&self.work_dir, most.bytes);
            full.filter(|_| {
                used.bytes >= most.bytes / LARGE_PART || used.files >= most.files / LARGE_PART
            })
        })
    }

    /// What its end was, if the kernel killed it for the node's memory or for a file that grew too large, or if it failed
    /// with its node's disk full.
    pub(crate) fn explained(&self, exit: Exit) -> Exit {
        let is_by = |signal| exit == Exit::Signal(signal) || exit == Exit::Code(128 + signal);
        match (&self.memory, self.disk_bytes) {
            (Some(memory), _) if is_by(libc::SIGKILL) && memory.oom_kills() > self.oom_kills => {
                Exit::OverLimit { of: Scarce::Memory, most: memory.limit_bytes }
            }
            (_, Some(most)) if is_by(libc::SIGXFSZ) => Exit::OverLimit { of: Scarce::Disk, most },
            (_, Some(limit)) if exit != Exit::Code(0) && full(&self.work_dir, limit).is_some() => {
                // Another job of the node may have filled it.
                let most = Used::of_disk(limit);
                self.is_over(used_by(&self.work_dir, most), most).unwrap_or(exit)
            }
            _ => exit,
        }
    }
}

/// That the node's disk is full, if it is the node's own: then it is as large as what a job may write.
fn full(folder: &Path, most: u64) -> Option<Exit> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    match (bytes(disk.f_bavail), disk.f_favail) {
        _ if bytes(disk.f_blocks) > most => None,
        (..FULL_BYTES, _) => Some(Exit::OverLimit { of: Scarce::Disk, most }),
        (_, 0) => Some(Exit::OverLimit { of: Scarce::Files, most: disk.f_files }),
        _ => None,
    }
}

/// What is taken of a disk, or may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Used {
    bytes: u64,
    files: u64,
}

impl Used {
    /// The most that fits on a disk of this size.
    fn of_disk(bytes: u64) -> Used {
        Used { bytes, files: bytes / BYTES_PER_FILE }
    }

    fn add(&mut self, found: &Metadata) {
        self.bytes += found.blocks() * BLOCK;
        self.files += 1;
    }

    fn beyond(self, most: Used) -> Option<Exit> {
        match (self.bytes > most.bytes, self.files > most.files) {
            (true, _) => Some(Exit::OverLimit { of: Scarce::Disk, most: most.bytes }),
            (_, true) => Some(Exit::OverLimit { of: Scarce::Files, most: most.files }),
            (false, false) => None,
        }
    }
}

/// What is in the folder, and what has no name any more and is still open.
fn used_by(folder: &Path, most: Used) -> Used {
    let mut used = used_below(folder, most);
    add_nameless(folder, &mut used);
    used
}

/// Stops beyond the limit. What goes while we look, or cannot be looked at, counts as nothing; links are not
/// followed, and a file with two names counts twice.
fn used_below(folder: &Path, most: Used) -> Used {
    let mut used = Used::default();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            used.add(&found);
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
        if used.beyond(most).is_some() {
            break;
        }
    }
    used
}

/// Files that processes of the job hold open and that are in no folder any more. What is only mapped, or on its way from
/// one process to another, is not seen; for that the size of each file is limited.
fn add_nameless(folder: &Path, used: &mut Used) {
    let Ok(own) = folder.metadata() else { return };
    let mut seen = BTreeSet::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        // What has this folder as its own is of this job, and nothing else is.
        let its = std::fs::metadata(process.path().join(INSIDE));
        if !its.is_ok_and(|its| (its.dev(), its.ino()) == (own.dev(), own.ino())) {
            continue;
        }
        for open in std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let Ok(found) = std::fs::metadata(open.path()) else { continue };
            let is_nameless = found.is_file() && found.nlink() == 0 && found.dev() == own.dev();
            if is_nameless && seen.insert(found.ino()) {
                used.add(&found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_counts_and_what_is_linked_does_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let most = Used { bytes: u64::MAX, files: u64::MAX };
        let before = used_below(dir.path(), most);
        std::fs::write(dir.path().join("a/b/file"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
        let used = used_below(dir.path(), most);
        let bytes = used.bytes - before.bytes;
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
        assert_eq!((before.files, used.files), (2, 4));
    }

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
        let too_large = Exit::OverLimit { of: Scarce::Disk, most: 1 << 20 };
        for exit in [Exit::Signal(libc::SIGXFSZ), Exit::Code(128 + libc::SIGXFSZ)] {
            assert_eq!(watch.explained(exit), too_large);
        }
    }
}
