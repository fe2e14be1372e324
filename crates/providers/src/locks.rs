//! One call at a time for each node. Calls about different nodes do not wait for each other.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct NodeLocks {
    taken: Mutex<BTreeSet<String>>,
    given_back: Condvar,
}

pub(crate) struct NodeLock<'a> {
    locks: &'a NodeLocks,
    name: &'a str,
}

impl NodeLocks {
    pub(crate) fn take<'a>(&'a self, name: &'a str) -> NodeLock<'a> {
        let taken = self.lock();
        let is_taken = |taken: &mut BTreeSet<String>| taken.contains(name);
        let waited = self.given_back.wait_while(taken, is_taken);
        waited.unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        NodeLock { locks: self, name }
    }

    /// Returns `None` if another call holds the lock.
    pub(crate) fn try_take<'a>(&'a self, name: &'a str) -> Option<NodeLock<'a>> {
        let is_free = self.lock().insert(name.to_owned());
        // A lock that is not ours must not even be constructed, because dropping it would release it.
        is_free.then(|| NodeLock { locks: self, name })
    }

    /// Every change to the set is a single call, so a panic elsewhere leaves it consistent.
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NodeLock<'_> {
    fn drop(&mut self) {
        self.locks.lock().remove(self.name);
        self.locks.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_one_callers_until_it_is_dropped() {
        let locks = NodeLocks::default();
        let first = locks.take("a");
        assert!(locks.try_take("a").is_none());
        assert!(locks.try_take("a").is_none(), "a failed attempt does not release it");
        assert!(locks.try_take("b").is_some());
        drop(first);
        assert!(locks.try_take("a").is_some());
    }
}
