//! Ensures that a file is not deleted while a reference to it is being created.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use muster_core::ids::WorkspaceId;
use muster_core::model::BlobId;

use super::Blobs;

pub(super) type Key = (WorkspaceId, BlobId);

#[derive(Default)]
pub(super) struct Gate {
    /// Locked while a file is looked up and held, or found unreferenced and deleted.
    state: Mutex<State>,
    /// Signals that a file has been deleted.
    gone: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// Files to which references are being created, and how many.
    held: BTreeMap<Key, u32>,
    /// Files that are being deleted from the object store. That takes time, so requests for them wait.
    going: BTreeSet<Key>,
    /// When files in the object store were last sent or requested. Local files record that in their own times.
    asked: BTreeMap<Key, SystemTime>,
    /// Files brought by or for jobs that are not known to be referenced.
    doubted: BTreeSet<Key>,
}

impl Gate {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_when_gone(&self, key: Key) -> MutexGuard<'_, State> {
        let is_going = |state: &mut State| state.going.contains(&key);
        self.gone.wait_while(self.lock(), is_going).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ask(&self, workspace: WorkspaceId, digest: BlobId) {
        let key = (workspace, digest);
        self.lock_when_gone(key).asked.insert(key, SystemTime::now());
    }

    pub(super) fn doubt(&self, workspace: WorkspaceId, digest: BlobId) {
        self.lock().doubted.insert((workspace, digest));
    }

    pub(super) fn take_doubted(&self) -> BTreeSet<Key> {
        std::mem::take(&mut self.lock().doubted)
    }

    /// Forgets requests from before this time; they no longer prevent a deletion.
    pub(super) fn forget_asked(&self, before: SystemTime) {
        self.lock().asked.retain(|_, at| *at >= before);
    }

    /// Deletes a file from the object store, unless it is held or was requested recently. Returns `None` if it is kept.
    pub(super) fn remove_elsewhere(
        &self,
        key: Key,
        before: SystemTime,
        remove: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        {
            let mut state = self.lock();
            let is_fresh = state.asked.get(&key).is_some_and(|at| *at >= before);
            if is_fresh || state.is_held(&key) || !state.going.insert(key) {
                return None;
            }
        }
        let removed = remove();
        self.lock().going.remove(&key);
        self.gone.notify_all();
        removed
    }
}

impl State {
    pub(super) fn is_held(&self, key: &Key) -> bool {
        self.held.contains_key(key)
    }
}

/// Keeps a file from being deleted until this is dropped, whether it is referenced or not.
pub struct Held {
    blobs: Arc<Blobs>,
    workspace: WorkspaceId,
    pub digest: BlobId,
    pub bytes: u64,
}

impl Held {
    pub(super) fn new(
        blobs: &Arc<Blobs>,
        workspace: WorkspaceId,
        digest: BlobId,
        bytes: u64,
    ) -> Held {
        let key = (workspace, digest);
        *blobs.gate.lock_when_gone(key).held.entry(key).or_default() += 1;
        Held { blobs: blobs.clone(), workspace, digest, bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.blobs.gate.lock();
        let key = (self.workspace, self.digest);
        if let Some(count) = state.held.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(&key);
            }
        }
    }
}
