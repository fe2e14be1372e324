//! Makes garbage collection and backups exclusive. They run in different processes, so this is a lock on a file, which
//! the kernel releases when a process is killed.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Next to the folders of blobs.
const LOCK: &str = "lock";

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub struct BlobsLock {
    _lock: File,
}

impl BlobsLock {
    /// For a backup; waits for a garbage collection in progress.
    pub fn backup(root: &Path) -> io::Result<BlobsLock> {
        let lock = open(root)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        Ok(BlobsLock { _lock: lock })
    }

    /// For garbage collection, which may run more than once at the same time. `None` while a backup is being created.
    pub fn collect_garbage(root: &Path) -> io::Result<Option<BlobsLock>> {
        let lock = open(root)?;
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Some(BlobsLock { _lock: lock })),
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
    fn garbage_is_not_collected_during_a_backup() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("blobs");
        let sweeps = [
            BlobsLock::collect_garbage(&root).unwrap(),
            BlobsLock::collect_garbage(&root).unwrap(),
        ];
        assert!(sweeps.iter().all(Option::is_some));
        drop(sweeps);
        let backup = BlobsLock::backup(&root).unwrap();
        assert!(BlobsLock::collect_garbage(&root).unwrap().is_none());
        drop(backup);
        assert!(BlobsLock::collect_garbage(&root).unwrap().is_some());
    }
}
