//! How far a predictive pool needs to grow.
//!
//! The waiting jobs are dealt out, in their order, to the nodes as these will probably be free. A new node
//! is worth its start only for a job that would otherwise wait longer than a new node and one more start
//! take: so none is started when one frees in time, nor ten for work that fits on one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::limits;
use crate::model::Cluster;
use crate::time::Wall;
use crate::world::{ClusterIndex, World};

/// The nodes beyond those that hold jobs that are worth having.
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
    let mut looked_at = 0;
    for kind in index.queue.candidates().filter(|kind| kind.shape.nodes <= reach) {
        let needed = kind.shape.nodes as usize;
        let prediction = world.prediction(cluster.id, kind.principal);
        for _ in 0..kind.count {
            looked_at += 1;
            if looked_at > limits::FORESEEN_JOBS_MAX || new >= room {
                return u32::try_from(spare + new).unwrap_or(u32::MAX);
            }
            let mut taken: Vec<Wall> =
                (0..needed).filter_map(|_| free.pop().map(|Reverse(at)| at)).collect();
            // They come in the order of time: whoever comes too late is better replaced by a new one.
            let in_time = taken.iter().take_while(|at| **at <= patience).count();
            let wished = (needed - in_time).min(room - new);
            let kept = taken.len().min(needed - wished);
            for at in taken.drain(kept..) {
                free.push(Reverse(at));
            }
            new += wished;
            let start = taken.last().copied().unwrap_or(now);
            let start = if wished > 0 { start.max(up_at) } else { start };
            for _ in 0..kept + wished {
                free.push(Reverse(start + prediction));
            }
        }
    }
    u32::try_from(spare + new).unwrap_or(u32::MAX)
}

/// When each node that is there will probably be free.
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
        // One that takes a little longer than was thought may end at any moment.
        let end = if end > now { end } else { attempt.predicted_end(now).max(now) };
        attempt.members.iter().map(move |_| end)
    });
    idle.chain(pending).chain(busy).map(Reverse).collect()
}
