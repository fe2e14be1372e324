//! The ordered indexes of World, kept in step with every record.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{ClusterId, JobId, NodeId, PrincipalId, WorkspaceId};
use crate::model::{Cluster, Job, JobPhase, Node, NodeState, WorkspaceKey};
use crate::time::Wall;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) principals: BTreeMap<Box<str>, PrincipalId>,
    pub(super) workspaces: BTreeMap<WorkspaceKey, WorkspaceId>,
    pub(super) clusters_by_name: BTreeMap<(WorkspaceId, String), ClusterId>,
    pub(super) clusters_by_region: BTreeMap<(String, String), ClusterId>,
    pub(super) nodes_by_name: BTreeMap<Box<str>, NodeId>,
    pub(super) jobs_by_name: BTreeMap<(WorkspaceId, String), JobId>,
    pub(super) pools: BTreeMap<ClusterId, Pool>,
    /// Nodes that have not reported yet, by when they were asked for.
    pub(super) boots: BTreeSet<(Wall, NodeId)>,
}

/// The jobs and nodes of one cluster, sorted by what they are doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pool {
    /// First come is smallest id.
    pub queue: BTreeSet<JobId>,
    /// How many queued jobs need how many nodes.
    pub shapes: BTreeMap<u32, u32>,
    pub active: BTreeSet<JobId>,
    pub pending: BTreeSet<NodeId>,
    /// By since when: the last is the most recently used.
    pub idle: BTreeSet<(Wall, NodeId)>,
    pub leased: BTreeSet<NodeId>,
    /// Leaving or unusable: not ours to use, but still there and still paid for.
    pub going: BTreeSet<NodeId>,
}

impl Pool {
    /// Nodes that serve or will serve.
    pub fn alive(&self) -> u32 {
        count(self.pending.len() + self.idle.len() + self.leased.len())
    }

    /// Nodes that exist or may exist: what the maximum and the bill count.
    pub fn existing(&self) -> u32 {
        self.alive() + count(self.going.len())
    }

    /// Nodes that the waiting jobs would fill, leaving out jobs that can never fit into `nodes_max`.
    pub fn waiting_nodes(&self, nodes_max: u32) -> u64 {
        self.shapes
            .range(..=nodes_max)
            .map(|(nodes, jobs)| u64::from(*nodes) * u64::from(*jobs))
            .sum()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.active.is_empty() && self.existing() == 0
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("a pool has far fewer than 2^32 nodes")
}

impl Index {
    pub(super) fn insert_cluster(&mut self, cluster: &Cluster) {
        let (by_name, by_region) = cluster_keys(cluster);
        self.clusters_by_name.insert(by_name, cluster.id);
        self.clusters_by_region.insert(by_region, cluster.id);
        self.pools.entry(cluster.id).or_default();
    }

    pub(super) fn remove_cluster(&mut self, cluster: &Cluster) {
        let (by_name, by_region) = cluster_keys(cluster);
        self.clusters_by_name.remove(&by_name);
        self.clusters_by_region.remove(&by_region);
    }

    pub(super) fn insert_job(&mut self, job: &Job) {
        self.jobs_by_name.insert((job.workspace, job.name.to_ascii_lowercase()), job.id);
        let pool = self.pools.entry(job.cluster).or_default();
        if job.phase() == JobPhase::Queued {
            pool.queue.insert(job.id);
            *pool.shapes.entry(job.nodes).or_default() += 1;
        } else {
            pool.active.insert(job.id);
        }
    }

    pub(super) fn remove_job(&mut self, job: &Job) {
        self.jobs_by_name.remove(&(job.workspace, job.name.to_ascii_lowercase()));
        let pool = self.pools.entry(job.cluster).or_default();
        if pool.queue.remove(&job.id)
            && let Some(jobs) = pool.shapes.get_mut(&job.nodes)
        {
            *jobs -= 1;
            if *jobs == 0 {
                pool.shapes.remove(&job.nodes);
            }
        }
        pool.active.remove(&job.id);
    }

    pub(super) fn insert_node(&mut self, node: &Node) {
        self.nodes_by_name.insert(node.name.clone(), node.id);
        let pool = self.pools.entry(node.cluster).or_default();
        match node.state {
            NodeState::Requested | NodeState::Booting => {
                pool.pending.insert(node.id);
                self.boots.insert((node.requested_at, node.id));
            }
            NodeState::Idle { since, .. } => {
                pool.idle.insert((since, node.id));
            }
            NodeState::Leased { .. } => {
                pool.leased.insert(node.id);
            }
            NodeState::Unusable { .. } | NodeState::Leaving => {
                pool.going.insert(node.id);
            }
            NodeState::Gone => {}
        }
    }

    pub(super) fn remove_node(&mut self, node: &Node) {
        self.nodes_by_name.remove(&node.name);
        self.boots.remove(&(node.requested_at, node.id));
        let pool = self.pools.entry(node.cluster).or_default();
        if let NodeState::Idle { since, .. } = node.state {
            pool.idle.remove(&(since, node.id));
        }
        pool.pending.remove(&node.id);
        pool.leased.remove(&node.id);
        pool.going.remove(&node.id);
    }
}

fn cluster_keys(cluster: &Cluster) -> ((WorkspaceId, String), (String, String)) {
    let name = cluster.name.folded();
    ((cluster.workspace, name.clone()), (cluster.spec.location.to_ascii_lowercase(), name))
}
