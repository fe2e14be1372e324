//! One lock per key. Tasks wait for it without blocking a thread, and different keys do not wait for each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

/// A map of locks that are in use. Cheap to clone.
pub struct KeyedLock<K>(Arc<Mutex<BTreeMap<K, Arc<Lock<()>>>>>);

impl<K> Default for KeyedLock<K> {
    fn default() -> KeyedLock<K> {
        KeyedLock(Arc::default())
    }
}

impl<K> Clone for KeyedLock<K> {
    fn clone(&self) -> KeyedLock<K> {
        KeyedLock(self.0.clone())
    }
}

impl<K: Ord + Clone> KeyedLock<K> {
    fn busy(&self) -> MutexGuard<'_, BTreeMap<K, Arc<Lock<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn turn(&self, key: K) -> KeyedGuard<K> {
        let lock = self.busy().entry(key.clone()).or_default().clone();
        // Created before waiting, so that a task that stops waiting leaves no entry behind.
        let mut turn = KeyedGuard { all: self.clone(), key, held: None };
        turn.held = Some(lock.lock_owned().await);
        turn
    }

    /// The same for a thread that may block.
    pub fn wait(&self, key: K) -> KeyedGuard<K> {
        let lock = self.busy().entry(key.clone()).or_default().clone();
        let mut turn = KeyedGuard { all: self.clone(), key, held: None };
        turn.held = Some(lock.blocking_lock_owned());
        turn
    }

    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.busy().is_empty()
    }
}

/// Holds the lock of a key until this is dropped.
pub struct KeyedGuard<K: Ord + Clone> {
    all: KeyedLock<K>,
    key: K,
    held: Option<OwnedMutexGuard<()>>,
}

impl<K: Ord + Clone> Drop for KeyedGuard<K> {
    fn drop(&mut self) {
        let mut busy = self.all.busy();
        self.held = None;
        // If the map has the only reference, no task is waiting.
        if busy.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            busy.remove(&self.key);
        }
    }
}
