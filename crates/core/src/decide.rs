//! Deciding: level-triggered, from state alone.
//!
//! [`decide`] visits what was touched or is due; [`decide_everything`] visits all there is. They must come to
//! the same changes, and deciding again must come to none: both are property tests.
//!
//! Where things are:
//! 1. `place`: who starts now, on which nodes; who is kept for whom (`reserve`);
//! 2. `index`: everything else about one pool but its growth: provision, retire, shrink;
//! 3. `grow`: which pools get new nodes, in the order of their first waiting jobs, within the quota;
//! 4. `host`: on which machine;
//! 5. `foresee`: how far a predictive pool needs to grow.

mod cluster;
mod foresee;
mod grow;
mod host;
mod power;
mod reserve;
mod start;

use std::collections::BTreeSet;

pub(crate) use grow::{missing, wanted_nodes};
pub(crate) use reserve::{nodes_with_room, reserve};

use crate::attempts;
use crate::change::Change;
use crate::hosts::HostChange;
use crate::ids::{ClusterId, NodeId};
use crate::model::{HostName, NodePhase, QuotaScope, Trouble};
use crate::requests;
use crate::step::{Transaction, patience};
use crate::time::Now;
use crate::world::World;

/// Decides about every cluster that was touched or whose timer is due.
pub fn decide(world: &mut World, now: Now) -> Vec<Change> {
    let mut tx = Transaction::new(world, now);
    decide_within(&mut tx);
    tx.changes
}

pub(crate) fn decide_within(tx: &mut Transaction<'_>) {
    let silent = tx.world.volatile.silent(tx.now.elapsed, patience(tx.world));
    for node in silent {
        give_up_silent(tx, node);
    }
    let overdue = tx.world.overdue_boots(tx.now.wall, tx.world.settings.boot_timeout);
    for node in overdue {
        give_up_boot(tx, node);
    }
    let mut regions = BTreeSet::new();
    loop {
        regions.extend(tx.world.volatile.growth.take_changed());
        let due = tx.world.volatile.due(tx.now.wall);
        if due.is_empty() && regions.is_empty() {
            if retire_hosts(tx) {
                continue;
            }
            return;
        }
        for cluster in due {
            decide_cluster(tx, cluster, &mut regions);
        }
        // A pool that has grown is looked at once more: its floor may have moved.
        grow::regions(tx, std::mem::take(&mut regions));
    }
}

/// The same without any index or timer: slow, simple, and what `decide` is tested against.
pub fn decide_everything(world: &mut World, now: Now) -> Vec<Change> {
    let mut tx = Transaction::new(world, now);
    decide_everything_within(&mut tx);
    tx.changes
}

pub(crate) fn decide_everything_within(tx: &mut Transaction<'_>) {
    let patience = patience(tx.world);
    // In the order of the indexes, which is part of what `decide` promises: silent nodes by last renewal.
    let mut silent: Vec<_> = tx
        .world
        .nodes()
        .filter_map(|node| Some((tx.world.last_renewal(node.id)?, node.id)))
        .filter(|(renewed, _)| *renewed + patience <= tx.now.elapsed)
        .collect();
    silent.sort_unstable();
    for (_, node) in silent {
        give_up_silent(tx, node);
    }
    let timeout = tx.world.settings.boot_timeout;
    let mut overdue: Vec<_> = tx
        .world
        .nodes()
        .filter(|node| matches!(node.phase(), NodePhase::Requested | NodePhase::Booting))
        .filter(|node| node.requested_at + timeout <= tx.now.wall)
        .map(|node| (node.requested_at, node.id))
        .collect();
    overdue.sort_unstable();
    for (_, node) in overdue {
        give_up_boot(tx, node);
    }
    tx.world.volatile.growth.take_changed();
    loop {
        let before = tx.changes.len();
        let clusters: Vec<ClusterId> = tx.world.clusters().map(|cluster| cluster.id).collect();
        for cluster in clusters {
            decide_cluster(tx, cluster, &mut BTreeSet::new());
        }
        let regions = tx.world.volatile.growth.scopes().into_iter().collect();
        grow::regions(tx, regions);
        tx.world.volatile.growth.take_changed();
        if tx.changes.len() == before && !retire_hosts(tx) {
            return;
        }
    }
}

/// Hosts that were given up go with the last of their nodes. Says whether any did.
fn retire_hosts(tx: &mut Transaction<'_>) -> bool {
    let hosts = tx.world.hosts().removing();
    let empty: Vec<HostName> = hosts
        .filter(|host| tx.world.host_nodes(&host.name).is_none())
        .map(|host| host.name.clone())
        .collect();
    for host in &empty {
        tx.emit(Change::HostsChanged(HostChange::HostGone(host.clone())));
    }
    !empty.is_empty()
}

/// Unless it went with the one before it: that can end an attempt, and with it a node that is to be taken away.
fn give_up_silent(tx: &mut Transaction<'_>, node: NodeId) {
    let phase = tx.world.node(node).map(|node| node.phase());
    if matches!(phase, Some(NodePhase::Idle | NodePhase::Leased)) {
        attempts::lose_node(tx, node, Trouble::LeaseExpired);
    }
}

fn give_up_boot(tx: &mut Transaction<'_>, node: NodeId) {
    let limit = tx.world.settings.boot_timeout.as_seconds();
    attempts::back_off(tx, node, &format!("it did not report within {limit} s"));
    attempts::lose_node(tx, node, Trouble::BootTimedOut);
}

/// Everything but growth. A cluster that would grow says so in the list of wishes; its region is to be
/// looked at, as are all regions in which nodes may have given back quota.
fn decide_cluster(
    tx: &mut Transaction<'_>,
    cluster: ClusterId,
    regions: &mut BTreeSet<QuotaScope>,
) {
    let Some(scope) = tx.world.quota_scope_of(cluster).cloned() else {
        tx.world.volatile.forget_cluster(cluster);
        return;
    };
    if tx.world.volatile.growth.is_any_in(&scope) {
        regions.insert((*scope).clone());
    }
    let home = tx.world.cluster(cluster).map(|cluster| cluster.workspace);
    let wake = cluster::decide(tx, cluster);
    if tx.world.cluster(cluster).is_none() {
        if let Some(home) = home {
            requests::workspace::finish_delete(tx, home);
        }
        return;
    }
    tx.world.volatile.settled(cluster, wake);
    if grow::growth(tx, cluster, &scope) {
        regions.insert((*scope).clone());
    }
}
