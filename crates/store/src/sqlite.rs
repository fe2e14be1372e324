//! The store in one SQLite file, in WAL mode: one writer, any number of readers.

mod activity;
mod assets;
pub mod backup;
mod checker;
mod checkpoint;
mod children;
mod datastores;
mod deployments;
mod doc;
mod events;
mod fault;
mod jobs;
mod ledger;
mod load;
mod members;
mod meta;
mod open;
mod packed;
mod reader;
mod references;
mod schema;
mod series;
mod size;
mod storage;
mod trees;
mod write;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub use checker::Checker;
use checkpoint::Checkpoints;
use fault::Doing;
use meta::Meta;
use muster_core::ids::JobId;
use muster_core::model::{AssetKind, Job, WorkspaceKey};
use muster_core::time::{Span, Wall};
use muster_core::{Change, KnownAsset, KnownJob, WorldRows};
pub use reader::SqliteReader;
use rusqlite::{Connection, TransactionBehavior};
pub use series::{SqliteSeries, SqliteSeriesReader};
pub use storage::{SqliteStorage, SqliteStorageReader};

use crate::{EventRetention, Revision, Store, StoreError};

/// What "committed" means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk: the commit survives a power failure.
    Disk,
    /// In the operating system's cache: the commit survives the process only. For simulations, in which nothing else
    /// fails.
    None,
}

/// The writer's handle on a file.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
    claimed: Option<u64>,
    events_kept: Option<EventRetention>,
    activity_kept: Option<Span>,
    checkpoints: Checkpoints,
}

impl SqliteStore {
    /// Opens the file at `path`, creates it if it is missing or empty, and upgrades an older one. A file that is
    /// damaged, newer than this version or not ours is refused and not changed.
    pub fn open(path: impl AsRef<Path>, durability: Durability) -> Result<SqliteStore, StoreError> {
        Ok(SqliteStore::open_with(path.as_ref(), durability, open::Look::Whole)?.0)
    }

    /// Like [`SqliteStore::open`], but the file must exist, and a large one is not checked for damage yet, so that a
    /// server starts at once. Returns whether that check is still to be done ([`Checker`]): until then, nothing may be
    /// written, not even a claim.
    pub fn open_existing(
        path: impl AsRef<Path>,
        durability: Durability,
    ) -> Result<(SqliteStore, bool), StoreError> {
        SqliteStore::open_with(path.as_ref(), durability, open::Look::WholeIfSmall)
    }

    /// Like [`SqliteStore::open`], but without checking the whole file for damage first: for simulations that open
    /// their own file a hundred times.
    #[doc(hidden)]
    pub fn open_unchecked(path: impl AsRef<Path>) -> Result<SqliteStore, StoreError> {
        Ok(SqliteStore::open_with(path.as_ref(), Durability::None, open::Look::Header)?.0)
    }

    fn open_with(
        path: &Path,
        durability: Durability,
        look: open::Look,
    ) -> Result<(SqliteStore, bool), StoreError> {
        let opened = open::writer(path, &schema::MAIN, durability, look)?;
        let open::Opened { mut connection, is_check_left } = opened;
        let checkpoints = Checkpoints::watch(&mut connection).doing("opening the store", path)?;
        let store = SqliteStore {
            connection,
            path: path.to_owned(),
            claimed: None,
            events_kept: None,
            activity_kept: None,
            checkpoints,
        };
        Ok((store, is_check_left))
    }

    /// A reader of the same file.
    pub fn reader(&self) -> Result<SqliteReader, StoreError> {
        SqliteReader::open(&self.path)
    }

    /// Limits the log to about this many bytes, for a disk without room for one of the usual size.
    pub fn limit_log(&mut self, bytes: u64) {
        self.checkpoints.limit_bytes(bytes);
    }

    /// Sets after how many pages in the log a commit moves them into the file. For tests that need this to happen.
    #[doc(hidden)]
    pub fn checkpoint_after(&mut self, pages: u32) {
        self.checkpoints.set_pages(pages);
    }

    fn write(&mut self, held: u64, changes: &[Change], wall: Wall) -> Result<Revision, StoreError> {
        let path = &self.path;
        if changes.is_empty() {
            // The handle that is the writer at the moment of this read may answer, so no lock is needed.
            return Ok(Revision(Meta::read_as(held, &self.connection, path)?.last_revision));
        }
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .doing("committing", path)?;
        let mut meta = Meta::read_as(held, &transaction, path)?;
        for change in changes {
            meta.last_revision += 1;
            meta.next_sequence = meta.next_sequence.max(change.highest_sequence() + 1);
            events::append(&transaction, path, meta.last_revision, wall, change)?;
            write::rows(&transaction, path, change)?;
        }
        write::prune_operations(&transaction, path, wall)?;
        if let Some(kept) = self.events_kept {
            events::prune(&transaction, path, kept, (meta.last_revision, wall), changes.len())?;
        }
        if let Some(age) = self.activity_kept {
            activity::prune(&transaction, path, Wall(wall.0.saturating_sub(age.0)))?;
        }
        meta.last_wall_us = meta.last_wall_us.max(wall.0);
        meta.write(&transaction, path)?;
        transaction.commit().doing("committing", path)?;
        Ok(Revision(meta.last_revision))
    }
}

impl Store for SqliteStore {
    fn claim(&mut self, unix_ms: u64) -> Result<u64, StoreError> {
        self.claimed = None;
        open::tidy_on_close(&self.connection, &self.path)?;
        let epoch = meta::claim(&mut self.connection, &self.path, unix_ms)?;
        self.claimed = Some(epoch);
        Ok(epoch)
    }

    fn load(&mut self) -> Result<WorldRows, StoreError> {
        let transaction = self.connection.transaction().doing("loading", &self.path)?;
        load::rows(&transaction, &self.path)
    }

    fn commit(&mut self, changes: &[Change], wall: Wall) -> Result<Revision, StoreError> {
        let held = self.claimed.ok_or(StoreError::NotClaimed)?;
        let result = self.write(held, changes, wall);
        match &result {
            Ok(_) => self.checkpoints.after_commit(&self.connection),
            Err(StoreError::Fenced { .. }) => {}
            // It is unknown what is on disk, so this handle must not be used any more.
            Err(_) => self.claimed = None,
        }
        result
    }

    fn limit_events(&mut self, kept: EventRetention) {
        self.events_kept = Some(kept);
    }

    fn limit_activity(&mut self, age: Span) {
        self.activity_kept = Some(age);
    }

    fn find_job(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<Option<KnownJob>, StoreError> {
        load::job(&self.connection, &self.path, workspace, name)
    }

    fn ended_job(&mut self, job: JobId) -> Result<Option<Job>, StoreError> {
        jobs::ended(&self.connection, &self.path, job)
    }

    fn numbered_jobs(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<BTreeSet<u32>, StoreError> {
        load::numbered(&self.connection, &self.path, workspace, name)
    }

    fn find_asset(
        &mut self,
        workspace: &WorkspaceKey,
        kind: AssetKind,
        name: &str,
        version: Option<&str>,
    ) -> Result<KnownAsset, StoreError> {
        assets::known(&self.connection, &self.path, workspace, (kind, name, version))
    }

    fn revision(&mut self) -> Result<Revision, StoreError> {
        Ok(Revision(Meta::read(&self.connection, &self.path)?.last_revision))
    }

    fn last_claim(&mut self) -> Result<u64, StoreError> {
        Ok(Meta::read(&self.connection, &self.path)?.controller_epoch)
    }

    fn check_claim(&mut self, epoch: u64) -> Result<(), StoreError> {
        Meta::read_as(epoch, &self.connection, &self.path).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
