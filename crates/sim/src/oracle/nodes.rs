//! Promises about nodes and their bill: names are never used twice, pools stay within their maximum, and the
//! ledger's lines tile the life of every node and say what it was doing.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::ids::{ClusterId, Epoch, NodeId};
use muster_core::model::{
    AttemptOutcome, AttemptRecord, Category, Cluster, ClusterPhase, Cost, LedgerLine, Node,
    NodeEvent, NodePhase,
};
use muster_core::time::Wall;

use super::bill::Bill;
use crate::failure::{Broken, Held, promise};

/// Node time and cost, added up by category.
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
    /// How many there may be: more than the maximum only while it was lowered under them.
    ceiling: usize,
    is_deleting: bool,
    /// Nothing is created before.
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
    pools: BTreeMap<ClusterId, ClusterBounds>,
    /// What the lines of attempts that are not over say about their outcome.
    said: BTreeMap<Epoch, Vec<AttemptOutcome>>,
    /// Nodes whose time went into an attempt that is not over.
    serving: BTreeSet<(NodeId, Epoch)>,
    /// Attempts whose bill is closed.
    closed: BTreeSet<Epoch>,
    pub(super) sums: Sums,
    /// Nodes whose create call was said to have worked.
    created: BTreeSet<NodeId>,
}

impl Nodes {
    pub(super) fn on_cluster(&mut self, cluster: &Cluster) -> Held {
        if cluster.phase == ClusterPhase::Gone {
            let left = self.pools.remove(&cluster.id).map_or(0, |pool| pool.nodes.len());
            return promise(left == 0, || format!("{} went before {left} nodes", cluster.name));
        }
        let pool = self.pools.entry(cluster.id).or_default();
        pool.nodes_max = cluster.spec.scale.nodes_max;
        pool.backoff_until = cluster.backoff.until;
        pool.is_deleting = cluster.phase == ClusterPhase::Deleting;
        pool.ceiling = pool.nodes.len().max(pool.nodes_max as usize);
        Ok(())
    }

    pub(super) fn is_deleting(&self, cluster: ClusterId) -> bool {
        self.pools.get(&cluster).is_some_and(|pool| pool.is_deleting)
    }

    pub(super) fn on_node(&mut self, event: NodeEvent, node: &Node, wall: Wall) -> Held {
        if event == NodeEvent::Requested {
            self.on_requested(node, wall)?;
        }
        if event == NodeEvent::Created {
            promise(self.created.contains(&node.id), || {
                format!("{} is taken for created, and was not", node.name)
            })?;
        }
        let Some(track) = self.tracks.get_mut(&node.id) else {
            return Err(Broken(format!("{} was never requested: {event:?}", node.name)));
        };
        promise(!track.bill.is_final(), || format!("{} was gone, and then {event:?}", node.name))?;
        track.bill.on_node(node, wall);
        if event == NodeEvent::Granted {
            self.serving.extend(node.leases().last().map(|lease| (node.id, lease.epoch)));
        }
        if node.phase() == NodePhase::Gone {
            if let Some(pool) = self.pools.get_mut(&node.cluster) {
                pool.nodes.remove(&node.id);
                pool.settle();
            }
            if track.bill.is_whole() {
                self.tracks.remove(&node.id);
            } else {
                let is_owed = is_serving(&self.serving, node.id);
                promise(is_owed, || format!("{} is gone, a gap in {:?}", node.name, track.bill))?;
            }
        }
        Ok(())
    }

    pub(super) fn on_create_done(&mut self, node: NodeId) {
        self.created.insert(node);
    }

    /// The store is back to what it was when `then` was copied, but names stay used.
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
        let Some(pool) = self.pools.get_mut(&node.cluster) else {
            return Err(Broken(format!("{} was requested for no cluster", node.name)));
        };
        promise(pool.backoff_until <= wall, || {
            format!("{} is requested before the pause after a failure is over", node.name)
        })?;
        pool.nodes.insert(node.id);
        promise(pool.nodes.len() <= pool.nodes_max as usize, || {
            format!("{} is one more than {}", node.name, pool.nodes_max)
        })?;
        let track = Track { cluster: node.cluster, bill: Bill::new(node.price_micro_usd_per_hour) };
        let before = self.tracks.insert(node.id, track);
        promise(before.is_none(), || format!("{} was given out twice", node.id))
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

    /// The lines of an attempt say what became of it.
    pub(super) fn on_attempt_ended(&mut self, record: &AttemptRecord) -> Held {
        self.closed.insert(record.epoch);
        let said = self.said.remove(&record.epoch).unwrap_or_default();
        let is_same = said.iter().all(|outcome| *outcome == record.outcome);
        promise(is_same, || {
            format!("{} came to {:?}, its bill says {said:?}", record.epoch, record.outcome)
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

    /// Nodes whose bill is not closed, for the end, when none may be left.
    pub(super) fn unsettled(&self) -> Option<NodeId> {
        self.tracks.keys().next().copied()
    }

    /// What the provider has must fit into what each pool may have.
    pub(super) fn check_ceilings(&self, machines: impl Iterator<Item = NodeId>) -> Held {
        let mut counted: BTreeMap<ClusterId, usize> = BTreeMap::new();
        for node in machines {
            // One that nobody knows is the sweeper's business.
            let Some(track) = self.tracks.get(&node) else { continue };
            *counted.entry(track.cluster).or_default() += 1;
        }
        for (cluster, count) in counted {
            let ceiling = self.pools.get(&cluster).map_or(0, |pool| pool.ceiling);
            promise(count <= ceiling, || {
                format!("the provider runs {count} nodes of {cluster}; {ceiling} are the most")
            })?;
        }
        Ok(())
    }
}

/// Whether an attempt that is not over yet will still be billed for its part of this node.
fn is_serving(serving: &BTreeSet<(NodeId, Epoch)>, node: NodeId) -> bool {
    serving.range((node, Epoch(0))..=(node, Epoch(u64::MAX))).next().is_some()
}
