//! The real store behind a disk that can fail.

use std::io;
use std::path::Path;

use muster_core::model::{Job, WorkspaceKey};
use muster_core::time::Wall;
use muster_core::{Change, Rows};
use muster_store::{Revision, SqliteReader, SqliteStore, Store, StoreError};

/// How the next commit fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitFault {
    /// An error is told, and nothing was written.
    Lost,
    /// An error is told, and all was written.
    Kept,
    /// There is no space left.
    Full,
}

pub(crate) struct FaultyStore {
    inner: SqliteStore,
    pub(crate) next: Option<CommitFault>,
}

impl FaultyStore {
    pub(crate) fn open(path: &Path) -> Result<FaultyStore, StoreError> {
        let mut inner = SqliteStore::open_unchecked(path)?;
        // Short logs make backups cheap, and checkpoints part of what is tested.
        inner.checkpoint_after(500);
        Ok(FaultyStore { inner, next: None })
    }

    pub(crate) fn reader(&self) -> Result<SqliteReader, StoreError> {
        self.inner.reader()
    }
}

impl Store for FaultyStore {
    fn claim(&mut self, unix_ms: u64) -> Result<u64, StoreError> {
        self.inner.claim(unix_ms)
    }

    fn load(&mut self) -> Result<Rows, StoreError> {
        self.inner.load()
    }

    fn commit(&mut self, changes: &[Change], wall: Wall) -> Result<Revision, StoreError> {
        if changes.is_empty() {
            return self.inner.commit(changes, wall);
        }
        let doing = "committing";
        let failed = || StoreError::Io { doing, source: io::Error::other("the disk says no") };
        match self.next.take() {
            None => self.inner.commit(changes, wall),
            Some(CommitFault::Lost) => Err(failed()),
            Some(CommitFault::Kept) => {
                self.inner.commit(changes, wall)?;
                Err(failed())
            }
            Some(CommitFault::Full) => Err(StoreError::Full { doing, path: "the store".into() }),
        }
    }

    fn find_job(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<Option<Job>, StoreError> {
        self.inner.find_job(workspace, name)
    }

    fn revision(&mut self) -> Result<Revision, StoreError> {
        self.inner.revision()
    }
}
