//! Whose turn it is: files are removed, or a backup of them is being made, never both. The two are different processes, so
//! the turn is a lock on a file, which the kernel releases when a process is killed.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Beside the folder of blobs, where only blobs are.
const LOCK: &str = "lock";

/// Held until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

impl Turn {
    /// For a backup: waits for sweeps that are under way.
    pub fn backup(root: &Path) -> io::Result<Turn> {
        let lock = open(root)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        Ok(Turn { _lock: lock })
    }

    /// For a sweep, of which there may be several. `None` while a backup is being made.
    pub fn sweep(root: &Path) -> io::Result<Option<Turn>> {
        let lock = open(root)?;
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Some(Turn { _lock: lock })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }
}

fn open(root: &Path) -> io::Result<File> {
    let path = root.with_extension(LOCK);
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_swept_while_a_backup_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("blobs");
        let sweeps = [Turn::sweep(&root).unwrap(), Turn::sweep(&root).unwrap()];
        assert!(sweeps.iter().all(Option::is_some));
        drop(sweeps);
        let backup = Turn::backup(&root).unwrap();
        assert!(Turn::sweep(&root).unwrap().is_none());
        drop(backup);
        assert!(Turn::sweep(&root).unwrap().is_some());
    }
}
