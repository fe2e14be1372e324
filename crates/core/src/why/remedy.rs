//! The remedy for a reason, as a command that can be pasted into a shell.

use std::fmt;

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
}

/// Writes the command.
impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let update = "muster compute update --name";
        match self {
            Remedy::SetMaximum { cluster, nodes_max } => {
                write!(f, "{update} {cluster} --max-instances {nodes_max}")
            }
            Remedy::SetMinimum { cluster, nodes_min } => {
                write!(f, "{update} {cluster} --min-instances {nodes_min}")
            }
            Remedy::SetIdleTime { cluster, seconds } => {
                write!(f, "{update} {cluster} --idle-time-before-scale-down {seconds}")
            }
            Remedy::SetQuota { location, name, limit } => {
                // Some families have spaces in their names.
                write!(
                    f,
                    "muster quota update --location {location} --name '{name}' --limit {limit}"
                )
            }
            Remedy::TryAgain { cluster } => write!(f, "{update} {cluster}"),
            Remedy::GrowAtOnce { cluster } => write!(f, "{update} {cluster} --scale-up immediate"),
            Remedy::JoinHost => f.write_str("muster host token"),
            Remedy::OpenHost { host } => write!(f, "muster host uncordon {host}"),
            Remedy::Unlock { lock } => write!(f, "muster lock delete --ids {}", lock.id()),
            Remedy::Start { cluster } => write!(f, "muster compute start --name {cluster}"),
            Remedy::Stop { cluster } => write!(f, "muster compute stop --name {cluster}"),
            Remedy::Cancel { job } => write!(f, "muster job cancel --name {job}"),
            Remedy::ListTasks { job } => write!(f, "muster job list --parent-job-name {job}"),
            Remedy::CheckServer => f.write_str("muster doctor"),
            Remedy::Wait { cluster } => write!(f, "muster compute list-nodes --name {cluster}"),
        }
    }
}
