//! Durable state: one writer that commits [`Change`]s, and readers that see what was committed.
//!
//! The interface is synchronous on purpose: the writer runs on its own thread, and the simulator runs the
//! same code with virtual time. Nothing here knows HTTP or Azure's JSON.

#[doc(hidden)]
pub mod conformance;
mod error;
mod look_up;
mod read;
mod sqlite;
pub mod storage;

pub use error::StoreError;
pub use look_up::look_up;
use muster_core::model::{AssetKind, WorkspaceKey};
use muster_core::time::Wall;
use muster_core::{Change, KnownAsset, KnownJob, WorldRows};
pub use read::*;
pub use sqlite::backup;
pub use sqlite::{
    Checker, Durability, SqliteReader, SqliteStorage, SqliteStorageReader, SqliteStore,
};

/// The number of a change in the event log. It only grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// The writer's side. Exactly one claimed handle can commit at a time: a later claim fences the earlier one.
pub trait Store: Send {
    /// Makes this handle the controller's. The epoch is `max(stored + 1, unix_ms)`, raised on disk before it
    /// is returned, so a restored backup never gives out an old one again.
    fn claim(&mut self, unix_ms: u64) -> Result<u64, StoreError>;

    /// Everything that World is rebuilt from.
    fn load(&mut self) -> Result<WorldRows, StoreError>;

    /// Rows, event log and outbox in one transaction, on disk when it returns. Refused with
    /// [`StoreError::Fenced`] when another handle has claimed since. After any other error the outcome is
    /// unknown, so the handle gives up its claim: the caller drops it and its World, and opens anew.
    ///
    /// A batch without changes writes nothing; it only finds out whether the claim still holds.
    fn commit(&mut self, changes: &[Change], wall: Wall) -> Result<Revision, StoreError>;

    /// What World cannot see: the job of this name, live or finished.
    fn find_job(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<Option<KnownJob>, StoreError>;

    /// What World does not hold either: this name, and this version of it.
    fn find_asset(
        &mut self,
        workspace: &WorkspaceKey,
        kind: AssetKind,
        name: &str,
        version: Option<&str>,
    ) -> Result<KnownAsset, StoreError>;

    /// The highest revision on disk.
    fn revision(&mut self) -> Result<Revision, StoreError>;

    /// Whoever claimed it last.
    fn last_claim(&mut self) -> Result<u64, StoreError>;

    /// Whether the claim of this epoch still holds on disk, also for a handle that gave it up after a failed commit.
    fn check_claim(&mut self, epoch: u64) -> Result<(), StoreError>;
}
