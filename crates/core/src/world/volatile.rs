//! What World knows only while it runs: lease renewals, the predicted ends of attempts, and what to visit next.
//!
//! None of this is a row or an event. After a restart every lease counts as just renewed, and every cluster is visited
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::ids::{ClusterId, JobId, NodeId};
use crate::model::{Cluster, QuotaScope, Tier};
use crate::read_only::StoreTrouble;
use crate::time::{Elapsed, Span, Wall};

#[derive(Debug, Clone, Default)]
pub(crate) struct Volatile {
    renewed: BTreeMap<NodeId, Elapsed>,
    /// The renewals, oldest first.
    by_renewal: BTreeSet<(Elapsed, NodeId)>,
    /// Clusters that were touched since the last decision about them.
    dirty: BTreeSet<ClusterId>,
    /// Clusters whose first job needs its nodes on one of several hosts. Which host that is, and so which of their own
    /// nodes block the job, depends on the room that other clusters leave.
    choosing: BTreeSet<ClusterId>,
    /// Parents whose children have changed since the last decision about them.
    trees: BTreeSet<JobId>,
    wakes: BTreeSet<(Wall, ClusterId)>,
    wake_of: BTreeMap<ClusterId, Wall>,
    pub(crate) forecast: Forecast,
    pub(crate) growth: GrowthQueue,
    pub(super) store_trouble: Option<StoreTrouble>,
}

impl Volatile {
    /// Renews a lease, but never shortens a longer one that an earlier server granted.
    pub(crate) fn renew(&mut self, node: NodeId, at: Elapsed) {
        let before = self.renewed_at(node);
        if before.is_some_and(|before| before >= at) {
            return;
        }
        if let Some(before) = before {
            self.by_renewal.remove(&(before, node));
        }
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
        self.choosing.remove(&cluster);
        self.wake_at(cluster, None);
        self.growth.drop(cluster);
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

    /// Whether anything was touched since the last decision.
    pub(crate) fn is_touched(&self) -> bool {
        !self.dirty.is_empty() || !self.trees.is_empty() || !self.growth.changed.is_empty()
    }

    pub(crate) fn touch_tree(&mut self, parent: JobId) {
        self.trees.insert(parent);
    }

    pub(crate) fn settle_tree(&mut self, parent: JobId) {
        self.trees.remove(&parent);
    }

    /// Parents whose children have changed.
    pub(crate) fn touched_trees(&self) -> impl Iterator<Item = JobId> {
        self.trees.iter().copied()
    }

    pub(crate) fn set_choosing(&mut self, cluster: ClusterId, chooses: bool) {
        match chooses {
            true => self.choosing.insert(cluster),
            false => self.choosing.remove(&cluster),
        };
    }

    /// A node was created on a host or deleted from it.
    pub(crate) fn touch_choosing(&mut self) {
        self.dirty.extend(&self.choosing);
    }

    pub(crate) fn settled(&mut self, cluster: ClusterId, wake: Option<Wall>) {
        self.dirty.remove(&cluster);
        self.wake_at(cluster, wake);
    }

    fn wake_at(&mut self, cluster: ClusterId, wake: Option<Wall>) {
        if self.wake_of.get(&cluster) == wake.as_ref() {
            return;
        }
        if let Some(old) = self.wake_of.remove(&cluster) {
            self.wakes.remove(&(old, cluster));
        }
        if let Some(at) = wake {
            self.wake_of.insert(cluster, at);
            self.wakes.insert((at, cluster));
        }
    }

    /// The clusters to decide about now, by ID: those that were touched and those whose timer is due.
    pub(crate) fn due(&self, now: Wall) -> Vec<ClusterId> {
        let timers = self.wakes.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id);
        let mut due: Vec<ClusterId> = timers.chain(self.dirty.iter().copied()).collect();
        due.sort_unstable();
        due.dedup();
        due
    }

    pub(crate) fn next_wake(&self) -> Option<Wall> {
        self.wakes.first().map(|(at, _)| *at)
    }
}

/// The predicted ends of attempts, by cluster. An entry in the past belongs to an attempt that takes longer than
/// predicted; `World::foresee` moves it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forecast {
    ends: BTreeSet<(ClusterId, Wall, JobId)>,
    end_of: BTreeMap<JobId, Wall>,
}

impl Forecast {
    pub(super) fn set(&mut self, cluster: ClusterId, job: JobId, end: Option<Wall>) {
        if self.end_of.get(&job) == end.as_ref() {
            return;
        }
        if let Some(old) = self.end_of.remove(&job) {
            self.ends.remove(&(cluster, old, job));
        }
        if let Some(end) = end {
            self.end_of.insert(job, end);
            self.ends.insert((cluster, end, job));
        }
    }

    /// The cluster's attempts, ordered by their predicted end.
    pub(crate) fn of(&self, cluster: ClusterId) -> impl Iterator<Item = (Wall, JobId)> {
        let range = (cluster, Wall(0), JobId(0))..=(cluster, Wall(u64::MAX), JobId(u64::MAX));
        self.ends.range(range).map(|(_, end, job)| (*end, *job))
    }
}

/// Identifies clusters of a region that count towards the same limits.
pub(crate) type QuotaLine = (Tier, Arc<str>);
/// A cluster that should grow, ordered by its first waiting job.
pub(crate) type GrowthRequest = (JobId, ClusterId);

/// Clusters that would grow if the quota allowed it, by region and line. The cluster whose first waiting job arrived
/// earliest is served first.
#[derive(Debug, Clone, Default)]
pub(crate) struct GrowthQueue {
    by_scope: BTreeMap<QuotaScope, BTreeMap<QuotaLine, BTreeSet<GrowthRequest>>>,
    of: BTreeMap<ClusterId, (QuotaScope, QuotaLine, JobId)>,
    /// Regions whose limits have changed.
    changed: BTreeSet<QuotaScope>,
}

impl GrowthQueue {
    pub(crate) fn put(&mut self, cluster: &Cluster, scope: &QuotaScope, first: JobId) {
        if self.of.get(&cluster.id).is_some_and(|(_, _, before)| *before == first) {
            return;
        }
        self.drop(cluster.id);
        let line = (cluster.spec.tier, Arc::clone(&cluster.family));
        let lines = self.by_scope.entry(scope.clone()).or_default();
        lines.entry(line.clone()).or_default().insert((first, cluster.id));
        self.of.insert(cluster.id, (scope.clone(), line, first));
    }

    pub(crate) fn reconsider(&mut self, scope: &QuotaScope) {
        self.changed.insert(scope.clone());
    }

    /// Marks every region in which a cluster would grow.
    pub(crate) fn reconsider_all(&mut self, is_needed: bool) {
        if is_needed {
            self.changed.extend(self.by_scope.keys().cloned());
        }
    }

    pub(crate) fn take_changed(&mut self) -> BTreeSet<QuotaScope> {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn drop(&mut self, cluster: ClusterId) {
        let Some((scope, line, first)) = self.of.remove(&cluster) else { return };
        let Some(lines) = self.by_scope.get_mut(&scope) else { return };
        let Some(growth) = lines.get_mut(&line) else { return };
        growth.remove(&(first, cluster));
        if growth.is_empty() {
            lines.remove(&line);
        }
        if lines.is_empty() {
            self.by_scope.remove(&scope);
        }
    }

    /// The first request of a region after `after`, on a line for which `is_open` holds.
    pub(crate) fn next(
        &self,
        scope: &QuotaScope,
        after: Option<GrowthRequest>,
        is_open: impl Fn(&QuotaLine) -> bool,
    ) -> Option<GrowthRequest> {
        let lines = self.by_scope.get(scope)?.iter().filter(|(line, _)| is_open(line));
        let firsts = lines.filter_map(|(_, growth)| match after {
            Some(after) => growth.range((Bound::Excluded(after), Bound::Unbounded)).next(),
            None => growth.first(),
        });
        firsts.min().copied()
    }

    pub(crate) fn is_any_in(&self, scope: &QuotaScope) -> bool {
        self.by_scope.contains_key(scope)
    }

    pub(crate) fn scopes(&self) -> Vec<QuotaScope> {
        self.by_scope.keys().cloned().collect()
    }
}
