//! How processes, attempts and jobs end, and what is to blame.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// How a process ended, as its agent saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// It ended because we asked it to.
    Stopped,
    TimedOut,
    /// It used more than it may, and was ended for that.
    OverLimit {
        of: Scarce,
        /// What it may use: bytes, or as many files.
        #[serde(rename = "bytes")]
        most: u64,
    },
    /// It ended because its node is taken away, and not well: exit code 0 within the grace is a success.
    Evicted,
    /// It never ran: what the agent could not do.
    NotStarted {
        message: Box<str>,
    },
    /// Its files could not be brought, so it never ran; or it ran well and what it left could not be kept.
    Data {
        doing: Carrying,
        message: Box<str>,
    },
}

/// What was to be done with a job's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Carrying {
    Fetch,
    Save,
}

/// What there is only so much of on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scarce {
    Memory,
    Disk,
    Files,
    /// Of one file, its holes included.
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
    /// The provider took a low-priority node back.
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
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    Exit {
        node: NodeId,
        #[serde(default)]
        rank: u32,
        exit: Exit,
    },
    /// Its nodes were lost so often that it is not tried again: it may be what kills them.
    NodesLost { attempts: u32 },
    /// Its node was taken away, and it asked not to be tried again.
    Evicted { node: NodeId },
}

/// What failed, so that whoever looks knows where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// No node could be made for it. That fails no job: it waits, and this is one of its reasons.
    Provision,
    /// It never ran: its node could not prepare it.
    Prepare,
    /// The command itself.
    UserCode,
    /// What it ran on.
    Node,
    /// Its files: bringing them, or keeping them.
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
        }
    }
}
