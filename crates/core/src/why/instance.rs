//! Why an instance is up or not, and why a job waits for it. It has one node, so no other maximum helps.

use super::Reason;
use crate::model::{Cluster, ClusterName};

/// What an instance is doing instead of running the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceWait {
    /// Nobody has started it.
    Stopped,
    /// Its node runs another job.
    Busy,
    /// Its node is on its way out.
    Leaving,
    /// (A pool) Somebody has started it, and nobody stopped it.
    Started,
}

impl InstanceWait {
    pub(super) fn code(self) -> &'static str {
        match self {
            InstanceWait::Stopped => "InstanceStopped",
            InstanceWait::Busy => "InstanceBusy",
            InstanceWait::Leaving => "InstanceLeaving",
            InstanceWait::Started => "InstanceStarted",
        }
    }

    pub(super) fn advice(self) -> &'static str {
        match self {
            InstanceWait::Stopped => "to start it",
            InstanceWait::Busy | InstanceWait::Leaving => "wait; to watch",
            InstanceWait::Started => "to let it go",
        }
    }

    pub(super) fn words(self, cluster: &ClusterName) -> String {
        match self {
            InstanceWait::Stopped => format!("the instance '{cluster}' is stopped"),
            InstanceWait::Busy => format!("the instance '{cluster}' is busy with another job"),
            InstanceWait::Leaving => {
                format!("the node of the instance '{cluster}' is on its way out")
            }
            InstanceWait::Started => {
                format!("the instance '{cluster}' is started, and stays up until it is stopped")
            }
        }
    }
}

/// The reasons in the words that fit an instance.
pub(super) fn reword(cluster: &Cluster, reasons: Vec<Reason>) -> Vec<Reason> {
    if !cluster.is_instance() {
        return reasons;
    }
    let mut reworded: Vec<Reason> = Vec::new();
    for reason in reasons {
        let what = match reason {
            Reason::MaximumTooLow { .. } | Reason::Empty { .. } => InstanceWait::Stopped,
            Reason::MaximumReached { .. } | Reason::Busy { .. } => InstanceWait::Busy,
            Reason::NodesGoing { .. } => InstanceWait::Leaving,
            Reason::KeptByMinimum { .. } => InstanceWait::Started,
            Reason::Reserved { cluster, job, at, free, nodes_max, .. } => {
                // No larger maximum would help.
                let needed = nodes_max;
                reworded.push(Reason::Reserved { cluster, job, at, free, nodes_max, needed });
                continue;
            }
            Reason::Behind { cluster, jobs, first, nodes_max, .. } => {
                let needed = nodes_max;
                reworded.push(Reason::Behind { cluster, jobs, first, nodes_max, needed });
                continue;
            }
            other => {
                reworded.push(other);
                continue;
            }
        };
        let reason = Reason::Instance { cluster: cluster.name.clone(), what };
        if !reworded.contains(&reason) {
            reworded.push(reason);
        }
    }
    reworded
}
