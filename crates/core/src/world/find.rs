//! Look-ups in World.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ClusterIndex, ClusterNames, HostNodes, QuotaShort, QuotaUse, World, index};
use crate::access::Directory;
use crate::change::Effect;
use crate::governance::Governance;
use crate::hosts::Hosts;
use crate::ids::{ClusterId, EffectId, JobId, NodeId, PrincipalId, WorkspaceId};
use crate::model::{
    Account, Attempt, Cluster, HostName, Job, Lock, Node, QuotaName, QuotaScope, Scope, Use,
    Workspace, WorkspaceKey,
};
use crate::read_only::StoreTrouble;
use crate::time::{Elapsed, Span, Wall};

impl World {
    pub fn cluster(&self, id: ClusterId) -> Option<&Cluster> {
        self.clusters.get(&id).map(|cluster| &**cluster)
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id).map(|node| &**node)
    }

    /// A live job that has a record. A child has none until it starts; see [`World::live_job`].
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).map(|job| &**job)
    }

    pub fn clusters(&self) -> impl ExactSizeIterator<Item = &Cluster> {
        self.clusters.values().map(|cluster| &**cluster)
    }

    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &Node> {
        self.nodes.values().map(|node| &**node)
    }

    pub fn jobs(&self) -> impl ExactSizeIterator<Item = &Job> {
        self.jobs.values().map(|job| &**job)
    }

    /// How many jobs of a user wait, on any cluster.
    pub fn queued_of(&self, principal: PrincipalId) -> u32 {
        self.index.queued_by_principal.get(&principal).copied().unwrap_or(0)
    }

    pub fn queued_in(&self, workspace: WorkspaceId) -> u32 {
        self.index.queued_by_workspace.get(&workspace).copied().unwrap_or(0)
    }

    /// The number of waiting jobs by user. Users without any are not included.
    pub(crate) fn queued_by_principal(&self) -> &BTreeMap<PrincipalId, u32> {
        &self.index.queued_by_principal
    }

    pub(crate) fn queued_by_workspace(&self) -> &BTreeMap<WorkspaceId, u32> {
        &self.index.queued_by_workspace
    }

    pub(crate) fn shared_cluster(&self, id: ClusterId) -> Option<&Arc<Cluster>> {
        self.clusters.get(&id)
    }

    pub fn account(&self, cluster: ClusterId, principal: PrincipalId) -> Account {
        let known = self.accounts.get(&(cluster, principal)).copied();
        known.unwrap_or_else(|| Account::new(cluster, principal))
    }

    pub(super) fn used(&self, cluster: ClusterId, principal: PrincipalId) -> Use {
        self.accounts.get(&(cluster, principal)).map_or(Use::ZERO, |account| account.used)
    }

    /// How long a run of this user will probably hold its nodes.
    pub fn prediction(&self, cluster: ClusterId, principal: PrincipalId) -> Span {
        let account = self.accounts.get(&(cluster, principal));
        account.and_then(Account::prediction).unwrap_or(self.settings.prediction)
    }

    /// Updates the forecast of a cluster: the predicted duration of an attempt that takes longer than predicted is
    /// doubled.
    pub(crate) fn foresee(&mut self, cluster: ClusterId, now: Wall) {
        loop {
            let first = self.volatile.forecast.of(cluster).next();
            let overdue = first.filter(|(end, _)| *end + Attempt::GRACE <= now);
            let Some((_, job)) = overdue else { return };
            let attempt = self.jobs.get(&job).and_then(|job| job.attempt());
            let end = attempt.map(|attempt| attempt.predicted_end(now));
            self.volatile.forecast.set(cluster, job, end);
        }
    }

    /// The attempts of a cluster that hold nodes, ordered by their predicted end.
    pub(crate) fn releases(&self, cluster: ClusterId) -> impl Iterator<Item = (Wall, &Attempt)> {
        let ends = self.volatile.forecast.of(cluster);
        ends.filter_map(|(end, job)| Some((end, self.jobs.get(&job)?.attempt()?)))
    }

    /// Whether the outbox has an effect on this node.
    pub fn has_effect(&self, node: NodeId) -> bool {
        self.effects_by_node.contains_key(&node)
    }

    /// The limits that were set.
    pub fn quota_limits(&self, scope: &QuotaScope) -> Option<&BTreeMap<QuotaName, u64>> {
        self.index.quotas.limits(scope)
    }

    /// The effective limit: the one that was set, or else the default.
    pub fn quota_limit(&self, scope: &QuotaScope, name: &QuotaName) -> Option<u64> {
        self.index.quotas.limit(scope, name, &self.settings.quota)
    }

    pub fn quota_uses(&self, scope: &QuotaScope) -> Option<&BTreeMap<QuotaName, QuotaUse>> {
        self.index.quotas.uses(scope)
    }

    pub fn quota_scopes(&self) -> impl Iterator<Item = &QuotaScope> {
        self.index.quotas.scopes()
    }

    pub fn quota_scope_of(&self, cluster: ClusterId) -> Option<&Arc<QuotaScope>> {
        self.index.quotas.scope_of(cluster)
    }

    /// The first limit that this many more nodes of the cluster would exceed.
    pub fn quota_short(&self, cluster: &Cluster, nodes: u32) -> Option<QuotaShort> {
        let vcpus = u64::from(nodes) * u64::from(cluster.capacity.vcpus);
        self.index.quotas.short(cluster.id, vcpus, &self.settings.quota)
    }

    /// The first limit that reserving this many more vCPUs would exceed.
    pub(crate) fn quota_short_to_reserve(
        &self,
        scope: &QuotaScope,
        names: &[QuotaName],
        vcpus: u64,
    ) -> Option<QuotaShort> {
        self.index.quotas.short_to_reserve(scope, names, vcpus, &self.settings.quota)
    }

    /// How many more nodes of this cluster the quota leaves room for.
    pub(crate) fn quota_room(&self, cluster: &Cluster) -> u32 {
        self.index.quotas.room(cluster.id, cluster.capacity.vcpus, &self.settings.quota)
    }

    /// The most nodes that this cluster can ever have under its maximum, the limits and on its hosts, no matter how
    /// many nodes other clusters have. A job that needs more than this does not hold back others.
    pub fn ceiling(&self, cluster: &Cluster) -> u32 {
        let (vcpus, defaults) = (cluster.capacity.vcpus, &self.settings.quota);
        let quota = self.index.quotas.ceiling(cluster.id, vcpus, defaults);
        cluster.spec.scale.nodes_max.min(quota).min(self.hosts_ceiling(cluster))
    }

    /// How many vCPUs of a limit the minimums of the clusters require.
    pub fn quota_minimum(&self, scope: &QuotaScope, name: &QuotaName) -> u64 {
        let counts = |cluster: &&Cluster| {
            self.quota_scope_of(cluster.id).is_some_and(|own| **own == *scope)
                && QuotaName::of(cluster.spec.tier, &cluster.family).contains(name)
        };
        let minimum = |cluster: &Cluster| {
            u64::from(cluster.spec.scale.nodes_min) * u64::from(cluster.capacity.vcpus)
        };
        self.clusters().filter(counts).map(minimum).sum()
    }

    /// The clusters of a region that have reserved more than this many vCPUs.
    pub(crate) fn clusters_beyond(&self, scope: &QuotaScope, vcpus: u64) -> Vec<ClusterId> {
        self.index.quotas.clusters_beyond(scope, vcpus)
    }

    /// The effects that are still to be carried out, oldest first.
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
        self.index.clusters_by_name.get(&key).and_then(|id| self.cluster(*id))
    }

    /// Whether a compute of another workspace already has this name.
    pub fn is_name_taken(&self, location: &str, name: &str) -> bool {
        match self.settings.cluster_names {
            ClusterNames::UniqueInWorkspace => false,
            ClusterNames::UniqueInRegion => {
                let key = (location.to_ascii_lowercase(), name.to_ascii_lowercase());
                self.index.clusters_by_region.contains_key(&key)
            }
        }
    }

    /// Whether a region is known, or already in use: resources that were created before regions were checked still
    /// work.
    pub fn is_region(&self, location: &str) -> bool {
        let is_it = |name: &str| name.eq_ignore_ascii_case(location);
        self.settings.regions.contains(location)
            || self.workspaces().any(|workspace| is_it(&workspace.location))
            || self.quota_scopes().any(|scope| is_it(&scope.location))
            || self.governance().groups().any(|group| is_it(&group.location))
    }

    pub fn node_by_name(&self, name: &str) -> Option<&Node> {
        self.index.nodes_by_name.get(name).and_then(|id| self.node(*id))
    }

    /// Not for children, whose names follow from those of their parents; see [`World::live_job_by_name`].
    pub fn job_by_name(&self, workspace: WorkspaceId, name: &str) -> Option<&Job> {
        let hash = index::name_hash(name);
        let range = (workspace, hash, JobId(0))..=(workspace, hash, JobId(u64::MAX));
        let found = self.index.jobs_by_name.range(range).filter_map(|(_, _, id)| self.job(*id));
        found.into_iter().find(|job| job.name.eq_ignore_ascii_case(name))
    }

    /// The index of a cluster: its waiting jobs, its running jobs and its nodes.
    pub fn cluster_index(&self, cluster: ClusterId) -> Option<&ClusterIndex> {
        self.index.clusters.get(&cluster)
    }

    /// Nodes whose agent has not reported within `timeout` after they were requested.
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

    /// The latest time that a decision was based on.
    pub fn last_wall(&self) -> Wall {
        self.last_wall
    }

    pub fn last_renewal(&self, node: NodeId) -> Option<Elapsed> {
        self.volatile.renewed_at(node)
    }

    /// Users and roles.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Resource groups and locks.
    pub fn governance(&self) -> &Governance {
        &self.governance
    }

    /// Hosts and join tokens.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The nodes of a host; `None` if it has none.
    pub fn host_nodes(&self, host: &HostName) -> Option<&HostNodes> {
        self.index.nodes_by_host.of(host)
    }

    /// The scope of a cluster.
    pub fn scope_of(&self, cluster: &Cluster) -> Scope {
        let home =
            self.workspaces.get(&cluster.workspace).expect("a workspace outlives its clusters");
        Scope::compute(&home.key, cluster.name.as_str())
    }

    /// The lock that prevents a cluster from growing.
    pub fn lock_on_growth(&self, cluster: &Cluster) -> Option<&Lock> {
        if !self.governance.has_locks() {
            return None;
        }
        let network = cluster.spec.network_group();
        self.governance.against_scaling(&self.scope_of(cluster), network.as_ref())
    }

    /// The clusters of a workspace, ordered by name.
    pub fn clusters_of(&self, workspace: WorkspaceId) -> impl Iterator<Item = &Cluster> {
        let names = self.index.clusters_by_name.range((workspace, String::new())..);
        let own = names.take_while(move |((home, _), _)| *home == workspace);
        own.filter_map(|(_, id)| self.cluster(*id))
    }

    /// The workspaces of a resource group.
    pub fn workspaces_in(&self, group: &Scope) -> impl Iterator<Item = &Workspace> {
        self.workspaces()
            .filter(|workspace| Scope::workspace(&workspace.key).parent().as_ref() == Some(group))
    }

    /// Marks every cluster within this scope, or with a network within it, to be decided about again.
    pub(crate) fn touch_within(&mut self, scope: &Scope) {
        let is_there = |cluster: &&Cluster| {
            let network = cluster.spec.network_group();
            scope.contains(&self.scope_of(cluster))
                || network.is_some_and(|network| scope.contains(&network))
        };
        let touched: Vec<_> = self.clusters().filter(is_there).map(|cluster| cluster.id).collect();
        for cluster in touched {
            self.volatile.touch(cluster);
        }
    }

    /// Why the store cannot accept new work, as last set by the driver.
    pub fn store_trouble(&self) -> Option<StoreTrouble> {
        self.volatile.store_trouble
    }

    /// Set by the driver before a step. When trouble begins or ends, every cluster is decided about again.
    pub fn set_store_trouble(&mut self, trouble: Option<StoreTrouble>) {
        let before = std::mem::replace(&mut self.volatile.store_trouble, trouble);
        if before.is_some() != trouble.is_some() {
            let clusters: Vec<_> = self.clusters().map(|cluster| cluster.id).collect();
            clusters.into_iter().for_each(|cluster| self.volatile.touch(cluster));
        }
    }

    /// Describes the first difference between two Worlds that should be equal. Settings, volatile parts and the unused
    /// rest of the ID sequence are ignored.
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
            .or_else(|| first("account", &self.accounts, &other.accounts))
            .or_else(|| first("effect", &self.effects, &other.effects))
            .or_else(|| {
                (self.directory != other.directory).then(|| "users and roles differ".to_owned())
            })
            .or_else(|| {
                (self.governance != other.governance).then(|| "groups and locks differ".to_owned())
            })
            .or_else(|| {
                (self.hosts != other.hosts).then(|| "hosts and join tokens differ".to_owned())
            })
            .or_else(|| first("index of cluster", &self.index.clusters, &other.index.clusters))
            .or_else(|| (self.index != other.index).then(|| "the indexes differ".to_owned()))
    }
}
