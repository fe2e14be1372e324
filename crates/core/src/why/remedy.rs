//! What would lift a reason, as a command that can be pasted.

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
    /// Any update of a cluster ends its pause.
    TryAgain {
        cluster: ClusterName,
    },
    GrowAtOnce {
        cluster: ClusterName,
    },
    /// The first step: a ticket for another machine.
    JoinHost,
    OpenHost {
        host: HostName,
    },
    Unlock {
        lock: Lock,
    },
    /// An instance.
    Start {
        cluster: ClusterName,
    },
    Stop {
        cluster: ClusterName,
    },
    Cancel {
        job: Box<str>,
    },
    /// For whoever can reach the server's machine.
    CheckServer,
    /// It goes on by itself; this shows how far it is.
    Wait {
        cluster: ClusterName,
    },
}

/// The command.
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
            Remedy::CheckServer => f.write_str("muster doctor"),
            Remedy::Wait { cluster } => write!(f, "muster compute list-nodes --name {cluster}"),
        }
    }
}
