//! Why a job waits, and why a cluster has its current size.
//!
//! All reasons are given, the most fundamental first. They are computed when asked for and never stored, so they
//! cannot be out of date.
//!
//! To add a reason, add a variant of [`Reason`], a case in [`job`] or [`cluster`], its figures in
//! [`Reason::figures`], its remedy in [`Reason::remedy`], and its text in `words`. ARCHITECTURE.md lists the other places.

mod cluster;
mod hosts;
mod instance;
mod job;
mod remedy;
mod serverless;
mod words;

pub use cluster::why_cluster;
pub use hosts::{HostClosed, HostsShort};
pub use instance::InstanceWait;
pub use job::why;
pub use remedy::{Listing, Remedy};

use crate::model::{ClusterName, FailureClass, Lock, QuotaName};
use crate::read_only::{StoreTrouble, mib_up};
use crate::time::Wall;

/// What keeps a job from starting, or a cluster from being larger or smaller. Variants marked "cluster" only explain
/// the size of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A lock keeps the cluster from growing.
    Locked { lock: Lock, cluster: ClusterName, needed: u32 },
    /// The job needs more nodes than the cluster may ever have.
    MaximumTooLow { cluster: ClusterName, nodes_max: u32, needed: u32 },
    /// The job needs more vCPUs than the quota provides, even if nothing else used any.
    QuotaTooLow { quota: QuotaLimit, needed: u64 },
    /// The job's nodes do not fit on any host, and all nodes of a job must be on one.
    HostsTooSmall(Box<HostsShort>),
    /// Nodes fail to start. The next try is not due yet, or is under way.
    CreateFailing { cluster: ClusterName, failures: u32, retry_at: Wall, last: Box<str> },
    /// The cluster could grow, but the quota is used up.
    QuotaReached { quota: QuotaLimit, used: u64, needed: u64 },
    /// The cluster could grow, but its hosts are full.
    HostsFull(Box<HostsShort>),
    /// The cluster has reached its maximum, and too many of its nodes are busy. `needed` covers this job and those
    /// before it, or all waiting jobs.
    MaximumReached {
        cluster: ClusterName,
        nodes_max: u32,
        free: u32,
        needed: u32,
        is_for_all: bool,
    },
    /// There are free nodes, but they are reserved for another job that will start at `at`.
    Reserved {
        cluster: ClusterName,
        job: Box<str>,
        at: Wall,
        free: u32,
        nodes_max: u32,
        needed: u32,
    },
    /// Other jobs are served first: by priority, by fair share, or because they arrived earlier.
    Behind { cluster: ClusterName, jobs: u32, first: Box<str>, nodes_max: u32, needed: u32 },
    /// The array that the task belongs to has as many tasks running as it may.
    ArrayLimit { job: Box<str>, limit: u32 },
    /// A node has been given the task together with those before it, and will start it when they have ended.
    NextOnNode { cluster: ClusterName, node: Box<str>, before: u32 },
    /// The cluster grows by prediction, and a node will be free before a new one could start.
    FreeSoon { cluster: ClusterName, at: Wall, up_at: Wall, needed: u32 },
    /// Nodes are starting.
    NodesStarting { cluster: ClusterName, starting: u32, free: u32, needed: u32, at: Wall },
    /// The job has its nodes, but they have not reported that it started.
    Starting { cluster: ClusterName, nodes: u32 },
    /// Cluster: it is being deleted, and still has jobs or nodes.
    Deleting { cluster: ClusterName, jobs: u32, nodes: u32 },
    /// Cluster: nodes that are being deleted still count towards the maximum.
    NodesGoing { cluster: ClusterName, going: u32, nodes_max: u32 },
    /// Cluster: the minimum keeps idle nodes.
    KeptByMinimum { cluster: ClusterName, nodes_min: u32, idle: u32 },
    /// Cluster: idle nodes are reserved for a job that needs more of them.
    HeldFor { cluster: ClusterName, job: Box<str>, idle: u32, needed: u32 },
    /// Cluster: idle nodes are kept until their idle time is over.
    IdleUntil { cluster: ClusterName, idle: u32, idle_s: u64, at: Wall },
    /// Cluster: every node is busy, and no job waits.
    Busy { cluster: ClusterName, nodes: u32, nodes_max: u32 },
    /// Cluster: no job waits, so there are no nodes.
    Empty { cluster: ClusterName, nodes_min: u32 },
    /// Cluster: no job starts on some of its nodes, because their host is not open.
    HostClosed(HostClosed),
    /// A reason that concerns a compute instance.
    Instance { cluster: ClusterName, what: InstanceWait },
    /// A reason that concerns a serverless cluster, whose limits users cannot change.
    Serverless { cluster: ClusterName, what: Box<Reason> },
    /// The store cannot accept new work.
    Store(StoreTrouble),
}

/// A limit in vCPUs, and the region in which it applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaLimit {
    pub location: Box<str>,
    pub name: QuotaName,
    pub limit: u64,
}

/// The limit that a reason is about: its name, its value, and the value that would be needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    pub limit: Box<str>,
    pub value: u64,
    pub needed: u64,
}

impl Reason {
    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Locked { .. } => "Locked",
            Reason::MaximumTooLow { .. } => "MaximumTooLow",
            Reason::QuotaTooLow { .. } => "QuotaTooLow",
            Reason::HostsTooSmall(_) => "HostsTooSmall",
            Reason::HostsFull(_) => "HostsFull",
            Reason::HostClosed(_) => "HostClosed",
            Reason::CreateFailing { .. } => "CreateFailing",
            Reason::QuotaReached { .. } => "QuotaReached",
            Reason::MaximumReached { .. } => "MaximumReached",
            Reason::Reserved { .. } => "Reserved",
            Reason::Behind { .. } => "Behind",
            Reason::ArrayLimit { .. } => "ArrayLimit",
            Reason::NextOnNode { .. } => "NextOnNode",
            Reason::FreeSoon { .. } => "FreeSoon",
            Reason::NodesStarting { .. } => "NodesStarting",
            Reason::Starting { .. } => "Starting",
            Reason::Deleting { .. } => "Deleting",
            Reason::NodesGoing { .. } => "NodesGoing",
            Reason::KeptByMinimum { .. } => "KeptByMinimum",
            Reason::HeldFor { .. } => "HeldFor",
            Reason::IdleUntil { .. } => "IdleUntil",
            Reason::Busy { .. } => "Busy",
            Reason::Empty { .. } => "Empty",
            Reason::Instance { what, .. } => what.code(),
            Reason::Serverless { what, .. } => what.code(),
            Reason::Store(trouble) => trouble.code(),
        }
    }

    /// The class of the failure, if the reason is one.
    pub fn class(&self) -> Option<FailureClass> {
        match self {
            Reason::Serverless { what, .. } => what.class(),
            _ => matches!(self, Reason::CreateFailing { .. }).then_some(FailureClass::Provision),
        }
    }

    pub fn figures(&self) -> Figures {
        let figures =
            |limit: &str, value: u64, needed: u64| Figures { limit: limit.into(), value, needed };
        let nodes = |limit: &str, value: &u32, needed: &u32| {
            figures(limit, u64::from(*value), u64::from(*needed))
        };
        match self {
            Reason::Locked { needed, .. } => nodes("nodes that may be added", &0, needed),
            Reason::MaximumTooLow { nodes_max, needed, .. }
            | Reason::MaximumReached { nodes_max, needed, .. } => {
                nodes("max_instances", nodes_max, needed)
            }
            Reason::Reserved { free, .. } => nodes("nodes reserved for another job", free, &0),
            Reason::Behind { jobs, .. } => nodes("jobs served first", jobs, &0),
            Reason::QuotaTooLow { quota, needed } | Reason::QuotaReached { quota, needed, .. } => {
                figures(&format!("quota {}", quota.name), quota.limit, *needed)
            }
            Reason::HostsTooSmall(short) | Reason::HostsFull(short) => {
                nodes("nodes that hosts have room for", &short.room, &short.needed)
            }
            Reason::HostClosed(closed) => nodes("nodes on a closed host", &closed.nodes, &0),
            Reason::CreateFailing { failures, .. } => {
                nodes("node starts that failed in a row", failures, &0)
            }
            Reason::ArrayLimit { limit, .. } => {
                nodes("tasks of the array at once", limit, &limit.saturating_add(1))
            }
            Reason::NextOnNode { before, .. } => nodes("tasks before it on its node", before, &0),
            Reason::FreeSoon { needed, .. } => nodes("free nodes", &0, needed),
            Reason::NodesStarting { free, needed, .. } => nodes("free nodes", free, needed),
            Reason::Starting { nodes: needed, .. } => nodes("nodes running it", &0, needed),
            Reason::Deleting { nodes: left, .. } => nodes("nodes left", left, &0),
            Reason::NodesGoing { going, nodes_max, .. } => {
                nodes("max_instances", nodes_max, &nodes_max.saturating_add(*going))
            }
            Reason::KeptByMinimum { nodes_min, .. } => nodes("min_instances", nodes_min, &0),
            Reason::HeldFor { idle, needed, .. } => nodes("free nodes", idle, needed),
            Reason::IdleUntil { idle_s, .. } => figures("idle_time_before_scale_down", *idle_s, 0),
            Reason::Busy { nodes: at_work, nodes_max, .. } => {
                nodes("max_instances", nodes_max, at_work)
            }
            Reason::Empty { nodes_min, .. } => nodes("min_instances", nodes_min, &1),
            Reason::Instance { what: InstanceWait::Started, .. } => nodes("nodes running", &1, &0),
            Reason::Instance { .. } => nodes("free nodes", &0, &1),
            Reason::Serverless { what, .. } => what.figures(),
            Reason::Store(StoreTrouble::ShortOfSpace { free_bytes, needed_bytes }) => {
                let limit = "MiB free on the server's disk";
                figures(limit, free_bytes >> 20, mib_up(*needed_bytes))
            }
            Reason::Store(StoreTrouble::ReadOnly | StoreTrouble::Failing) => {
                nodes("writable stores", &0, &1)
            }
        }
    }

    /// What would remove the reason.
    pub fn remedy(&self) -> Remedy {
        let cluster_nodes = |cluster: &ClusterName, nodes_max: u32| Remedy::SetMaximum {
            cluster: cluster.clone(),
            nodes_max,
        };
        match self {
            Reason::Locked { lock, .. } => Remedy::Unlock { lock: lock.clone() },
            Reason::MaximumTooLow { cluster, needed, .. }
            | Reason::MaximumReached { cluster, needed, .. } => cluster_nodes(cluster, *needed),
            Reason::Reserved { cluster, nodes_max, needed, .. }
            | Reason::Behind { cluster, nodes_max, needed, .. }
                if needed > nodes_max =>
            {
                cluster_nodes(cluster, *needed)
            }
            Reason::Reserved { cluster, .. } | Reason::Behind { cluster, .. } => {
                Remedy::Wait { cluster: cluster.clone() }
            }
            Reason::NodesGoing { cluster, going, nodes_max } => {
                cluster_nodes(cluster, nodes_max.saturating_add(*going))
            }
            Reason::QuotaTooLow { quota, needed } | Reason::QuotaReached { quota, needed, .. } => {
                let QuotaLimit { location, name, .. } = quota.clone();
                Remedy::SetQuota { location, name, limit: *needed }
            }
            Reason::HostsTooSmall(_) | Reason::HostsFull(_) => Remedy::JoinHost,
            Reason::HostClosed(closed) => Remedy::OpenHost { host: closed.host.clone() },
            Reason::CreateFailing { cluster, .. } => Remedy::TryAgain { cluster: cluster.clone() },
            Reason::ArrayLimit { job, .. } => Remedy::ListTasks { job: job.clone() },
            Reason::FreeSoon { cluster, .. } => Remedy::GrowAtOnce { cluster: cluster.clone() },
            Reason::NodesStarting { cluster, .. }
            | Reason::NextOnNode { cluster, .. }
            | Reason::Starting { cluster, .. }
            | Reason::Deleting { cluster, .. }
            | Reason::Serverless { cluster, .. }
            | Reason::Busy { cluster, .. } => Remedy::Wait { cluster: cluster.clone() },
            Reason::Store(_) => Remedy::CheckServer,
            Reason::KeptByMinimum { cluster, .. } => {
                Remedy::SetMinimum { cluster: cluster.clone(), nodes_min: 0 }
            }
            Reason::Empty { cluster, .. } => {
                Remedy::SetMinimum { cluster: cluster.clone(), nodes_min: 1 }
            }
            Reason::Instance { cluster, what } => match what {
                InstanceWait::Stopped => Remedy::Start { cluster: cluster.clone() },
                InstanceWait::Started => Remedy::Stop { cluster: cluster.clone() },
                InstanceWait::Busy | InstanceWait::NodeLeaving => {
                    Remedy::Wait { cluster: cluster.clone() }
                }
            },
            Reason::HeldFor { job, .. } => Remedy::Cancel { job: job.clone() },
            Reason::IdleUntil { cluster, .. } => {
                Remedy::SetIdleTime { cluster: cluster.clone(), seconds: 0 }
            }
        }
    }
}
