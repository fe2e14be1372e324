//! A cluster as it is shown. Keys without a value are present as `null`, because older clients look for them.

use std::collections::BTreeMap;

use muster_core::model::{Backoff, Cluster, ClusterPhase, Identity, ScaleUp, WorkspaceKey};
use muster_core::time::Wall;
use serde::{Deserialize, Serialize};

use super::{OS_TYPES, REMOTE_LOGINS, SCALE_UPS, TIERS, kind_word, word};
use crate::error::{ErrorBody, ErrorDetail};
use crate::notes::NOTE;
use crate::path::workspace_id;
use crate::{JsonText, SystemData, duration, timestamp};

/// What is known about a cluster when it is shown.
#[derive(Debug, Clone, Copy)]
pub struct ComputeFacts<'a> {
    pub workspace: &'a WorkspaceKey,
    pub cluster: &'a Cluster,
    pub counts: NodeCounts,
    /// The name of the user who created it, and their id.
    pub created_by: Option<&'a str>,
    pub creator_id: Option<&'a str>,
    /// The cluster's own identity, if it has one: its principal id and the tenant's id.
    pub identity: Option<(&'a str, &'a str)>,
    /// Shown in place of the state that follows from the cluster's phase.
    pub state: Option<ProvisioningState>,
    /// When the number of nodes last changed; if unknown, the cluster's own last change.
    pub resized_at: Option<Wall>,
    /// What its owner should know although nothing is wrong. It is Muster's own; Azure's clients do not read it.
    pub note: Option<&'a str>,
}

/// Nodes by the states that Azure's clients know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Requested or booting.
    pub preparing: u32,
    pub idle: u32,
    pub running: u32,
    pub unusable: u32,
    pub leaving: u32,
    pub preempted: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeResource<P = AmlCompute> {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub resource_type: String,
    #[serde(default)]
    pub location: Option<String>,
    #[serde(default)]
    pub tags: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityBody>,
    pub properties: ComputeProperties<P>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_data: Option<SystemData>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityBody {
    #[serde(rename = "type")]
    pub kind: String,
    /// The id of the cluster's own identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_assigned_identities: Option<BTreeMap<String, AssignedIdentity>>,
}

/// Nothing is known about the identity except that it is assigned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedIdentity {}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeProperties<P = AmlCompute> {
    pub compute_type: String,
    #[serde(default)]
    pub compute_location: Option<String>,
    pub provisioning_state: ProvisioningState,
    #[serde(default)]
    pub created_on: Option<String>,
    #[serde(default)]
    pub modified_on: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub resource_id: Option<String>,
    #[serde(default)]
    pub provisioning_errors: Option<Vec<ErrorBody>>,
    #[serde(default)]
    pub is_attached_compute: bool,
    #[serde(default)]
    pub disable_local_auth: bool,
    pub properties: P,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProvisioningState {
    Creating,
    Updating,
    Succeeded,
    Deleting,
    Failed,
    Canceled,
    #[serde(other)]
    Unknown,
}

impl ProvisioningState {
    pub fn as_str(self) -> &'static str {
        match self {
            ProvisioningState::Creating => "Creating",
            ProvisioningState::Updating => "Updating",
            ProvisioningState::Succeeded => "Succeeded",
            ProvisioningState::Deleting => "Deleting",
            ProvisioningState::Failed => "Failed",
            ProvisioningState::Canceled => "Canceled",
            ProvisioningState::Unknown => "Unknown",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocationState {
    Steady,
    Resizing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AmlCompute {
    pub vm_size: String,
    #[serde(default)]
    pub vm_priority: Option<String>,
    pub scale_settings: ScaleSettingsBody,
    #[serde(default)]
    pub subnet: Option<ResourceRef>,
    #[serde(default)]
    pub remote_login_port_public_access: Option<String>,
    #[serde(default)]
    pub os_type: Option<String>,
    #[serde(default)]
    pub virtual_machine_image: Option<ResourceRef>,
    #[serde(default)]
    pub isolated_network: Option<bool>,
    #[serde(default)]
    pub enable_node_public_ip: Option<bool>,
    #[serde(default)]
    pub user_account_credentials: Option<UserAccountCredentials>,
    #[serde(default)]
    pub allocation_state: Option<AllocationState>,
    #[serde(default)]
    pub allocation_state_transition_time: Option<String>,
    #[serde(default)]
    pub errors: Option<Vec<ErrorBody>>,
    #[serde(default)]
    pub current_node_count: Option<u32>,
    #[serde(default)]
    pub target_node_count: Option<u32>,
    #[serde(default)]
    pub node_state_counts: Option<NodeStateCounts>,
    #[serde(default)]
    pub property_bag: Option<JsonText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleSettingsBody {
    pub min_node_count: u32,
    pub max_node_count: u32,
    #[serde(default)]
    pub node_idle_time_before_scale_down: Option<String>,
    /// Muster's own: absent if the cluster scales up as in Azure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRef {
    #[serde(default)]
    pub id: String,
}

/// Never contains a secret: secrets are not returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserAccountCredentials {
    pub admin_user_name: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStateCounts {
    pub preparing_node_count: u32,
    pub running_node_count: u32,
    pub idle_node_count: u32,
    pub unusable_node_count: u32,
    pub leaving_node_count: u32,
    pub preempted_node_count: u32,
}

/// A cluster.
pub fn resource(facts: &ComputeFacts<'_>) -> ComputeResource {
    envelope(facts, aml_compute(facts))
}

/// The part that all kinds of compute have in common, around the properties of one kind.
pub(super) fn envelope<P>(facts: &ComputeFacts<'_>, properties: P) -> ComputeResource<P> {
    let cluster = facts.cluster;
    let spec = &cluster.spec;
    let identity = spec.identity.as_ref().filter(|identity| has_identity(identity));
    ComputeResource {
        id: format!("{}/computes/{}", workspace_id(facts.workspace), cluster.name),
        name: cluster.name.to_string(),
        resource_type: "Microsoft.MachineLearningServices/workspaces/computes".into(),
        location: Some(spec.location.to_string()),
        tags: Some(with_note(&spec.tags, facts.note)),
        identity: identity.map(|identity| IdentityBody {
            principal_id: facts.identity.map(|(principal, _)| principal.to_owned()),
            tenant_id: facts.identity.map(|(_, tenant)| tenant.to_owned()),
            ..identity_body(identity)
        }),
        properties: ComputeProperties {
            compute_type: kind_word(spec.kind),
            compute_location: Some(spec.location.to_string()),
            provisioning_state: facts.state.unwrap_or_else(|| state_of(cluster.phase)),
            created_on: Some(timestamp::format(cluster.created_at)),
            modified_on: Some(timestamp::format(cluster.modified_at)),
            description: spec.description.as_deref().map(str::to_owned),
            resource_id: None,
            provisioning_errors: None,
            is_attached_compute: false,
            disable_local_auth: spec.disable_local_auth,
            properties,
        },
        system_data: facts
            .created_by
            .map(|by| SystemData::new(cluster.created_at, Some(by), cluster.modified_at)),
    }
}

/// The note is also added to the tags, because Azure's own clients do not show Muster's properties.
pub(crate) fn with_note(
    tags: &BTreeMap<String, String>,
    note: Option<&str>,
) -> BTreeMap<String, String> {
    let note = note.map(|note| (NOTE.to_owned(), note.to_owned()));
    tags.clone().into_iter().chain(note).collect()
}

fn aml_compute(facts: &ComputeFacts<'_>) -> AmlCompute {
    let spec = &facts.cluster.spec;
    let counts = facts.counts;
    let reference = |id: &Option<Box<str>>| id.as_deref().map(|id| ResourceRef { id: id.into() });
    let wanted = [counts.preparing, counts.idle, counts.running];
    let unreferenced = [counts.unusable, counts.leaving];
    let sum = |parts: &[u32]| parts.iter().fold(0, |sum: u32, part| sum.saturating_add(*part));
    let is_resizing = counts.preparing > 0 || counts.leaving > 0;
    let state = if is_resizing { AllocationState::Resizing } else { AllocationState::Steady };
    AmlCompute {
        vm_size: spec.vm_size.to_string(),
        vm_priority: Some(word(&TIERS, spec.tier)),
        scale_settings: ScaleSettingsBody {
            min_node_count: spec.scale.nodes_min,
            max_node_count: spec.scale.nodes_max,
            node_idle_time_before_scale_down: Some(duration::format(spec.scale.idle_time)),
            scale_up: Some(spec.scale.scale_up)
                .filter(|scale_up| *scale_up != ScaleUp::default())
                .map(|scale_up| word(&SCALE_UPS, scale_up)),
        },
        subnet: reference(&spec.subnet),
        remote_login_port_public_access: Some(word(&REMOTE_LOGINS, spec.remote_login)),
        os_type: Some(word(&OS_TYPES, spec.os_type)),
        virtual_machine_image: reference(&spec.virtual_machine_image),
        isolated_network: Some(spec.isolated_network),
        enable_node_public_ip: Some(spec.enable_node_public_ip),
        user_account_credentials: spec
            .admin
            .as_ref()
            .map(|admin| UserAccountCredentials { admin_user_name: admin.user_name.to_string() }),
        allocation_state: Some(state),
        allocation_state_transition_time: Some(timestamp::format(
            facts.resized_at.unwrap_or(facts.cluster.modified_at),
        )),
        errors: errors(&facts.cluster.backoff),
        note: facts.note.map(str::to_owned),
        current_node_count: Some(sum(&wanted).saturating_add(sum(&unreferenced))),
        target_node_count: Some(sum(&wanted)),
        node_state_counts: Some(NodeStateCounts {
            preparing_node_count: counts.preparing,
            running_node_count: counts.running,
            idle_node_count: counts.idle,
            unusable_node_count: counts.unusable,
            leaving_node_count: counts.leaving,
            preempted_node_count: counts.preempted,
        }),
        property_bag: Some(
            spec.property_bag
                .as_deref()
                .and_then(JsonText::new)
                .unwrap_or_else(JsonText::empty_object),
        ),
    }
}

pub(crate) fn state_of(phase: ClusterPhase) -> ProvisioningState {
    match phase {
        ClusterPhase::Creating => ProvisioningState::Creating,
        ClusterPhase::Updating => ProvisioningState::Updating,
        ClusterPhase::Succeeded => ProvisioningState::Succeeded,
        ClusterPhase::Deleting | ClusterPhase::Gone => ProvisioningState::Deleting,
    }
}

pub(super) fn errors(backoff: &Backoff) -> Option<Vec<ErrorBody>> {
    let Backoff { failures, until, last } = backoff;
    (*failures > 0).then(|| {
        let message = format!(
            "nodes fail to start ({failures} times in a row); the next attempt is at {}; the last failure \
             was: {}",
            timestamp::format(*until),
            last.as_deref().unwrap_or("no reason was given")
        );
        vec![ErrorBody { error: ErrorDetail::new("NodeCreationFailed", message) }]
    })
}

fn has_identity(identity: &Identity) -> bool {
    identity.system_assigned || !identity.user_assigned.is_empty()
}

pub(super) fn identity_body(identity: &Identity) -> IdentityBody {
    let kind = match (identity.system_assigned, identity.user_assigned.is_empty()) {
        (false, true) => "None",
        (true, true) => "SystemAssigned",
        (false, false) => "UserAssigned",
        (true, false) => "SystemAssigned,UserAssigned",
    };
    let assigned = identity.user_assigned.iter();
    let assigned: BTreeMap<_, _> =
        assigned.map(|id| (id.clone(), AssignedIdentity::default())).collect();
    IdentityBody {
        kind: kind.to_owned(),
        principal_id: None,
        tenant_id: None,
        user_assigned_identities: Some(assigned).filter(|assigned| !assigned.is_empty()),
    }
}
