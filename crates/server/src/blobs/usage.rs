//! The space that the files and logs of each workspace take, and its limit. It is counted as files are added and
//! deleted; files from before the start are measured when a client first wants to add more.
//!
//! An upload first reserves its space, so that concurrent uploads cannot exceed the limit together. Every workspace has
//! its own lock: measuring one with many files takes long, but does not delay the others. Nor does it delay logs, which
//! nodes cannot keep for long: what is appended in the meantime is accepted without a reservation, and counted. Bytes
//! that are appended to a log while logs are being measured may be counted twice until the next start.

use std::collections::{BTreeMap, HashMap};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use muster_core::ErrorChain;
use muster_core::ids::WorkspaceId;
use muster_core::model::BlobId;
use tracing::warn;

use super::{BlobError, Blobs};
use crate::room::Kind;

/// The last lines of logs, which say what is missing, may exceed the limit by this fraction of it.
const LAST_LINES_PART: u64 = 64;
/// How long logs wait after a failed measurement before they cause another. Otherwise each append would cause one.
const FAILED_PAUSE: Duration = Duration::from_secs(60);
/// The unit in which the kernel counts the blocks of a file.
const BLOCK: u64 = 512;

/// The disk space that a file takes; holes take none.
pub(super) fn taken_by(file: &Metadata) -> u64 {
    file.len().min(file.blocks().saturating_mul(BLOCK))
}

type Measure = dyn Fn(WorkspaceId) -> Result<u64, BlobError> + Send + Sync;

#[derive(Default)]
pub(super) struct Usage {
    /// The limit of each workspace.
    limit: Option<u64>,
    /// Measures what a workspace has in addition to its files.
    also: OnceLock<Box<Measure>>,
    shares: Mutex<HashMap<WorkspaceId, Arc<Share>>>,
}

/// The usage of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    pub bytes: u64,
    /// In addition to its files: the logs of its jobs.
    pub also_bytes: u64,
    /// `None` if there is no limit.
    pub limit: Option<u64>,
}

/// The usage of one workspace, with its locks.
#[derive(Default)]
struct Share {
    /// Held by the task that measures the workspace; other tasks wait for it without blocking a thread.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Held during the measurement. In the meantime, nothing in the workspace is added or deleted, except for bytes
    /// that are appended to logs; otherwise it would be counted twice, or not at all.
    measuring: Mutex<()>,
    is_measured: AtomicBool,
    /// When the last measurement failed.
    failed: Mutex<Option<Instant>>,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// `None` until the workspace has been measured.
    used: Option<u64>,
    /// The bytes appended to logs since the measurement of logs began. Earlier ones are part of the measurement.
    appended: Option<u64>,
    /// Bytes reserved for uploads in progress.
    reserved: u64,
    /// Files that are being sent to an object store: by how many uploads, and whether the file has been counted.
    sent: BTreeMap<BlobId, (u32, bool)>,
}

impl Share {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold_measuring(&self) -> MutexGuard<'_, ()> {
        self.measuring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures the workspace, unless that was done before.
    fn measured(
        &self,
        measure: impl FnOnce(&Share) -> Result<u64, BlobError>,
    ) -> Result<(), BlobError> {
        let _measuring = self.hold_measuring();
        if self.lock().used.is_none() {
            let found = measure(self)?;
            let mut counts = self.lock();
            let appended = counts.appended.take().unwrap_or(0);
            counts.used = Some(found.saturating_add(appended));
            self.is_measured.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn failed(&self) -> MutexGuard<'_, Option<Instant>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the measurement of logs. Bytes that are appended from now on are counted in addition.
    fn begin_logs(&self) {
        self.lock().appended = Some(0);
    }
}

impl Usage {
    pub(super) fn up_to(limit: Option<u64>) -> Usage {
        Usage { limit, ..Usage::default() }
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// The share of a workspace with its limit, if there is one.
    fn share(&self, workspace: WorkspaceId) -> Option<(Arc<Share>, u64)> {
        let limit = self.limit?;
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        Some((shares.entry(workspace).or_default().clone(), limit))
    }

    fn reserve(
        &self,
        workspace: WorkspaceId,
        bytes: u64,
        kind: Kind,
        measure: impl FnOnce(&Share) -> Result<u64, BlobError>,
    ) -> Result<Reserved, BlobError> {
        let share = self.share(workspace);
        if let Some((share, _)) = &share {
            share.measured(measure)?;
        }
        Reserved::of(share, bytes, kind)
    }

    /// Reserves space for bytes that are appended to a log. They are not refused until the workspace has been measured.
    fn reserve_for_log(
        &self,
        workspace: WorkspaceId,
        bytes: u64,
        kind: Kind,
    ) -> Result<Reserved, BlobError> {
        let share = self.share(workspace);
        let is_measured = |share: &Share| share.lock().used.is_some();
        match &share {
            Some((unknown, _)) if !is_measured(unknown) => Ok(Reserved { share, bytes: 0 }),
            _ => Reserved::of(share, bytes, kind),
        }
    }

    /// Removes something, and subtracts it.
    pub(super) fn removing(
        &self,
        workspace: WorkspaceId,
        remove: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        let Some((share, _)) = self.share(workspace) else { return remove() };
        let measuring = share.hold_measuring();
        if share.lock().used.is_none() {
            // A measurement waits until this is removed, and does not count it.
            return remove();
        }
        drop(measuring);
        let removed = remove();
        if let (Some(used), Some(bytes)) = (&mut share.lock().used, removed) {
            *used = used.saturating_sub(bytes);
        }
        removed
    }
}

/// Space reserved in a workspace. It is released when this is dropped.
pub struct Reserved {
    /// `None` if there is no limit.
    share: Option<(Arc<Share>, u64)>,
    bytes: u64,
}

impl Reserved {
    /// Reserves space in a share that has been measured.
    fn of(share: Option<(Arc<Share>, u64)>, bytes: u64, kind: Kind) -> Result<Reserved, BlobError> {
        let with_limit = |(share, limit): (Arc<Share>, u64)| match kind {
            Kind::Upload | Kind::OfJob => (share, limit),
            Kind::LastLines => (share, limit.saturating_add(limit / LAST_LINES_PART)),
        };
        let mut reserved = Reserved { share: share.map(with_limit), bytes: 0 };
        reserved.grow_to(bytes)?;
        Ok(reserved)
    }

    /// Grows the reservation to this size, unless it is larger already.
    pub(super) fn grow_to(&mut self, bytes: u64) -> Result<(), BlobError> {
        let Some((share, limit)) = &self.share else { return Ok(()) };
        if bytes <= self.bytes {
            return Ok(());
        }
        let mut counts = share.lock();
        let others = counts.reserved.saturating_sub(self.bytes);
        let used = counts.used.unwrap_or(0).saturating_add(others);
        if used.saturating_add(bytes) > *limit {
            return Err(BlobError::ShareUsed { used, more: bytes, limit: *limit });
        }
        counts.reserved = others.saturating_add(bytes);
        self.bytes = bytes;
        Ok(())
    }

    /// The same, with some extra space if there is room, so that not every piece of a file needs a reservation.
    pub(super) fn grow_in_steps_to(&mut self, bytes: u64, step: u64) -> Result<(), BlobError> {
        match bytes <= self.bytes {
            true => Ok(()),
            false => self.grow_to(bytes.saturating_add(step)).or_else(|_| self.grow_to(bytes)),
        }
    }

    /// Counts this many of the bytes as used, and releases the rest.
    pub fn settle(mut self, kept: u64) {
        self.give_back(kept);
    }

    fn give_back(&mut self, kept: u64) {
        let Some((share, _)) = self.share.take() else { return };
        let mut counts = share.lock();
        counts.reserved = counts.reserved.saturating_sub(self.bytes);
        let counts = &mut *counts;
        // If there is neither, the measurement will find these bytes.
        if let Some(count) = counts.used.as_mut().or(counts.appended.as_mut()) {
            *count = count.saturating_add(kept);
        }
    }

    /// Called before a file is sent to an object store. Other uploads of the same file do not count it again.
    pub(super) fn sending(self, digest: BlobId) -> Sending {
        if let Some((share, _)) = &self.share {
            share.lock().sent.entry(digest).or_default().0 += 1;
        }
        Sending { reserved: Some(self), digest }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.give_back(0);
    }
}

/// A file that is being sent to an object store, with the space reserved for it.
pub(super) struct Sending {
    reserved: Option<Reserved>,
    digest: BlobId,
}

impl Sending {
    pub(super) fn grow_to(&mut self, bytes: u64) -> Result<(), BlobError> {
        self.reserved.as_mut().map_or(Ok(()), |reserved| reserved.grow_to(bytes))
    }

    /// Records that the object exists, with this many bytes that did not exist before the upload.
    pub(super) fn settle(mut self, bytes: u64) {
        let share = self.reserved.as_ref().and_then(|reserved| reserved.share.clone());
        let was_counted = share.is_some_and(|(share, _)| {
            let mut counts = share.lock();
            let entry = counts.sent.entry(self.digest).or_default();
            let was_counted = entry.1;
            entry.1 = was_counted || bytes > 0;
            was_counted
        });
        if let Some(reserved) = self.reserved.take() {
            self.leave(&reserved);
            reserved.settle(if was_counted { 0 } else { bytes });
        }
    }

    fn leave(&self, reserved: &Reserved) {
        let Some((share, _)) = &reserved.share else { return };
        let mut counts = share.lock();
        if let Some((senders, _)) = counts.sent.get_mut(&self.digest) {
            *senders = senders.saturating_sub(1);
            if *senders == 0 {
                counts.sent.remove(&self.digest);
            }
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.leave(&reserved);
        }
    }
}

impl Blobs {
    /// Reserves space for more bytes in a workspace.
    pub fn reserve(
        &self,
        workspace: WorkspaceId,
        bytes: u64,
        kind: Kind,
    ) -> Result<Reserved, BlobError> {
        self.usage.reserve(workspace, bytes, kind, |share| self.measure_all(workspace, share))
    }

    /// The same for bytes that are appended to a log, which do not wait for a measurement of the workspace.
    pub fn reserve_for_log(
        &self,
        workspace: WorkspaceId,
        bytes: u64,
        kind: Kind,
    ) -> Result<Reserved, BlobError> {
        self.usage.reserve_for_log(workspace, bytes, kind)
    }

    /// Sets the function that measures what a workspace has in addition to its files. It is called once, before any
    /// upload.
    pub fn count_also(
        &self,
        measure: impl Fn(WorkspaceId) -> Result<u64, BlobError> + Send + Sync + 'static,
    ) {
        let _ = self.usage.also.set(Box::new(measure));
    }

    fn measure_all(&self, workspace: WorkspaceId, share: &Share) -> Result<u64, BlobError> {
        let files = self.measure(workspace)?;
        share.begin_logs();
        let also = self.usage.also.get().map_or(Ok(0), |also| also(workspace))?;
        Ok(files.saturating_add(also))
    }

    /// Removes something other than files from a workspace, and subtracts it.
    pub fn removing<E>(
        &self,
        workspace: WorkspaceId,
        remove: impl FnOnce() -> Result<u64, E>,
    ) -> Result<(), E> {
        let mut failed = None;
        self.usage.removing(workspace, || remove().map_err(|why| failed = Some(why)).ok());
        failed.map_or(Ok(()), Err)
    }

    /// Checks whether there is room for more bytes in a workspace.
    pub fn check_share(&self, workspace: WorkspaceId, more: u64) -> Result<(), BlobError> {
        self.reserve(workspace, more, Kind::OfJob).map(drop)
    }

    /// The usage of a workspace: its bytes, how many of them are not files, and its limit.
    pub fn figures(&self, workspace: WorkspaceId) -> Result<Figures, BlobError> {
        let also_bytes = self.usage.also.get().map_or(Ok(0), |also| also(workspace))?;
        let share = self.usage.share(workspace);
        let bytes = match &share {
            Some((share, _)) => {
                share.measured(|share| self.measure_all(workspace, share))?;
                let counts = share.lock();
                counts.used.unwrap_or(0).saturating_add(counts.reserved)
            }
            None => self.measure(workspace)?.saturating_add(also_bytes),
        };
        Ok(Figures { bytes, also_bytes, limit: share.map(|(_, limit)| limit) })
    }

    /// The same for a workspace that has nothing.
    pub fn no_figures(&self) -> Figures {
        Figures { bytes: 0, also_bytes: 0, limit: self.usage.limit }
    }

    /// Waits until a workspace has been measured, without blocking a thread, because many uploads may be waiting.
    pub async fn measured(self: &Arc<Self>, workspace: WorkspaceId) -> Result<(), BlobError> {
        let Some((share, _)) = self.usage.share(workspace) else { return Ok(()) };
        if share.is_measured.load(Ordering::Relaxed) {
            return Ok(());
        }
        let turn = share.turn.clone().lock_owned().await;
        let measured = self.begin_measuring(workspace, share, turn).await;
        measured.unwrap_or_else(|panicked| Err(BlobError::Io(std::io::Error::other(panicked))))
    }

    /// Whether a workspace has been measured, or does not need to be.
    pub fn is_measured(&self, workspace: WorkspaceId) -> bool {
        let share = self.usage.share(workspace);
        share.is_none_or(|(share, _)| share.is_measured.load(Ordering::Relaxed))
    }

    /// Acts like a task that measures a workspace.
    #[cfg(test)]
    pub async fn hold_measuring(&self, workspace: WorkspaceId) -> tokio::sync::OwnedMutexGuard<()> {
        let (share, _) = self.usage.share(workspace).expect("there is a limit");
        share.turn.clone().lock_owned().await
    }

    /// Begins to measure a workspace in the background, unless that was done, is in progress or has just failed.
    pub fn measure_soon(self: &Arc<Self>, workspace: WorkspaceId) {
        let Some((share, _)) = self.usage.share(workspace) else { return };
        if share.is_measured.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(turn) = share.turn.clone().try_lock_owned()
            && share.failed().is_none_or(|at| at.elapsed() >= FAILED_PAUSE)
        {
            drop(self.begin_measuring(workspace, share, turn));
        }
    }

    fn begin_measuring(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        share: Arc<Share>,
        turn: tokio::sync::OwnedMutexGuard<()>,
    ) -> tokio::task::JoinHandle<Result<(), BlobError>> {
        let blobs = self.clone();
        tokio::task::spawn_blocking(move || {
            // Held until the end, even if no task is waiting any more.
            let _turn = turn;
            let measured = share.measured(|share| blobs.measure_all(workspace, share));
            *share.failed() = measured.is_err().then(Instant::now);
            if let Err(failed) = &measured {
                warn!(%workspace, error = %ErrorChain(failed), "cannot measure the usage of a workspace");
            }
            measured
        })
    }
}

#[cfg(test)]
mod tests;
