//! World: the live entities, and the indexes that let a decision cost what changed, not what exists.
//!
//! World changes only through [`World::apply`], with the same [`Change`]s that become rows. What is neither
//! a row nor an event (lease renewals, what to look at next) lives in [`volatile`] and is made anew at start.

mod index;
mod volatile;

use std::collections::BTreeMap;
use std::sync::Arc;

use index::Index;
pub use index::Pool;
pub(crate) use volatile::Volatile;

use crate::catalogue::Catalogue;
use crate::change::{Change, Effect};
use crate::ids::{
    ClusterId, EPOCH_SHIFT, EffectId, Epoch, JobId, NodeId, PrincipalId, WorkspaceId,
};
use crate::model::{
    Cluster, ClusterPhase, Job, JobPhase, Lifecycle, Node, NodePhase, Principal, Workspace,
    WorkspaceKey,
};
use crate::planted::{Bug, is_planted};
use crate::time::{Elapsed, Now, Span, Wall};

/// The operator's choices that decisions depend on. Not state: they come with every start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long an agent may run on without an answer.
    pub lease: Span,
    /// How much longer than the lease we wait before we call a node lost: clock drift and its own grace.
    pub lease_margin: Span,
    /// From the create call to the first report.
    pub boot_timeout: Span,
    /// A job whose nodes were lost this often is not tried again.
    pub attempts_max: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lease: Span::seconds(60),
            lease_margin: Span::seconds(10),
            boot_timeout: Span::seconds(600),
            attempts_max: 5,
        }
    }
}

/// What a store gives back at start: everything that World is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    pub next_sequence: u64,
    pub last_wall: Wall,
    pub principals: Vec<Principal>,
    pub workspaces: Vec<Workspace>,
    pub clusters: Vec<Cluster>,
    pub nodes: Vec<Node>,
    /// Live ones only.
    pub jobs: Vec<Job>,
    pub effects: Vec<Effect>,
}

#[derive(Debug, Clone)]
pub struct World {
    pub settings: Settings,
    pub catalogue: Arc<Catalogue>,
    next_sequence: u64,
    last_wall: Wall,
    principals: BTreeMap<PrincipalId, Principal>,
    workspaces: BTreeMap<WorkspaceId, Workspace>,
    clusters: BTreeMap<ClusterId, Cluster>,
    nodes: BTreeMap<NodeId, Node>,
    jobs: BTreeMap<JobId, Job>,
    effects: BTreeMap<EffectId, Effect>,
    index: Index,
    pub(crate) volatile: Volatile,
}

impl World {
    /// World as the rows have it, for the controller that holds `controller_epoch`. Every live lease counts
    /// as just renewed: we cannot know how long we were away.
    pub fn rebuild(
        rows: Rows,
        controller_epoch: u64,
        settings: Settings,
        catalogue: Arc<Catalogue>,
        now: Now,
    ) -> World {
        let mut world = World {
            settings,
            catalogue,
            next_sequence: rows.next_sequence.max(controller_epoch << EPOCH_SHIFT),
            last_wall: rows.last_wall,
            principals: BTreeMap::new(),
            workspaces: BTreeMap::new(),
            clusters: BTreeMap::new(),
            nodes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            effects: rows.effects.into_iter().map(|effect| (effect.id, effect)).collect(),
            index: Index::default(),
            volatile: Volatile::default(),
        };
        for principal in rows.principals {
            world.put_principal(principal);
        }
        for workspace in rows.workspaces {
            world.put_workspace(workspace);
        }
        for cluster in rows.clusters {
            world.put_cluster(cluster);
        }
        for node in rows.nodes {
            let id = node.id;
            let is_up = matches!(node.phase(), NodePhase::Idle | NodePhase::Leased);
            world.put_node(node);
            if is_up {
                let is_old = is_planted(Bug::LeaseFromRow);
                let renewed = if is_old {
                    Elapsed(now.elapsed.0.saturating_sub(60_000_000))
                } else {
                    now.elapsed
                };
                world.volatile.renew(id, renewed);
            }
        }
        for job in rows.jobs {
            world.put_job(job);
        }
        world
    }

    /// Takes in one change. Panics on a change that the entity's lifecycle does not allow: that is our bug,
    /// and the driver then drops this World and reads the rows again.
    pub fn apply(&mut self, change: &Change) {
        self.next_sequence = self.next_sequence.max(change.highest_sequence() + 1);
        match change {
            Change::PrincipalSeen(principal) => self.put_principal(principal.clone()),
            Change::WorkspaceCreated(workspace) => self.put_workspace(workspace.clone()),
            Change::ClusterChanged { event, cluster } => {
                let before =
                    self.clusters.get(&cluster.id).map_or(ClusterPhase::INITIAL, |c| c.phase);
                expect_phase(before.on(*event), cluster.phase);
                self.put_cluster(cluster.clone());
            }
            Change::JobSubmitted { job, .. } => {
                expect_phase(Ok(JobPhase::INITIAL), job.phase());
                self.put_job(job.clone());
            }
            Change::JobChanged { event, job } => {
                let before = self.jobs.get(&job.id).map_or(JobPhase::INITIAL, Job::phase);
                expect_phase(before.on(*event), job.phase());
                self.put_job(job.clone());
            }
            Change::NodeChanged { event, node } => {
                let before = self.nodes.get(&node.id).map_or(NodePhase::INITIAL, Node::phase);
                expect_phase(before.on(*event), node.phase());
                self.put_node(node.clone());
            }
            Change::EffectQueued(effect) => {
                self.effects.insert(effect.id, effect.clone());
            }
            Change::EffectSettled { id } => {
                self.effects.remove(id);
            }
            Change::AttemptEnded(_) | Change::LedgerPosted(_) | Change::OperationChanged(_) => {}
        }
    }

    /// The next number of the one id sequence.
    pub(crate) fn draw(&mut self) -> u64 {
        let drawn = self.next_sequence;
        self.next_sequence += 1;
        drawn
    }

    /// Every epoch given out so far is below this one.
    pub(crate) fn next_epoch(&self) -> Epoch {
        Epoch(self.next_sequence)
    }

    /// The time to decide by: the wall clock as given, but never earlier than we have already seen.
    pub(crate) fn advance(&mut self, now: Now) -> Now {
        self.last_wall = self.last_wall.max(now.wall);
        Now { wall: self.last_wall, ..now }
    }

    fn put_principal(&mut self, principal: Principal) {
        self.index.principals.insert(principal.object_id.clone(), principal.id);
        self.principals.insert(principal.id, principal);
    }

    fn put_workspace(&mut self, workspace: Workspace) {
        self.index.workspaces.insert(workspace.key.folded(), workspace.id);
        self.workspaces.insert(workspace.id, workspace);
    }

    fn put_cluster(&mut self, cluster: Cluster) {
        let id = cluster.id;
        if let Some(old) = self.clusters.remove(&id) {
            self.index.remove_cluster(&old);
        }
        if cluster.phase == ClusterPhase::Gone {
            self.index.pools.remove(&id);
            self.volatile.forget_cluster(id);
            return;
        }
        self.index.insert_cluster(&cluster);
        self.clusters.insert(id, cluster);
        self.volatile.touch(id);
    }

    fn put_job(&mut self, job: Job) {
        if let Some(old) = self.jobs.remove(&job.id) {
            self.index.remove_job(&old);
        }
        self.volatile.touch(job.cluster);
        if !job.phase().is_terminal() {
            self.index.insert_job(&job);
            self.jobs.insert(job.id, job);
        }
    }

    fn put_node(&mut self, node: Node) {
        if let Some(old) = self.nodes.remove(&node.id) {
            self.index.remove_node(&old);
        }
        self.volatile.touch(node.cluster);
        match node.phase() {
            NodePhase::Idle | NodePhase::Leased => {}
            NodePhase::Requested
            | NodePhase::Booting
            | NodePhase::Unusable
            | NodePhase::Leaving
            | NodePhase::Gone => self.volatile.forget_node(node.id),
        }
        if node.phase() != NodePhase::Gone {
            self.index.insert_node(&node);
            self.nodes.insert(node.id, node);
        }
    }
}

/// Looking things up.
impl World {
    pub fn cluster(&self, id: ClusterId) -> Option<&Cluster> {
        self.clusters.get(&id)
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values()
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn jobs(&self) -> impl ExactSizeIterator<Item = &Job> {
        self.jobs.values()
    }

    /// What is still to be done outside, oldest first.
    pub fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.effects.values()
    }

    pub fn effect(&self, id: EffectId) -> Option<&Effect> {
        self.effects.get(&id)
    }

    pub fn workspaces(&self) -> impl Iterator<Item = &Workspace> {
        self.workspaces.values()
    }

    pub fn workspace(&self, key: &WorkspaceKey) -> Option<&Workspace> {
        self.index.workspaces.get(&key.folded()).and_then(|id| self.workspaces.get(id))
    }

    pub fn workspace_by_id(&self, id: WorkspaceId) -> Option<&Workspace> {
        self.workspaces.get(&id)
    }

    pub fn principal_id(&self, object_id: &str) -> Option<PrincipalId> {
        self.index.principals.get(object_id).copied()
    }

    pub fn cluster_by_name(&self, workspace: WorkspaceId, name: &str) -> Option<&Cluster> {
        let key = (workspace, name.to_ascii_lowercase());
        self.index.clusters_by_name.get(&key).and_then(|id| self.clusters.get(id))
    }

    /// Whoever has this name in this region: names are unique there across all workspaces.
    pub fn cluster_in_region(&self, location: &str, name: &str) -> Option<ClusterId> {
        let key = (location.to_ascii_lowercase(), name.to_ascii_lowercase());
        self.index.clusters_by_region.get(&key).copied()
    }

    pub fn node_by_name(&self, name: &str) -> Option<&Node> {
        self.index.nodes_by_name.get(name).and_then(|id| self.nodes.get(id))
    }

    pub fn job_by_name(&self, workspace: WorkspaceId, name: &str) -> Option<&Job> {
        let key = (workspace, name.to_ascii_lowercase());
        self.index.jobs_by_name.get(&key).and_then(|id| self.jobs.get(id))
    }

    /// The pool of a cluster: who waits, who runs, which nodes there are.
    pub fn pool(&self, cluster: ClusterId) -> Option<&Pool> {
        self.index.pools.get(&cluster)
    }

    /// Nodes whose agent has not reported `timeout` after they were asked for.
    pub(crate) fn overdue_boots(&self, now: Wall, timeout: Span) -> Vec<NodeId> {
        self.index
            .boots
            .iter()
            .take_while(|(requested_at, _)| *requested_at + timeout <= now)
            .map(|(_, id)| *id)
            .collect()
    }

    pub(crate) fn next_boot_deadline(&self) -> Option<Wall> {
        self.index.boots.first().map(|(at, _)| *at + self.settings.boot_timeout)
    }

    pub fn last_renewal(&self, node: NodeId) -> Option<Elapsed> {
        self.volatile.renewed_at(node)
    }

    /// The first difference between two Worlds that should be the same, in words. Settings, volatile parts
    /// and the unused rest of the id sequence do not count.
    pub fn difference(&self, other: &World) -> Option<String> {
        fn first<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
            what: &str,
            a: &BTreeMap<K, V>,
            b: &BTreeMap<K, V>,
        ) -> Option<String> {
            let keys = a.keys().chain(b.keys());
            keys.into_iter()
                .find(|key| a.get(key) != b.get(key))
                .map(|key| format!("{what} {key:?}: {:?} against {:?}", a.get(key), b.get(key)))
        }
        first("principal", &self.principals, &other.principals)
            .or_else(|| first("workspace", &self.workspaces, &other.workspaces))
            .or_else(|| first("cluster", &self.clusters, &other.clusters))
            .or_else(|| first("node", &self.nodes, &other.nodes))
            .or_else(|| first("job", &self.jobs, &other.jobs))
            .or_else(|| first("effect", &self.effects, &other.effects))
            .or_else(|| first("pool", &self.index.pools, &other.index.pools))
            .or_else(|| (self.index != other.index).then(|| "the indexes differ".to_owned()))
    }
}

fn expect_phase<P: Lifecycle>(allowed: Result<P, crate::model::Rejected>, claimed: P) {
    match allowed {
        Ok(phase) => assert_eq!(phase, claimed, "{}: the record is in another phase", P::NAME),
        Err(rejected) => panic!("{rejected}"),
    }
}
