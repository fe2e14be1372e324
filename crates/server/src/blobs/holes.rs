//! Who hashes holes, and when. A hole of gigabytes comes as eight bytes and costs seconds of a core, so only one is hashed
//! at a time, in slices, and one of each node: others' uploads and requests have the rest of the machine. Workspaces take
//! turns slice by slice, however many nodes of each want to.

use std::sync::Arc;

use muster_core::ids::WorkspaceId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::keyed_lock::{KeyedGuard, KeyedLock};

/// Hashed of a piece of a file without waiting: about as much as a request costs anyway.
pub(super) const AT_ONCE_BYTES: u64 = 1 << 20;
/// Hashed before others have their turn, and before anybody notices that the client is gone.
pub(super) const SLICE_BYTES: u64 = 128 << 20;
/// In the whole server.
const PLACES: usize = 1;

pub struct Holes {
    nodes: KeyedLock<Box<str>>,
    /// Only one of each waits for a place.
    workspaces: KeyedLock<WorkspaceId>,
    places: Arc<Semaphore>,
}

impl Default for Holes {
    fn default() -> Holes {
        let (nodes, workspaces) = (KeyedLock::default(), KeyedLock::default());
        Holes { nodes, workspaces, places: Arc::new(Semaphore::new(PLACES)) }
    }
}

impl Holes {
    /// Waits until no other upload of this node hashes.
    pub async fn turn(&self, node: &str) -> KeyedGuard<Box<str>> {
        self.nodes.turn(node.into()).await
    }

    /// Waits for a place for one slice. Workspaces get it in turn, and so do the uploads of each.
    pub async fn place(&self, workspace: WorkspaceId) -> Permit {
        let turn = self.workspaces.turn(workspace).await;
        // It is never closed.
        let permit = self.places.clone().acquire_owned().await.ok();
        Permit { _permit: permit, _turn: turn }
    }
}

/// For one slice, until this is dropped.
pub struct Permit {
    // First: whoever of the same workspace is next waits behind the others then.
    _permit: Option<OwnedSemaphorePermit>,
    _turn: KeyedGuard<WorkspaceId>,
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Each node of a workspace had a place in the one line, so others waited for all of them before each slice.
    #[tokio::test]
    async fn one_workspace_with_many_nodes_does_not_make_others_wait_for_all_of_them() {
        let (noisy, quiet) = (WorkspaceId(1), WorkspaceId(2));
        let holes = Holes::default();
        let first = holes.place(noisy).await;
        let mut waiting: Vec<_> = (0..8).map(|_| Box::pin(holes.place(noisy))).collect();
        for place in &mut waiting {
            assert!(place.as_mut().now_or_never().is_none(), "there is one place");
        }
        let mut other = Box::pin(holes.place(quiet));
        assert!(other.as_mut().now_or_never().is_none());
        drop(first);
        for place in &mut waiting {
            assert!(place.as_mut().now_or_never().is_none(), "it is another's turn");
        }
        drop(other.now_or_never().expect("it is next"));
        let next = waiting.remove(0).now_or_never().expect("then it is theirs again");
        assert!(waiting[0].as_mut().now_or_never().is_none());
        drop((next, waiting));
        assert!(holes.workspaces.is_idle());
    }
}
