//! Why a pool is as large as it is.

use super::instance::reword;
use super::job::{Whom, create_failing, locked, quota_short, why_for};
use super::{Reason, hosts, serverless};
use crate::ids::ClusterId;
use crate::model::{Cluster, ClusterPhase, Rest};
use crate::world::{Pool, World};

/// Every reason for the pool's size, the most fundamental first. Empty only for a cluster that does not exist.
pub fn why_cluster(world: &World, cluster: ClusterId) -> Vec<Reason> {
    let (Some(cluster), Some(pool)) = (world.cluster(cluster), world.pool(cluster)) else {
        return Vec::new();
    };
    if cluster.phase == ClusterPhase::Deleting {
        return vec![Reason::Deleting {
            cluster: cluster.name.clone(),
            jobs: count(pool.queue.len() + pool.active.len()),
            nodes: pool.existing(),
        }];
    }
    let mut reasons = Vec::new();
    // What keeps the first waiting job from starting keeps the pool from growing.
    let first = pool.queue.candidates().next();
    reasons.extend(first.map(|first| why_for(world, first.job, Whom::All)).unwrap_or_default());
    if first.is_none() {
        reasons.extend(without_jobs(world, cluster, pool));
    }
    reasons.extend(idle_nodes(world, cluster, pool));
    reasons.extend(hosts::closed(world, cluster, pool));
    if !pool.going.is_empty() {
        reasons.push(Reason::NodesGoing {
            cluster: cluster.name.clone(),
            going: count(pool.going.len()),
            nodes_max: cluster.spec.scale.nodes_max,
        });
    }
    let is_short = first.is_some() || pool.alive() < cluster.spec.scale.nodes_min;
    let trouble = world.store_trouble().filter(|_| is_short).map(Reason::Store);
    if reasons.is_empty() && trouble.is_none() {
        reasons.push(at_rest(cluster, pool));
    }
    let reasons = serverless::reword(cluster, reword(cluster, reasons));
    trouble.into_iter().chain(reasons).collect()
}

/// Nobody waits, but the minimum may not be reached.
fn without_jobs(world: &World, cluster: &Cluster, pool: &Pool) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let short = cluster.spec.scale.nodes_min.saturating_sub(pool.alive());
    reasons.extend(locked(world, cluster, short));
    reasons.extend(create_failing(world, cluster, pool));
    if short > 0
        && let Some((quota, used, needed)) = quota_short(world, cluster, short)
    {
        reasons.push(Reason::QuotaReached { quota, used, needed });
    }
    if short > 0 {
        let ever = hosts::too_small(world, cluster, 1);
        reasons.extend(ever.or_else(|| hosts::full(world, cluster, short, 1)));
    }
    if let Some((requested_at, _)) = pool.pending.last() {
        reasons.push(Reason::NodesStarting {
            cluster: cluster.name.clone(),
            starting: count(pool.pending.len()),
            free: count(pool.idle.len()),
            needed: cluster.spec.scale.nodes_min,
            at: *requested_at + cluster.boot.unwrap_or(world.settings.boot),
        });
    }
    reasons
}

fn idle_nodes(world: &World, cluster: &Cluster, pool: &Pool) -> Vec<Reason> {
    let name = || cluster.name.clone();
    let mut reasons = Vec::new();
    let floor = pool.floor.len();
    let spare = pool.idle.len() - floor;
    if floor > 0 {
        let nodes_min = cluster.spec.scale.nodes_min;
        reasons.push(Reason::KeptByMinimum { cluster: name(), nodes_min, idle: count(floor) });
    }
    let Some((since, _)) = pool.idle.first().filter(|_| spare > 0) else { return reasons };
    let idle = count(spare);
    match cluster.rest {
        Rest::Held => {
            let reach = world.reach(cluster);
            let first = pool.queue.candidates().find(|kind| kind.shape.nodes <= reach);
            // While the store cannot write they are not held for a job.
            let first = first.filter(|_| world.store_trouble().is_none());
            if let Some(job) = first.and_then(|first| world.job(first.job)) {
                let (job, needed) = (job.name.clone(), job.nodes);
                reasons.push(Reason::HeldFor { cluster: name(), job, idle, needed });
            }
        }
        Rest::Free { since: free } => {
            let idle_time = cluster.spec.scale.idle_time;
            reasons.push(Reason::IdleUntil {
                cluster: name(),
                idle,
                idle_s: idle_time.as_seconds(),
                at: (*since).max(free) + idle_time,
            });
        }
    }
    reasons
}

fn at_rest(cluster: &Cluster, pool: &Pool) -> Reason {
    let cluster_name = cluster.name.clone();
    if pool.leased.is_empty() {
        return Reason::Empty { cluster: cluster_name, nodes_min: cluster.spec.scale.nodes_min };
    }
    Reason::Busy {
        cluster: cluster_name,
        nodes: count(pool.leased.len()),
        nodes_max: cluster.spec.scale.nodes_max,
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
