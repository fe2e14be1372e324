//! A compute of either kind, as a client reads it.

use serde::{Deserialize, Serialize};

use super::{
    AllocationState, ComputeResource, NodeStateCounts, ResourceRef, ScaleSettingsBody,
    UserAccountCredentials,
};
use crate::error::ErrorBody;

pub type SeenCompute = ComputeResource<Seen>;

/// A property that only one kind has is `None` for the other.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    pub vm_size: String,
    pub vm_priority: Option<String>,
    pub scale_settings: Option<ScaleSettingsBody>,
    pub subnet: Option<ResourceRef>,
    pub remote_login_port_public_access: Option<String>,
    pub enable_node_public_ip: Option<bool>,
    pub user_account_credentials: Option<UserAccountCredentials>,
    pub allocation_state: Option<AllocationState>,
    pub errors: Option<Vec<ErrorBody>>,
    pub current_node_count: Option<u32>,
    pub target_node_count: Option<u32>,
    pub node_state_counts: Option<NodeStateCounts>,
    pub note: Option<String>,
    /// From here on, the properties of an instance. This one is its power state.
    pub state: Option<String>,
    pub ssh_settings: Option<SeenSsh>,
    pub last_operation: Option<SeenOperation>,
    pub release_quota_on_stop: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenSsh {
    pub ssh_public_access: Option<String>,
    pub admin_user_name: Option<String>,
    pub admin_public_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenOperation {
    pub operation_name: Option<String>,
    pub operation_status: Option<String>,
    pub operation_time: Option<String>,
    pub operation_trigger: Option<String>,
}

impl NodeStateCounts {
    pub fn total(&self) -> u32 {
        let up = [self.preparing_node_count, self.running_node_count, self.idle_node_count];
        let rest = [self.unusable_node_count, self.leaving_node_count];
        up.into_iter().chain(rest).fold(0, u32::saturating_add)
    }
}

impl Seen {
    /// A cluster reports its number of nodes; for an instance it follows from the state.
    pub fn nodes(&self) -> NodeStateCounts {
        let mut counts = self.node_state_counts.unwrap_or_default();
        let place = match self.state.as_deref() {
            Some("JobRunning") => &mut counts.running_node_count,
            Some("Running") => &mut counts.idle_node_count,
            Some("Creating" | "Starting" | "Restarting") => &mut counts.preparing_node_count,
            Some("Stopping" | "Deleting") => &mut counts.leaving_node_count,
            Some("Unusable") => &mut counts.unusable_node_count,
            Some(_) | None => return counts,
        };
        *place = 1;
        counts
    }
}
