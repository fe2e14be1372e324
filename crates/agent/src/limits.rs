//! What a job may use of its node, as far as the kernel does not refuse more by itself: whoever goes beyond is ended, and
//! told of what.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use muster_core::model::{Exit, Scarce};
use muster_sandbox::cgroup::{Group, Groups, Usage};

/// How often a folder is looked through, and that this takes no more than a part of the time.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_PART: u32 = 20;
const BLOCK: u64 = 512;
/// What a shell says of a command that was killed.
const KILLED_CODE: i32 = 128 + 9;

/// Watches one attempt.
#[derive(Debug)]
pub(crate) struct Watch {
    work_dir: PathBuf,
    /// Of its folder, if it has a limit.
    disk_bytes: Option<u64>,
    node: Group,
    oom_kills: u64,
}

impl Watch {
    /// From now on.
    pub(crate) fn new(work_dir: PathBuf, disk_bytes: Option<u64>) -> Watch {
        let node = Groups::look().of_this_node();
        let oom_kills = node.usage().ok().and_then(|usage| usage.oom_kills).unwrap_or(0);
        Watch { work_dir, disk_bytes, node, oom_kills }
    }

    /// Resolves when the folder has grown beyond its limit.
    pub(crate) async fn disk_is_over(&self) -> Exit {
        let Some(limit) = self.disk_bytes else { return std::future::pending().await };
        loop {
            let (began, folder) = (Instant::now(), self.work_dir.clone());
            let used = tokio::task::spawn_blocking(move || used_below(&folder, limit)).await;
            if used.is_ok_and(|used| used > limit) {
                return Exit::OverLimit { of: Scarce::Disk, bytes: limit };
            }
            tokio::time::sleep(LOOK_EVERY.max(began.elapsed() * LOOK_PART)).await;
        }
    }

    /// What its end was, if the kernel killed it for the node's memory.
    pub(crate) fn explained(&self, exit: Exit) -> Exit {
        let is_killed = matches!(exit, Exit::Signal(libc::SIGKILL) | Exit::Code(KILLED_CODE));
        let Usage { oom_kills, memory_limit_bytes, .. } = self.node.usage().unwrap_or_default();
        match memory_limit_bytes {
            Some(bytes) if is_killed && oom_kills > Some(self.oom_kills) => {
                Exit::OverLimit { of: Scarce::Memory, bytes }
            }
            _ => exit,
        }
    }
}

/// Stops beyond the limit. What goes while we look, or cannot be looked at, counts as nothing; links are not
/// followed, and a file with two names counts twice.
fn used_below(folder: &Path, limit: u64) -> u64 {
    let mut used = 0;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            used += found.blocks() * BLOCK;
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
        if used > limit {
            break;
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_counts_and_what_is_linked_does_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let before = used_below(dir.path(), u64::MAX);
        std::fs::write(dir.path().join("a/b/file"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
        let used = used_below(dir.path(), u64::MAX) - before;
        assert!((1 << 20..2 << 20).contains(&used), "{used}");
    }

    #[tokio::test]
    async fn a_folder_that_grows_too_large_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::new(dir.path().to_path_buf(), Some(1 << 20));
        let path = dir.path().join("file");
        let grow = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            std::fs::write(&path, vec![1; 2 << 20]).unwrap();
            std::future::pending::<()>().await;
        };
        let over =
            tokio::select! { over = watch.disk_is_over() => over, () = grow => unreachable!() };
        assert_eq!(over, Exit::OverLimit { of: Scarce::Disk, bytes: 1 << 20 });
    }

    #[test]
    fn an_end_without_a_full_memory_is_what_it_was() {
        let watch = Watch::new(PathBuf::from("/"), None);
        for exit in [Exit::Code(0), Exit::Code(137), Exit::Signal(9), Exit::Signal(15)] {
            assert_eq!(watch.explained(exit.clone()), exit);
        }
    }
}
