//! How processes, attempts and jobs end, and why.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// How a process ended, as its agent saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// It ended because the agent asked it to.
    Stopped,
    TimedOut,
    /// It exceeded a limit and was killed for that.
    OverLimit {
        of: Scarce,
        /// The limit, in bytes or in number of files.
        #[serde(rename = "bytes")]
        most: u64,
    },
    /// It failed because its node was evicted. Exit code 0 within the grace period counts as a success instead.
    Evicted,
    /// It never ran, because the agent could not prepare it.
    NotStarted {
        message: Box<str>,
    },
    /// It never ran because its files could not be fetched, or it succeeded but its outputs could not be saved.
    Data {
        doing: Carrying,
        message: Box<str>,
    },
}

/// The transfer of a job's files that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carrying {
    Fetch,
    Save,
}

/// A limited resource of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scarce {
    Memory,
    Disk,
    Files,
    /// The length of one file, including its holes.
    FileLength,
}

impl Exit {
    pub fn is_success(&self) -> bool {
        matches!(self, Exit::Code(0))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    Failed {
        node: NodeId,
        #[serde(default)]
        rank: u32,
        exit: Exit,
    },
    NodeLost {
        node: NodeId,
    },
    /// The provider evicted a low-priority node.
    Evicted {
        node: NodeId,
    },
    Canceled {
        why: CancelReason,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelReason {
    Asked,
    ClusterDeleted,
    /// The instance that it ran on was stopped or restarted.
    InstanceStopped,
    /// The time limit of the job that it is part of was reached.
    ParentTimedOut,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    Exit {
        node: NodeId,
        #[serde(default)]
        rank: u32,
        exit: Exit,
    },
    /// Its nodes were lost so often that there is no further attempt: the job itself may be what kills them.
    NodesLost { attempts: u32 },
    /// Its node was evicted, and the job asked for no further attempt.
    Evicted { node: NodeId },
    /// Some of its children failed.
    Children {
        failed: u32,
        of: u32,
        /// The name of the first one.
        first: Box<str>,
    },
    /// Its children did not end within its time limit.
    TreeTimedOut,
}

/// What kind of thing failed, which tells the user where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// No node could be created. This does not fail a job: it waits, and this is one of its wait reasons.
    Provision,
    /// It never ran, because its node could not prepare it.
    Prepare,
    /// The command itself failed.
    UserCode,
    /// The node that it ran on failed.
    Node,
    /// Its files could not be fetched or saved.
    Data,
}

impl FailureClass {
    pub fn as_str(self) -> &'static str {
        match self {
            FailureClass::Provision => "provision",
            FailureClass::Prepare => "prepare",
            FailureClass::UserCode => "user code",
            FailureClass::Node => "node",
            FailureClass::Data => "data",
        }
    }
}

impl Failure {
    pub fn class(&self) -> FailureClass {
        match self {
            Failure::Exit { exit, .. } => match exit {
                Exit::Code(_) | Exit::Signal(_) | Exit::TimedOut | Exit::OverLimit { .. } => {
                    FailureClass::UserCode
                }
                Exit::NotStarted { .. } => FailureClass::Prepare,
                Exit::Data { .. } => FailureClass::Data,
                Exit::Stopped | Exit::Evicted => FailureClass::Node,
            },
            Failure::NodesLost { .. } | Failure::Evicted { .. } => FailureClass::Node,
            Failure::Children { .. } | Failure::TreeTimedOut => FailureClass::UserCode,
        }
    }
}
