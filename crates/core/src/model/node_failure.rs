//! What is known about a node that failed or was lost, when it is given up. The delete request carries it along.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{HostName, NodePhase, Trouble};
use crate::ids::{ClusterId, Epoch};
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFailure {
    pub cluster: ClusterId,
    pub cluster_name: Box<str>,
    pub host: HostName,
    pub vm_size: Arc<str>,
    pub why: Trouble,
    /// The phase that it was in.
    pub was: NodePhase,
    pub requested_at: Wall,
    pub given_up_at: Wall,
    /// The jobs that it held, at most [`NodeFailure::JOBS_MAX`] of them.
    pub jobs: Vec<HeldJob>,
}

impl NodeFailure {
    /// More jobs would not make a post-mortem more useful.
    pub const JOBS_MAX: usize = 64;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldJob {
    pub name: Box<str>,
    pub epoch: Epoch,
    pub rank: u32,
}
