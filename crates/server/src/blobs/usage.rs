//! What the files of each workspace take, and what they may. Counted as they come and go; what was there before is measured
//! when somebody first wants to bring more.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_core::ids::WorkspaceId;

use super::{BlobError, Blobs};

/// Of what the kernel counts in.
const BLOCK: u64 = 512;

/// What a file takes of its disk: holes take nothing.
pub(super) fn taken_by(file: &Metadata) -> u64 {
    file.len().min(file.blocks().saturating_mul(BLOCK))
}

#[derive(Default)]
pub(super) struct Usage {
    /// Of each workspace.
    limit: Option<u64>,
    /// Of those that were measured.
    bytes: Mutex<HashMap<WorkspaceId, u64>>,
}

impl Usage {
    pub(super) fn up_to(limit: Option<u64>) -> Usage {
        Usage { limit, bytes: Mutex::default() }
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkspaceId, u64>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn came(&self, workspace: WorkspaceId, bytes: u64) {
        if let Some(known) = self.lock().get_mut(&workspace) {
            *known = known.saturating_add(bytes);
        }
    }

    pub(super) fn went(&self, workspace: WorkspaceId, bytes: u64) {
        if let Some(known) = self.lock().get_mut(&workspace) {
            *known = known.saturating_sub(bytes);
        }
    }
}

impl Blobs {
    /// Whether a workspace may have so many bytes more.
    pub fn check_share(&self, workspace: WorkspaceId, more: u64) -> Result<(), BlobError> {
        let Some(limit) = self.usage.limit else { return Ok(()) };
        // Uploads wait while it is measured; otherwise they would be counted twice, or not at all.
        let mut bytes = self.usage.lock();
        let used = match bytes.get(&workspace) {
            Some(used) => *used,
            None => {
                let used = self.measure(workspace)?;
                bytes.insert(workspace, used);
                used
            }
        };
        match more == 0 || used.saturating_add(more) <= limit {
            true => Ok(()),
            false => Err(BlobError::ShareUsed { used, more, limit }),
        }
    }
}
