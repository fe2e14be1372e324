//! Serverless jobs, which name a size instead of a compute. Muster creates clusters for them, one for each workspace,
//! size and tier, which grow from zero nodes and shrink back to zero. Such a cluster is scheduled, provisioned, counted
//! and billed like any other.

use serde::{Deserialize, Serialize};

use super::{Cluster, ClusterName, ComputeKind, JobSpec, ScaleSettings, ScaleUp, Tier};
use crate::limits;
use crate::time::Span;

/// The word that a job may use in place of a compute's name. No compute can have this name.
pub const SERVERLESS: &str = "serverless";

/// The size of a serverless job that names none. It is small and has no GPU.
pub const SERVERLESS_VM_SIZE: &str = "Standard_DS3_v2";

/// Long enough for a program that submits one job after the other.
const IDLE_TIME: Span = Span::seconds(30);

/// How soon a job needs its nodes, and whether they may be evicted. The names are Azure's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobTier {
    Null,
    Spot,
    Basic,
    Standard,
    Premium,
}

impl JobTier {
    pub fn tier(self) -> Tier {
        match self {
            JobTier::Spot => Tier::LowPriority,
            JobTier::Null | JobTier::Basic | JobTier::Standard | JobTier::Premium => {
                Tier::Dedicated
            }
        }
    }
}

impl JobSpec {
    pub fn is_serverless(&self) -> bool {
        self.compute.eq_ignore_ascii_case(SERVERLESS)
    }

    /// The compute that it runs on: the one that it names, or a serverless cluster.
    pub fn cluster_name(&self) -> ClusterName {
        if !self.is_serverless() {
            return ClusterName::unchecked(&self.compute);
        }
        let size = self.instance_type.as_deref().unwrap_or(SERVERLESS_VM_SIZE);
        let tier = self.job_tier.map_or(Tier::Dedicated, JobTier::tier);
        ClusterName::of_serverless(size, tier)
    }
}

impl ClusterName {
    /// The name of the serverless cluster for a size. Users cannot choose names with this prefix.
    pub fn of_serverless(vm_size: &str, tier: Tier) -> ClusterName {
        let end = match tier {
            Tier::Dedicated => "",
            Tier::LowPriority => "-spot",
        };
        // Node names begin with it, so it must be valid in a host name and not too long.
        let size = vm_size.to_ascii_lowercase().replace('_', "-");
        let size = size.strip_prefix("standard-").unwrap_or(&size);
        ClusterName::unchecked(&format!("{SERVERLESS}-{size}{end}"))
    }
}

impl ScaleSettings {
    /// The scale of a serverless cluster.
    pub fn of_serverless() -> ScaleSettings {
        ScaleSettings {
            nodes_min: 0,
            nodes_max: limits::SERVERLESS_NODES_MAX,
            idle_time: IDLE_TIME,
            scale_up: ScaleUp::Immediate,
        }
    }
}

impl Cluster {
    pub fn is_serverless(&self) -> bool {
        self.spec.kind == ComputeKind::Serverless
    }
}
