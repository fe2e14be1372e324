//! Durable state: one writer that commits [`Change`]s, and readers that see what was committed.
//!
//! The interface is synchronous on purpose: the writer runs on its own thread, and the simulator runs the same code
//! with virtual time. [`controller`] is the loop that both of them drive. Nothing here knows HTTP or Azure's JSON.

#[doc(hidden)]
pub mod conformance;
pub mod controller;
mod error;
mod look_up;
mod read;
pub mod series;
pub mod size;
mod sqlite;
pub mod storage;

use std::collections::BTreeSet;

pub use error::StoreError;
use look_up::look_up;
use muster_core::ids::JobId;
use muster_core::model::{AssetKind, Job, WorkspaceKey};
use muster_core::time::{Span, Wall};
use muster_core::{Change, KnownAsset, KnownJob, WorldRows};
pub use read::*;
pub use sqlite::backup;
pub use sqlite::{
    Checker, Durability, SqliteReader, SqliteSeries, SqliteSeriesReader, SqliteStorage,
    SqliteStorageReader, SqliteStore,
};

/// The number of a change in the event log. It only grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// How much of the event log is kept. Rows and World do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRetention {
    /// Older entries are deleted.
    pub age: Span,
    /// The number of entries; beyond it, the oldest are deleted. The last entry is always kept.
    pub entries: u64,
}

/// The writer's side. Only one claimed handle can commit at a time: a later claim fences the earlier one.
pub trait Store: Send {
    /// Claims the store for this handle. The epoch is `max(stored + 1, unix_ms)` and is raised on disk before it is
    /// returned, so that a restored backup never issues an old epoch again.
    fn claim(&mut self, unix_ms: u64) -> Result<u64, StoreError>;

    /// Everything that World is rebuilt from.
    fn load(&mut self) -> Result<WorldRows, StoreError>;

    /// Writes rows, event log and outbox in one transaction, which is on disk when this returns. It is refused with
    /// [`StoreError::Fenced`] if another handle has claimed the store since. After any other error the outcome is
    /// unknown, so the handle gives up its claim: the caller drops it together with its World, and opens the store
    /// again.
    ///
    /// A batch without changes writes nothing; it only checks whether the claim is still valid.
    fn commit(&mut self, changes: &[Change], wall: Wall) -> Result<Revision, StoreError>;

    /// From the next commit on, deletes entries of the event log that are older or more than this, a few with each
    /// commit. Without this call, every entry is kept.
    fn limit_events(&mut self, kept: EventRetention);

    /// From the next commit on, deletes entries of the activity log that are older than this, a few with each commit.
    /// The last entry is always kept, and the first one that is kept has the digest of the one before. Without this
    /// call, every entry is kept.
    fn limit_activity(&mut self, age: Span);

    /// A job with this name, live or finished, or a child of one. World has only the live ones.
    fn find_job(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<Option<KnownJob>, StoreError>;

    /// The job with this ID if it has ended, unless it is a child of another job.
    fn ended_job(&mut self, job: JobId) -> Result<Option<Job>, StoreError>;

    /// The numbers for which there is a job with this name, an underscore and the number.
    fn numbered_jobs(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<BTreeSet<u32>, StoreError>;

    /// An asset's name and this version of it, which are not in World.
    fn find_asset(
        &mut self,
        workspace: &WorkspaceKey,
        kind: AssetKind,
        name: &str,
        version: Option<&str>,
    ) -> Result<KnownAsset, StoreError>;

    /// The highest revision on disk.
    fn revision(&mut self) -> Result<Revision, StoreError>;

    /// The epoch of the last claim.
    fn last_claim(&mut self) -> Result<u64, StoreError>;

    /// Whether the claim with this epoch is still valid on disk, also for a handle that gave it up after a failed
    /// commit.
    fn check_claim(&mut self, epoch: u64) -> Result<(), StoreError>;
}

impl<S: Store + ?Sized> Store for Box<S> {
    fn claim(&mut self, unix_ms: u64) -> Result<u64, StoreError> {
        (**self).claim(unix_ms)
    }

    fn load(&mut self) -> Result<WorldRows, StoreError> {
        (**self).load()
    }

    fn commit(&mut self, changes: &[Change], wall: Wall) -> Result<Revision, StoreError> {
        (**self).commit(changes, wall)
    }

    fn limit_events(&mut self, kept: EventRetention) {
        (**self).limit_events(kept);
    }

    fn limit_activity(&mut self, age: Span) {
        (**self).limit_activity(age);
    }

    fn find_job(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<Option<KnownJob>, StoreError> {
        (**self).find_job(workspace, name)
    }

    fn ended_job(&mut self, job: JobId) -> Result<Option<Job>, StoreError> {
        (**self).ended_job(job)
    }

    fn numbered_jobs(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<BTreeSet<u32>, StoreError> {
        (**self).numbered_jobs(workspace, name)
    }

    fn find_asset(
        &mut self,
        workspace: &WorkspaceKey,
        kind: AssetKind,
        name: &str,
        version: Option<&str>,
    ) -> Result<KnownAsset, StoreError> {
        (**self).find_asset(workspace, kind, name, version)
    }

    fn revision(&mut self) -> Result<Revision, StoreError> {
        (**self).revision()
    }

    fn last_claim(&mut self) -> Result<u64, StoreError> {
        (**self).last_claim()
    }

    fn check_claim(&mut self, epoch: u64) -> Result<(), StoreError> {
        (**self).check_claim(epoch)
    }
}
