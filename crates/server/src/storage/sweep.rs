//! Removes what nobody names any more: waiting blocks that were given up, containers of workspaces that are gone, and
//! files of the byte store.
//!
//! What becomes unwanted is noted when it does, so the usual round costs what has changed. Only a file that was kept and
//! never named (the server was killed in between) is found by looking at every file: at start, and when somebody asks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use muster_core::ErrorChain;
use muster_core::ids::WorkspaceId;
use muster_core::model::{BlobId, TreeId};
use muster_core::time::Wall;
use muster_store::storage::Order;
use tracing::{info, warn};

use super::{Storage, uploads};
use crate::blobs::{BlobError, Blobs, Removed};
use crate::clock;
use crate::readers::Readers;

const PAUSE: Duration = Duration::from_secs(120);
/// What was sent or asked for so recently may be about to be named, or is being read.
pub const GRACE: Duration = Duration::from_secs(600);
/// A file's time is as exact as the system's clock ticks.
const GRACE_MIN: Duration = Duration::from_secs(1);
/// After this time nobody comes back for a block, as with Azure.
const STAGED_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Of unwanted files in one round; the rest is for the next one.
const ROUND_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub files: u64,
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("cannot tell which files are wanted")]
    Store(#[from] muster_store::StoreError),
    #[error(transparent)]
    Blobs(#[from] BlobError),
    #[error(transparent)]
    Unavailable(#[from] super::Unavailable),
    #[error("looking through the files panicked")]
    Panicked,
}

/// Looks at everything at start and whenever jobs have sent files, and every two minutes at what has become unwanted,
/// until dropped.
pub async fn run(storage: Storage, blobs: Arc<Blobs>, readers: Readers) {
    let _ = blobs.take_news();
    let mut is_whole = true;
    loop {
        let swept = match is_whole {
            true => gc(&storage, &blobs, &readers, GRACE, false).await,
            false => round(&storage, &blobs, &readers).await,
        };
        match swept {
            Ok(Swept { files: 0, .. }) => {}
            Ok(Swept { files, bytes }) => info!(files, bytes, "files that nobody names are gone"),
            Err(failed) => warn!(error = %ErrorChain(&failed), "cannot look for unwanted files"),
        }
        tokio::time::sleep(PAUSE).await;
        is_whole = blobs.take_news();
    }
}

/// Looks at every file. What was sent within `grace` stays.
pub async fn gc(
    storage: &Storage,
    blobs: &Arc<Blobs>,
    readers: &Readers,
    grace: Duration,
    is_rehearsal: bool,
) -> Result<Swept, SweepError> {
    if !is_rehearsal {
        forget(storage, readers).await?;
        uploads::sweep(storage, readers).await?;
    }
    let before = SystemTime::now() - grace.max(GRACE_MIN);
    let wanted = readers.read(|reader| reader.wanted_trees()).await?;
    let (storage, blobs) = (storage.clone(), blobs.clone());
    let swept = tokio::task::spawn_blocking(move || {
        let mut is_named = |workspace, digest: &BlobId| is_named(&storage, workspace, digest);
        blobs.sweep(&wanted, &mut is_named, before, is_rehearsal)
    });
    let Removed { files, bytes } = swept.await.map_err(|_| SweepError::Panicked)??;
    Ok(Swept { files, bytes })
}

fn is_named(storage: &Storage, workspace: WorkspaceId, digest: &BlobId) -> Result<bool, BlobError> {
    let named = storage.look_up(|reader| reader.is_named(workspace, digest));
    named.map_err(|failed| BlobError::Io(std::io::Error::other(failed)))
}

/// What has become unwanted.
async fn round(
    storage: &Storage,
    blobs: &Arc<Blobs>,
    readers: &Readers,
) -> Result<Swept, SweepError> {
    forget(storage, readers).await?;
    let limit = Wall(clock::unix_us().saturating_sub(GRACE.as_micros() as u64));
    let unwanted = storage.read(move |reader| reader.unwanted(limit, ROUND_MAX)).await?;
    if unwanted.is_empty() {
        return Ok(Swept::default());
    }
    let trees = readers.read(|reader| reader.wanted_trees()).await?;
    let (own, files) = (storage.clone(), blobs.clone());
    let looked = tokio::task::spawn_blocking(move || settle(&own, &files, &trees, &unwanted));
    let (files, swept) = looked.await.map_err(|_| SweepError::Panicked)??;
    let settled = storage.say(Order::Settle { files, before: limit }).await?;
    debug_assert!(settled.is_ok(), "nothing refuses this");
    Ok(swept)
}

/// Those that are gone or wanted after all, and what went.
fn settle(
    storage: &Storage,
    blobs: &Blobs,
    trees: &[(WorkspaceId, TreeId)],
    unwanted: &[(WorkspaceId, BlobId)],
) -> Result<(Vec<(WorkspaceId, BlobId)>, Swept), BlobError> {
    let before = SystemTime::now() - GRACE;
    let here = |(workspace, _): &&(WorkspaceId, TreeId)| {
        unwanted.iter().any(|(other, _)| other == workspace)
    };
    let trees: Vec<_> = trees.iter().filter(here).copied().collect();
    let kept = blobs.files_of_trees(&trees)?;
    let mut settled = Vec::new();
    let mut removed = Removed::default();
    for file in unwanted {
        let (workspace, digest) = file;
        if kept.contains(file) || is_named(storage, *workspace, digest)? {
            settled.push(*file);
        } else if let Some(bytes) = blobs.remove_old(*workspace, digest, before, false) {
            removed.add(Some(bytes));
            settled.push(*file);
        }
    }
    Ok((settled, Swept { files: removed.files, bytes: removed.bytes }))
}

/// Blocks that were given up, and containers whose workspace is gone.
async fn forget(storage: &Storage, readers: &Readers) -> Result<(), SweepError> {
    let limit_us = clock::unix_us().saturating_sub(STAGED_LIFETIME.as_micros() as u64);
    let _ = storage.say(Order::ExpireStaged { before: Wall(limit_us) }).await?;
    let containers = storage.read(|reader| reader.containers()).await?;
    let owners: BTreeMap<_, _> =
        containers.into_iter().map(|container| (container.workspace, container.owner)).collect();
    for (workspace, owner) in owners {
        let found = readers.look_up(|reader| reader.workspace(&owner))?;
        if found.is_none_or(|found| found.id != workspace) {
            let _ = storage.say(Order::ForgetWorkspace(workspace)).await?;
        }
    }
    Ok(())
}
