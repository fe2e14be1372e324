//! Why an instance is running or not, and why a job waits for it. An instance has one node, so a higher maximum is
//! never the remedy.

use super::Reason;
use crate::model::{Cluster, ClusterName};

/// Why an instance does not run the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceWait {
    /// It is stopped.
    Stopped,
    /// Its node runs another job.
    Busy,
    /// Its node is being deleted.
    NodeLeaving,
    /// (Only for `why_cluster`.) It was started and not stopped.
    Started,
}

impl InstanceWait {
    pub(super) fn code(self) -> &'static str {
        match self {
            InstanceWait::Stopped => "InstanceStopped",
            InstanceWait::Busy => "InstanceBusy",
            InstanceWait::NodeLeaving => "InstanceLeaving",
            InstanceWait::Started => "InstanceStarted",
        }
    }

    pub(super) fn advice(self) -> &'static str {
        match self {
            InstanceWait::Stopped => "to start it",
            InstanceWait::Busy | InstanceWait::NodeLeaving => "wait; to watch",
            InstanceWait::Started => "to stop it",
        }
    }

    pub(super) fn words(self, cluster: &ClusterName) -> String {
        match self {
            InstanceWait::Stopped => format!("the instance '{cluster}' is stopped"),
            InstanceWait::Busy => format!("the instance '{cluster}' is busy with another job"),
            InstanceWait::NodeLeaving => {
                format!("the node of the instance '{cluster}' is being deleted")
            }
            InstanceWait::Started => {
                format!("the instance '{cluster}' was started and runs until it is stopped")
            }
        }
    }
}

/// Replaces the reasons about a cluster's size with ones that apply to an instance.
pub(super) fn reword(cluster: &Cluster, reasons: Vec<Reason>) -> Vec<Reason> {
    if !cluster.is_instance() {
        return reasons;
    }
    let mut reworded: Vec<Reason> = Vec::new();
    for reason in reasons {
        let what = match reason {
            Reason::MaximumTooLow { .. } | Reason::Empty { .. } => InstanceWait::Stopped,
            Reason::MaximumReached { .. } | Reason::Busy { .. } => InstanceWait::Busy,
            Reason::NodesGoing { .. } => InstanceWait::NodeLeaving,
            Reason::KeptByMinimum { .. } => InstanceWait::Started,
            Reason::Reserved { cluster, job, at, free, nodes_max, .. } => {
                // A higher maximum would not help.
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
