//! Deciding: level-triggered, from state alone.
//!
//! [`decide`] visits what was touched or is due; [`decide_everything`] visits all there is. They must come to
//! the same changes, and deciding again must come to none: both are property tests.

mod pool;

use crate::attempts;
use crate::change::Change;
use crate::ids::ClusterId;
use crate::model::{NodePhase, Trouble};
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
        attempts::lose_node(turn, node, Trouble::LeaseExpired);
    }
    let overdue = turn.world.overdue_boots(turn.now.wall, turn.world.settings.boot_timeout);
    for node in overdue {
        attempts::lose_node(turn, node, Trouble::BootTimedOut);
    }
    for cluster in turn.world.volatile.due(turn.now.wall) {
        decide_cluster(turn, cluster);
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
        attempts::lose_node(turn, node, Trouble::LeaseExpired);
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
        attempts::lose_node(turn, node, Trouble::BootTimedOut);
    }
    let clusters: Vec<ClusterId> = turn.world.clusters().map(|cluster| cluster.id).collect();
    for cluster in clusters {
        decide_cluster(turn, cluster);
    }
}

fn decide_cluster(turn: &mut Turn<'_>, cluster: ClusterId) {
    if turn.world.cluster(cluster).is_none() {
        turn.world.volatile.forget_cluster(cluster);
        return;
    }
    let wake = pool::decide(turn, cluster);
    if turn.world.cluster(cluster).is_some() {
        turn.world.volatile.settled(cluster, wake);
    }
}
