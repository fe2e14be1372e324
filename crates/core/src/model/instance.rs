//! Compute instances: pools of exactly one dedicated node, which people start and stop by hand.
//!
//! Whether an instance should be up is its scale: 1 to 1 nodes, or 0 to 0. So it is scheduled, provided, counted
//! and billed as any other pool.

use serde::{Deserialize, Serialize};

use super::{Cluster, ScaleSettings};
use crate::time::Wall;

/// What kind of compute a pool is. Fixed for life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ComputeKind {
    #[default]
    Cluster,
    Instance,
    /// Made by the service for jobs that name no compute.
    Serverless,
}

/// What people ask of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    Start,
    Stop,
    /// Whatever runs on it ends, its node goes, and a new one comes.
    Restart,
}

/// The last thing that was asked of an instance, and how far it is.
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
    /// No node came up; the instance was stopped again.
    Failed,
}

impl ComputeKind {
    /// Left out where it is: most are, and old rows know no other.
    pub fn is_cluster(&self) -> bool {
        *self == ComputeKind::Cluster
    }
}

impl ScaleSettings {
    /// An instance that should be up, or should not.
    pub fn of_instance(is_up: bool) -> ScaleSettings {
        let nodes = u32::from(is_up);
        ScaleSettings { nodes_min: nodes, nodes_max: nodes, ..ScaleSettings::default() }
    }
}

impl Cluster {
    pub fn is_instance(&self) -> bool {
        self.spec.kind == ComputeKind::Instance
    }

    /// Whether an instance should be up.
    pub fn is_wanted_up(&self) -> bool {
        self.spec.scale.nodes_max > 0
    }

    /// What is being done to an instance: `Some(None)` is its creation.
    pub fn under_way(&self) -> Option<Option<Power>> {
        let last = self.last.filter(|last| last.progress == Progress::UnderWay)?;
        Some(last.power)
    }

    /// Nodes that count towards the reservations of the quota.
    pub fn reserved_nodes(&self) -> u32 {
        match self.spec.kind {
            ComputeKind::Cluster => self.spec.scale.nodes_max,
            // Nobody asked for it to be there: only what its nodes use counts.
            ComputeKind::Serverless => 0,
            ComputeKind::Instance => {
                // A restart gives nothing back in between.
                let is_kept = !self.spec.releases_quota_on_stop
                    || self.under_way() == Some(Some(Power::Restart));
                if is_kept { 1 } else { self.spec.scale.nodes_max }
            }
        }
    }
}
