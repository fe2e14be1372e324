//! All decisions about one pool but its growth, in a fixed order: provision or retire, place, shrink.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{grow, host, place, power};
use crate::attempts;
use crate::change::Change;
use crate::ids::{ClusterId, EffectId, JobId, NodeId};
use crate::meter;
use crate::model::{
    Attempt, CancelReason, Category, Cluster, ClusterEvent, ClusterPhase, HostState, NodeEvent,
    NodeState, Operation, OperationKind, OperationStatus, Rest, ScaleUp,
};
use crate::observations;
use crate::planted::{Bug, is_planted};
use crate::step::Turn;
use crate::time::Wall;
use crate::world::Pool;

/// Decides about one cluster and says when it wants to be looked at again if nothing happens.
pub(super) fn decide(turn: &mut Turn<'_>, id: ClusterId) -> Option<Wall> {
    match cluster(turn, id).phase {
        ClusterPhase::Creating | ClusterPhase::Updating
            if cluster(turn, id).under_way().is_some() =>
        {
            power::settle(turn, id);
        }
        ClusterPhase::Creating | ClusterPhase::Updating => provision(turn, id),
        ClusterPhase::Succeeded => {}
        ClusterPhase::Deleting => {
            retire(turn, id);
            return None;
        }
        ClusterPhase::Gone => return None,
    }
    // One decision can call for another (the last idle node goes, so none is held any more): until none does.
    loop {
        let before = turn.changes.len();
        place::place(turn, id);
        clear_closed_hosts(turn, id);
        hold_idle(turn, id);
        shrink(turn, id);
        mark_floor(turn, id);
        if turn.changes.len() == before {
            return next_look(turn, id);
        }
    }
}

pub(super) fn cluster<'t>(turn: &'t Turn<'_>, id: ClusterId) -> &'t Cluster {
    turn.world.cluster(id).expect("decided about while it exists")
}

pub(super) fn pool<'t>(turn: &'t Turn<'_>, id: ClusterId) -> &'t Pool {
    turn.world.pool(id).expect("every cluster has a pool")
}

/// A cluster is ready as soon as it is on disk: nodes are made when they are needed.
fn provision(turn: &mut Turn<'_>, id: ClusterId) {
    let mut cluster = cluster(turn, id).clone();
    cluster.phase = ClusterPhase::Succeeded;
    let done = OperationStatus::Succeeded;
    finish_operation(turn, &mut cluster, OperationKind::PutCluster, done, None);
    let event = ClusterEvent::Provisioned;
    turn.emit(Change::ClusterChanged { event, cluster: Arc::new(cluster) });
}

pub(super) fn finish_operation(
    turn: &mut Turn<'_>,
    cluster: &mut Cluster,
    kind: OperationKind,
    status: OperationStatus,
    error: Option<String>,
) {
    if let Some(operation) = cluster.operation.take() {
        turn.emit(Change::OperationChanged(Operation {
            id: operation,
            scope: turn.world.scope_of(cluster),
            by: None,
            kind,
            status,
            started_at: cluster.modified_at,
            ended_at: Some(turn.now.wall),
            error: error.map(Box::from),
        }));
    }
}

/// Ends every job, lets every free node go, and the cluster with the last of them.
fn retire(turn: &mut Turn<'_>, id: ClusterId) {
    let pool_now = pool(turn, id);
    let mut jobs: Vec<JobId> = pool_now.queue.ids();
    jobs.extend(&pool_now.active);
    for job in jobs {
        let job = turn.world.job(job).expect("indexed").clone();
        attempts::cancel(turn, job, CancelReason::ClusterDeleted);
    }
    let pool_now = pool(turn, id);
    let idle = pool_now.idle.iter().map(|(_, node)| *node);
    let pending = pool_now.pending.iter().map(|(_, node)| *node);
    let parked = pool_now.parked.iter().map(|(_, node)| *node);
    let free: Vec<NodeId> = pending.chain(idle).chain(parked).collect();
    for node in free {
        let_go(turn, node);
    }
    bury(turn, id);
    if pool(turn, id).is_empty() {
        let mut cluster = cluster(turn, id).clone();
        cluster.phase = ClusterPhase::Gone;
        let done = OperationStatus::Succeeded;
        finish_operation(turn, &mut cluster, OperationKind::DeleteCluster, done, None);
        let event = ClusterEvent::Emptied;
        turn.emit(Change::ClusterChanged { event, cluster: Arc::new(cluster) });
    }
}

/// Idle nodes that a waiting job will use once it has enough of them do not time out meanwhile; when nobody
/// waits for them any more, their time starts anew.
fn hold_idle(turn: &mut Turn<'_>, id: ClusterId) {
    let cluster_now = cluster(turn, id);
    let reach = turn.world.reach(cluster_now);
    let pool_now = pool(turn, id);
    let is_awaited = !pool_now.idle.is_empty()
        && pool_now.queue.shapes().first_key_value().is_some_and(|(shape, _)| shape.nodes <= reach);
    let rest = match (cluster_now.rest, is_awaited) {
        (Rest::Held, true) | (Rest::Free { .. }, false) => return,
        (Rest::Free { .. }, true) => Rest::Held,
        (Rest::Held, false) => Rest::Free { since: turn.now.wall },
    };
    let cluster = Arc::new(Cluster { rest, ..cluster_now.clone() });
    turn.emit(Change::ClusterChanged { event: ClusterEvent::RestChanged, cluster });
}

fn shrink(turn: &mut Turn<'_>, id: ClusterId) {
    // Above the maximum: it was lowered. Nodes that did not come up yet go first, newest first.
    let nodes_max = cluster(turn, id).spec.scale.nodes_max;
    while pool(turn, id).alive() > nodes_max {
        let pool_now = pool(turn, id);
        let oldest_idle = pool_now.idle.first().map(|(_, node)| *node);
        let newest = pool_now.pending.last().map(|(_, node)| *node);
        let busy = pool_now.leased.first().copied().filter(|_| is_planted(Bug::BusyNodeReleased));
        let Some(node) = busy.or(newest).or(oldest_idle) else { break };
        let_go(turn, node);
    }
    let chooses = host::first_gang(turn.world, cluster(turn, id), pool(turn, id)).is_some();
    turn.world.volatile.set_choosing(id, chooses);
    for node in host::in_the_way(turn.world, cluster(turn, id), pool(turn, id)) {
        let_go(turn, node);
    }
    // Idle for too long: the least recently used goes first, but never below the minimum.
    while let Some(node) = due_to_go(turn, id).filter(|(at, _)| *at <= turn.now.wall) {
        let_go(turn, node.1);
    }
}

/// Takes nodes off hosts that are not open any more: those that hold no job, at once or when their time is
/// over.
fn clear_closed_hosts(turn: &mut Turn<'_>, id: ClusterId) {
    let pool_now = pool(turn, id);
    if pool_now.hosts.keys().all(|host| turn.world.is_open(host)) {
        return;
    }
    let on_closed =
        |node: &NodeId| turn.world.node(*node).is_some_and(|node| !turn.world.is_open(&node.host));
    let pending = pool_now.pending.iter().map(|(_, node)| *node).filter(on_closed);
    let parked = pool_now.parked.iter();
    // They must not keep the pool from having others instead.
    let cluster_now = cluster(turn, id);
    let wanted = grow::wanted_nodes(turn.world, cluster_now, pool_now, turn.now.wall);
    let unusable = pool_now.existing() - pool_now.alive();
    let surplus = wanted
        .max(pool_now.alive())
        .saturating_add(unusable)
        .saturating_sub(cluster_now.spec.scale.nodes_max);
    let due = parked.enumerate().filter(|(place, (_, node))| {
        let is_surplus = *place < surplus as usize;
        is_surplus || parked_until(turn, id, *node).is_some_and(|at| at <= turn.now.wall)
    });
    let free: Vec<NodeId> = pending.chain(due.map(|(_, (_, node))| *node)).collect();
    for node in free {
        let_go(turn, node);
    }
    bury(turn, id);
}

/// When an idle node on a host that is not open goes. On one that is only cordoned it has its time: somebody may
/// open the host again.
fn parked_until(turn: &Turn<'_>, id: ClusterId, node: NodeId) -> Option<Wall> {
    let node = turn.world.node(node)?;
    let NodeState::Idle { since, .. } = node.state else { return None };
    match turn.world.hosts().host(&node.host).map(|host| host.state) {
        Some(HostState::Cordoned) => Some(since + cluster(turn, id).spec.scale.idle_time),
        Some(HostState::Draining | HostState::Removing) => Some(since),
        Some(HostState::Open) | None => None,
    }
}

/// Nodes on their way out of a host that was given up are gone: nobody is left who could delete them, and
/// whatever they held is over.
fn bury(turn: &mut Turn<'_>, id: ClusterId) {
    if turn.world.hosts().removing().next().is_none() {
        return;
    }
    let is_buried = |node: &NodeId| {
        let node = turn.world.node(*node)?;
        let host = turn.world.hosts().host(&node.host)?;
        (host.state == HostState::Removing).then_some(node.id)
    };
    let gone: Vec<NodeId> = pool(turn, id).going.iter().filter_map(is_buried).collect();
    for node in gone {
        let effects = turn.world.effects().filter(|effect| effect.kind.node() == node);
        let effects: Vec<EffectId> = effects.map(|effect| effect.id).collect();
        observations::on_deleted(turn, node);
        for id in effects {
            turn.emit(Change::EffectSettled { id });
        }
    }
}

/// The node that will time out next, and when.
fn due_to_go(turn: &Turn<'_>, id: ClusterId) -> Option<(Wall, NodeId)> {
    let cluster_now = cluster(turn, id);
    let pool_now = pool(turn, id);
    if pool_now.alive() <= cluster_now.spec.scale.nodes_min {
        return None;
    }
    let (since, node) = *pool_now.idle.first()?;
    match cluster_now.rest {
        Rest::Held => None,
        Rest::Free { .. } if is_planted(Bug::IdleNodeKept) => None,
        Rest::Free { since: free } => {
            Some((since.max(free) + cluster_now.spec.scale.idle_time, node))
        }
    }
}

/// Deletes a node that holds no job.
fn let_go(turn: &mut Turn<'_>, node: NodeId) {
    let mut node = turn.world.node(node).expect("indexed").clone();
    let next = node.meter.map(|_| Category::Stop);
    node.state = NodeState::Leaving;
    meter::switch(turn, &mut node, next);
    attempts::order_delete(turn, &node, None);
    turn.emit(Change::NodeChanged { event: NodeEvent::ScaledDown, node: Arc::new(node) });
}

/// Tells idle time that the minimum causes from idle time that will end: of the idle nodes, those that would
/// go last are the floor.
fn mark_floor(turn: &mut Turn<'_>, id: ClusterId) {
    let nodes_min = cluster(turn, id).spec.scale.nodes_min;
    let pool_now = pool(turn, id);
    if nodes_min == 0 && pool_now.floor.is_empty() {
        return;
    }
    let surplus = pool_now.alive().saturating_sub(nodes_min) as usize;
    let kept = pool_now.idle.len().saturating_sub(surplus);
    let floor: BTreeSet<NodeId> =
        pool_now.idle.iter().rev().take(kept).map(|(_, node)| *node).collect();
    let leaving = pool_now.floor.difference(&floor).map(|node| (*node, Category::Idle));
    let joining = floor.difference(&pool_now.floor).map(|node| (*node, Category::Floor));
    let changing: Vec<(NodeId, Category)> = leaving.chain(joining).collect();
    for (node, category) in changing {
        let mut node = turn.world.node(node).expect("indexed").clone();
        meter::switch(turn, &mut node, Some(category));
        turn.emit(Change::NodeChanged { event: NodeEvent::RestChanged, node: Arc::new(node) });
    }
}

fn next_look(turn: &Turn<'_>, id: ClusterId) -> Option<Wall> {
    let now = turn.now.wall;
    let cluster_now = cluster(turn, id);
    let pool_now = pool(turn, id);
    let is_short = || {
        let wanted = grow::wanted_nodes(turn.world, cluster_now, pool_now, now);
        wanted > pool_now.alive()
    };
    let until = cluster_now.backoff.until;
    let retry = (until > now && is_short()).then_some(until);
    let timeout = due_to_go(turn, id).map(|(at, _)| at);
    // An attempt that takes longer than was thought can make room behind a reservation, or a new node
    // worth its start.
    let has_room = !pool_now.idle.is_empty() || !pool_now.partial.is_empty();
    let foresees = cluster_now.spec.scale.scale_up == ScaleUp::Predictive;
    let is_watched = !pool_now.queue.is_empty() && (has_room || foresees);
    let mut ends =
        turn.world.releases(id).map(|(end, _)| end).take_while(|_| is_watched).peekable();
    let overrun = ends.peek().map(|end| *end + Attempt::GRACE);
    // And one that would have ended after a new node was up will, from then on, have ended before.
    let boot = cluster_now.boot.unwrap_or(turn.world.settings.boot);
    let sooner = ends.find(|end| *end > now + boot).map(|end| Wall(end.0 - boot.0));
    let parked = pool_now.parked.iter().filter_map(|(_, node)| parked_until(turn, id, *node)).min();
    [retry, timeout, overrun, sooner, parked].into_iter().flatten().min()
}
