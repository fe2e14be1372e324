//! Deletes everything that nothing references any more: blocks that were given up, containers of deleted workspaces,
//! and files of the byte store.
//!
//! Files are noted when they become unreferenced, or when they are uploaded before anything references them, and file
//! lists are read only once, so the usual round costs only what has changed. Only notes that were in memory when the
//! server was killed are lost; the files are then found by examining every file, at start and on request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use muster_core::ErrorChain;
use muster_core::ids::WorkspaceId;
use muster_core::model::BlobId;
use muster_core::time::Wall;
use muster_store::storage::StorageCommand;
use tracing::{info, warn};

use super::{Storage, Unavailable, uploads};
use crate::blobs::{BlobError, Blobs, ReferencedBytes, Removed};
use crate::clock;
use crate::readers::Readers;

const PAUSE: Duration = Duration::from_secs(120);
/// The minimum pause between two rounds for the blocks of refused uploads.
const DROPPED_PAUSE: Duration = Duration::from_secs(2);
/// The pause between two checks whether the stores are known to be intact.
const CHECK_PAUSE: Duration = Duration::from_secs(1);
/// The times of files are as exact as the ticks of the system's clock.
const GRACE_MIN: Duration = Duration::from_secs(1);
/// How many unreferenced files are handled in one round; the rest is left for the next one.
const ROUND_MAX: usize = 10_000;

/// How long unreferenced data is kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Files that were sent or requested this recently may be about to be referenced, or are being read.
    pub grace: Duration,
    /// After this time, a client is not expected to commit its blocks.
    pub blocks: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum GarbageError {
    #[error("cannot determine which files are referenced")]
    Store(#[from] muster_store::StoreError),
    #[error(transparent)]
    Blobs(#[from] BlobError),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error(
        "a backup is being created, and nothing is removed in the meantime; try again when it is finished"
    )]
    BackUp,
    #[error("the garbage collection panicked")]
    Panicked,
}

/// Examines everything at start, and every two minutes what has changed, until dropped.
pub async fn run(storage: Storage, blobs: Arc<Blobs>, readers: Readers, retention: Retention) {
    let collector = Collector { storage, blobs, readers, retention };
    let mut wanted = ReferencedBytes::default();
    let mut is_whole = true;
    while !collector.storage.may_collect() {
        tokio::time::sleep(CHECK_PAUSE).await;
    }
    loop {
        let collected = match is_whole {
            true => collector.everything(&mut wanted, retention.grace, false).await,
            false => collector.changes(&mut wanted).await,
        };
        match &collected {
            Ok(Removed { files: 0, .. }) => {}
            Ok(Removed { files, bytes, .. }) => {
                info!(files, bytes, "deleted unreferenced files");
            }
            Err(GarbageError::BackUp) => {
                info!("a backup is being created; looking for unreferenced files later")
            }
            Err(failed) => warn!(error = %ErrorChain(failed), "cannot look for unreferenced files"),
        }
        let has_failed_since = collector.pause(&mut wanted).await;
        is_whole = is_next_whole(is_whole, &collected, has_failed_since);
    }
}

/// Whether the next round examines every file.
fn is_next_whole(
    is_whole: bool,
    collected: &Result<Removed, GarbageError>,
    has_failed_since: bool,
) -> bool {
    has_failed_since
        || match collected {
            Err(GarbageError::BackUp) => is_whole,
            // After a failure it is not known which files were examined.
            _ => collected.is_err(),
        }
}

/// Examines every file. Files that were sent within `grace` are kept.
pub async fn gc(
    storage: &Storage,
    blobs: &Arc<Blobs>,
    readers: &Readers,
    retention: Retention,
    is_rehearsal: bool,
) -> Result<Removed, GarbageError> {
    let (storage, blobs, readers) = (storage.clone(), blobs.clone(), readers.clone());
    let collector = Collector { storage, blobs, readers, retention };
    collector.everything(&mut ReferencedBytes::default(), retention.grace, is_rehearsal).await
}

struct Collector {
    storage: Storage,
    blobs: Arc<Blobs>,
    readers: Readers,
    retention: Retention,
}

fn is_named(storage: &Storage, workspace: WorkspaceId, digest: &BlobId) -> Result<bool, BlobError> {
    let named = storage.readers.look_up(|reader| reader.is_named(workspace, digest));
    named.map_err(|failed| BlobError::Io(std::io::Error::other(failed)))
}

impl Collector {
    /// Rows that may be damaged must not cause a deletion.
    fn check(&self) -> Result<(), GarbageError> {
        match self.storage.may_collect() {
            true => Ok(()),
            false => Err(GarbageError::Unavailable(Unavailable::Unchecked)),
        }
    }

    async fn everything(
        &self,
        wanted: &mut ReferencedBytes,
        grace: Duration,
        is_rehearsal: bool,
    ) -> Result<Removed, GarbageError> {
        self.check()?;
        let _turn = self.blobs.turn()?.ok_or(GarbageError::BackUp)?;
        if !is_rehearsal {
            or_later(self.forget().await)?;
            or_later(uploads::collect_garbage(&self.storage, &self.readers).await)?;
        }
        let before = SystemTime::now() - grace.max(GRACE_MIN);
        let (_, known) = self.follow(std::mem::take(wanted)).await?;
        let (storage, blobs) = (self.storage.clone(), self.blobs.clone());
        let collected = tokio::task::spawn_blocking(move || {
            let mut is_named = |workspace, digest: &BlobId| is_named(&storage, workspace, digest);
            (blobs.collect_garbage(&known, &mut is_named, before, is_rehearsal), known)
        });
        let (collected, known) = collected.await.map_err(|_| GarbageError::Panicked)?;
        *wanted = known;
        Ok(collected?)
    }

    /// Deletes files that have become unreferenced or were uploaded, and that no list and no row references now.
    async fn changes(&self, wanted: &mut ReferencedBytes) -> Result<Removed, GarbageError> {
        self.check()?;
        let _turn = self.blobs.turn()?.ok_or(GarbageError::BackUp)?;
        or_later(self.forget().await)?;
        let grace = self.retention.grace;
        let limit = Wall(clock::unix_us().saturating_sub(grace.as_micros() as u64));
        let unreferenced =
            self.storage.readers.read(move |reader| reader.unreferenced(limit, ROUND_MAX)).await?;
        let mut doubted = self.blobs.take_doubted();
        let (dropped, known) = self.follow(std::mem::take(wanted)).await?;
        doubted.extend(dropped);
        let (storage, blobs) = (self.storage.clone(), self.blobs.clone());
        let before = SystemTime::now() - grace.max(GRACE_MIN);
        let looked = tokio::task::spawn_blocking(move || {
            let settled = settle(&storage, &blobs, &known, before, &unreferenced, doubted);
            (settled, known)
        });
        let (settled, known) = looked.await.map_err(|_| GarbageError::Panicked)?;
        *wanted = known;
        let (files, collected) = settled?;
        if !files.is_empty() {
            let settled =
                self.storage.submit(StorageCommand::Settle { files, before: limit }).await;
            debug_assert!(!matches!(settled, Ok(Err(_))), "this command is never refused");
            or_later(settled.map(drop).map_err(GarbageError::from))?;
        }
        Ok(collected)
    }

    /// Waits until the next round. In the meantime, the blocks of refused uploads are deleted. Returns whether
    /// something failed, so that the lists and their contents are no longer known.
    async fn pause(&self, wanted: &mut ReferencedBytes) -> bool {
        let next = tokio::time::Instant::now() + PAUSE;
        let mut has_failed = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => return has_failed,
                () = self.storage.refused.news() => {}
            }
            has_failed |= self.drop_refused(wanted).await;
            tokio::time::sleep(DROPPED_PAUSE).await;
        }
    }

    /// Returns whether it failed halfway.
    async fn drop_refused(&self, wanted: &mut ReferencedBytes) -> bool {
        match self.dropped(wanted).await {
            Ok(Removed { files, bytes, .. }) => {
                info!(files, bytes, "deleted the blocks of refused uploads");
                false
            }
            // They are noted as unreferenced, and are deleted with the others.
            Err(failed) => {
                warn!(error = %ErrorChain(&failed), "cannot delete the blocks of refused uploads yet");
                !matches!(failed, GarbageError::BackUp)
            }
        }
    }

    /// Deletes the files of blocks that were dropped, unless something else references them, or requested them since.
    async fn dropped(&self, wanted: &mut ReferencedBytes) -> Result<Removed, GarbageError> {
        self.check()?;
        let _turn = self.blobs.turn()?.ok_or(GarbageError::BackUp)?;
        let files = self.storage.refused.take_dropped();
        let (off_lists, known) = self.follow(std::mem::take(wanted)).await?;
        let (storage, blobs) = (self.storage.clone(), self.blobs.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let mut removed = Removed::default();
            let removing = files.iter().try_for_each(|((workspace, digest), staged)| {
                let is_wanted = known.names(&(*workspace, *digest));
                if !is_wanted && !is_named(&storage, *workspace, digest)? {
                    let before = SystemTime::UNIX_EPOCH + Duration::from_micros(staged.0);
                    removed.add(blobs.remove_old(*workspace, digest, before, false));
                }
                Ok::<_, BlobError>(())
            });
            off_lists.iter().for_each(|(workspace, digest)| blobs.doubt(*workspace, *digest));
            (removing.map(|()| removed), known)
        });
        let (removed, known) = looked.await.map_err(|_| GarbageError::Panicked)?;
        *wanted = known;
        Ok(removed?)
    }

    /// The current file lists of jobs, and the files of lists that are no longer current.
    async fn follow(
        &self,
        mut wanted: ReferencedBytes,
    ) -> Result<(BTreeSet<(WorkspaceId, BlobId)>, ReferencedBytes), GarbageError> {
        let now = self.readers.read(|reader| reader.wanted_trees()).await?;
        let blobs = self.blobs.clone();
        let followed = tokio::task::spawn_blocking(move || {
            let dropped = wanted.follow(&blobs, &now)?;
            Ok::<_, BlobError>((dropped, wanted))
        });
        Ok(followed.await.map_err(|_| GarbageError::Panicked)??)
    }

    /// Drops blocks that were given up, and containers whose workspace has been deleted.
    async fn forget(&self) -> Result<(), GarbageError> {
        let (storage, readers) = (&self.storage, &self.readers);
        let lifetime_us = self.retention.blocks.as_micros() as u64;
        let limit_us = clock::unix_us().saturating_sub(lifetime_us);
        let _ = storage.submit(StorageCommand::ExpireStaged { before: Wall(limit_us) }).await?;
        let containers = storage.readers.read(|reader| reader.containers()).await?;
        let owners: BTreeMap<_, _> = containers
            .into_iter()
            .map(|container| (container.workspace, container.owner))
            .collect();
        for (workspace, owner) in owners {
            let found = readers.look_up(|reader| reader.workspace(&owner))?;
            if found.is_none_or(|found| found.id != workspace) {
                let _ = storage.submit(StorageCommand::ForgetWorkspace(workspace)).await?;
            }
        }
        Ok(())
    }
}

/// While no row can be written, files are still deleted: on a full disk, that is what helps.
fn or_later(written: Result<(), GarbageError>) -> Result<(), GarbageError> {
    match written {
        Err(GarbageError::Unavailable(why)) if why != Unavailable::Unchecked => {
            warn!(%why, "unneeded rows are kept until the next garbage collection");
            Ok(())
        }
        Ok(()) | Err(_) => written,
    }
}

/// Returns the noted files that are deleted or referenced after all, and what was freed. Files that are only too young
/// are examined again later.
fn settle(
    storage: &Storage,
    blobs: &Blobs,
    wanted: &ReferencedBytes,
    before: SystemTime,
    unreferenced: &[(WorkspaceId, BlobId)],
    doubted: BTreeSet<(WorkspaceId, BlobId)>,
) -> Result<(Vec<(WorkspaceId, BlobId)>, Removed), BlobError> {
    let mut settled = Vec::new();
    let mut removed = Removed::default();
    let mut look = |file: &(WorkspaceId, BlobId)| -> Result<bool, BlobError> {
        let (workspace, digest) = file;
        if wanted.names(file) || is_named(storage, *workspace, digest)? {
            return Ok(true);
        }
        let bytes = blobs.remove_old(*workspace, digest, before, false);
        removed.add(bytes);
        Ok(bytes.is_some())
    };
    for file in unreferenced {
        if look(file)? {
            settled.push(*file);
        }
    }
    for file in doubted {
        look(&file)?;
    }
    blobs.forget_asked(before);
    Ok((settled, removed))
}

#[cfg(test)]
mod tests;
