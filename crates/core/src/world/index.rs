//! The ordered indexes of World, updated with every record.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use super::host_nodes::NodesByHost;
use super::queue::{Queue, nodes_for_all};
use super::quotas::Quotas;
use super::tree::Trees;
use crate::ids::{ClusterId, Epoch, JobId, NodeId, PrincipalId, WorkspaceId};
use crate::model::{
    Batch, Capacity, Category, Cluster, HostName, Job, JobPhase, Node, NodePhase, NodeState, Use,
    WorkspaceKey,
};
use crate::planted::{Bug, is_planted};
use crate::time::Wall;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) principals: BTreeMap<Box<str>, PrincipalId>,
    pub(super) workspaces: BTreeMap<WorkspaceKey, WorkspaceId>,
    pub(super) clusters_by_name: BTreeMap<(WorkspaceId, String), ClusterId>,
    /// More than one if names are unique only within a workspace.
    pub(super) clusters_by_region: BTreeMap<(String, String), BTreeSet<ClusterId>>,
    pub(super) nodes_by_name: BTreeMap<Arc<str>, NodeId>,
    /// By a hash of the name, because a million names would take as much memory as everything else.
    pub(super) jobs_by_name: BTreeSet<(WorkspaceId, u64, JobId)>,
    pub(super) clusters: BTreeMap<ClusterId, ClusterIndex>,
    /// The number of waiting jobs by user. Users without any are not included.
    pub(super) queued_by_principal: BTreeMap<PrincipalId, u32>,
    pub(super) queued_by_workspace: BTreeMap<WorkspaceId, u32>,
    pub(super) quotas: Quotas,
    /// The children of live parents.
    pub(super) trees: Trees,
    pub(super) nodes_by_host: NodesByHost,
    /// Nodes that have not reported yet, by the time of their request.
    pub(super) boots: BTreeSet<(Wall, NodeId)>,
}

/// The hash of a name, ignoring case. It is only compared with hashes from the same process.
pub(super) fn name_hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for byte in name.bytes() {
        hasher.write_u8(byte.to_ascii_lowercase());
    }
    hasher.finish()
}

/// The jobs and nodes of one cluster, grouped by what they are doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterIndex {
    pub queue: Queue,
    pub active: BTreeSet<JobId>,
    /// Jobs that consist of other jobs. They hold no nodes themselves.
    pub parents: BTreeSet<JobId>,
    /// Nodes that are starting, by the time of their request.
    pub pending: BTreeSet<(Wall, NodeId)>,
    /// Idle nodes by when they became idle. The first is deleted first.
    pub idle: BTreeSet<(Wall, NodeId)>,
    /// Idle nodes in ascending order of preference for the next job: the most recently used are preferred, and nodes
    /// that have never run a job most of all, because they would be missed least.
    pub reuse: BTreeSet<(bool, Wall, NodeId)>,
    /// Idle nodes whose time is billed to the cluster's minimum.
    pub floor: BTreeSet<NodeId>,
    /// Shared nodes with some room left, those with the least room first.
    pub partial: BTreeSet<(Capacity, NodeId)>,
    /// All nodes that hold a job, in part or as a whole.
    pub leased: BTreeSet<NodeId>,
    /// Nodes with tasks that they start by themselves and were not asked to return: by user, and by when the task before
    /// them began.
    pub batches: BTreeMap<PrincipalId, BTreeSet<(Wall, NodeId, Epoch)>>,
    /// Idle nodes on hosts that are not open: they exist, but no job starts on them.
    pub parked: BTreeSet<(Wall, NodeId)>,
    /// The number of nodes on each host.
    pub hosts: BTreeMap<HostName, u32>,
    /// Leaving or unusable nodes: they cannot be used, but still exist and are still billed.
    pub going: BTreeSet<NodeId>,
}

impl ClusterIndex {
    /// Nodes that run jobs or will.
    pub fn alive(&self) -> u32 {
        count(self.pending.len() + self.idle.len() + self.leased.len())
    }

    /// Nodes that exist or may exist, which the maximum, the quota and the bill count.
    pub fn existing(&self) -> u32 {
        self.alive() + count(self.going.len() + self.parked.len())
    }

    /// How many nodes the waiting jobs would fill, not counting jobs that need more than `nodes_max`.
    pub fn waiting_nodes(&self, nodes_max: u32, node: Capacity) -> u64 {
        let fitting = self.queue.shapes().iter().take_while(|(shape, _)| shape.nodes <= nodes_max);
        nodes_for_all(fitting, node)
    }

    pub fn is_empty(&self) -> bool {
        let has_jobs =
            !self.queue.is_empty() || !self.active.is_empty() || !self.parents.is_empty();
        !has_jobs && self.existing() == 0
    }
}

pub(super) fn count(length: usize) -> u32 {
    u32::try_from(length).expect("a cluster has far fewer than 2^32 nodes")
}

impl Index {
    pub(super) fn insert_cluster(&mut self, cluster: &Cluster, subscription: &str) {
        let (by_name, by_region) = cluster_keys(cluster);
        self.clusters_by_name.insert(by_name, cluster.id);
        // Serverless clusters have the same names in every workspace.
        if !cluster.is_serverless() {
            self.clusters_by_region.entry(by_region).or_default().insert(cluster.id);
        }
        self.quotas.reserve(cluster, subscription);
        self.clusters.entry(cluster.id).or_default();
    }

    pub(super) fn remove_cluster(&mut self, cluster: &Cluster) {
        let (by_name, by_region) = cluster_keys(cluster);
        self.clusters_by_name.remove(&by_name);
        if !cluster.is_serverless() {
            let found = self.clusters_by_region.get_mut(&by_region);
            let is_last = found.is_some_and(|ids| ids.remove(&cluster.id) && ids.is_empty());
            if is_last {
                self.clusters_by_region.remove(&by_region);
            }
        }
        self.quotas.unreserve(cluster.id);
    }

    /// `used` is how much of the cluster the job's user has used.
    pub(super) fn insert_job(&mut self, job: &Job, used: Use) {
        if job.phase() == JobPhase::Queued {
            self.enqueue(job, (job.id, job.id), used);
        } else {
            self.clusters.entry(job.cluster).or_default().active.insert(job.id);
        }
    }

    pub(super) fn remove_job(&mut self, job: &Job) {
        if job.phase() == JobPhase::Queued {
            self.dequeue(job, (job.id, job.id));
        } else {
            self.clusters.entry(job.cluster).or_default().active.remove(&job.id);
        }
    }

    /// Adds jobs with these IDs, which are like `job`, to the queue of its cluster.
    pub(super) fn enqueue(&mut self, job: &Job, ids: (JobId, JobId), used: Use) {
        let count = count_of(ids);
        self.clusters.entry(job.cluster).or_default().queue.insert_range(job, ids, used);
        *self.queued_by_principal.entry(job.principal).or_default() += count;
        *self.queued_by_workspace.entry(job.workspace).or_default() += count;
    }

    pub(super) fn dequeue(&mut self, job: &Job, ids: (JobId, JobId)) {
        let index = self.clusters.entry(job.cluster).or_default();
        if index.queue.remove_range(job, ids) {
            let count = count_of(ids);
            less(&mut self.queued_by_principal, job.principal, count);
            less(&mut self.queued_by_workspace, job.workspace, count);
        }
    }

    /// The names of children follow from those of their parents.
    pub(super) fn insert_name(&mut self, job: &Job) {
        if job.parent.is_some() {
            return;
        }
        self.jobs_by_name.insert((job.workspace, name_hash(&job.name), job.id));
    }

    pub(super) fn remove_name(&mut self, job: &Job) {
        self.jobs_by_name.remove(&(job.workspace, name_hash(&job.name), job.id));
    }

    /// Adds a node that now exists: it has a name and counts towards the quota until it is deleted.
    pub(super) fn admit_node(&mut self, node: &Node) {
        self.nodes_by_name.insert(Arc::clone(&node.name), node.id);
        self.nodes_by_host.admit(node);
        let index = self.clusters.entry(node.cluster).or_default();
        *index.hosts.entry(node.host.clone()).or_default() += 1;
        if !(is_planted(Bug::QuotaWithoutInFlight) && node.phase() == NodePhase::Requested) {
            self.quotas.take(node.cluster, node.capacity.vcpus);
        }
    }

    pub(super) fn dismiss_node(&mut self, node: &Node) {
        self.nodes_by_name.remove(&node.name);
        self.nodes_by_host.dismiss(node);
        let index = self.clusters.entry(node.cluster).or_default();
        if let Some(nodes) = index.hosts.get_mut(&node.host) {
            *nodes -= 1;
            if *nodes == 0 {
                index.hosts.remove(&node.host);
            }
        }
        self.quotas.give_back(node.cluster, node.capacity.vcpus);
    }

    /// `is_open` is whether its host is open.
    pub(super) fn insert_node(&mut self, node: &Node, is_open: bool) {
        let index = self.clusters.entry(node.cluster).or_default();
        match &node.state {
            NodeState::Requested | NodeState::Booting => {
                index.pending.insert((node.requested_at, node.id));
                self.boots.insert((node.requested_at, node.id));
            }
            NodeState::Idle { since, .. } if !is_open => {
                index.parked.insert((*since, node.id));
            }
            NodeState::Idle { since, has_served } => {
                index.idle.insert((*since, node.id));
                index.reuse.insert((*has_served, *since, node.id));
                if node.meter.is_some_and(|meter| meter.category == Category::Floor) {
                    index.floor.insert(node.id);
                }
            }
            NodeState::Leased { .. } => {
                index.leased.insert(node.id);
                for (batch, epoch) in batches_of(node) {
                    let batches = index.batches.entry(batch.principal).or_default();
                    batches.insert((batch.since, node.id, epoch));
                }
                let room = node.room();
                if is_open && has_room(room) {
                    index.partial.insert((room, node.id));
                }
            }
            NodeState::Unusable { .. } | NodeState::Leaving => {
                index.going.insert(node.id);
            }
            NodeState::Gone => {}
        }
    }

    pub(super) fn remove_node(&mut self, node: &Node) {
        let index = self.clusters.entry(node.cluster).or_default();
        match node.phase() {
            NodePhase::Requested | NodePhase::Booting => {
                index.pending.remove(&(node.requested_at, node.id));
                self.boots.remove(&(node.requested_at, node.id));
            }
            NodePhase::Idle => {
                if let NodeState::Idle { since, has_served } = node.state {
                    index.idle.remove(&(since, node.id));
                    index.parked.remove(&(since, node.id));
                    index.reuse.remove(&(has_served, since, node.id));
                }
                index.floor.remove(&node.id);
            }
            NodePhase::Leased => {
                index.leased.remove(&node.id);
                for (batch, epoch) in batches_of(node) {
                    let Some(batches) = index.batches.get_mut(&batch.principal) else { continue };
                    batches.remove(&(batch.since, node.id, epoch));
                    if batches.is_empty() {
                        index.batches.remove(&batch.principal);
                    }
                }
                let room = node.room();
                if has_room(room) {
                    index.partial.remove(&(room, node.id));
                }
            }
            NodePhase::Unusable | NodePhase::Leaving | NodePhase::Gone => {
                index.going.remove(&node.id);
            }
        }
    }
}

fn count_of((first, last): (JobId, JobId)) -> u32 {
    u32::try_from(last.0 - first.0 + 1).unwrap_or(u32::MAX)
}

fn less<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K, by: u32) {
    let Some(count) = counts.get_mut(&key) else { return };
    *count -= by;
    if *count == 0 {
        counts.remove(&key);
    }
}

/// The batches that a node was not asked to return, with the epochs of their leases.
fn batches_of(node: &Node) -> impl Iterator<Item = (Batch, Epoch)> {
    let batches = node.leases().iter().filter_map(|lease| Some((lease.batch?, lease.epoch)));
    batches.filter(|(batch, _)| !batch.is_recalled)
}

/// No job can run without a core and some memory.
fn has_room(room: Capacity) -> bool {
    room.vcpus > 0 && room.memory_mb > 0
}

fn cluster_keys(cluster: &Cluster) -> ((WorkspaceId, String), (String, String)) {
    let name = cluster.name.folded();
    ((cluster.workspace, name.clone()), (cluster.spec.location.to_ascii_lowercase(), name))
}
