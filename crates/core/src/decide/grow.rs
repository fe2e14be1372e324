//! Growth: which clusters get new nodes.
//!
//! Clusters of one region share its quota. They are served in the order in which their first waiting jobs arrived. The
//! first cluster that is stopped by a limit holds back every later one at that limit; otherwise small nodes could
//! overtake a large one for ever. A cluster that can never fit within the limit holds back no other. The same applies
//! to full hosts, across all regions.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::cluster::{cluster, cluster_index};
use super::foresee;
use super::host::{self, Bounds};
use crate::change::{Change, Effect, EffectKind, NodeRequest};
use crate::ids::{ClusterId, EffectId, JobId, NodeId};
use crate::model::{
    Cluster, ClusterPhase, HostName, Node, NodeEvent, NodeState, QuotaName, QuotaScope, ScaleUp,
    Tier,
};
use crate::planted::{Bug, is_planted};
use crate::step::Transaction;
use crate::world::{Candidate, ClusterIndex, QuotaLine, World};

/// Notes whether the cluster would grow if it could, and returns the same.
pub(super) fn growth(tx: &mut Transaction<'_>, id: ClusterId, scope: &QuotaScope) -> bool {
    let index = cluster_index(tx, id);
    let has_enough =
        index.queue.is_empty() && index.alive() >= cluster(tx, id).spec.scale.nodes_min;
    let wants = !has_enough && missing(tx.world, cluster(tx, id), tx.now.wall) > 0;
    if wants {
        let first =
            cluster_index(tx, id).queue.candidates().next().map_or(JobId(0), |first| first.job);
        let cluster = Arc::clone(tx.world.shared_cluster(id).expect("looked at just now"));
        tx.world.volatile.growth.put(&cluster, scope, first);
    } else {
        tx.world.volatile.growth.drop(id);
    }
    wants
}

/// Lets the clusters of these regions grow, in the order of their first waiting jobs.
pub(super) fn regions(tx: &mut Transaction<'_>, mut scopes: BTreeSet<QuotaScope>) {
    if !tx.world.is_boundless() {
        // Hosts are shared by all regions, so the cluster that comes first must be considered first.
        scopes.extend(tx.world.volatile.growth.scopes());
    }
    let mut pass = Pass { names: BTreeSet::new(), hosts: BTreeSet::new() };
    let mut last = None;
    loop {
        let next = scopes.iter().filter_map(|scope| {
            let is_open = |(tier, family): &QuotaLine| {
                let mut names = QuotaName::of(*tier, family).into_iter();
                pass.names.is_empty()
                    || !names.any(|name| pass.names.contains(&(scope.clone(), name)))
            };
            tx.world.volatile.growth.next(scope, last, is_open).map(|growth| (growth, scope))
        });
        let Some((growth, scope)) = next.min() else { return };
        last = Some(growth);
        serve(tx, growth.1, scope, &mut pass);
    }
}

/// Quotas and hosts that are kept for clusters which came earlier in this pass.
struct Pass {
    names: BTreeSet<(QuotaScope, QuotaName)>,
    hosts: BTreeSet<HostName>,
}

fn serve(tx: &mut Transaction<'_>, id: ClusterId, scope: &QuotaScope, pass: &mut Pass) {
    let cluster_now = cluster(tx, id);
    let wanted = missing(tx.world, cluster_now, tx.now.wall);
    let room = match tx.world.quota_room(cluster_now) {
        _ if is_planted(Bug::QuotaIgnored) => u32::MAX,
        room => room,
    };
    // A multi-node job needs all of its nodes at once: if the first job cannot have them, no later job gets any.
    let index = cluster_index(tx, id);
    let first = first_feasible(tx.world, cluster_now, index);
    let first = first.map_or(0, |first| first.shape.nodes.saturating_sub(index.alive()));
    let is_whole = first <= room;
    let floor = cluster_now.spec.scale.nodes_min.saturating_sub(index.alive());
    let nodes = wanted.min(room).min(if is_whole { u32::MAX } else { floor });
    let most = tx.world.ceiling(cluster_now).saturating_sub(index.existing());
    let bounds = Bounds { nodes, floor, room: room.min(most), closed: &pass.hosts };
    let (hosts, is_full) = host::plan(tx.world, cluster_now, index, &bounds);
    let granted = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    for host in hosts {
        request_node(tx, id, host);
    }
    let cluster_now = cluster(tx, id);
    if wanted == granted {
        tx.world.volatile.growth.drop(id);
        return;
    }
    let short = tx.world.quota_short(cluster_now, wanted.max(first) - granted);
    pass.names.extend(short.map(|short| (scope.clone(), short.name)));
    if is_full && granted < nodes {
        pass.hosts.extend(host::kept_for(tx.world, cluster_now));
    }
}

fn first_feasible(world: &World, cluster: &Cluster, index: &ClusterIndex) -> Option<Candidate> {
    let reach = world.reach(cluster);
    index.queue.candidates().find(|kind| kind.shape.nodes <= reach)
}

/// How many more nodes the cluster would have if the quota were unlimited.
pub(crate) fn missing(world: &World, cluster: &Cluster, now: crate::time::Wall) -> u32 {
    let Some(index) = world.cluster_index(cluster.id) else { return 0 };
    let is_pausing = cluster.backoff.until > now && !is_planted(Bug::BackoffIgnored);
    let is_held =
        cluster.phase == ClusterPhase::Deleting || is_pausing || world.store_trouble().is_some();
    if is_held || world.lock_on_growth(cluster).is_some() {
        return 0;
    }
    let wanted = wanted_nodes(world, cluster, index, now);
    let ceiling = world.ceiling(cluster);
    let pending = u32::try_from(index.pending.len()).unwrap_or(u32::MAX);
    wanted
        .saturating_sub(index.alive())
        .max(host::missing_on_one(world, cluster, index))
        .min(ceiling.saturating_sub(index.existing()))
        .min(cluster.backoff.pending_max().saturating_sub(pending))
}

/// The size of the cluster that the minimum and the waiting jobs require, within the maximum.
pub(crate) fn wanted_nodes(
    world: &World,
    cluster: &Cluster,
    index: &ClusterIndex,
    now: crate::time::Wall,
) -> u32 {
    let scale = cluster.spec.scale;
    let ceiling = world.ceiling(cluster);
    let busy = u32::try_from(index.leased.len()).unwrap_or(u32::MAX);
    let waiting = match scale.scale_up {
        ScaleUp::Immediate => {
            let waiting = index.waiting_nodes(world.reach(cluster), cluster.capacity);
            u32::try_from(waiting).unwrap_or(u32::MAX)
        }
        ScaleUp::Predictive => foresee::nodes_worth_having(world, cluster, index, now),
    };
    busy.saturating_add(waiting).min(ceiling).max(scale.nodes_min.min(ceiling))
}

/// Records the intent to create a node and then puts the request into the outbox.
fn request_node(tx: &mut Transaction<'_>, id: ClusterId, host: HostName) {
    let node_id = NodeId(tx.world.draw());
    let effect_id = EffectId(tx.world.draw());
    let cluster = cluster(tx, id);
    let size = tx.world.catalogue.get(&cluster.spec.vm_size);
    let price = size.map_or(0, |size| match cluster.spec.tier {
        Tier::Dedicated => size.price.dedicated_micro_usd_per_hour,
        Tier::LowPriority => size.price.low_priority_micro_usd_per_hour,
    });
    let number = match cluster_index(tx, id).existing() {
        existing if is_planted(Bug::NodeNameReused) => NodeId(u64::from(existing)),
        _ => node_id,
    };
    let name: Arc<str> = cluster.name.of_node(number).into();
    let request = NodeRequest {
        node: node_id,
        cluster: id,
        name: Arc::clone(&name),
        host: host.clone(),
        vm_size: Arc::clone(&cluster.spec.vm_size),
        capacity: cluster.capacity,
        tier: cluster.spec.tier,
    };
    let empty: Arc<str> = Arc::from("");
    let node = Arc::new(Node {
        id: node_id,
        name,
        cluster: id,
        host,
        vm_size: Arc::clone(&cluster.spec.vm_size),
        capacity: cluster.capacity,
        tier: cluster.spec.tier,
        price_micro_usd_per_hour: price,
        requested_at: tx.now.wall,
        state: NodeState::Requested,
        boot_id: Arc::clone(&empty),
        address: empty,
        evict_at: None,
        meter: None,
    });
    let kind = EffectKind::CreateNode(request);
    tx.emit(Change::NodeChanged { event: NodeEvent::Requested, node });
    let effect = Effect { id: effect_id, queued_at: tx.now.wall, kind };
    tx.emit(Change::EffectQueued(effect));
}
