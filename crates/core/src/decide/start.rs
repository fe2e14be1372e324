//! Which jobs start now, and on which nodes.
//!
//! Jobs are ordered by priority; within a priority evicted jobs come first, then the users with the least recent use of
//! the cluster, then arrival order. The first job that has to wait gets a reservation. Later jobs start only on nodes
//! that it does not need, or if they will be done by the time it starts. A job that can never fit holds back no other.

use std::collections::BTreeSet;

use super::cluster::{cluster, cluster_index};
use super::reserve::{is_done_by, nodes_with_room, reserve};
use crate::attempts;
use crate::ids::{ClusterId, JobId, NodeId};
use crate::planted::{Bug, is_planted};
use crate::step::Transaction;
use crate::world::Candidate;

/// Starts every job that can start. None is started while the store cannot accept new work.
pub(super) fn start_jobs(tx: &mut Transaction<'_>, id: ClusterId) {
    tx.world.foresee(id, tx.now.wall);
    while let Some((job, nodes)) = next_start(tx, id) {
        attempts::grant(tx, job, &nodes);
    }
}

fn next_start(tx: &Transaction<'_>, id: ClusterId) -> Option<(JobId, Vec<NodeId>)> {
    let (world, now) = (&*tx.world, tx.now.wall);
    let (cluster, index) = (cluster(tx, id), cluster_index(tx, id));
    if world.store_trouble().is_some() || index.idle.is_empty() && index.partial.is_empty() {
        return None;
    }
    let reach = world.reach(cluster);
    let mut candidates = index.queue.candidates().filter(|kind| kind.shape.nodes <= reach);
    let first = candidates.next()?;
    let start = |kind: &Candidate, avoided: &BTreeSet<NodeId>| {
        let environment = world.record_of(kind.job).and_then(|job| job.environment);
        let nodes = nodes_with_room(world, index, kind.shape, environment, avoided);
        let is_half = is_planted(Bug::HalfGangStarted) && !nodes.is_empty();
        (nodes.len() == kind.shape.nodes as usize || is_half).then_some((kind.job, nodes))
    };
    let no_nodes = BTreeSet::new();
    if let Some(started) = start(&first, &no_nodes) {
        return Some(started);
    }
    let mut second = candidates.next()?;
    let reservation = reserve(world, cluster, index, first.shape, now);
    loop {
        // A job of the same shape as the first cannot start either.
        if second.shape != first.shape {
            let prediction = world.prediction(id, second.principal);
            let avoided = if is_done_by(reservation.at, now, prediction) {
                &no_nodes
            } else {
                &reservation.nodes
            };
            if let Some(started) = start(&second, avoided) {
                return Some(started);
            }
        }
        second = candidates.next()?;
    }
}
