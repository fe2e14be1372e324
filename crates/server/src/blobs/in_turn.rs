//! One after the other for each key, mostly waiting without a thread. Different keys do not wait for each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

/// Cheap to clone.
pub struct InTurn<K>(Arc<Mutex<BTreeMap<K, Arc<Lock<()>>>>>);

impl<K> Default for InTurn<K> {
    fn default() -> InTurn<K> {
        InTurn(Arc::default())
    }
}

impl<K> Clone for InTurn<K> {
    fn clone(&self) -> InTurn<K> {
        InTurn(self.0.clone())
    }
}

impl<K: Ord + Clone> InTurn<K> {
    fn busy(&self) -> MutexGuard<'_, BTreeMap<K, Arc<Lock<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn turn(&self, key: K) -> MyTurn<K> {
        let lock = self.busy().entry(key.clone()).or_default().clone();
        // Made first: whoever gives up waiting leaves nothing behind.
        let mut turn = MyTurn { all: self.clone(), key, held: None };
        turn.held = Some(lock.lock_owned().await);
        turn
    }

    /// The same for a thread that may wait.
    pub fn wait(&self, key: K) -> MyTurn<K> {
        let lock = self.busy().entry(key.clone()).or_default().clone();
        let mut turn = MyTurn { all: self.clone(), key, held: None };
        turn.held = Some(lock.blocking_lock_owned());
        turn
    }

    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.busy().is_empty()
    }
}

/// Until this is dropped.
pub struct MyTurn<K: Ord + Clone> {
    all: InTurn<K>,
    key: K,
    held: Option<OwnedMutexGuard<()>>,
}

impl<K: Ord + Clone> Drop for MyTurn<K> {
    fn drop(&mut self) {
        let mut busy = self.all.busy();
        self.held = None;
        // The map's own is the last: nobody waits.
        if busy.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            busy.remove(&self.key);
        }
    }
}
