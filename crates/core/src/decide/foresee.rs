//! How far a predictive cluster needs to grow.
//!
//! The waiting jobs are assigned, in queue order, to nodes at the times when these will probably be free. A new node is
//! worth starting only for a job that would otherwise wait longer than two node starts take. So no node is started if
//! one will be free in time, and ten are not started for work that fits on one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::limits;
use crate::model::Cluster;
use crate::time::Wall;
use crate::world::{ClusterIndex, World};

/// The number of nodes that are worth having in addition to those that hold jobs.
pub(super) fn nodes_worth_having(
    world: &World,
    cluster: &Cluster,
    index: &ClusterIndex,
    now: Wall,
) -> u32 {
    let (ceiling, reach) = (world.ceiling(cluster), world.reach(cluster));
    let spare = index.idle.len() + index.pending.len();
    let room = ceiling.saturating_sub(index.alive()) as usize;
    if index.queue.is_empty() || room == 0 {
        return u32::try_from(spare).unwrap_or(u32::MAX);
    }
    let boot = cluster.boot.unwrap_or(world.settings.boot);
    let up_at = now + boot;
    let patience = up_at + boot;
    let mut free = free_times(world, cluster, index, now);
    let mut new = 0usize;
    let mut considered = 0;
    for kind in index.queue.candidates().filter(|kind| kind.shape.nodes <= reach) {
        let needed = kind.shape.nodes as usize;
        let prediction = world.prediction(cluster.id, kind.principal);
        for _ in 0..kind.count {
            considered += 1;
            if considered > limits::FORESEEN_JOBS_MAX || new >= room {
                return u32::try_from(spare + new).unwrap_or(u32::MAX);
            }
            let mut taken: Vec<Wall> =
                (0..needed).filter_map(|_| free.pop().map(|Reverse(at)| at)).collect();
            // The times are in ascending order. A node that is free too late is better replaced by a new one.
            let in_time = taken.iter().take_while(|at| **at <= patience).count();
            let new_here = (needed - in_time).min(room - new);
            let kept = taken.len().min(needed - new_here);
            for at in taken.drain(kept..) {
                free.push(Reverse(at));
            }
            new += new_here;
            let start = taken.last().copied().unwrap_or(now);
            let start = if new_here > 0 { start.max(up_at) } else { start };
            for _ in 0..kept + new_here {
                free.push(Reverse(start + prediction));
            }
        }
    }
    u32::try_from(spare + new).unwrap_or(u32::MAX)
}

/// When each existing node will probably be free.
fn free_times(
    world: &World,
    cluster: &Cluster,
    index: &ClusterIndex,
    now: Wall,
) -> BinaryHeap<Reverse<Wall>> {
    let boot = cluster.boot.unwrap_or(world.settings.boot);
    let idle = index.idle.iter().map(|_| now);
    let pending = index.pending.iter().map(|(requested_at, _)| (*requested_at + boot).max(now));
    let busy = world.releases(cluster.id).flat_map(|(end, attempt)| {
        // An attempt that has slightly exceeded its prediction may end at any moment.
        let end = if end > now { end } else { attempt.predicted_end(now).max(now) };
        attempt.members.iter().map(move |_| end)
    });
    idle.chain(pending).chain(busy).map(Reverse).collect()
}
