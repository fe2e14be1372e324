//! What the files and logs of each workspace take, and what they may. Counted as they come and go; what was there before is
//! measured when somebody first wants to bring more.
//!
//! Whoever brings something reserves its place first, so that uploads at the same time cannot exceed the limit together.
//! Every workspace has a lock of its own: to measure one with many files takes long, and holds up no other. Nor does it hold
//! up logs, which nodes cannot keep for long: what is appended meanwhile is taken without a reservation, and counted. What
//! is appended to a log while logs are being measured may be found as well: then it counts twice until the next start.

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

/// The last lines of logs, which say what is missing, may exceed a share by so much of it.
const LAST_LINES_PART: u64 = 64;
/// After a workspace could not be measured, until logs have it tried again: each append asks for it.
const FAILED_PAUSE: Duration = Duration::from_secs(60);
/// Of what the kernel counts in.
const BLOCK: u64 = 512;

/// What a file takes of its disk: holes take nothing.
pub(super) fn taken_by(file: &Metadata) -> u64 {
    file.len().min(file.blocks().saturating_mul(BLOCK))
}

type Measure = dyn Fn(WorkspaceId) -> Result<u64, BlobError> + Send + Sync;

#[derive(Default)]
pub(super) struct Usage {
    /// Of each workspace.
    limit: Option<u64>,
    /// Of what a workspace has beside its files.
    also: OnceLock<Box<Measure>>,
    shares: Mutex<HashMap<WorkspaceId, Arc<Share>>>,
}

/// What a workspace has of its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    pub bytes: u64,
    /// Beside its files: the logs of its jobs.
    pub also_bytes: u64,
    /// `None`: nothing is limited.
    pub limit: Option<u64>,
}

/// What one workspace has.
#[derive(Default)]
struct Share {
    /// Whoever measures it holds this, and others wait for it without a thread.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Held while it is measured. Meanwhile nothing of it comes or goes, except for what is appended to logs; otherwise
    /// that would be counted twice, or not at all.
    measuring: Mutex<()>,
    is_measured: AtomicBool,
    /// When measuring it failed last.
    failed: Mutex<Option<Instant>>,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// `None` until it was measured.
    used: Option<u64>,
    /// What was appended to logs since they began to be measured. What came before is found.
    appended: Option<u64>,
    /// For what is on its way.
    reserved: u64,
    /// Files that are on their way to an object store: how often each is, and whether it was counted.
    sent: BTreeMap<BlobId, (u32, bool)>,
}

impl Share {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold_measuring(&self) -> MutexGuard<'_, ()> {
        self.measuring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures it unless that was done.
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

    /// From here on logs are measured, so what is appended to them counts beside what is found.
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

    /// With its limit, if there is one.
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

    /// For what is appended to a log. Until the workspace was measured, that is not refused.
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

    /// Removes something, and counts it as gone.
    pub(super) fn removing(
        &self,
        workspace: WorkspaceId,
        remove: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        let Some((share, _)) = self.share(workspace) else { return remove() };
        let measuring = share.hold_measuring();
        if share.lock().used.is_none() {
            // Whoever measures it waits until this is gone, and does not count it.
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

/// Room for what a workspace is about to have. Dropped, it is given back.
pub struct Reserved {
    /// `None` where there is no limit.
    share: Option<(Arc<Share>, u64)>,
    bytes: u64,
}

impl Reserved {
    /// Of a share that was measured.
    fn of(share: Option<(Arc<Share>, u64)>, bytes: u64, kind: Kind) -> Result<Reserved, BlobError> {
        let with_limit = |(share, limit): (Arc<Share>, u64)| match kind {
            Kind::Upload | Kind::OfJob => (share, limit),
            Kind::LastLines => (share, limit.saturating_add(limit / LAST_LINES_PART)),
        };
        let mut reserved = Reserved { share: share.map(with_limit), bytes: 0 };
        reserved.grow_to(bytes)?;
        Ok(reserved)
    }

    /// Makes it as large as this, unless it is.
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

    /// The same, and some more where there is room, so that not every piece of a file asks.
    pub(super) fn grow_in_steps_to(&mut self, bytes: u64, step: u64) -> Result<(), BlobError> {
        match bytes <= self.bytes {
            true => Ok(()),
            false => self.grow_to(bytes.saturating_add(step)).or_else(|_| self.grow_to(bytes)),
        }
    }

    /// So much of it is used from now on, and the rest is given back.
    pub fn settle(mut self, kept: u64) {
        self.give_back(kept);
    }

    fn give_back(&mut self, kept: u64) {
        let Some((share, _)) = self.share.take() else { return };
        let mut counts = share.lock();
        counts.reserved = counts.reserved.saturating_sub(self.bytes);
        let counts = &mut *counts;
        // Neither of them: it is found when the workspace is measured.
        if let Some(count) = counts.used.as_mut().or(counts.appended.as_mut()) {
            *count = count.saturating_add(kept);
        }
    }

    /// Before a file is sent to an object store: whoever else sends the same meanwhile does not count it again.
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

/// A file on its way to an object store, and room for it.
pub(super) struct Sending {
    reserved: Option<Reserved>,
    digest: BlobId,
}

impl Sending {
    pub(super) fn grow_to(&mut self, bytes: u64) -> Result<(), BlobError> {
        self.reserved.as_mut().map_or(Ok(()), |reserved| reserved.grow_to(bytes))
    }

    /// It is there, with so many bytes that were not there before this was sent.
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
    /// Room for so many bytes more of a workspace.
    pub fn reserve(
        &self,
        workspace: WorkspaceId,
        bytes: u64,
        kind: Kind,
    ) -> Result<Reserved, BlobError> {
        self.usage.reserve(workspace, bytes, kind, |share| self.measure_all(workspace, share))
    }

    /// The same for what is appended to a log, which does not wait until the workspace was measured.
    pub fn reserve_for_log(
        &self,
        workspace: WorkspaceId,
        bytes: u64,
        kind: Kind,
    ) -> Result<Reserved, BlobError> {
        self.usage.reserve_for_log(workspace, bytes, kind)
    }

    /// Counts what a workspace has beside its files; said once, before anything comes.
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

    /// Removes something else of a workspace than its files, and counts it as gone.
    pub fn removing<E>(
        &self,
        workspace: WorkspaceId,
        remove: impl FnOnce() -> Result<u64, E>,
    ) -> Result<(), E> {
        let mut failed = None;
        self.usage.removing(workspace, || remove().map_err(|why| failed = Some(why)).ok());
        failed.map_or(Ok(()), Err)
    }

    /// Whether a workspace may have so many bytes more.
    pub fn check_share(&self, workspace: WorkspaceId, more: u64) -> Result<(), BlobError> {
        self.reserve(workspace, more, Kind::OfJob).map(drop)
    }

    /// How many bytes a workspace has, how many of them beside its files, and how many it may have in all.
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

    /// The same of a workspace that has nothing.
    pub fn no_figures(&self) -> Figures {
        Figures { bytes: 0, also_bytes: 0, limit: self.usage.limit }
    }

    /// Waits until a workspace was measured, without a thread: those who want to bring something may be many.
    pub async fn measured(self: &Arc<Self>, workspace: WorkspaceId) -> Result<(), BlobError> {
        let Some((share, _)) = self.usage.share(workspace) else { return Ok(()) };
        if share.is_measured.load(Ordering::Relaxed) {
            return Ok(());
        }
        let turn = share.turn.clone().lock_owned().await;
        let measured = self.begin_measuring(workspace, share, turn).await;
        measured.unwrap_or_else(|panicked| Err(BlobError::Io(std::io::Error::other(panicked))))
    }

    /// Whether a workspace was measured, or need not be.
    pub fn is_measured(&self, workspace: WorkspaceId) -> bool {
        let share = self.usage.share(workspace);
        share.is_none_or(|(share, _)| share.is_measured.load(Ordering::Relaxed))
    }

    /// As somebody does who measures a workspace.
    #[cfg(test)]
    pub async fn hold_measuring(&self, workspace: WorkspaceId) -> tokio::sync::OwnedMutexGuard<()> {
        let (share, _) = self.usage.share(workspace).expect("there is a limit");
        share.turn.clone().lock_owned().await
    }

    /// Begins to measure a workspace, unless that was done, is under way or has just failed, and does not wait for it.
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
            // Also when nobody waits for it any more.
            let _turn = turn;
            let measured = share.measured(|share| blobs.measure_all(workspace, share));
            *share.failed() = measured.is_err().then(Instant::now);
            if let Err(failed) = &measured {
                warn!(%workspace, error = %ErrorChain(failed), "a workspace cannot be measured");
            }
            measured
        })
    }
}

#[cfg(test)]
mod tests;
