//! Who hashes holes, and when. A hole of gigabytes comes as eight bytes and costs seconds of a core, so only one is hashed
//! at a time, in slices, and one of each node: others' uploads and requests have the rest of the machine.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::in_turn::{InTurn, MyTurn};

/// Hashed of a piece of a file without waiting: about as much as a request costs anyway.
pub(super) const AT_ONCE_BYTES: u64 = 1 << 20;
/// Hashed before others have their turn, and before anybody notices that the client is gone.
pub(super) const SLICE_BYTES: u64 = 128 << 20;
/// In the whole server.
const PLACES: usize = 1;

pub struct Holes {
    nodes: InTurn<Box<str>>,
    places: Arc<Semaphore>,
}

impl Default for Holes {
    fn default() -> Holes {
        Holes { nodes: InTurn::default(), places: Arc::new(Semaphore::new(PLACES)) }
    }
}

impl Holes {
    /// Waits until no other upload of this node hashes.
    pub async fn turn(&self, node: &str) -> MyTurn<Box<str>> {
        self.nodes.turn(node.into()).await
    }

    /// Waits for a place for one slice. Those who wait get it in the order in which they came.
    pub async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        self.places.clone().acquire_owned().await.ok()
    }
}
