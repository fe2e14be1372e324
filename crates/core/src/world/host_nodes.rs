//! Which nodes are on each host, and how much of it they take together.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::NodeId;
use crate::model::{Capacity, HostName, Node};

/// The nodes of one host, including those in flight, and how much of it they take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNodes {
    pub nodes: BTreeSet<NodeId>,
    pub used: Capacity,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodesByHost(BTreeMap<HostName, HostNodes>);

impl NodesByHost {
    pub(super) fn of(&self, host: &HostName) -> Option<&HostNodes> {
        self.0.get(host)
    }

    pub(super) fn admit(&mut self, node: &Node) {
        let host_nodes = self.0.entry(node.host.clone()).or_default();
        if host_nodes.nodes.insert(node.id) {
            host_nodes.used = host_nodes.used.with(node.capacity);
        }
    }

    pub(super) fn dismiss(&mut self, node: &Node) {
        let Some(host_nodes) = self.0.get_mut(&node.host) else { return };
        if host_nodes.nodes.remove(&node.id) {
            host_nodes.used = host_nodes.used.without(node.capacity);
        }
        if host_nodes.nodes.is_empty() {
            self.0.remove(&node.host);
        }
    }
}
