//! Why a cluster has its current size.

use super::instance::reword;
use super::job::{Covers, create_failing, locked, quota_short, why_for};
use super::{Reason, hosts, serverless};
use crate::ids::ClusterId;
use crate::model::{Cluster, ClusterPhase, Rest};
use crate::world::{ClusterIndex, World};

/// Every reason for the cluster's size, the most fundamental first. Empty only for a cluster that does not exist.
pub fn why_cluster(world: &World, cluster: ClusterId) -> Vec<Reason> {
    let (Some(cluster), Some(index)) = (world.cluster(cluster), world.cluster_index(cluster))
    else {
        return Vec::new();
    };
    if cluster.phase == ClusterPhase::Deleting {
        return vec![Reason::Deleting {
            cluster: cluster.name.clone(),
            jobs: count(index.queue.len() + index.active.len()),
            nodes: index.existing(),
        }];
    }
    let mut reasons = Vec::new();
    // The reasons why the first waiting job does not start are also why the cluster does not grow.
    let first = index.queue.candidates().next();
    reasons.extend(
        first.map(|first| why_for(world, first.job, Covers::AllWaiting)).unwrap_or_default(),
    );
    if first.is_none() {
        reasons.extend(without_jobs(world, cluster, index));
    }
    reasons.extend(idle_nodes(world, cluster, index));
    reasons.extend(hosts::closed(world, cluster, index));
    if !index.going.is_empty() {
        reasons.push(Reason::NodesGoing {
            cluster: cluster.name.clone(),
            going: count(index.going.len()),
            nodes_max: cluster.spec.scale.nodes_max,
        });
    }
    let is_short = first.is_some() || index.alive() < cluster.spec.scale.nodes_min;
    let trouble = world.store_trouble().filter(|_| is_short).map(Reason::Store);
    if reasons.is_empty() && trouble.is_none() {
        reasons.push(at_rest(cluster, index));
    }
    let reasons = serverless::reword(cluster, reword(cluster, reasons));
    trouble.into_iter().chain(reasons).collect()
}

/// No job waits, but the cluster may still be below its minimum.
fn without_jobs(world: &World, cluster: &Cluster, index: &ClusterIndex) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let short = cluster.spec.scale.nodes_min.saturating_sub(index.alive());
    reasons.extend(locked(world, cluster, short));
    reasons.extend(create_failing(world, cluster, index));
    if short > 0
        && let Some((quota, used, needed)) = quota_short(world, cluster, short)
    {
        reasons.push(Reason::QuotaReached { quota, used, needed });
    }
    if short > 0 {
        let ever = hosts::too_small(world, cluster, 1);
        reasons.extend(ever.or_else(|| hosts::full(world, cluster, short, 1)));
    }
    if let Some((requested_at, _)) = index.pending.last() {
        reasons.push(Reason::NodesStarting {
            cluster: cluster.name.clone(),
            starting: count(index.pending.len()),
            free: count(index.idle.len()),
            needed: cluster.spec.scale.nodes_min,
            at: *requested_at + cluster.boot.unwrap_or(world.settings.boot),
        });
    }
    reasons
}

fn idle_nodes(world: &World, cluster: &Cluster, index: &ClusterIndex) -> Vec<Reason> {
    let name = || cluster.name.clone();
    let mut reasons = Vec::new();
    let floor = index.floor.len();
    let spare = index.idle.len() - floor;
    if floor > 0 {
        let nodes_min = cluster.spec.scale.nodes_min;
        reasons.push(Reason::KeptByMinimum { cluster: name(), nodes_min, idle: count(floor) });
    }
    let Some((since, _)) = index.idle.first().filter(|_| spare > 0) else { return reasons };
    let idle = count(spare);
    match cluster.rest {
        Rest::Held => {
            let reach = world.reach(cluster);
            let first = index.queue.candidates().find(|kind| kind.shape.nodes <= reach);
            // While the store cannot be written to, no job can start, so the nodes are not held for one.
            let first = first.filter(|_| world.store_trouble().is_none());
            if let Some(job) = first.and_then(|first| world.live_job(first.job)) {
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

fn at_rest(cluster: &Cluster, index: &ClusterIndex) -> Reason {
    let cluster_name = cluster.name.clone();
    if index.leased.is_empty() {
        return Reason::Empty { cluster: cluster_name, nodes_min: cluster.spec.scale.nodes_min };
    }
    Reason::Busy {
        cluster: cluster_name,
        nodes: count(index.leased.len()),
        nodes_max: cluster.spec.scale.nodes_max,
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
