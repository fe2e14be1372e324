//! What must always hold, checked on a whole World. The simulator and the tests check it after every step, and add
//! checks of what only they can see: the acknowledged submits and the provider's own list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::change::Change;
use crate::ids::{ClusterId, JobId, NodeId, PrincipalId, WorkspaceId};
use crate::model::{
    Capacity, Cluster, ClusterPhase, DefaultLimits, Host, Job, JobPhase, MemberPhase, Node,
    NodePhase, Part, Rest,
};
use crate::time::{Now, Span};
use crate::world::World;

/// A violated promise, and where it was violated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Broken {
    pub promise: Promise,
    pub about: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.about)
    }
}

/// The promises of the design that can be checked with World alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// World holds only live jobs, each in the index of its cluster.
    JobsAreLive,
    /// The numbers of queued jobs of every user and of every workspace are correct.
    QueuedAreCounted,
    /// All members of an attempt share its epoch, and no part of a node is held twice.
    OneLiveEpoch,
    /// Every node that is to be deleted has a delete call in the outbox, and every requested node a create call.
    IntentIsRecorded,
    NodesWithinBounds,
    /// Nodes are created only where there is room, unless the server's own host may be over-committed.
    HostsHold,
    IdleNodesGo,
    /// A billed node has an open meter.
    MeterRuns,
    /// Each child of a parent is waiting, live or ended, and the state of the parent follows from that.
    TreesAreWhole,
    /// A parent never has more children started or queued than it allows.
    LimitsHold,
    WhyIsNeverEmpty,
}

/// Checks everything. `slack` is how late a decision may be, which is the interval of the driver's ticks.
pub fn check(world: &World, now: Now, slack: Span) -> Result<(), Broken> {
    for job in world.jobs() {
        check_job(world, job)?;
    }
    for node in world.nodes() {
        check_node(world, node)?;
    }
    for cluster in world.clusters() {
        check_cluster(world, cluster, now, slack)?;
    }
    for host in world.hosts().hosts() {
        check_host(world, host)?;
    }
    check_queued(world)
}

/// Checks what these changes touched, right after they were applied. This is cheap enough for every step.
pub fn check_touched(
    world: &World,
    changes: &[Change],
    now: Now,
    slack: Span,
) -> Result<(), Broken> {
    let mut jobs: BTreeSet<JobId> = BTreeSet::new();
    let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
    let mut clusters: BTreeSet<ClusterId> = BTreeSet::new();
    for change in changes {
        match change {
            Change::ClusterChanged { cluster, .. } => {
                clusters.insert(cluster.id);
            }
            Change::JobSubmitted { job, .. }
            | Change::ChildCreated { job, .. }
            | Change::JobChanged { job, .. } => {
                jobs.insert(job.id);
                jobs.extend(job.parent);
                clusters.insert(job.cluster);
                let members = job.attempt().into_iter().flat_map(|attempt| &attempt.members);
                nodes.extend(members.map(|member| member.node));
            }
            Change::NodeChanged { node, .. } => {
                nodes.insert(node.id);
                clusters.insert(node.cluster);
                jobs.extend(node.leases().iter().map(|lease| lease.job));
            }
            Change::MemberChanged(change) => {
                jobs.insert(change.job);
                nodes.insert(change.member.node);
            }
            Change::PrincipalSeen(_)
            | Change::WorkspaceChanged(_)
            | Change::WorkspaceGone(_)
            | Change::GovernanceChanged(_)
            | Change::HostsChanged(_)
            | Change::DeploymentChanged(_)
            | Change::DeploymentGone { .. }
            | Change::DatastoreChanged(_)
            | Change::AssetChanged(_)
            | Change::AssetGone { .. }
            | Change::AssetContainerChanged(_)
            | Change::AssetContainerGone { .. }
            | Change::DatastoreGone { .. }
            | Change::ActivityNoted(_)
            | Change::AccountChanged(_)
            | Change::QuotaChanged(_)
            | Change::AccessChanged(_)
            | Change::JobMetadataChanged { .. }
            | Change::JobGone { .. }
            | Change::AttemptEnded(_)
            | Change::TreeSaved(_)
            | Change::LedgerPosted(_)
            | Change::OperationChanged(_)
            | Change::EffectQueued(_)
            | Change::EffectSettled { .. } => {}
        }
    }
    for job in jobs.into_iter().filter_map(|id| world.job(id)) {
        check_job(world, job)?;
    }
    for node in nodes.into_iter().filter_map(|id| world.node(id)) {
        check_node(world, node)?;
        if let Some(host) = world.hosts().host(&node.host) {
            check_host(world, host)?;
        }
    }
    for cluster in clusters.into_iter().filter_map(|id| world.cluster(id)) {
        check_cluster(world, cluster, now, slack)?;
    }
    Ok(())
}

fn broken<T>(promise: Promise, about: String) -> Result<T, Broken> {
    Err(Broken { promise, about })
}

/// The counters that the queue limits are checked against must equal the number of waiting jobs.
fn check_queued(world: &World) -> Result<(), Broken> {
    let mut by_principal: BTreeMap<PrincipalId, u32> = BTreeMap::new();
    let mut by_workspace: BTreeMap<WorkspaceId, u32> = BTreeMap::new();
    for job in world.jobs().filter(|job| job.phase() == JobPhase::Queued || job.is_parent()) {
        let waiting = world.tree(job.id).map_or(1, |tree| tree.queued().len());
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        if waiting > 0 {
            *by_principal.entry(job.principal).or_default() += waiting;
            *by_workspace.entry(job.workspace).or_default() += waiting;
        }
    }
    if by_principal != *world.queued_by_principal() || by_workspace != *world.queued_by_workspace()
    {
        let about = format!("{by_principal:?} and {by_workspace:?} wait");
        return broken(Promise::QueuedAreCounted, about);
    }
    Ok(())
}

fn check_job(world: &World, job: &Job) -> Result<(), Broken> {
    let phase = job.phase();
    if phase.is_terminal() {
        return broken(Promise::JobsAreLive, format!("{} is {phase:?} and still here", job.id));
    }
    let Some(index) = world.cluster_index(job.cluster) else {
        return broken(Promise::JobsAreLive, format!("{} has no cluster", job.id));
    };
    if job.is_parent() {
        return check_parent(world, job);
    }
    if let Some(parent) = job.parent
        && !world.tree(parent).is_some_and(|tree| tree.live().contains(&job.id))
    {
        return broken(Promise::TreesAreWhole, format!("{} has no live parent", job.name));
    }
    let waits = index.queue.contains(job);
    if waits == index.active.contains(&job.id) || waits != (phase == JobPhase::Queued) {
        return broken(Promise::JobsAreLive, format!("{} is {phase:?}, queued: {waits}", job.id));
    }
    if phase == JobPhase::Queued && crate::why::why(world, job.id).is_empty() {
        return broken(Promise::WhyIsNeverEmpty, job.id.to_string());
    }
    let is_counted = world.queued_of(job.principal) > 0 && world.queued_in(job.workspace) > 0;
    if phase == JobPhase::Queued && !is_counted {
        return broken(Promise::QueuedAreCounted, job.id.to_string());
    }
    let Some(attempt) = job.attempt() else { return Ok(()) };
    if attempt.is_over() {
        return broken(Promise::OneLiveEpoch, format!("{} is over and not ended", attempt.epoch));
    }
    if attempt.members.len() != job.nodes as usize {
        return broken(Promise::OneLiveEpoch, format!("{} is not whole", attempt.epoch));
    }
    for member in &attempt.members {
        let lease = world.node(member.node).and_then(|node| node.lease_of(attempt.epoch));
        let holds = lease.is_some_and(|lease| lease.job == job.id);
        // A member that exited keeps its node until all members have ended, unless the node is lost in the meantime.
        let should_hold = match member.phase {
            MemberPhase::Ordered | MemberPhase::Ready | MemberPhase::Running => true,
            MemberPhase::Exited(_) => holds,
            MemberPhase::Lost => false,
        };
        if holds != should_hold {
            let about = format!("{} member {}: holds {holds}", attempt.epoch, member.node);
            return broken(Promise::OneLiveEpoch, about);
        }
    }
    Ok(())
}

/// Every child is counted once, and no more of them have started or wait for nodes than the parent allows.
fn check_parent(world: &World, parent: &Job) -> Result<(), Broken> {
    let Some(tree) = world.tree(parent.id) else {
        return broken(Promise::TreesAreWhole, format!("{} has no children", parent.name));
    };
    let counts = tree.counts();
    if counts.all() != parent.children() {
        return broken(Promise::TreesAreWhole, format!("{}: {counts:?}", parent.name));
    }
    let is_over = counts.live == 0 && counts.waiting == 0;
    if is_over || (counts.live + counts.ended() > 0) != (parent.phase() != JobPhase::Queued) {
        let about = format!("{} is {:?}: {counts:?}", parent.name, parent.phase());
        return broken(Promise::TreesAreWhole, about);
    }
    // A task that was canceled while it waited on a node has a record, but no place.
    let has_place = |job: &JobId| {
        let attempt = world.job(*job).and_then(Job::attempt);
        attempt.is_none_or(|attempt| attempt.members.iter().any(|member| member.meter.is_some()))
    };
    let at_once = tree.live().iter().filter(|job| has_place(job)).count() + tree.queued().len();
    let limit = parent.array().and_then(|plan| plan.concurrency);
    if limit.is_some_and(|limit| at_once > limit as usize) {
        return broken(Promise::LimitsHold, format!("{} runs {at_once} at once", parent.name));
    }
    let waits = counts.waiting > 0 && parent.phase() == JobPhase::Queued;
    if waits && crate::why::why(world, parent.id).is_empty() {
        return broken(Promise::WhyIsNeverEmpty, parent.name.to_string());
    }
    Ok(())
}

fn check_node(world: &World, node: &Node) -> Result<(), Broken> {
    match node.phase() {
        NodePhase::Requested | NodePhase::Unusable | NodePhase::Leaving
            if !world.has_effect(node.id) =>
        {
            broken(Promise::IntentIsRecorded, format!("{} has no call in the outbox", node.name))
        }
        NodePhase::Booting | NodePhase::Idle | NodePhase::Leased if !is_metered(world, node) => {
            broken(Promise::MeterRuns, format!("{} has no meter", node.name))
        }
        NodePhase::Requested
        | NodePhase::Booting
        | NodePhase::Idle
        | NodePhase::Leased
        | NodePhase::Unusable
        | NodePhase::Leaving
        | NodePhase::Gone => check_lease(world, node),
    }
}

/// Whether the open meters of a node add up to the whole node.
fn is_metered(world: &World, node: &Node) -> bool {
    let spare = node.meter.map_or(Part::NONE, |meter| meter.part);
    let held = node.leases().iter().map(|lease| {
        let attempt = world.job(lease.job).and_then(Job::attempt);
        let member = attempt.and_then(|attempt| attempt.members.get(lease.rank as usize));
        member.and_then(|member| member.meter).map_or(0, |meter| meter.part.0)
    });
    spare.0 + held.sum::<u32>() == Part::WHOLE.0
}

fn check_lease(world: &World, node: &Node) -> Result<(), Broken> {
    for lease in node.leases() {
        let attempt = world.job(lease.job).and_then(Job::attempt);
        let is_held = attempt.is_some_and(|attempt| {
            let member = attempt.members.get(lease.rank as usize);
            attempt.epoch == lease.epoch && member.is_some_and(|member| member.node == node.id)
        });
        if !is_held {
            return broken(Promise::OneLiveEpoch, format!("{} serves no attempt", node.name));
        }
    }
    let held = node.leases().iter().map(|lease| lease.share.unwrap_or(node.capacity));
    let held = held.fold(Capacity::default(), Capacity::with);
    if !held.fits_into(node.capacity) {
        return broken(Promise::OneLiveEpoch, format!("{} is given out twice", node.name));
    }
    Ok(())
}

/// A host that new nodes were requested on must have room for all of its nodes. A host may have become smaller than its
/// existing nodes need, though.
fn check_host(world: &World, host: &Host) -> Result<(), Broken> {
    let Some(host_nodes) = world.host_nodes(&host.name) else { return Ok(()) };
    let is_asked = || {
        let mut nodes = host_nodes.nodes.iter().filter_map(|node| world.node(*node));
        nodes.any(|node| node.phase() == NodePhase::Requested)
    };
    let may_exceed = host.name.is_local() && world.settings.over_commit;
    if !may_exceed && !host_nodes.used.fits_into(host.capacity) && is_asked() {
        let about = format!("{}: {:?} of {:?}", host.name, host_nodes.used, host.capacity);
        return broken(Promise::HostsHold, about);
    }
    Ok(())
}

fn check_cluster(world: &World, cluster: &Cluster, now: Now, slack: Span) -> Result<(), Broken> {
    let Some(index) = world.cluster_index(cluster.id) else {
        return broken(Promise::NodesWithinBounds, format!("{} has no index", cluster.name));
    };
    let scale = cluster.spec.scale;
    // If the maximum was lowered, only nodes that hold a job may remain above it.
    let free = index.pending.len() + index.idle.len();
    if index.alive() > scale.nodes_max && free > 0 && cluster.phase != ClusterPhase::Deleting {
        let about = format!("{}: {} of {}", cluster.name, index.alive(), scale.nodes_max);
        return broken(Promise::NodesWithinBounds, about);
    }
    // In a region with a limit, other clusters may be served first.
    let scope = world.quota_scope_of(cluster.id);
    let is_unset = |scope| world.quota_limits(scope).is_none();
    let has_quota = world.settings.quota == DefaultLimits::default()
        && scope.is_none_or(|scope| is_unset(scope));
    let may_grow = cluster.backoff.until <= now.wall
        && cluster.backoff.pending_max() > u32::try_from(index.pending.len()).unwrap_or(u32::MAX)
        && index.existing() < world.ceiling(cluster)
        && has_quota
        && world.store_trouble().is_none()
        && world.is_boundless();
    if cluster.phase == ClusterPhase::Succeeded && may_grow && index.alive() < scale.nodes_min {
        let about = format!("{}: {} under {}", cluster.name, index.alive(), scale.nodes_min);
        return broken(Promise::NodesWithinBounds, about);
    }
    if let Some((since, node)) = index.idle.first()
        && let Rest::Free { since: free } = cluster.rest
        && index.alive() > scale.nodes_min
        && (*since).max(free) + scale.idle_time + slack < now.wall
    {
        let node = world.node(*node);
        return broken(Promise::IdleNodesGo, format!("{}: {node:?}", cluster.name));
    }
    Ok(())
}
