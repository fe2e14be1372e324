//! What helps against a reason or a refusal. `wire` spells it as a command that can be pasted into a shell.

use crate::model::{ClusterName, HostName, Lock, QuotaName};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    SetMaximum {
        cluster: ClusterName,
        nodes_max: u32,
    },
    SetMinimum {
        cluster: ClusterName,
        nodes_min: u32,
    },
    SetIdleTime {
        cluster: ClusterName,
        seconds: u64,
    },
    SetQuota {
        location: Box<str>,
        name: QuotaName,
        limit: u64,
    },
    /// Retry at once: any update of a cluster ends its back-off.
    TryAgain {
        cluster: ClusterName,
    },
    GrowAtOnce {
        cluster: ClusterName,
    },
    /// Create a token with which another host can join.
    JoinHost,
    OpenHost {
        host: HostName,
    },
    DrainHost {
        host: HostName,
    },
    Unlock {
        lock: Lock,
    },
    /// Start a compute instance.
    Start {
        cluster: ClusterName,
    },
    Stop {
        cluster: ClusterName,
    },
    Cancel {
        job: Box<str>,
    },
    /// Shows the tasks of an array.
    ListTasks {
        job: Box<str>,
    },
    /// For an administrator with access to the server's host.
    CheckServer,
    /// Nothing needs to be done; the command shows the progress.
    Wait {
        cluster: ClusterName,
    },
    /// The name is wrong; the command shows all names.
    List(Listing),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    Computes,
    Hosts,
    Jobs,
    /// The nodes of a compute.
    Nodes,
    Users,
}
