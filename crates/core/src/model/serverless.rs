//! Serverless jobs: they name a size instead of a compute. Their nodes are in pools that the service makes itself,
//! one for each workspace, size and tier, from zero nodes and back to zero. Such a pool is scheduled, provided,
//! counted and billed as any other.

use serde::{Deserialize, Serialize};

use super::{Cluster, ClusterName, ComputeKind, JobSpec, ScaleSettings, ScaleUp, Tier};
use crate::limits;
use crate::time::Span;

/// What stands in the place of a compute's name. No compute can be called so.
pub const SERVERLESS: &str = "serverless";

/// The size of a serverless job that names none: small, and it has no GPU.
pub const SERVERLESS_VM_SIZE: &str = "Standard_DS3_v2";

/// Long enough for the next step of a program that submits one job after the other.
const IDLE_TIME: Span = Span::seconds(30);

/// How soon a job wants its nodes, and whether they may be taken away again. Azure's words.
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

    /// The compute whose nodes it runs on: the one that it names, or the service's own pool.
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
    /// The service's own pool of a size. Nobody else can take a name that begins so.
    pub fn of_serverless(vm_size: &str, tier: Tier) -> ClusterName {
        let end = match tier {
            Tier::Dedicated => "",
            Tier::LowPriority => "-spot",
        };
        // Nodes are called after it: no other signs, and not too long for the name of a machine.
        let size = vm_size.to_ascii_lowercase().replace('_', "-");
        let size = size.strip_prefix("standard-").unwrap_or(&size);
        ClusterName::unchecked(&format!("{SERVERLESS}-{size}{end}"))
    }
}

impl ScaleSettings {
    /// Of a pool of the service's own.
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
