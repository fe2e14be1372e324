//! What World knows only while it runs: lease renewals, and what to look at next.
//!
//! None of this is a row or an event. After a restart every lease counts as just renewed and every cluster
//! is looked at once.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{ClusterId, NodeId};
use crate::time::{Elapsed, Span, Wall};

#[derive(Debug, Clone, Default)]
pub(crate) struct Volatile {
    renewed: BTreeMap<NodeId, Elapsed>,
    /// The same, oldest first.
    by_renewal: BTreeSet<(Elapsed, NodeId)>,
    /// Clusters that something happened to since they were last decided about.
    dirty: BTreeSet<ClusterId>,
    wakes: BTreeSet<(Wall, ClusterId)>,
    wake_of: BTreeMap<ClusterId, Wall>,
}

impl Volatile {
    pub(crate) fn renew(&mut self, node: NodeId, at: Elapsed) {
        self.forget_node(node);
        self.renewed.insert(node, at);
        self.by_renewal.insert((at, node));
    }

    pub(crate) fn renewed_at(&self, node: NodeId) -> Option<Elapsed> {
        self.renewed.get(&node).copied()
    }

    pub(crate) fn forget_node(&mut self, node: NodeId) {
        if let Some(at) = self.renewed.remove(&node) {
            self.by_renewal.remove(&(at, node));
        }
    }

    pub(crate) fn forget_cluster(&mut self, cluster: ClusterId) {
        self.dirty.remove(&cluster);
        self.wake_at(cluster, None);
    }

    /// Nodes whose last renewal is at least `patience` ago.
    pub(crate) fn silent(&self, now: Elapsed, patience: Span) -> Vec<NodeId> {
        self.by_renewal
            .iter()
            .take_while(|(at, _)| *at + patience <= now)
            .map(|(_, node)| *node)
            .collect()
    }

    pub(crate) fn next_silence(&self, patience: Span) -> Option<Elapsed> {
        self.by_renewal.first().map(|(at, _)| *at + patience)
    }

    pub(crate) fn touch(&mut self, cluster: ClusterId) {
        self.dirty.insert(cluster);
    }

    pub(crate) fn settled(&mut self, cluster: ClusterId, wake: Option<Wall>) {
        self.dirty.remove(&cluster);
        self.wake_at(cluster, wake);
    }

    fn wake_at(&mut self, cluster: ClusterId, wake: Option<Wall>) {
        if let Some(old) = self.wake_of.remove(&cluster) {
            self.wakes.remove(&(old, cluster));
        }
        if let Some(at) = wake {
            self.wake_of.insert(cluster, at);
            self.wakes.insert((at, cluster));
        }
    }

    /// The clusters to decide about now: touched ones and those whose timer is due.
    pub(crate) fn due(&self, now: Wall) -> BTreeSet<ClusterId> {
        let timers = self.wakes.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id);
        timers.chain(self.dirty.iter().copied()).collect()
    }

    pub(crate) fn next_wake(&self) -> Option<Wall> {
        self.wakes.first().map(|(at, _)| *at)
    }
}
