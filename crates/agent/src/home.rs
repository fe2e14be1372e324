//! The layout of a node's folder. The agent fills it; a provider on the same host creates and removes it.
//!
//! ```text
//! DIR/secret            the secret with which the node authenticates (written by the node's creator)
//! DIR/lock              held by the one agent that runs here
//! DIR/agent.pid         that agent's identity
//! DIR/agent.log         its output
//! DIR/journal           what it must not forget
//! DIR/jobs/EPOCH.pid    the first process of each running attempt
//! DIR/work/EPOCH/       all that it writes
//! DIR/work/EPOCH/wd/    its working folder
//! DIR/work/EPOCH/tmp/   its folder for temporary files
//! DIR/inputs/EPOCH/     what it reads: a folder for each input
//! DIR/logs/EPOCH.log    its output
//! ```

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use muster_core::ids::Epoch;
use muster_sandbox::job;
use rustix::fs::{FlockOperation, flock};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    dir: PathBuf,
}

impl Home {
    pub fn new(dir: impl Into<PathBuf>) -> Home {
        Home { dir: dir.into() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn secret(&self) -> PathBuf {
        self.dir.join("secret")
    }

    pub fn agent_pid(&self) -> PathBuf {
        self.dir.join("agent.pid")
    }

    pub fn agent_log(&self) -> PathBuf {
        self.dir.join("agent.log")
    }

    pub fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    pub fn jobs(&self) -> PathBuf {
        self.dir.join("jobs")
    }

    pub fn job_pid(&self, epoch: Epoch) -> PathBuf {
        self.jobs().join(format!("{epoch}.pid"))
    }

    /// The folder around an attempt's working folder, in which it may write, too. It goes with the attempt.
    pub fn own(&self, epoch: Epoch) -> PathBuf {
        self.dir.join("work").join(epoch.to_string())
    }

    pub fn work(&self, epoch: Epoch) -> PathBuf {
        self.own(epoch).join(job::WORK_NAME)
    }

    pub fn tmp(&self, epoch: Epoch) -> PathBuf {
        self.own(epoch).join(job::TMP_NAME)
    }

    pub fn inputs(&self, epoch: Epoch) -> PathBuf {
        self.dir.join("inputs").join(epoch.to_string())
    }

    pub fn job_log(&self, epoch: Epoch) -> PathBuf {
        self.dir.join("logs").join(format!("{epoch}.log"))
    }

    /// Takes the right to be the agent of this folder, for as long as the file is open. `None` if another process has
    /// it.
    pub(crate) fn lock(&self) -> io::Result<Option<File>> {
        let path = self.dir.join("lock");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Creates a folder, and its parents, that only we can read.
pub fn make_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a folder that everyone can read who can reach it. Its parents are private.
pub fn make_dir_for_all(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), make_private_dir)?;
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Removes a folder and everything in it, even where its user removed the permission to write. A missing folder is not
/// an error.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            unlock_dirs(path)?;
            std::fs::remove_dir_all(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Restores our permission to read, write and enter every folder. Links are not followed.
fn unlock_dirs(top: &Path) -> io::Result<()> {
    let mut dirs = vec![top.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o700))?;
        for entry in std::fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        let first = home.lock().unwrap();
        assert!(first.is_some());
        assert!(home.lock().unwrap().is_none());
        drop(first);
        assert!(home.lock().unwrap().is_some());
    }

    #[test]
    fn folders_without_rights_are_removed_too() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("work");
        make_private_dir(&top.join("locked")).unwrap();
        std::fs::write(top.join("locked/file"), "x").unwrap();
        for mode in [0o555, 0o000] {
            std::fs::set_permissions(top.join("locked"), PermissionsExt::from_mode(mode)).unwrap();
        }
        unlock_dirs(&top).unwrap();
        assert_eq!(
            std::fs::metadata(top.join("locked")).unwrap().permissions().mode() & 0o777,
            0o700
        );
        remove_tree(&top).unwrap();
        assert!(!top.exists());
        remove_tree(&top).unwrap();
    }
}
