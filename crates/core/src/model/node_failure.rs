//! What is known of a node that did not leave in peace, when it is given up. Whoever deletes it carries it along.

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
    /// What it was until then.
    pub was: NodePhase,
    pub requested_at: Wall,
    pub given_up_at: Wall,
    /// What it held, at most [`NodeFailure::JOBS_MAX`] of it.
    pub jobs: Vec<HeldJob>,
}

impl NodeFailure {
    /// More would tell nobody more.
    pub const JOBS_MAX: usize = 64;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldJob {
    pub name: Box<str>,
    pub epoch: Epoch,
    pub rank: u32,
}
