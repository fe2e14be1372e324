//! Why a job waits.

use std::collections::BTreeSet;

use super::instance::reword;
use super::{QuotaLimit, Reason, hosts, serverless};
use crate::batches;
use crate::decide::{missing, nodes_with_room, reserve};
use crate::ids::JobId;
use crate::limits;
use crate::model::{Cluster, Job, JobPhase, Lease, QuotaName, ScaleUp};
use crate::time::Wall;
use crate::world::{Ahead, ClusterIndex, World};

/// Every reason why `job` does not run. Empty only for a job that runs or has ended.
pub fn why(world: &World, job: JobId) -> Vec<Reason> {
    let is_queued = world.record_of(job).is_some_and(|job| job.phase() == JobPhase::Queued);
    let trouble = world.store_trouble().filter(|_| is_queued).map(Reason::Store);
    trouble.into_iter().chain(why_for(world, job, Covers::UpToThisJob)).collect()
}

/// The jobs that the figures of a reason cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Covers {
    /// The job itself and all jobs that are served before it.
    UpToThisJob,
    /// All jobs that wait for its cluster.
    AllWaiting,
}

pub(super) fn why_for(world: &World, job: JobId, covers: Covers) -> Vec<Reason> {
    let Some(job) = world.live_job(job) else { return Vec::new() };
    if job.is_parent() {
        return why_parent(world, &job, covers);
    }
    if let Some(reason) = held_by_limit(world, &job).or_else(|| next_on_node(world, &job)) {
        return vec![reason];
    }
    let (Some(cluster), Some(index)) =
        (world.cluster(job.cluster), world.cluster_index(job.cluster))
    else {
        return Vec::new();
    };
    match job.phase() {
        JobPhase::Queued => {}
        JobPhase::Starting => {
            return vec![Reason::Starting { cluster: cluster.name.clone(), nodes: job.nodes }];
        }
        JobPhase::Running
        | JobPhase::CancelRequested
        | JobPhase::Completed
        | JobPhase::Failed
        | JobPhase::Canceled => return Vec::new(),
    }
    let case = Case::new(world, (cluster, index), &job, covers);
    let mut reasons = Vec::new();
    reasons.extend(case.locked());
    reasons.extend(case.maximum_too_low());
    reasons.extend(case.quota_too_low());
    reasons.extend(hosts::too_small(world, cluster, job.nodes));
    reasons.extend(create_failing(world, cluster, index));
    reasons.extend(case.quota_reached());
    reasons.extend(case.hosts_full());
    reasons.extend(case.maximum_reached());
    reasons.extend(case.reserved());
    reasons.extend(case.behind());
    reasons.extend(case.free_soon());
    // A store that cannot be written to is a reason of its own, which callers put first.
    let is_unexplained = reasons.is_empty() && world.store_trouble().is_none();
    if (!index.pending.is_empty() && case.is_possible()) || is_unexplained {
        reasons.push(case.nodes_starting());
    }
    serverless::reword(cluster, reword(cluster, reasons))
}

/// A parent waits for the first of its children that has not started. If some of them run, only that others are held
/// back is a reason.
fn why_parent(world: &World, parent: &Job, covers: Covers) -> Vec<Reason> {
    let Some(tree) = world.tree(parent.id) else { return Vec::new() };
    let live = tree.live().iter().filter_map(|child| world.job(*child));
    let waiting = live.filter(|child| child.phase() == JobPhase::Queued).map(|child| child.id);
    let first = waiting.chain(tree.queued().first()).chain(tree.held().first()).next();
    first.map(|first| why_for(world, first, covers)).unwrap_or_default()
}

/// The reason if the limit of an array keeps one of its tasks out of the queue.
fn held_by_limit(world: &World, job: &Job) -> Option<Reason> {
    let parent = world.job(job.parent?)?;
    let tree = world.tree(parent.id)?;
    let limit = parent.array()?.concurrency.filter(|_| tree.held().contains(job.id))?;
    Some(Reason::ArrayLimit { job: parent.name.clone(), limit })
}

/// The reason if a node was given a task of an array, and has others to finish first.
fn next_on_node(world: &World, job: &Job) -> Option<Reason> {
    if world.job(job.id).is_some() || !world.is_given(job.id) {
        return None;
    }
    let (node, lease) = batches::holder_of(world, job)?;
    let node = world.node(node)?;
    let before = |other: &&Lease| other.epoch < lease.epoch && other.last_epoch() >= lease.epoch;
    let first = node.leases().iter().find(before)?;
    Some(Reason::NextOnNode {
        cluster: world.cluster(job.cluster)?.name.clone(),
        node: node.name.as_ref().into(),
        before: u32::try_from(lease.epoch.0 - first.epoch.0).unwrap_or(u32::MAX),
    })
}

/// The reason if nodes fail to start and the cluster needs some.
pub(super) fn create_failing(
    world: &World,
    cluster: &Cluster,
    index: &ClusterIndex,
) -> Option<Reason> {
    let backoff = &cluster.backoff;
    let is_short =
        crate::decide::wanted_nodes(world, cluster, index, world.last_wall()) > index.alive();
    let is_failing = backoff.failures > 0 && (is_short || !index.pending.is_empty());
    is_failing.then(|| Reason::CreateFailing {
        cluster: cluster.name.clone(),
        failures: backoff.failures,
        retry_at: backoff.until,
        last: backoff.last.as_deref().unwrap_or("no reason was given").into(),
    })
}

/// The reason if a lock prevents the cluster from adding the `needed` nodes.
pub(super) fn locked(world: &World, cluster: &Cluster, needed: u32) -> Option<Reason> {
    let lock = world.lock_on_growth(cluster).filter(|_| needed > 0)?;
    Some(Reason::Locked { lock: lock.clone(), cluster: cluster.name.clone(), needed })
}

/// The quota that `nodes` more nodes would exceed, how much of it is used, and what it would have to be.
pub(super) fn quota_short(
    world: &World,
    cluster: &Cluster,
    nodes: u32,
) -> Option<(QuotaLimit, u64, u64)> {
    let short = world.quota_short(cluster, nodes)?;
    let more = u64::from(nodes) * u64::from(cluster.capacity.vcpus);
    let location = cluster.spec.location.clone();
    let quota = QuotaLimit { location, name: short.name, limit: short.limit };
    Some((quota, short.taken, short.taken + more))
}

struct Case<'w> {
    world: &'w World,
    cluster: &'w Cluster,
    index: &'w ClusterIndex,
    job: &'w Job,
    covers: Covers,
    ahead: Ahead,
    now: Wall,
    /// How many nodes have room for the job now, at most as many as it needs.
    free: u32,
    /// How many nodes the cluster would need to run the covered jobs in addition to those that run now.
    needed: u32,
}

impl<'w> Case<'w> {
    fn new(
        world: &'w World,
        (cluster, index): (&'w Cluster, &'w ClusterIndex),
        job: &'w Job,
        covers: Covers,
    ) -> Case<'w> {
        let ahead = index.queue.ahead_of(job, world.reach(cluster), cluster.capacity);
        let fitting = nodes_with_room(world, index, job.shape(), job.environment, &BTreeSet::new());
        let busy = index.leased.len() as u64;
        let waiting = match covers {
            Covers::UpToThisJob => ahead.nodes,
            Covers::AllWaiting => {
                index.waiting_nodes(world.reach(cluster), cluster.capacity).max(ahead.nodes)
            }
        };
        let needed = busy + waiting;
        let most = u64::from(limits::CLUSTER_NODES_MAX);
        Case {
            world,
            cluster,
            index,
            job,
            covers,
            ahead,
            now: world.last_wall(),
            free: u32::try_from(fitting.len()).unwrap_or(u32::MAX),
            needed: u32::try_from(needed.min(most)).unwrap_or(u32::MAX),
        }
    }

    fn nodes_max(&self) -> u32 {
        self.cluster.spec.scale.nodes_max
    }

    /// The maximum that would be needed, including nodes that are being deleted.
    fn needed_max(&self) -> u32 {
        let going = u32::try_from(self.index.going.len()).unwrap_or(u32::MAX);
        self.needed.saturating_add(going).min(limits::CLUSTER_NODES_MAX).max(self.nodes_max())
    }

    fn locked(&self) -> Option<Reason> {
        let more = self.needed.saturating_sub(self.index.alive());
        locked(self.world, self.cluster, more)
    }

    fn maximum_too_low(&self) -> Option<Reason> {
        (self.job.nodes > self.nodes_max()).then(|| Reason::MaximumTooLow {
            cluster: self.cluster.name.clone(),
            nodes_max: self.nodes_max(),
            needed: self.job.nodes,
        })
    }

    /// The quota could not provide the job's nodes even if nothing else in the region used it.
    fn quota_too_low(&self) -> Option<Reason> {
        let scope = self.world.quota_scope_of(self.cluster.id)?;
        let vcpus = u64::from(self.job.nodes) * u64::from(self.cluster.capacity.vcpus);
        let names = QuotaName::of(self.cluster.spec.tier, &self.cluster.family);
        let (name, limit) = names.into_iter().find_map(|name| {
            let limit = self.world.quota_limit(scope, &name)?;
            (limit < vcpus).then_some((name, limit))
        })?;
        let location = self.cluster.spec.location.clone();
        let others = self.world.quota_uses(scope).and_then(|uses| uses.get(&name));
        let own = u64::from(self.index.existing()) * u64::from(self.cluster.capacity.vcpus);
        let others = others.map_or(0, |sum| sum.used).saturating_sub(own);
        let needed = others + vcpus;
        Some(Reason::QuotaTooLow { quota: QuotaLimit { location, name, limit }, needed })
    }

    fn is_possible(&self) -> bool {
        self.job.nodes <= self.world.reach(self.cluster)
    }

    fn quota_reached(&self) -> Option<Reason> {
        let room = self.nodes_max().saturating_sub(self.index.existing());
        let more = self.needed.saturating_sub(self.index.alive()).min(room);
        if !self.is_possible() || more == 0 {
            return None;
        }
        let (quota, used, needed) = quota_short(self.world, self.cluster, more)?;
        Some(Reason::QuotaReached { quota, used, needed })
    }

    fn hosts_full(&self) -> Option<Reason> {
        let room = self.nodes_max().saturating_sub(self.index.existing());
        let more = self.needed.saturating_sub(self.index.alive()).min(room);
        hosts::full(self.world, self.cluster, more, self.job.nodes)
    }

    fn maximum_reached(&self) -> Option<Reason> {
        let is_short = self.needed > self.index.alive();
        let is_full = self.index.existing() >= self.nodes_max();
        (self.job.nodes <= self.nodes_max() && is_short && is_full).then(|| {
            Reason::MaximumReached {
                cluster: self.cluster.name.clone(),
                nodes_max: self.nodes_max(),
                free: self.free,
                needed: self.needed_max(),
                is_for_all: self.covers == Covers::AllWaiting && self.index.queue.len() > 1,
            }
        })
    }

    /// The job would fit if the nodes were not reserved for the first job that has to wait.
    fn reserved(&self) -> Option<Reason> {
        if self.free < self.job.nodes {
            return None;
        }
        let reach = self.world.reach(self.cluster);
        let first = self.index.queue.candidates().find(|kind| kind.shape.nodes <= reach)?;
        if first.job == self.job.id {
            return None;
        }
        let kept = reserve(self.world, self.cluster, self.index, first.shape, self.now);
        Some(Reason::Reserved {
            cluster: self.cluster.name.clone(),
            job: self.world.live_job(first.job)?.name.clone(),
            at: kept.at,
            free: self.free,
            nodes_max: self.nodes_max(),
            needed: self.needed_max(),
        })
    }

    fn behind(&self) -> Option<Reason> {
        let first = self.ahead.first.and_then(|first| self.world.live_job(first))?;
        Some(Reason::Behind {
            cluster: self.cluster.name.clone(),
            jobs: u32::try_from(self.ahead.jobs).unwrap_or(u32::MAX),
            first: first.name.clone(),
            nodes_max: self.nodes_max(),
            needed: self.needed_max(),
        })
    }

    /// A predictive cluster does not grow for the job, because a node will be free soon.
    fn free_soon(&self) -> Option<Reason> {
        let can_grow = self.index.existing() < self.world.ceiling(self.cluster)
            && self.needed > self.index.alive()
            && self.is_possible();
        let waits = self.cluster.spec.scale.scale_up == ScaleUp::Predictive
            && self.cluster.backoff.until <= self.now
            && self.world.store_trouble().is_none()
            && can_grow
            && missing(self.world, self.cluster, self.now) == 0;
        let boot = self.cluster.boot.unwrap_or(self.world.settings.boot);
        waits.then(|| Reason::FreeSoon {
            cluster: self.cluster.name.clone(),
            at: self.world.releases(self.cluster.id).next().map_or(self.now, |(end, _)| end),
            up_at: self.now + boot,
            needed: self.job.nodes,
        })
    }

    fn nodes_starting(&self) -> Reason {
        let boot = self.cluster.boot.unwrap_or(self.world.settings.boot);
        let last = self.index.pending.last().map_or(self.now, |(requested_at, _)| *requested_at);
        Reason::NodesStarting {
            cluster: self.cluster.name.clone(),
            starting: u32::try_from(self.index.pending.len()).unwrap_or(u32::MAX),
            free: self.free,
            needed: self.job.nodes,
            at: last + boot,
        }
    }
}
