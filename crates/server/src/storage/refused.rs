//! Uploads in blocks that were refused for lack of space. Their client gives up, so the earlier blocks are useless:
//! they are dropped when the last request of the upload has ended, and their files are deleted without the usual grace
//! period. Otherwise they would count towards the workspace's share until blocks expire.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_core::ids::WorkspaceId;
use muster_core::model::BlobId;
use muster_core::time::Wall;
use muster_store::storage::{BlobRef, ContainerId, Done, StorageCommand};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tracing::warn;

use super::Storage;

/// How many files are remembered for the next round; others are deleted after the usual grace period.
const DROPPED_MAX: usize = 200_000;

#[derive(Default)]
pub struct Refused {
    under_way: Mutex<BTreeMap<(ContainerId, Box<str>), UnderWay>>,
    dropped: Mutex<BTreeMap<(WorkspaceId, BlobId), Wall>>,
    news: Notify,
}

/// Requests in progress that upload blocks of one blob.
#[derive(Default)]
struct UnderWay {
    requests: u32,
    is_refused: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Refused {
    /// Waits until files have been dropped.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// The files of dropped blocks, and when each was last staged.
    pub(super) fn take_dropped(&self) -> BTreeMap<(WorkspaceId, BlobId), Wall> {
        std::mem::take(&mut *lock(&self.dropped))
    }

    fn note(&self, workspace: WorkspaceId, files: Vec<(BlobId, Wall)>) {
        let mut dropped = lock(&self.dropped);
        let room = DROPPED_MAX.saturating_sub(dropped.len());
        for (digest, staged) in files.into_iter().take(room) {
            let last = dropped.entry((workspace, digest)).or_insert(staged);
            *last = staged.max(*last);
        }
        drop(dropped);
        self.news.notify_one();
    }
}

/// A request that uploads a block of this blob. It is dropped when the request has ended.
pub struct BlockUpload {
    storage: Storage,
    refused: Arc<Refused>,
    at: BlobRef,
}

impl BlockUpload {
    pub fn begin(storage: &Storage, at: BlobRef) -> BlockUpload {
        let refused = storage.refused.clone();
        let key = (at.container, at.name.clone());
        lock(&refused.under_way).entry(key).or_default().requests += 1;
        BlockUpload { storage: storage.clone(), refused, at }
    }

    /// Notes that there is no space for the block, so the blob will not be completed.
    pub fn refuse(&self) {
        let key = (self.at.container, self.at.name.clone());
        lock(&self.refused.under_way).entry(key).or_default().is_refused = true;
    }

    /// Whether this was the last request of an upload that was refused.
    fn leave(&self) -> bool {
        let mut under_way = lock(&self.refused.under_way);
        let key = (self.at.container, self.at.name.clone());
        let Some(found) = under_way.get_mut(&key) else { return false };
        found.requests = found.requests.saturating_sub(1);
        if found.requests > 0 {
            return false;
        }
        under_way.remove(&key).is_some_and(|found| found.is_refused)
    }
}

impl Drop for BlockUpload {
    fn drop(&mut self) {
        if !self.leave() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let (storage, at) = (self.storage.clone(), self.at.clone());
        runtime.spawn(async move {
            let workspace = at.workspace;
            match storage.submit(StorageCommand::DropStaged { at }).await {
                Ok(Ok(Done::Dropped(files))) => storage.refused.note(workspace, files),
                Ok(_) => {}
                Err(why) => {
                    warn!(%why, "the blocks of a refused upload are kept until they expire")
                }
            }
        });
    }
}
