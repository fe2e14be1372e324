//! The books of hosts: which nodes are on each, and what they take together.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::NodeId;
use crate::model::{Capacity, HostName, Node};

/// The nodes of one host, in flight included, and what they take of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Housed {
    pub nodes: BTreeSet<NodeId>,
    pub used: Capacity,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Houses(BTreeMap<HostName, Housed>);

impl Houses {
    pub(super) fn of(&self, host: &HostName) -> Option<&Housed> {
        self.0.get(host)
    }

    pub(super) fn admit(&mut self, node: &Node) {
        let housed = self.0.entry(node.host.clone()).or_default();
        if housed.nodes.insert(node.id) {
            housed.used = housed.used.with(node.capacity);
        }
    }

    pub(super) fn dismiss(&mut self, node: &Node) {
        let Some(housed) = self.0.get_mut(&node.host) else { return };
        if housed.nodes.remove(&node.id) {
            housed.used = housed.used.without(node.capacity);
        }
        if housed.nodes.is_empty() {
            self.0.remove(&node.host);
        }
    }
}
