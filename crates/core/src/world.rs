//! World: the live entities, and the indexes that make a decision cost as much as what changed, not as much as what
//! exists.
//!
//! World changes only through [`World::apply`], with the same [`Change`]s that become rows. What is neither a row nor
//! an event (lease renewals, what to visit next) is in [`volatile`], and is rebuilt at every start.

mod find;
mod host_nodes;
mod hosting;
mod id_set;
mod index;
mod queue;
mod quotas;
mod sketch;
mod tree;
mod volatile;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use host_nodes::HostNodes;
pub use id_set::IdSet;
pub use index::ClusterIndex;
use index::Index;
pub(crate) use queue::nodes_for;
pub use queue::{Ahead, Candidate, Queue};
pub use quotas::{QuotaShort, QuotaUse};
pub use tree::{Tree, TreeRows};
pub(crate) use volatile::{QuotaLine, Volatile};

use crate::access::{AccessChange, Directory};
use crate::catalogue::Catalogue;
use crate::change::{Change, Effect, MemberChange};
use crate::governance::{Governance, GovernanceChange};
use crate::hosts::{HostChange, Hosts};
use crate::ids::{
    ClusterId, EPOCH_SHIFT, EffectId, Epoch, JobId, NodeId, PrincipalId, WorkspaceId,
};
use crate::lease;
use crate::model::{
    Account, Cluster, ClusterPhase, DefaultLimits, Host, Job, JobEvent, JobPhase, JobState,
    JoinTokenRecord, Lifecycle, Lock, Node, NodePhase, Principal, Quota, ResourceGroup,
    RoleAssignment, User, Workspace,
};
use crate::planted::{Bug, is_planted};
use crate::regions::Regions;
use crate::retention::JobRetention;
use crate::time::{Elapsed, Now, Span, Wall};

/// The operator's settings that decisions depend on. They are not state: they are given at every start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long an agent may continue without an answer, from [`lease::LEASE_MIN`] to [`lease::LEASE_MAX`].
    pub lease: Span,
    /// The time limit from the create call to the first report.
    pub boot_timeout: Span,
    /// A job whose nodes were lost this often gets no further attempt. Evictions do not count.
    pub attempts_max: u32,
    /// After this time, use counts half.
    pub fair_share_half_life: Span,
    /// The predicted duration of a run for a user who has not run anything yet.
    pub prediction: Span,
    /// How long the tasks of an array that a node is given at once may take together, as far as that can be predicted.
    pub batch: Span,
    /// The predicted start time of a node while none has started yet.
    pub boot: Span,
    /// The time between the notice of an eviction and the end of the node.
    pub eviction_grace: Span,
    /// Whether the server's own host takes more nodes than it has cores and memory for.
    pub over_commit: bool,
    /// How many jobs of one user, and of one workspace, may wait. Jobs that lost their node return to the queue anyway.
    pub queued_per_principal_max: u32,
    pub queued_per_workspace_max: u32,
    pub cluster_names: ClusterNames,
    /// The regions in which resources may be created.
    pub regions: Regions,
    pub quota: DefaultLimits,
    pub retention: JobRetention,
}

/// Within what the names of computes must be unique.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClusterNames {
    UniqueInWorkspace,
    /// Unique within a region across all workspaces, as on Azure.
    #[default]
    UniqueInRegion,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lease: lease::LEASE_MAX,
            boot_timeout: Span::seconds(600),
            attempts_max: 5,
            fair_share_half_life: Span::seconds(24 * 3600),
            prediction: Span::seconds(3600),
            batch: Span::seconds(2),
            boot: Span::seconds(180),
            eviction_grace: Span::seconds(30),
            over_commit: true,
            queued_per_principal_max: u32::MAX,
            queued_per_workspace_max: u32::MAX,
            cluster_names: ClusterNames::default(),
            regions: Regions::default(),
            quota: DefaultLimits::default(),
            retention: JobRetention::default(),
        }
    }
}

/// Everything that World is built from, as returned by the store at start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorldRows {
    pub next_sequence: u64,
    pub last_wall: Wall,
    pub principals: Vec<Principal>,
    pub workspaces: Vec<Workspace>,
    pub quotas: Vec<Quota>,
    pub clusters: Vec<Cluster>,
    pub nodes: Vec<Node>,
    pub accounts: Vec<Account>,
    pub users: Vec<User>,
    pub roles: Vec<RoleAssignment>,
    pub groups: Vec<ResourceGroup>,
    pub locks: Vec<Lock>,
    pub hosts: Vec<Host>,
    pub tickets: Vec<JoinTokenRecord>,
    /// Only live jobs, in the order of their IDs, so that parents come before their children.
    pub jobs: Vec<Job>,
    /// The children of live parents, including those that have ended.
    pub trees: Vec<TreeRows>,
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
    clusters: BTreeMap<ClusterId, Arc<Cluster>>,
    nodes: BTreeMap<NodeId, Arc<Node>>,
    jobs: BTreeMap<JobId, Arc<Job>>,
    accounts: BTreeMap<(ClusterId, PrincipalId), Account>,
    directory: Directory,
    governance: Governance,
    hosts: Hosts,
    effects: BTreeMap<EffectId, Effect>,
    effects_by_node: BTreeMap<NodeId, u32>,
    index: Index,
    pub(crate) volatile: Volatile,
}

impl World {
    /// World as described by the rows, for the server that holds `controller_epoch`. Every live lease counts as just
    /// renewed, for the longest that any earlier server may have granted: it is unknown how long ago that server
    /// stopped, and what its settings were.
    pub fn rebuild(
        rows: WorldRows,
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
            accounts: BTreeMap::new(),
            directory: Directory::default(),
            governance: Governance::default(),
            hosts: Hosts::default(),
            effects: BTreeMap::new(),
            effects_by_node: BTreeMap::new(),
            index: Index::default(),
            volatile: Volatile::default(),
        };
        for principal in rows.principals {
            world.put_principal(principal);
        }
        for workspace in rows.workspaces {
            world.put_workspace(workspace);
        }
        for quota in rows.quotas {
            world.index.quotas.set(&quota);
        }
        for cluster in rows.clusters {
            world.put_cluster(Arc::new(cluster));
        }
        for host in rows.hosts {
            world.hosts.apply(&HostChange::Host(Arc::new(host)));
        }
        for ticket in rows.tickets {
            world.hosts.apply(&HostChange::Ticket(ticket));
        }
        for node in rows.nodes {
            let id = node.id;
            let is_up = matches!(node.phase(), NodePhase::Idle | NodePhase::Leased);
            world.put_node(Arc::new(node));
            if is_up {
                let is_old = is_planted(Bug::LeaseFromRow);
                let renewed = if is_old {
                    Elapsed(now.elapsed.0.saturating_sub(60_000_000))
                } else {
                    now.elapsed + world.still_promised()
                };
                world.volatile.renew(id, renewed);
            }
        }
        for account in rows.accounts {
            world.put_account(account);
        }
        world.put_jobs(rows.jobs, rows.trees);
        for effect in rows.effects {
            world.put_effect(effect);
        }
        for user in rows.users {
            world.directory.apply(&AccessChange::User(Arc::new(user)));
        }
        for role in rows.roles {
            world.directory.apply(&AccessChange::Role(role));
        }
        for group in rows.groups {
            world.governance.apply(&GovernanceChange::Group(Arc::new(group)));
        }
        for lock in rows.locks {
            world.governance.apply(&GovernanceChange::Lock(Arc::new(lock)));
        }
        world
    }

    /// How much longer an earlier server's leases may be than those of this one.
    fn still_promised(&self) -> Span {
        let (longest, own) =
            (lease::patience(lease::LEASE_MAX), lease::patience(self.settings.lease));
        Span(longest.0.saturating_sub(own.0))
    }

    /// Applies one change. Panics on a change that the entity's lifecycle does not allow: that is a bug, and the driver
    /// then drops this World and reads the rows again.
    pub fn apply(&mut self, change: &Change) {
        self.next_sequence = self.next_sequence.max(change.highest_sequence() + 1);
        match change {
            Change::PrincipalSeen(principal) => self.put_principal(principal.clone()),
            Change::WorkspaceChanged(workspace) => self.put_workspace(workspace.clone()),
            Change::WorkspaceGone(id) => {
                if let Some(workspace) = self.workspaces.remove(id) {
                    self.index.workspaces.remove(&workspace.key.folded());
                }
            }
            Change::ClusterChanged { event, cluster } => {
                let before =
                    self.clusters.get(&cluster.id).map_or(ClusterPhase::INITIAL, |c| c.phase);
                expect_phase(before.on(*event), cluster.phase);
                self.put_cluster(Arc::clone(cluster));
            }
            Change::JobSubmitted { job, .. } => {
                expect_phase(Ok(JobPhase::INITIAL), job.phase());
                self.put_job(Arc::clone(job));
            }
            Change::ChildCreated { event, job } => {
                // A node may have been given it before, and have run it.
                let is_given = *event != JobEvent::Granted && self.is_given(job.id);
                let before = if is_given { JobPhase::Starting } else { JobPhase::INITIAL };
                expect_phase(before.on(*event), job.phase());
                self.admit_child(job);
                self.put_job(Arc::clone(job));
            }
            Change::JobChanged { event, job } => {
                let before = self.jobs.get(&job.id).map_or(JobPhase::INITIAL, |job| job.phase());
                expect_phase(before.on(*event), job.phase());
                self.put_job(Arc::clone(job));
            }
            Change::MemberChanged(change) => self.put_member(change),
            Change::NodeChanged { event, node } => {
                let before = self.nodes.get(&node.id).map_or(NodePhase::INITIAL, |n| n.phase());
                expect_phase(before.on(*event), node.phase());
                self.put_node(Arc::clone(node));
            }
            Change::AccountChanged(account) => self.put_account(*account),
            Change::QuotaChanged(quota) => self.index.quotas.set(quota),
            Change::AccessChanged(change) => self.directory.apply(change),
            Change::GovernanceChanged(change) => self.governance.apply(change),
            Change::HostsChanged(change) => self.put_hosts(change),
            Change::EffectQueued(effect) => self.put_effect(effect.clone()),
            Change::EffectSettled { id } => self.drop_effect(*id),
            Change::JobMetadataChanged { .. }
            | Change::JobGone { .. }
            | Change::AttemptEnded(_)
            | Change::TreeSaved(_)
            | Change::LedgerPosted(_)
            | Change::OperationChanged(_)
            | Change::DeploymentChanged(_)
            | Change::DeploymentGone { .. }
            | Change::DatastoreChanged(_)
            | Change::AssetChanged(_)
            | Change::AssetGone { .. }
            | Change::AssetContainerChanged(_)
            | Change::AssetContainerGone { .. }
            | Change::DatastoreGone { .. }
            | Change::ActivityNoted(_) => {}
        }
    }

    /// The next number of the ID sequence.
    pub(crate) fn draw(&mut self) -> u64 {
        let drawn = self.next_sequence;
        self.next_sequence += 1;
        drawn
    }

    /// The first of `count` consecutive numbers of the ID sequence.
    pub(crate) fn draw_many(&mut self, count: u64) -> u64 {
        let first = self.next_sequence;
        self.next_sequence += count;
        first
    }

    /// Every epoch drawn so far is below this one.
    pub(crate) fn next_epoch(&self) -> Epoch {
        Epoch(self.next_sequence)
    }

    /// The time to decide by: the wall clock as given, but never earlier than a time already seen.
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

    fn put_cluster(&mut self, cluster: Arc<Cluster>) {
        let id = cluster.id;
        if cluster.phase == ClusterPhase::Gone {
            if let Some(old) = self.clusters.remove(&id) {
                self.index.remove_cluster(&old);
            }
            self.index.clusters.remove(&id);
            self.index.quotas.forget(id);
            let accounts = (id, PrincipalId(0))..=(id, PrincipalId(u64::MAX));
            let principals: Vec<_> = self.accounts.range(accounts).map(|(key, _)| *key).collect();
            for key in principals {
                self.accounts.remove(&key);
            }
            self.volatile.forget_cluster(id);
            return;
        }
        self.volatile.touch(id);
        let old = self.clusters.insert(id, Arc::clone(&cluster));
        // Most changes (a pause, a measurement) do not affect anything that is indexed.
        if old.as_ref().is_some_and(|old| old.spec == cluster.spec) {
            return;
        }
        if let Some(old) = old {
            self.index.remove_cluster(&old);
        }
        let workspace =
            self.workspaces.get(&cluster.workspace).expect("a workspace outlives its clusters");
        self.index.insert_cluster(&cluster, &workspace.key.subscription);
    }

    fn put_job(&mut self, job: Arc<Job>) {
        match job.parent {
            _ if job.is_parent() => self.put_parent(job),
            Some(parent) => {
                let (id, phase) = (job.id, job.phase());
                self.put_command(job);
                if let Some(tree) = self.index.trees.get_mut(parent) {
                    tree.put(id, phase);
                }
                self.release_children(parent);
            }
            None => self.put_command(job),
        }
    }

    fn put_command(&mut self, job: Arc<Job>) {
        let id = job.id;
        let end = job.attempt().map(|attempt| attempt.predicted_end(attempt.granted_at));
        self.volatile.forecast.set(job.cluster, id, end);
        if job.phase().is_terminal() {
            self.volatile.touch(job.cluster);
            if let Some(old) = self.jobs.remove(&id) {
                self.index.remove_job(&old);
                self.index.remove_name(&old);
            }
            return;
        }
        match self.jobs.insert(id, Arc::clone(&job)) {
            // It holds the same nodes as before, so there is nothing to decide.
            Some(old) if old.phase() != JobPhase::Queued && job.phase() != JobPhase::Queued => {
                return;
            }
            Some(old) => self.index.remove_job(&old),
            None => self.index.insert_name(&job),
        }
        self.volatile.touch(job.cluster);
        let used = self.used(job.cluster, job.principal);
        self.index.insert_job(&job, used);
    }

    fn put_member(&mut self, change: &MemberChange) {
        let job = self.jobs.get_mut(&change.job).expect("only a live job has members");
        let job = Arc::make_mut(job);
        let (JobState::Starting(attempt)
        | JobState::Running(attempt)
        | JobState::CancelRequested(attempt)) = &mut job.state
        else {
            panic!("{} has no attempt", change.job);
        };
        assert_eq!(attempt.epoch, change.epoch, "a member of another attempt");
        attempt.members[change.rank as usize] = change.member.clone();
        attempt.verdict.clone_from(&change.verdict);
    }

    fn put_node(&mut self, node: Arc<Node>) {
        let (id, phase) = (node.id, node.phase());
        self.volatile.touch(node.cluster);
        match phase {
            NodePhase::Idle | NodePhase::Leased => {}
            NodePhase::Requested
            | NodePhase::Booting
            | NodePhase::Unusable
            | NodePhase::Leaving
            | NodePhase::Gone => self.volatile.forget_node(id),
        }
        if phase == NodePhase::Gone {
            if let Some(old) = self.nodes.remove(&id) {
                self.index.remove_node(&old);
                self.index.dismiss_node(&old);
            }
            self.volatile.touch_choosing();
            // A cluster that waits for room on this host may be in any region.
            self.volatile.growth.reconsider_all(!self.is_boundless());
            return;
        }
        let old = self.nodes.insert(id, Arc::clone(&node));
        match &old {
            Some(old) => self.index.remove_node(old),
            None => {
                self.index.admit_node(&node);
                self.volatile.touch_choosing();
            }
        }
        self.give_followers(old.as_deref(), &node);
        let is_open = self.is_open(&node.host);
        self.index.insert_node(&node, is_open);
    }

    /// Applies a change of hosts. How nodes can be used depends on the state of their host.
    fn put_hosts(&mut self, change: &HostChange) {
        let (name, intent) = match change {
            HostChange::Host(host) => (&host.name, Some(host.intent.clone())),
            HostChange::HostGone(name) => {
                (name, self.hosts.host(name).map(|host| host.intent.clone()))
            }
            HostChange::Ticket(_) | HostChange::TicketGone(_) => return self.hosts.apply(change),
        };
        self.hosts.apply(change);
        let is_open = self.is_open(name);
        let nodes =
            self.host_nodes(name).map(|host_nodes| host_nodes.nodes.clone()).unwrap_or_default();
        for node in nodes {
            let node = Arc::clone(&self.nodes[&node]);
            self.index.remove_node(&node);
            self.index.insert_node(&node, is_open);
            self.volatile.touch(node.cluster);
        }
        if let Some(intent) = intent {
            self.touch_within(&intent);
        }
        self.volatile.growth.reconsider_all(true);
    }

    fn put_account(&mut self, account: Account) {
        if let Some(index) = self.index.clusters.get_mut(&account.cluster) {
            index.queue.set_used(account.principal, account.used);
        }
        self.accounts.insert((account.cluster, account.principal), account);
        self.volatile.touch(account.cluster);
    }

    fn put_effect(&mut self, effect: Effect) {
        let node = effect.kind.node();
        if self.effects.insert(effect.id, effect).is_none() {
            *self.effects_by_node.entry(node).or_default() += 1;
        }
    }

    fn drop_effect(&mut self, id: EffectId) {
        let Some(effect) = self.effects.remove(&id) else { return };
        let node = effect.kind.node();
        if let Some(effects) = self.effects_by_node.get_mut(&node) {
            *effects -= 1;
            if *effects == 0 {
                self.effects_by_node.remove(&node);
            }
        }
    }
}

fn expect_phase<P: Lifecycle>(allowed: Result<P, crate::model::Rejected>, claimed: P) {
    match allowed {
        Ok(phase) => assert_eq!(phase, claimed, "{}: the record is in another phase", P::NAME),
        Err(rejected) => panic!("{rejected}"),
    }
}
