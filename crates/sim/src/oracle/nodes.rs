//! Promises about nodes and their bill: names are never reused, clusters do not exceed their maximum, and the lines of
//! the ledger cover the life of every node and agree with what it was doing.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::ids::{ClusterId, Epoch, NodeId};
use muster_core::model::{
    AttemptOutcome, AttemptRecord, Category, Cluster, ClusterPhase, Cost, LedgerLine, Node,
    NodeEvent, NodePhase,
};
use muster_core::time::Wall;

use super::bill::Bill;
use crate::failure::{Broken, Held, promise};

/// Node time and cost by category.
pub(crate) type Sums = BTreeMap<Category, Cost>;

#[derive(Clone)]
struct Track {
    cluster: ClusterId,
    bill: Bill,
}

#[derive(Clone, Default)]
struct ClusterBounds {
    nodes_max: u32,
    nodes: BTreeSet<NodeId>,
    /// How many nodes there may be: more than the maximum only if it was lowered below their number.
    ceiling: usize,
    is_deleting: bool,
    /// No node is created before this time.
    backoff_until: Wall,
}

impl ClusterBounds {
    fn settle(&mut self) {
        self.ceiling = self.ceiling.min(self.nodes.len()).max(self.nodes_max as usize);
    }
}

#[derive(Clone, Default)]
pub(super) struct Nodes {
    tracks: BTreeMap<NodeId, Track>,
    names: BTreeSet<std::sync::Arc<str>>,
    bounds: BTreeMap<ClusterId, ClusterBounds>,
    /// The outcomes in the lines of attempts that are not over.
    said: BTreeMap<Epoch, Vec<AttemptOutcome>>,
    /// Nodes with time spent on an attempt that is not over.
    serving: BTreeSet<(NodeId, Epoch)>,
    /// Attempts whose bill is closed.
    closed: BTreeSet<Epoch>,
    pub(super) sums: Sums,
    /// Nodes whose create call was reported as successful.
    created: BTreeSet<NodeId>,
}

impl Nodes {
    pub(super) fn on_cluster(&mut self, cluster: &Cluster) -> Held {
        if cluster.phase == ClusterPhase::Gone {
            let left = self.bounds.remove(&cluster.id).map_or(0, |bounds| bounds.nodes.len());
            return promise(left == 0, || {
                format!("{} was deleted before {left} nodes", cluster.name)
            });
        }
        let bounds = self.bounds.entry(cluster.id).or_default();
        bounds.nodes_max = cluster.spec.scale.nodes_max;
        bounds.backoff_until = cluster.backoff.until;
        bounds.is_deleting = cluster.phase == ClusterPhase::Deleting;
        bounds.ceiling = bounds.nodes.len().max(bounds.nodes_max as usize);
        Ok(())
    }

    pub(super) fn is_deleting(&self, cluster: ClusterId) -> bool {
        self.bounds.get(&cluster).is_some_and(|bounds| bounds.is_deleting)
    }

    pub(super) fn on_node(&mut self, event: NodeEvent, node: &Node, wall: Wall) -> Held {
        if event == NodeEvent::Requested {
            self.on_requested(node, wall)?;
        }
        if event == NodeEvent::Created {
            promise(self.created.contains(&node.id), || {
                format!("{} counts as created, but was not", node.name)
            })?;
        }
        let Some(track) = self.tracks.get_mut(&node.id) else {
            return Err(Broken(format!("{} was never requested: {event:?}", node.name)));
        };
        promise(!track.bill.is_final(), || {
            format!("{} was deleted, and then {event:?}", node.name)
        })?;
        track.bill.on_node(node, wall);
        if matches!(event, NodeEvent::Granted | NodeEvent::BatchChanged) {
            self.serving.extend(node.leases().iter().map(|lease| (node.id, lease.epoch)));
        }
        if node.phase() == NodePhase::Gone {
            if let Some(bounds) = self.bounds.get_mut(&node.cluster) {
                bounds.nodes.remove(&node.id);
                bounds.settle();
            }
            if track.bill.is_whole() {
                self.tracks.remove(&node.id);
            } else {
                let is_owed = is_serving(&self.serving, node.id);
                promise(is_owed, || {
                    format!("{} is deleted, with a gap in {:?}", node.name, track.bill)
                })?;
            }
        }
        Ok(())
    }

    pub(super) fn on_create_done(&mut self, node: NodeId) {
        self.created.insert(node);
    }

    /// The store is back to the state when `then` was copied, but names remain used.
    pub(super) fn roll_back(&mut self, then: &Nodes) {
        let names = std::mem::take(&mut self.names);
        let created = std::mem::take(&mut self.created);
        *self = then.clone();
        self.names = names;
        self.created = created;
    }

    fn on_requested(&mut self, node: &Node, wall: Wall) -> Held {
        promise(self.names.insert(node.name.clone()), || {
            format!("the node name {} is used again", node.name)
        })?;
        let Some(bounds) = self.bounds.get_mut(&node.cluster) else {
            return Err(Broken(format!("{} was requested for no cluster", node.name)));
        };
        promise(bounds.backoff_until <= wall, || {
            format!("{} is requested before the pause after a failure is over", node.name)
        })?;
        bounds.nodes.insert(node.id);
        promise(bounds.nodes.len() <= bounds.nodes_max as usize, || {
            format!("{} is one more than {}", node.name, bounds.nodes_max)
        })?;
        let track = Track { cluster: node.cluster, bill: Bill::new(node.price_micro_usd_per_hour) };
        let before = self.tracks.insert(node.id, track);
        promise(before.is_none(), || format!("{} was used twice", node.id))
    }

    pub(super) fn on_ledger(&mut self, line: &LedgerLine, wall: Wall) -> Held {
        let Some(track) = self.tracks.get_mut(&line.node) else {
            return Err(Broken(format!("a bill for no node: {line:?}")));
        };
        track.bill.add(line, wall)?;
        let serves = matches!(line.category, Category::Prepare | Category::Run);
        let is_served = line.served.is_some() && line.outcome != AttemptOutcome::None;
        promise(serves == is_served, || format!("served or not? {line:?}"))?;
        if let Some(served) = line.served {
            promise(!self.closed.contains(&served.epoch), || format!("too late: {line:?}"))?;
            self.said.entry(served.epoch).or_default().push(line.outcome);
        }
        let cost = self.sums.entry(line.category).or_default();
        cost.add(line.part, line.span(), line.price_micro_usd_per_hour);
        Ok(())
    }

    /// The lines of an attempt agree with its outcome.
    pub(super) fn on_attempt_ended(&mut self, record: &AttemptRecord) -> Held {
        self.closed.insert(record.epoch);
        let said = self.said.remove(&record.epoch).unwrap_or_default();
        let is_same = said.iter().all(|outcome| *outcome == record.outcome);
        promise(is_same, || {
            format!("{} ended as {:?}, but its bill says {said:?}", record.epoch, record.outcome)
        })?;
        for member in &record.members {
            self.serving.remove(&(member.node, record.epoch));
            let is_owed = is_serving(&self.serving, member.node);
            let bill = self.tracks.get(&member.node).map(|track| &track.bill);
            if bill.is_some_and(Bill::is_final) && !is_owed {
                promise(bill.is_some_and(Bill::is_whole), || format!("a gap in {bill:?}"))?;
                self.tracks.remove(&member.node);
            }
        }
        Ok(())
    }

    /// A node whose bill is not closed. At the end there may be none.
    pub(super) fn unsettled(&self) -> Option<NodeId> {
        self.tracks.keys().next().copied()
    }

    /// The machines at the provider must not exceed what each cluster may have.
    pub(super) fn check_ceilings(&self, machines: impl Iterator<Item = NodeId>) -> Held {
        let mut counted: BTreeMap<ClusterId, usize> = BTreeMap::new();
        for node in machines {
            // An unknown machine is left to the search for orphans.
            let Some(track) = self.tracks.get(&node) else { continue };
            *counted.entry(track.cluster).or_default() += 1;
        }
        for (cluster, count) in counted {
            let ceiling = self.bounds.get(&cluster).map_or(0, |bounds| bounds.ceiling);
            promise(count <= ceiling, || {
                format!(
                    "the provider runs {count} nodes of {cluster}, but at most {ceiling} may exist"
                )
            })?;
        }
        Ok(())
    }
}

/// Whether an attempt that is not over yet will still be billed for its part of this node.
fn is_serving(serving: &BTreeSet<(NodeId, Epoch)>, node: NodeId) -> bool {
    serving.range((node, Epoch(0))..=(node, Epoch(u64::MAX))).next().is_some()
}
