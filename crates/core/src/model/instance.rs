//! Compute instances: clusters of exactly one dedicated node, which users start and stop themselves.
//!
//! Whether an instance should be running is expressed by its scale: 1 to 1 nodes, or 0 to 0. So it is scheduled,
//! provisioned, counted and billed like any cluster.

use serde::{Deserialize, Serialize};

use super::{Cluster, ScaleSettings};
use crate::time::Wall;

/// The kind of a compute. It never changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ComputeKind {
    #[default]
    Cluster,
    Instance,
    /// Created by Muster for serverless jobs.
    Serverless,
}

/// What users can do with an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    Start,
    Stop,
    /// Cancels its running jobs, deletes its node and creates a new one.
    Restart,
}

/// The last operation on an instance, and its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastOperation {
    /// `None` for its creation.
    pub power: Option<Power>,
    pub at: Wall,
    pub progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    UnderWay,
    Done,
    /// No node started, so the instance was stopped again.
    Failed,
}

impl ComputeKind {
    /// For serde: the kind is omitted for clusters, which most computes are, and which old rows all are.
    pub fn is_cluster(&self) -> bool {
        *self == ComputeKind::Cluster
    }
}

impl ScaleSettings {
    /// The scale of an instance that should be running, or should not.
    pub fn of_instance(is_up: bool) -> ScaleSettings {
        let nodes = u32::from(is_up);
        ScaleSettings { nodes_min: nodes, nodes_max: nodes, ..ScaleSettings::default() }
    }
}

impl Cluster {
    pub fn is_instance(&self) -> bool {
        self.spec.kind == ComputeKind::Instance
    }

    /// Whether an instance should be running.
    pub fn is_wanted_up(&self) -> bool {
        self.spec.scale.nodes_max > 0
    }

    /// The operation on an instance that is under way. `Some(None)` is its creation.
    pub fn under_way(&self) -> Option<Option<Power>> {
        let last = self.last.filter(|last| last.progress == Progress::UnderWay)?;
        Some(last.power)
    }

    /// The number of nodes that count towards the reservations of the quota.
    pub fn reserved_nodes(&self) -> u32 {
        match self.spec.kind {
            ComputeKind::Cluster => self.spec.scale.nodes_max,
            // It was not created by a user, so nothing is reserved for it; only its nodes count.
            ComputeKind::Serverless => 0,
            ComputeKind::Instance => {
                // A restart does not release the quota in between.
                let is_kept = !self.spec.releases_quota_on_stop
                    || self.under_way() == Some(Some(Power::Restart));
                if is_kept { 1 } else { self.spec.scale.nodes_max }
            }
        }
    }
}
