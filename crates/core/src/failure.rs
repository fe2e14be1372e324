//! What is recorded about a node that is given up, so that its post-mortem can explain why.

use std::sync::Arc;

use crate::model::{HeldJob, Lease, Node, NodeFailure, Trouble};
use crate::step::Transaction;

/// The record of a node, which must still be in the state that it was given up in.
pub(crate) fn of(tx: &Transaction<'_>, node: &Node, why: Trouble) -> NodeFailure {
    let world = &tx.world;
    let held = |lease: &Lease| {
        let name = world.job(lease.job)?.name.clone();
        Some(HeldJob { name, epoch: lease.epoch, rank: lease.rank })
    };
    let cluster = world.cluster(node.cluster).expect("a node's cluster outlives it");
    NodeFailure {
        cluster: node.cluster,
        cluster_name: cluster.name.as_str().into(),
        host: node.host.clone(),
        vm_size: Arc::clone(&node.vm_size),
        why,
        was: node.phase(),
        requested_at: node.requested_at,
        given_up_at: tx.now.wall,
        jobs: node.leases().iter().take(NodeFailure::JOBS_MAX).filter_map(held).collect(),
    }
}
