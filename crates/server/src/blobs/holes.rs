//! Limits the hashing of holes. A hole of gigabytes arrives as eight bytes but costs seconds of CPU time. So only one
//! upload of each node hashes holes, one slice is hashed at a time in the whole server, and the rest of the CPU is free
//! for other uploads and requests. Workspaces take turns slice by slice, however many of their nodes are waiting.

use std::sync::Arc;

use muster_core::ids::WorkspaceId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::keyed_lock::{KeyedGuard, KeyedLock};

/// How many bytes of holes are hashed without waiting: about as much work as any request.
pub(super) const AT_ONCE_BYTES: u64 = 1 << 20;
/// How many bytes of holes are hashed before the next workspace has its turn, and before a disconnected client is
/// noticed.
pub(super) const SLICE_BYTES: u64 = 128 << 20;
/// How many slices are hashed at the same time in the whole server.
const PLACES: usize = 1;

pub struct Holes {
    nodes: KeyedLock<Box<str>>,
    /// Only one upload of each workspace waits for a permit.
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
    /// Waits until no other upload of this node is hashing holes.
    pub async fn turn(&self, node: &str) -> KeyedGuard<Box<str>> {
        self.nodes.turn(node.into()).await
    }

    /// Waits for permission to hash one slice. Workspaces take turns, and so do the uploads of each workspace.
    pub async fn place(&self, workspace: WorkspaceId) -> Permit {
        let turn = self.workspaces.turn(workspace).await;
        // The semaphore is never closed.
        let permit = self.places.clone().acquire_owned().await.ok();
        Permit { _permit: permit, _turn: turn }
    }
}

/// Permission to hash one slice, until this is dropped.
pub struct Permit {
    // Dropped first, so that the next upload of the same workspace waits behind the other workspaces.
    _permit: Option<OwnedSemaphorePermit>,
    _turn: KeyedGuard<WorkspaceId>,
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Each node of a workspace used to have its own place in a single queue, so other workspaces waited for all of
    /// them before each slice.
    #[tokio::test]
    async fn one_workspace_with_many_nodes_does_not_make_others_wait_for_all_of_them() {
        let (noisy, quiet) = (WorkspaceId(1), WorkspaceId(2));
        let holes = Holes::default();
        let first = holes.place(noisy).await;
        let mut waiting: Vec<_> = (0..8).map(|_| Box::pin(holes.place(noisy))).collect();
        for place in &mut waiting {
            assert!(place.as_mut().now_or_never().is_none(), "there is only one permit");
        }
        let mut other = Box::pin(holes.place(quiet));
        assert!(other.as_mut().now_or_never().is_none());
        drop(first);
        for place in &mut waiting {
            assert!(
                place.as_mut().now_or_never().is_none(),
                "it is the turn of the other workspace"
            );
        }
        drop(other.now_or_never().expect("the other workspace is next"));
        let next =
            waiting.remove(0).now_or_never().expect("then the first workspace has its turn again");
        assert!(waiting[0].as_mut().now_or_never().is_none());
        drop((next, waiting));
        assert!(holes.workspaces.is_idle());
    }
}
