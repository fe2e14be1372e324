//! Decisions: level-triggered, from state alone.
//!
//! A decision looks at the state of the world, never at the event that woke it. There is then one code path for a
//! first run, a restart and a change, and an event that is lost or handled twice does no harm.
//!
//! [`decide`] visits only the clusters that were touched or whose timer is due; [`decide_everything`] visits all of
//! them. Both must produce the same changes, and deciding again must produce none: property tests hold both laws, so
//! the indexes that make `decide` fast cannot silently change what it decides.
//!
//! The steps are in these modules:
//! 1. `start`: which jobs start now, and on which nodes; `reserve`: which nodes are kept free for the first job that
//!    has to wait.
//! 2. `cluster`: everything else about one cluster except its growth: provisioning, shrinking and deletion. `power`:
//!    starting and stopping a compute instance.
//! 3. `grow`: which clusters get new nodes, in the order of their first waiting jobs and within the quota.
//! 4. `host`: on which host a new node is created.
//! 5. `job_trees`: whether a job that consists of other jobs begins or ends.
//! 6. `foresee`: how far a predictive cluster needs to grow.

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
use crate::ids::{ClusterId, JobId, NodeId};
use crate::job_trees;
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
        let has_trees = !tx.world.due_trees(tx.now.wall).is_empty();
        if due.is_empty() && regions.is_empty() && !has_trees {
            if retire_hosts(tx) {
                continue;
            }
            return;
        }
        for cluster in due {
            decide_cluster(tx, cluster, &mut regions);
        }
        // A cluster that has grown is visited once more, because its floor may have moved.
        grow::regions(tx, std::mem::take(&mut regions));
        for parent in tx.world.due_trees(tx.now.wall) {
            job_trees::decide(tx, parent);
        }
    }
}

/// `decide` without any index or timer: slow and simple, as the reference that `decide` is tested against.
pub fn decide_everything(world: &mut World, now: Now) -> Vec<Change> {
    let mut tx = Transaction::new(world, now);
    decide_everything_within(&mut tx);
    tx.changes
}

pub(crate) fn decide_everything_within(tx: &mut Transaction<'_>) {
    let patience = patience(tx.world);
    // The order is that of the indexes, and `decide` promises it: silent nodes are sorted by their last renewal.
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
        let parents: Vec<JobId> = tx.world.parents().collect();
        for parent in parents {
            job_trees::decide(tx, parent);
        }
        if tx.changes.len() == before && !retire_hosts(tx) {
            return;
        }
    }
}

/// Removes each host that was given up once its last node is deleted. Returns whether it removed any.
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

/// Gives up a silent node, unless giving up another one has just ended its attempt and evicted it as well.
fn give_up_silent(tx: &mut Transaction<'_>, node: NodeId) {
    let phase = tx.world.node(node).map(|node| node.phase());
    if matches!(phase, Some(NodePhase::Idle | NodePhase::Leased)) {
        attempts::lose_node(tx, node, Trouble::LeaseExpired);
    }
}

fn give_up_boot(tx: &mut Transaction<'_>, node: NodeId) {
    let limit = tx.world.settings.boot_timeout.as_seconds();
    attempts::back_off(tx, node, &format!("the node did not report within {limit} s"));
    attempts::lose_node(tx, node, Trouble::BootTimedOut);
}

/// Decides everything about a cluster except its growth. A cluster that should grow is noted in the growth list, and
/// its region is added to `regions`, as is every region in which nodes may have returned quota.
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
