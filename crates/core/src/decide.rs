//! Deciding: level-triggered, from state alone.
//!
//! [`decide`] visits what was touched or is due; [`decide_everything`] visits all there is. They must come to
//! the same changes, and deciding again must come to none: both are property tests.
//!
//! Where things are:
//! 1. `place`: who starts now, on which nodes; who is kept for whom (`reserve`);
//! 2. `pool`: everything else about one pool but its growth: provision, retire, shrink;
//! 3. `grow`: which pools get new nodes, in the order of their first waiting jobs, within the quota;
//! 4. `host`: on which machine;
//! 5. `foresee`: how far a predictive pool needs to grow.

mod foresee;
mod grow;
mod host;
mod place;
mod pool;
mod power;
mod reserve;

use std::collections::BTreeSet;

pub(crate) use grow::{missing, wanted_nodes};
pub(crate) use reserve::{nodes_with_room, reserve};

use crate::attempts;
use crate::change::Change;
use crate::hosts::HostChange;
use crate::ids::{ClusterId, NodeId};
use crate::model::{HostName, NodePhase, QuotaScope, Trouble};
use crate::requests;
use crate::step::{Turn, patience};
use crate::time::Now;
use crate::world::World;

/// Decides about every cluster that was touched or whose timer is due.
pub fn decide(world: &mut World, now: Now) -> Vec<Change> {
    let mut turn = Turn::new(world, now);
    decide_within(&mut turn);
    turn.changes
}

pub(crate) fn decide_within(turn: &mut Turn<'_>) {
    let silent = turn.world.volatile.silent(turn.now.elapsed, patience(turn.world));
    for node in silent {
        give_up_silent(turn, node);
    }
    let overdue = turn.world.overdue_boots(turn.now.wall, turn.world.settings.boot_timeout);
    for node in overdue {
        give_up_boot(turn, node);
    }
    let mut regions = BTreeSet::new();
    loop {
        regions.extend(turn.world.volatile.wishes.take_changed());
        let due = turn.world.volatile.due(turn.now.wall);
        if due.is_empty() && regions.is_empty() {
            if retire_hosts(turn) {
                continue;
            }
            return;
        }
        for cluster in due {
            decide_cluster(turn, cluster, &mut regions);
        }
        // A pool that has grown is looked at once more: its floor may have moved.
        grow::regions(turn, std::mem::take(&mut regions));
    }
}

/// The same without any index or timer: slow, simple, and what `decide` is tested against.
pub fn decide_everything(world: &mut World, now: Now) -> Vec<Change> {
    let mut turn = Turn::new(world, now);
    decide_everything_within(&mut turn);
    turn.changes
}

pub(crate) fn decide_everything_within(turn: &mut Turn<'_>) {
    let patience = patience(turn.world);
    // In the order of the indexes, which is part of what `decide` promises: silent nodes by last renewal.
    let mut silent: Vec<_> = turn
        .world
        .nodes()
        .filter_map(|node| Some((turn.world.last_renewal(node.id)?, node.id)))
        .filter(|(renewed, _)| *renewed + patience <= turn.now.elapsed)
        .collect();
    silent.sort_unstable();
    for (_, node) in silent {
        give_up_silent(turn, node);
    }
    let timeout = turn.world.settings.boot_timeout;
    let mut overdue: Vec<_> = turn
        .world
        .nodes()
        .filter(|node| matches!(node.phase(), NodePhase::Requested | NodePhase::Booting))
        .filter(|node| node.requested_at + timeout <= turn.now.wall)
        .map(|node| (node.requested_at, node.id))
        .collect();
    overdue.sort_unstable();
    for (_, node) in overdue {
        give_up_boot(turn, node);
    }
    turn.world.volatile.wishes.take_changed();
    loop {
        let before = turn.changes.len();
        let clusters: Vec<ClusterId> = turn.world.clusters().map(|cluster| cluster.id).collect();
        for cluster in clusters {
            decide_cluster(turn, cluster, &mut BTreeSet::new());
        }
        let regions = turn.world.volatile.wishes.scopes().into_iter().collect();
        grow::regions(turn, regions);
        turn.world.volatile.wishes.take_changed();
        if turn.changes.len() == before && !retire_hosts(turn) {
            return;
        }
    }
}

/// Hosts that were given up go with the last of their nodes. Says whether any did.
fn retire_hosts(turn: &mut Turn<'_>) -> bool {
    let hosts = turn.world.hosts().removing();
    let empty: Vec<HostName> = hosts
        .filter(|host| turn.world.housed(&host.name).is_none())
        .map(|host| host.name.clone())
        .collect();
    for host in &empty {
        turn.emit(Change::HostsChanged(HostChange::HostGone(host.clone())));
    }
    !empty.is_empty()
}

/// Unless it went with the one before it: that can end an attempt, and with it a node that is to be taken away.
fn give_up_silent(turn: &mut Turn<'_>, node: NodeId) {
    let phase = turn.world.node(node).map(|node| node.phase());
    if matches!(phase, Some(NodePhase::Idle | NodePhase::Leased)) {
        attempts::lose_node(turn, node, Trouble::LeaseExpired);
    }
}

fn give_up_boot(turn: &mut Turn<'_>, node: NodeId) {
    let limit = turn.world.settings.boot_timeout.as_seconds();
    attempts::back_off(turn, node, &format!("it did not report within {limit} s"));
    attempts::lose_node(turn, node, Trouble::BootTimedOut);
}

/// Everything but growth. A cluster that would grow says so in the list of wishes; its region is to be
/// looked at, as are all regions in which nodes may have given back quota.
fn decide_cluster(turn: &mut Turn<'_>, cluster: ClusterId, regions: &mut BTreeSet<QuotaScope>) {
    let Some(scope) = turn.world.quota_scope_of(cluster).cloned() else {
        turn.world.volatile.forget_cluster(cluster);
        return;
    };
    if turn.world.volatile.wishes.is_any_in(&scope) {
        regions.insert((*scope).clone());
    }
    let home = turn.world.cluster(cluster).map(|cluster| cluster.workspace);
    let wake = pool::decide(turn, cluster);
    if turn.world.cluster(cluster).is_none() {
        if let Some(home) = home {
            requests::workspace::finish_delete(turn, home);
        }
        return;
    }
    turn.world.volatile.settled(cluster, wake);
    if grow::wishes(turn, cluster, &scope) {
        regions.insert((*scope).clone());
    }
}
