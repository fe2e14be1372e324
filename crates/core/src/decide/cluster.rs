//! All decisions about one cluster except its growth, in a fixed order: provision or retire, start jobs, shrink.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{grow, host, power, start};
use crate::attempts;
use crate::batches;
use crate::change::Change;
use crate::ids::{ClusterId, EffectId, JobId, NodeId};
use crate::job_trees;
use crate::meter;
use crate::model::{
    Attempt, CancelReason, Category, Cluster, ClusterEvent, ClusterPhase, HostState, NodeEvent,
    NodeState, Operation, OperationKind, OperationStatus, Rest, ScaleUp, TreeEnding,
};
use crate::observations;
use crate::planted::{Bug, is_planted};
use crate::step::Transaction;
use crate::time::Wall;
use crate::world::ClusterIndex;

/// Decides about one cluster, and returns when to decide again if nothing happens before that.
pub(super) fn decide(tx: &mut Transaction<'_>, id: ClusterId) -> Option<Wall> {
    match cluster(tx, id).phase {
        ClusterPhase::Creating | ClusterPhase::Updating
            if cluster(tx, id).under_way().is_some() =>
        {
            power::settle(tx, id);
        }
        ClusterPhase::Creating | ClusterPhase::Updating => provision(tx, id),
        ClusterPhase::Succeeded => {}
        ClusterPhase::Deleting => {
            retire(tx, id);
            return None;
        }
        ClusterPhase::Gone => return None,
    }
    // One decision can require another: when the last idle node is deleted, for example, none is held any more.
    // So this repeats until nothing changes.
    loop {
        let before = tx.changes.len();
        start::start_jobs(tx, id);
        batches::recall_due(tx, id);
        clear_closed_hosts(tx, id);
        hold_idle(tx, id);
        shrink(tx, id);
        mark_floor(tx, id);
        if tx.changes.len() == before {
            return next_wake(tx, id);
        }
    }
}

pub(super) fn cluster<'t>(tx: &'t Transaction<'_>, id: ClusterId) -> &'t Cluster {
    tx.world.cluster(id).expect("decided about while it exists")
}

pub(super) fn cluster_index<'t>(tx: &'t Transaction<'_>, id: ClusterId) -> &'t ClusterIndex {
    tx.world.cluster_index(id).expect("every cluster has an index")
}

/// A cluster is ready as soon as it is on disk, because nodes are created only when they are needed.
fn provision(tx: &mut Transaction<'_>, id: ClusterId) {
    let mut cluster = cluster(tx, id).clone();
    cluster.phase = ClusterPhase::Succeeded;
    let done = OperationStatus::Succeeded;
    finish_operation(tx, &mut cluster, OperationKind::PutCluster, done, None);
    let event = ClusterEvent::Provisioned;
    tx.emit(Change::ClusterChanged { event, cluster: Arc::new(cluster) });
}

pub(super) fn finish_operation(
    tx: &mut Transaction<'_>,
    cluster: &mut Cluster,
    kind: OperationKind,
    status: OperationStatus,
    error: Option<String>,
) {
    if let Some(operation) = cluster.operation.take() {
        tx.emit(Change::OperationChanged(Operation {
            id: operation,
            scope: tx.world.scope_of(cluster),
            by: None,
            kind,
            status,
            started_at: cluster.modified_at,
            ended_at: Some(tx.now.wall),
            error: error.map(Box::from),
        }));
    }
}

/// Cancels every job, deletes every free node, and deletes the cluster together with the last of them.
fn retire(tx: &mut Transaction<'_>, id: ClusterId) {
    // Parents come first, so that their children without a record leave the queue.
    let parents: Vec<JobId> = cluster_index(tx, id).parents.iter().copied().collect();
    for parent in parents {
        job_trees::end(tx, parent, &TreeEnding::Canceled(CancelReason::ClusterDeleted));
    }
    let index = cluster_index(tx, id);
    let mut jobs: Vec<JobId> = index.queue.ids();
    jobs.extend(&index.active);
    for job in jobs {
        let job = tx.world.job(job).expect("indexed").clone();
        attempts::cancel(tx, job, CancelReason::ClusterDeleted);
    }
    let index = cluster_index(tx, id);
    let idle = index.idle.iter().map(|(_, node)| *node);
    let pending = index.pending.iter().map(|(_, node)| *node);
    let parked = index.parked.iter().map(|(_, node)| *node);
    let free: Vec<NodeId> = pending.chain(idle).chain(parked).collect();
    for node in free {
        scale_down(tx, node);
    }
    forget_lost_nodes(tx, id);
    if cluster_index(tx, id).is_empty() {
        let mut cluster = cluster(tx, id).clone();
        cluster.phase = ClusterPhase::Gone;
        let done = OperationStatus::Succeeded;
        finish_operation(tx, &mut cluster, OperationKind::DeleteCluster, done, None);
        let event = ClusterEvent::Emptied;
        tx.emit(Change::ClusterChanged { event, cluster: Arc::new(cluster) });
    }
}

/// Idle nodes that a waiting job will use once there are enough of them do not time out in the meantime. When no job
/// waits for them any more, their idle time starts over.
fn hold_idle(tx: &mut Transaction<'_>, id: ClusterId) {
    let cluster_now = cluster(tx, id);
    let reach = tx.world.reach(cluster_now);
    let index = cluster_index(tx, id);
    let is_awaited = !index.idle.is_empty()
        && index.queue.shapes().first_key_value().is_some_and(|(shape, _)| shape.nodes <= reach);
    let rest = match (cluster_now.rest, is_awaited) {
        (Rest::Held, true) | (Rest::Free { .. }, false) => return,
        (Rest::Free { .. }, true) => Rest::Held,
        (Rest::Held, false) => Rest::Free { since: tx.now.wall },
    };
    let cluster = Arc::new(Cluster { rest, ..cluster_now.clone() });
    tx.emit(Change::ClusterChanged { event: ClusterEvent::RestChanged, cluster });
}

fn shrink(tx: &mut Transaction<'_>, id: ClusterId) {
    // The maximum was lowered below the current size: nodes that have not started yet are deleted first, newest first.
    let nodes_max = cluster(tx, id).spec.scale.nodes_max;
    while cluster_index(tx, id).alive() > nodes_max {
        let index = cluster_index(tx, id);
        let oldest_idle = index.idle.first().map(|(_, node)| *node);
        let newest = index.pending.last().map(|(_, node)| *node);
        let busy = index.leased.first().copied().filter(|_| is_planted(Bug::BusyNodeReleased));
        let Some(node) = busy.or(newest).or(oldest_idle) else { break };
        scale_down(tx, node);
    }
    let chooses = host::first_gang(tx.world, cluster(tx, id), cluster_index(tx, id)).is_some();
    tx.world.volatile.set_choosing(id, chooses);
    for node in host::blocking_nodes(tx.world, cluster(tx, id), cluster_index(tx, id)) {
        scale_down(tx, node);
    }
    // Nodes that have been idle for too long: the least recently used is deleted first, but never below the minimum.
    while let Some(node) = next_idle_timeout(tx, id).filter(|(at, _)| *at <= tx.now.wall) {
        scale_down(tx, node.1);
    }
}

/// Deletes nodes without a job on hosts that are not open any more, either at once or when their idle time is over.
fn clear_closed_hosts(tx: &mut Transaction<'_>, id: ClusterId) {
    let index = cluster_index(tx, id);
    if index.hosts.keys().all(|host| tx.world.is_open(host)) {
        return;
    }
    let on_closed =
        |node: &NodeId| tx.world.node(*node).is_some_and(|node| !tx.world.is_open(&node.host));
    let pending = index.pending.iter().map(|(_, node)| *node).filter(on_closed);
    let parked = index.parked.iter();
    // Parked nodes must not keep the cluster from having usable ones instead.
    let cluster_now = cluster(tx, id);
    let wanted = grow::wanted_nodes(tx.world, cluster_now, index, tx.now.wall);
    let unusable = index.existing() - index.alive();
    let surplus = wanted
        .max(index.alive())
        .saturating_add(unusable)
        .saturating_sub(cluster_now.spec.scale.nodes_max);
    let due = parked.enumerate().filter(|(place, (_, node))| {
        let is_surplus = *place < surplus as usize;
        is_surplus || parked_until(tx, id, *node).is_some_and(|at| at <= tx.now.wall)
    });
    let free: Vec<NodeId> = pending.chain(due.map(|(_, (_, node))| *node)).collect();
    for node in free {
        scale_down(tx, node);
    }
    forget_lost_nodes(tx, id);
}

/// When to delete an idle node on a host that is not open. If the host is only cordoned, the node is kept for its idle
/// time, because an administrator may open the host again.
fn parked_until(tx: &Transaction<'_>, id: ClusterId, node: NodeId) -> Option<Wall> {
    let node = tx.world.node(node)?;
    let NodeState::Idle { since, .. } = node.state else { return None };
    match tx.world.hosts().host(&node.host).map(|host| host.state) {
        Some(HostState::Cordoned) => Some(since + cluster(tx, id).spec.scale.idle_time),
        Some(HostState::Draining | HostState::Removing) => Some(since),
        Some(HostState::Open) | None => None,
    }
}

/// Nodes that are being deleted on a host that was given up count as deleted: no host agent is left to delete them,
/// and everything that ran on them is over.
fn forget_lost_nodes(tx: &mut Transaction<'_>, id: ClusterId) {
    if tx.world.hosts().removing().next().is_none() {
        return;
    }
    let is_lost = |node: &NodeId| {
        let node = tx.world.node(*node)?;
        let host = tx.world.hosts().host(&node.host)?;
        (host.state == HostState::Removing).then_some(node.id)
    };
    let gone: Vec<NodeId> = cluster_index(tx, id).going.iter().filter_map(is_lost).collect();
    for node in gone {
        let effects = tx.world.effects().filter(|effect| effect.kind.node() == node);
        let effects: Vec<EffectId> = effects.map(|effect| effect.id).collect();
        observations::on_deleted(tx, node);
        for id in effects {
            tx.emit(Change::EffectSettled { id });
        }
    }
}

/// The node that will time out next, and when.
fn next_idle_timeout(tx: &Transaction<'_>, id: ClusterId) -> Option<(Wall, NodeId)> {
    let cluster_now = cluster(tx, id);
    let index = cluster_index(tx, id);
    if index.alive() <= cluster_now.spec.scale.nodes_min {
        return None;
    }
    let (since, node) = *index.idle.first()?;
    match cluster_now.rest {
        Rest::Held => None,
        Rest::Free { .. } if is_planted(Bug::IdleNodeKept) => None,
        Rest::Free { since: free } => {
            Some((since.max(free) + cluster_now.spec.scale.idle_time, node))
        }
    }
}

/// Deletes a node that holds no job.
fn scale_down(tx: &mut Transaction<'_>, node: NodeId) {
    let mut node = tx.world.node(node).expect("indexed").clone();
    let next = node.meter.map(|_| Category::Stop);
    node.state = NodeState::Leaving;
    meter::switch(tx, &mut node, next);
    attempts::order_delete(tx, &node, None);
    tx.emit(Change::NodeChanged { event: NodeEvent::ScaledDown, node: Arc::new(node) });
}

/// Separates idle time that the minimum causes from idle time that will end: the idle nodes that would be deleted last
/// are the floor.
fn mark_floor(tx: &mut Transaction<'_>, id: ClusterId) {
    let nodes_min = cluster(tx, id).spec.scale.nodes_min;
    let index = cluster_index(tx, id);
    if nodes_min == 0 && index.floor.is_empty() {
        return;
    }
    let surplus = index.alive().saturating_sub(nodes_min) as usize;
    let kept = index.idle.len().saturating_sub(surplus);
    let floor: BTreeSet<NodeId> =
        index.idle.iter().rev().take(kept).map(|(_, node)| *node).collect();
    let leaving = index.floor.difference(&floor).map(|node| (*node, Category::Idle));
    let joining = floor.difference(&index.floor).map(|node| (*node, Category::Floor));
    let changing: Vec<(NodeId, Category)> = leaving.chain(joining).collect();
    for (node, category) in changing {
        let mut node = tx.world.node(node).expect("indexed").clone();
        meter::switch(tx, &mut node, Some(category));
        tx.emit(Change::NodeChanged { event: NodeEvent::RestChanged, node: Arc::new(node) });
    }
}

fn next_wake(tx: &Transaction<'_>, id: ClusterId) -> Option<Wall> {
    let now = tx.now.wall;
    let cluster_now = cluster(tx, id);
    let index = cluster_index(tx, id);
    let is_short = || {
        let wanted = grow::wanted_nodes(tx.world, cluster_now, index, now);
        wanted > index.alive()
    };
    let until = cluster_now.backoff.until;
    let retry = (until > now && is_short()).then_some(until);
    let timeout = next_idle_timeout(tx, id).map(|(at, _)| at);
    // An attempt that takes longer than predicted can make room behind a reservation, or make a new node worth
    // starting.
    let has_room = !index.idle.is_empty() || !index.partial.is_empty();
    let foresees = cluster_now.spec.scale.scale_up == ScaleUp::Predictive;
    let is_watched = !index.queue.is_empty() && (has_room || foresees);
    let mut ends = tx.world.releases(id).map(|(end, _)| end).take_while(|_| is_watched).peekable();
    let overrun = ends.peek().map(|end| *end + Attempt::GRACE);
    // As time passes, an attempt that would have ended after a new node was up ends before that instead.
    let boot = cluster_now.boot.unwrap_or(tx.world.settings.boot);
    let sooner = ends.find(|end| *end > now + boot).map(|end| Wall(end.0 - boot.0));
    let parked = index.parked.iter().filter_map(|(_, node)| parked_until(tx, id, *node)).min();
    let recall = batches::next_recall(tx.world, id);
    [retry, timeout, overrun, sooner, parked, recall].into_iter().flatten().min()
}
