//! What goes over the wire between an agent and the controller.

use serde::{Deserialize, Serialize};

use crate::ids::Epoch;
use crate::model::{Exit, SpecHash};
use crate::time::Span;

/// Of the log of one rank of one attempt. A job that writes more is not stopped, its log is: the server takes no more,
/// and a node keeps no more.
pub const LOG_BYTES_MAX: u64 = 1 << 30;

/// Everything that an agent knows. Sent at least every few seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub boot_id: Box<str>,
    pub address: Box<str>,
    /// The highest epoch this node has ever taken on. An epoch at or below it that is not in `attempts`
    /// is over and forgotten here; above it, the order has not arrived yet.
    pub floor: Epoch,
    pub attempts: Vec<AttemptReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptReport {
    pub epoch: Epoch,
    pub phase: AttemptPhase,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptPhase {
    Preparing,
    Running,
    /// Journalled by the agent and said again until it is acknowledged.
    Ended(Exit),
}

/// Everything that the controller wants of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    /// How long the agent may go on without hearing from us, counted from when it sent its report.
    pub lease: Span,
    /// What it should run. Anything else it holds must stop, if its epoch is below `as_of`.
    pub orders: Vec<Order>,
    /// Epochs from here on had not been given out when this was made, so it says nothing about them: the
    /// answer to a newer report can have been made before an older one was answered.
    pub as_of: Epoch,
    /// Epochs up to here that the node has not taken on are void: it must never start them, even if an
    /// older message that orders them arrives later. Its next report shows that it knows.
    pub floor: Epoch,
    /// Endings that are on the controller's disk: the agent may forget them.
    pub acknowledged: Vec<Epoch>,
    /// The node is not wanted any more: stop everything and end.
    pub end: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub epoch: Epoch,
    pub job_name: Box<str>,
    /// Which try this is, from 1.
    pub attempt: u32,
    pub spec: SpecHash,
    /// This node's place among the members, from 0.
    pub rank: u32,
    pub nodes: u32,
}
