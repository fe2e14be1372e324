//! All decisions about one pool, in a fixed order: provision or retire, place, grow, shrink.

use crate::attempts;
use crate::change::{Change, Effect, EffectKind, NodeOrder};
use crate::ids::{ClusterId, EffectId, JobId, NodeId};
use crate::meter;
use crate::model::{
    CancelReason, Category, Cluster, ClusterEvent, ClusterPhase, Node, NodeEvent, NodeState,
    Operation, OperationKind, OperationStatus, Tier,
};
use crate::planted::{Bug, is_planted};
use crate::step::Turn;
use crate::time::Wall;
use crate::world::Pool;

/// Decides about one cluster and says when it wants to be looked at again if nothing happens.
pub(super) fn decide(turn: &mut Turn<'_>, id: ClusterId) -> Option<Wall> {
    match cluster(turn, id).phase {
        ClusterPhase::Creating | ClusterPhase::Updating => provision(turn, id),
        ClusterPhase::Succeeded => {}
        ClusterPhase::Deleting => {
            retire(turn, id);
            return None;
        }
        ClusterPhase::Gone => return None,
    }
    place(turn, id);
    await_company(turn, id);
    grow(turn, id);
    shrink(turn, id);
    mark_floor(turn, id);
    next_look(turn, id)
}

fn cluster<'t>(turn: &'t Turn<'_>, id: ClusterId) -> &'t Cluster {
    turn.world.cluster(id).expect("decided about while it exists")
}

fn pool<'t>(turn: &'t Turn<'_>, id: ClusterId) -> &'t Pool {
    turn.world.pool(id).expect("every cluster has a pool")
}

/// A cluster is ready as soon as it is on disk: nodes are made when they are needed.
fn provision(turn: &mut Turn<'_>, id: ClusterId) {
    let mut cluster = cluster(turn, id).clone();
    cluster.phase = ClusterPhase::Succeeded;
    finish_operation(turn, &mut cluster, OperationKind::PutCluster);
    turn.emit(Change::ClusterChanged { event: ClusterEvent::Provisioned, cluster });
}

fn finish_operation(turn: &mut Turn<'_>, cluster: &mut Cluster, kind: OperationKind) {
    if let Some(operation) = cluster.operation.take() {
        turn.emit(Change::OperationChanged(Operation {
            id: operation,
            workspace: cluster.workspace,
            kind,
            status: OperationStatus::Succeeded,
            started_at: cluster.modified_at,
            ended_at: Some(turn.now.wall),
        }));
    }
}

/// Ends every job, lets every free node go, and the cluster with the last of them.
fn retire(turn: &mut Turn<'_>, id: ClusterId) {
    let pool_now = pool(turn, id);
    let jobs: Vec<JobId> = pool_now.queue.iter().chain(&pool_now.active).copied().collect();
    for job in jobs {
        let job = turn.world.job(job).expect("indexed").clone();
        attempts::cancel(turn, job, CancelReason::ClusterDeleted);
    }
    let pool_now = pool(turn, id);
    let idle = pool_now.idle.iter().map(|(_, node)| *node);
    let free: Vec<NodeId> = pool_now.pending.iter().copied().chain(idle).collect();
    for node in free {
        let_go(turn, node);
    }
    if pool(turn, id).is_empty() {
        let mut cluster = cluster(turn, id).clone();
        cluster.phase = ClusterPhase::Gone;
        finish_operation(turn, &mut cluster, OperationKind::DeleteCluster);
        turn.emit(Change::ClusterChanged { event: ClusterEvent::Emptied, cluster });
    }
}

/// First come, first served, all nodes of a job at once, the most recently used node first. The first job
/// that does not fit holds back those behind it; one that can never fit does not.
fn place(turn: &mut Turn<'_>, id: ClusterId) {
    loop {
        let nodes_max = cluster(turn, id).spec.scale.nodes_max;
        let pool_now = pool(turn, id);
        let Some((job, nodes)) = first_feasible(turn, pool_now, nodes_max) else { return };
        let chosen: Vec<NodeId> =
            pool_now.idle.iter().rev().take(nodes as usize).map(|(_, node)| *node).collect();
        let is_short = chosen.len() < nodes as usize;
        if is_short && (chosen.is_empty() || !is_planted(Bug::HalfGangStarted)) {
            return;
        }
        attempts::grant(turn, job, &chosen);
    }
}

fn first_feasible(turn: &Turn<'_>, pool: &Pool, nodes_max: u32) -> Option<(JobId, u32)> {
    pool.shapes.range(..=nodes_max).next()?;
    pool.queue
        .iter()
        .map(|job| (*job, turn.world.job(*job).expect("indexed").nodes))
        .find(|(_, nodes)| *nodes <= nodes_max)
}

/// Idle nodes that a waiting job will use once it has enough of them do not time out meanwhile; when nobody
/// waits any more, their timer starts.
fn await_company(turn: &mut Turn<'_>, id: ClusterId) {
    let nodes_max = cluster(turn, id).spec.scale.nodes_max;
    let pool_now = pool(turn, id);
    let awaited = pool_now.waiting_nodes(nodes_max) > 0;
    let changing: Vec<NodeId> = pool_now
        .idle
        .iter()
        .map(|(_, node)| *node)
        .filter(|node| is_awaited(turn, *node) != awaited)
        .collect();
    for node in changing {
        let mut node = turn.world.node(node).expect("indexed").clone();
        let NodeState::Idle { since, .. } = node.state else { unreachable!("indexed as idle") };
        let since = if awaited { since } else { turn.now.wall };
        node.state = NodeState::Idle { since, awaited };
        turn.emit(Change::NodeChanged { event: NodeEvent::RestChanged, node });
    }
}

fn is_awaited(turn: &Turn<'_>, node: NodeId) -> bool {
    let node = turn.world.node(node).expect("indexed");
    matches!(node.state, NodeState::Idle { awaited: true, .. })
}

/// The pool that the minimum and the waiting jobs call for, within the maximum.
fn wanted_nodes(cluster: &Cluster, pool: &Pool) -> u32 {
    let scale = cluster.spec.scale;
    let busy = pool.leased.len() as u64;
    let needed = busy + pool.waiting_nodes(scale.nodes_max);
    u32::try_from(needed).unwrap_or(u32::MAX).clamp(scale.nodes_min, scale.nodes_max)
}

fn grow(turn: &mut Turn<'_>, id: ClusterId) {
    let cluster_now = cluster(turn, id);
    if cluster_now.backoff.until > turn.now.wall && !is_planted(Bug::BackoffIgnored) {
        return;
    }
    let pool_now = pool(turn, id);
    let missing = wanted_nodes(cluster_now, pool_now).saturating_sub(pool_now.alive());
    let room = cluster_now.spec.scale.nodes_max.saturating_sub(pool_now.existing());
    for _ in 0..missing.min(room) {
        request_node(turn, id);
    }
}

/// Records the intent and puts the create call into the outbox, in that order.
fn request_node(turn: &mut Turn<'_>, id: ClusterId) {
    let node_id = NodeId(turn.world.draw());
    let effect_id = EffectId(turn.world.draw());
    let cluster = cluster(turn, id);
    let size = turn.world.catalogue.get(&cluster.spec.vm_size);
    let price = size.map_or(0, |size| match cluster.spec.tier {
        Tier::Dedicated => size.price.dedicated_micro_usd_per_hour,
        Tier::LowPriority => size.price.low_priority_micro_usd_per_hour,
    });
    let number = match pool(turn, id).existing() {
        existing if is_planted(Bug::NodeNameReused) => u64::from(existing),
        _ => node_id.0,
    };
    let name: Box<str> = format!("{}-{number:x}", cluster.name.folded()).into();
    let order = NodeOrder {
        node: node_id,
        name: name.clone(),
        vm_size: cluster.spec.vm_size.clone(),
        vcpus: size.map_or(1, |size| size.vcpus),
        memory_mb: size.map_or(1024, |size| size.memory_mb),
        gpus: size.map_or(0, |size| size.gpus),
        tier: cluster.spec.tier,
    };
    let node = Node {
        id: node_id,
        name,
        cluster: id,
        vm_size: cluster.spec.vm_size.clone(),
        tier: cluster.spec.tier,
        price_micro_usd_per_hour: price,
        requested_at: turn.now.wall,
        state: NodeState::Requested,
        boot_id: "".into(),
        address: "".into(),
        meter: None,
    };
    let kind = EffectKind::CreateNode(order);
    turn.emit(Change::NodeChanged { event: NodeEvent::Requested, node });
    let effect = Effect { id: effect_id, queued_at: turn.now.wall, kind };
    turn.emit(Change::EffectQueued(effect));
}

fn shrink(turn: &mut Turn<'_>, id: ClusterId) {
    // Above the maximum: it was lowered. Nodes that did not come up yet go first, newest first.
    let nodes_max = cluster(turn, id).spec.scale.nodes_max;
    while pool(turn, id).alive() > nodes_max {
        let pool_now = pool(turn, id);
        let oldest_idle = pool_now.idle.first().map(|(_, node)| *node);
        let busy = pool_now.leased.first().copied().filter(|_| is_planted(Bug::BusyNodeReleased));
        let free = pool_now.pending.last().copied().or(oldest_idle);
        let Some(node) = busy.or(free) else { break };
        let_go(turn, node);
    }
    // Idle for too long: the least recently used goes first, but never below the minimum.
    while let Some(node) = due_to_go(turn, id).filter(|(at, _)| *at <= turn.now.wall) {
        let_go(turn, node.1);
    }
}

/// The node that will time out next, and when.
fn due_to_go(turn: &Turn<'_>, id: ClusterId) -> Option<(Wall, NodeId)> {
    let scale = cluster(turn, id).spec.scale;
    let pool_now = pool(turn, id);
    if pool_now.alive() <= scale.nodes_min {
        return None;
    }
    let (since, node) = *pool_now.idle.first()?;
    (!is_awaited(turn, node) && !is_planted(Bug::IdleNodeKept))
        .then_some((since + scale.idle_time, node))
}

/// Deletes a node that holds no job.
fn let_go(turn: &mut Turn<'_>, node: NodeId) {
    let mut node = turn.world.node(node).expect("indexed").clone();
    let next = node.meter.map(|_| Category::Stop);
    meter::switch_free(turn, &mut node, next);
    node.state = NodeState::Leaving;
    attempts::order_delete(turn, &node);
    turn.emit(Change::NodeChanged { event: NodeEvent::ScaledDown, node });
}

/// Tells idle time that the minimum causes from idle time that will end: the nodes above the minimum that
/// would go first are idle, the others are the floor.
fn mark_floor(turn: &mut Turn<'_>, id: ClusterId) {
    let nodes_min = cluster(turn, id).spec.scale.nodes_min;
    let pool_now = pool(turn, id);
    let surplus = pool_now.alive().saturating_sub(nodes_min) as usize;
    let changing: Vec<(NodeId, Category)> = pool_now
        .idle
        .iter()
        .enumerate()
        .map(|(place, (_, node))| {
            (*node, if place < surplus { Category::Idle } else { Category::Floor })
        })
        .filter(|(node, category)| {
            let meter = turn.world.node(*node).expect("indexed").meter;
            meter.is_some_and(|meter| meter.category != *category)
        })
        .collect();
    for (node, category) in changing {
        let mut node = turn.world.node(node).expect("indexed").clone();
        meter::switch_free(turn, &mut node, Some(category));
        turn.emit(Change::NodeChanged { event: NodeEvent::RestChanged, node });
    }
}

fn next_look(turn: &Turn<'_>, id: ClusterId) -> Option<Wall> {
    let cluster_now = cluster(turn, id);
    let pool_now = pool(turn, id);
    let is_short = wanted_nodes(cluster_now, pool_now) > pool_now.alive();
    let retry = (is_short && cluster_now.backoff.until > turn.now.wall)
        .then_some(cluster_now.backoff.until);
    let timeout = due_to_go(turn, id).map(|(at, _)| at);
    retry.into_iter().chain(timeout).min()
}
