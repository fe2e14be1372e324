//! The real store behind a disk that can fail.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use muster_core::ids::JobId;
use muster_core::model::{AssetKind, Job, WorkspaceKey};
use muster_core::time::{Span, Wall};
use muster_core::{Change, KnownAsset, KnownJob, WorldRows};
use muster_store::{EventRetention, Revision, SqliteReader, SqliteStore, Store, StoreError};

use crate::failure::{Broken, Held};

/// How the next commit fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitFault {
    /// An error is returned, and nothing was written.
    Lost,
    /// An error is returned, but everything was written.
    Kept,
    /// There is no space left.
    Full,
    /// The power fails during the write: this much of it is on disk, in parts per thousand.
    Torn(usize),
}

pub(crate) struct FaultyStore {
    inner: SqliteStore,
    path: PathBuf,
    pub(crate) next: Option<CommitFault>,
    /// The result of the last commit is beside the file, under [`torn`].
    pub(crate) is_torn: bool,
}

impl FaultyStore {
    pub(crate) fn open(path: &Path) -> Result<FaultyStore, StoreError> {
        let mut inner = SqliteStore::open_unchecked(path)?;
        // Short logs make backups cheap, and include checkpoints in what is tested.
        inner.checkpoint_after(500);
        Ok(FaultyStore { inner, path: path.to_owned(), next: None, is_torn: false })
    }

    /// Commits, and creates a copy in which the log has only a part of what was written, followed by its old content.
    /// (Only the log is written to: nothing is moved into the file in the meantime.)
    fn tear(&mut self, part: usize, changes: &[Change], wall: Wall) -> Result<(), StoreError> {
        let io = |source| StoreError::Io { doing: "tearing a commit", source };
        let log = companion(&self.path, "-wal");
        let before = fs::read(&log).unwrap_or_default();
        self.inner.checkpoint_after(u32::MAX);
        self.inner.commit(changes, wall)?;
        let mut after = fs::read(&log).map_err(io)?;
        let is_new = |at: &usize| before.get(*at) != after.get(*at);
        let first = (0..after.len()).find(is_new).unwrap_or(0);
        let last = (0..after.len()).rfind(is_new).unwrap_or(0);
        let cut = first + (last - first) * part / 1_000;
        after.truncate(cut);
        after.extend(before.get(cut..).unwrap_or_default());
        fs::copy(&self.path, torn(&self.path)).map_err(io)?;
        fs::write(companion(&torn(&self.path), "-wal"), after).map_err(io)?;
        self.is_torn = true;
        Ok(())
    }

    pub(crate) fn reader(&self) -> Result<SqliteReader, StoreError> {
        self.inner.reader()
    }
}

impl Store for FaultyStore {
    fn claim(&mut self, unix_ms: u64) -> Result<u64, StoreError> {
        self.inner.claim(unix_ms)
    }

    fn load(&mut self) -> Result<WorldRows, StoreError> {
        self.inner.load()
    }

    fn commit(&mut self, changes: &[Change], wall: Wall) -> Result<Revision, StoreError> {
        if changes.is_empty() {
            return self.inner.commit(changes, wall);
        }
        let doing = "committing";
        let failed = || StoreError::Io { doing, source: io::Error::other("the disk failed") };
        match self.next.take() {
            None => self.inner.commit(changes, wall),
            Some(CommitFault::Lost) => Err(failed()),
            Some(CommitFault::Kept) => {
                self.inner.commit(changes, wall)?;
                Err(failed())
            }
            Some(CommitFault::Torn(part)) => {
                self.tear(part, changes, wall)?;
                Err(failed())
            }
            Some(CommitFault::Full) => Err(StoreError::Full { doing, path: "the store".into() }),
        }
    }

    fn limit_events(&mut self, kept: EventRetention) {
        self.inner.limit_events(kept);
    }

    fn limit_activity(&mut self, age: Span) {
        self.inner.limit_activity(age);
    }

    fn find_job(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<Option<KnownJob>, StoreError> {
        self.inner.find_job(workspace, name)
    }

    fn ended_job(&mut self, job: JobId) -> Result<Option<Job>, StoreError> {
        self.inner.ended_job(job)
    }

    fn numbered_jobs(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<std::collections::BTreeSet<u32>, StoreError> {
        self.inner.numbered_jobs(workspace, name)
    }

    fn find_asset(
        &mut self,
        workspace: &WorkspaceKey,
        kind: AssetKind,
        name: &str,
        version: Option<&str>,
    ) -> Result<KnownAsset, StoreError> {
        self.inner.find_asset(workspace, kind, name, version)
    }

    fn revision(&mut self) -> Result<Revision, StoreError> {
        self.inner.revision()
    }

    fn last_claim(&mut self) -> Result<u64, StoreError> {
        self.inner.last_claim()
    }

    fn check_claim(&mut self, epoch: u64) -> Result<(), StoreError> {
        self.inner.check_claim(epoch)
    }
}

/// The path of the copy with a torn log.
pub(crate) fn torn(path: &Path) -> PathBuf {
    path.with_extension("torn")
}

fn companion(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Replaces a store with the file `from`, and its log if it has one. No process has the store open.
pub(crate) fn replace_store(
    from: &Path,
    to: &Path,
    put: impl Fn(&Path, &Path) -> std::io::Result<()>,
) -> Held {
    let failed = |error| Broken(format!("the store cannot be replaced: {error}"));
    put(from, to).map_err(failed)?;
    let _ = fs::remove_file(companion(to, "-shm"));
    let _ = fs::remove_file(companion(to, "-wal"));
    match put(&companion(from, "-wal"), &companion(to, "-wal")) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result.map_err(failed),
    }
}
