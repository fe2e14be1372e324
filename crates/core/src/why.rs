//! Why a job waits: every reason, the most fundamental first, computed when asked and never stored.
//!
//! A new reason is a variant of [`Reason`], a case in [`why`], and its words in `Display`.

use std::fmt;

use crate::ids::JobId;
use crate::model::{Backoff, ClusterName, ClusterPhase, JobPhase};
use crate::time::Wall;
use crate::world::World;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    ClusterDeleting {
        cluster: ClusterName,
    },
    /// It needs more nodes than the cluster may ever have.
    MaximumTooLow {
        cluster: ClusterName,
        nodes_max: u32,
        needed: u32,
    },
    /// The cluster is as large as it may be, and all of it is busy.
    MaximumReached {
        cluster: ClusterName,
        nodes_max: u32,
        free: u32,
        needed: u32,
    },
    /// Creating nodes failed; the next try is not due yet.
    CreateFailing {
        cluster: ClusterName,
        failures: u32,
        retry_at: Wall,
    },
    /// Nodes are on their way.
    NodesStarting {
        starting: u32,
        free: u32,
        needed: u32,
    },
    /// Others came first.
    Behind {
        jobs: u32,
        first: Box<str>,
    },
    /// It has its nodes; they have not reported the start yet.
    Starting {
        nodes: u32,
    },
}

/// Every reason why `job` does not run. Empty only for a job that runs or has ended.
pub fn why(world: &World, job: JobId) -> Vec<Reason> {
    let Some(job) = world.job(job) else { return Vec::new() };
    match job.phase() {
        JobPhase::Queued => {}
        JobPhase::Starting => return vec![Reason::Starting { nodes: job.nodes }],
        JobPhase::Running
        | JobPhase::CancelRequested
        | JobPhase::Completed
        | JobPhase::Failed
        | JobPhase::Canceled => return Vec::new(),
    }
    let (Some(cluster), Some(pool)) = (world.cluster(job.cluster), world.pool(job.cluster)) else {
        return Vec::new();
    };
    let name = || cluster.name.clone();
    let nodes_max = cluster.spec.scale.nodes_max;
    let mut reasons = Vec::new();
    if cluster.phase == ClusterPhase::Deleting {
        reasons.push(Reason::ClusterDeleting { cluster: name() });
    }
    if job.nodes > nodes_max {
        reasons.push(Reason::MaximumTooLow { cluster: name(), nodes_max, needed: job.nodes });
    }
    let Backoff { failures, until } = cluster.backoff;
    if failures > 0 {
        reasons.push(Reason::CreateFailing { cluster: name(), failures, retry_at: until });
    }
    let free = u32::try_from(pool.idle.len()).unwrap_or(u32::MAX);
    let starting = u32::try_from(pool.pending.len()).unwrap_or(u32::MAX);
    if starting > 0 {
        reasons.push(Reason::NodesStarting { starting, free, needed: job.nodes });
    } else if job.nodes <= nodes_max && pool.existing() >= nodes_max {
        let reason = Reason::MaximumReached { cluster: name(), nodes_max, free, needed: job.nodes };
        reasons.push(reason);
    }
    let ahead = pool.queue.range(..job.id);
    let first = ahead.clone().next().and_then(|first| world.job(*first));
    if let Some(first) = first {
        let jobs = u32::try_from(ahead.count()).unwrap_or(u32::MAX);
        reasons.push(Reason::Behind { jobs, first: first.name.clone() });
    }
    if reasons.is_empty() {
        // Placed or asked for in the very next decision.
        reasons.push(Reason::NodesStarting { starting, free, needed: job.nodes });
    }
    reasons
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::ClusterDeleting { cluster } => {
                write!(f, "compute '{cluster}' is being deleted; submit to another one")
            }
            Reason::MaximumTooLow { cluster, nodes_max, needed } => write!(
                f,
                "compute '{cluster}' has at most {nodes_max} nodes, this job needs {needed}; raise it: \
                 muster compute update --name {cluster} --max-instances {needed}"
            ),
            Reason::MaximumReached { cluster, nodes_max, free, needed } => write!(
                f,
                "compute '{cluster}' is at its maximum of {nodes_max} nodes, {free} of them free, this \
                 job needs {needed}; wait, or raise it: muster compute update --name {cluster} \
                 --max-instances {}",
                nodes_max.saturating_add(*needed).saturating_sub(*free)
            ),
            Reason::CreateFailing { cluster, failures, .. } => write!(
                f,
                "creating nodes of '{cluster}' failed {failures} times in a row, it is tried again by \
                 itself; see what went wrong: muster compute list-nodes --name {cluster}"
            ),
            Reason::NodesStarting { starting, free, needed } => {
                write!(
                    f,
                    "{starting} nodes are starting, {free} are free, this job needs {needed}; wait"
                )
            }
            Reason::Behind { jobs, first } => {
                write!(
                    f,
                    "{jobs} jobs came first, '{first}' before all; wait, or cancel what is not needed"
                )
            }
            Reason::Starting { nodes } => write!(f, "its {nodes} nodes are starting it; wait"),
        }
    }
}
