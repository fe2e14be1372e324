//! Computes in Azure's API: AmlCompute and ComputeInstance.
//!
//! [`parse_request`] reads the body of a PUT, [`request_json`] writes one, [`parse_patch`] reads the body of a PATCH,
//! [`document`] is the response to PUT, PATCH and GET, and [`nodes`] the response to `listNodes`. A client reads either
//! kind as a [`SeenCompute`].

mod eviction;
mod instance;
mod nodes;
pub(crate) mod properties;
mod request;
mod resource;
mod seen;
mod v1;

pub use eviction::Eviction;
pub use instance::{ComputeDocument, InstanceProperties, document};
pub(crate) use nodes::state as node_state;
pub(crate) use nodes::trouble;
pub use nodes::{NodeFacts, NodeInfo, NodeList, NodeState, NodeUse, nodes};
pub use request::{BODY_BYTES_MAX, parse_patch, parse_request, request_json};
pub(crate) use request::{request_value, tags_of, without_nulls};
pub use resource::{
    AllocationState, AmlCompute, AssignedIdentity, ComputeFacts, ComputeProperties,
    ComputeResource, IdentityBody, NodeCounts, NodeStateCounts, ProvisioningState, ResourceRef,
    ScaleSettingsBody, UserAccountCredentials, resource,
};
pub(crate) use resource::{state_of, with_note};

pub use seen::{Seen, SeenCompute, SeenOperation, SeenSsh};
pub use v1::{V1Compute, V1Computes, v1_document};

use muster_core::model::{ComputeKind, OsType, RemoteLogin, ScaleUp, Tier};

/// Clusters, and compute instances, which their owner starts and stops.
pub const KINDS: [(&str, ComputeKind); 2] =
    [("AmlCompute", ComputeKind::Cluster), ("ComputeInstance", ComputeKind::Instance)];

/// Azure's name for a kind of compute. The cluster of a serverless job is shown as a cluster, although no client can
/// request one.
pub fn kind_word(kind: ComputeKind) -> String {
    let kind = match kind {
        ComputeKind::Cluster | ComputeKind::Serverless => ComputeKind::Cluster,
        ComputeKind::Instance => ComputeKind::Instance,
    };
    word(&KINDS, kind)
}

/// Muster's own setting, which Azure's clients do not use.
const SCALE_UPS: [(&str, ScaleUp); 2] =
    [("Immediate", ScaleUp::Immediate), ("Predictive", ScaleUp::Predictive)];
const TIERS: [(&str, Tier); 2] =
    [("Dedicated", Tier::Dedicated), ("LowPriority", Tier::LowPriority)];
const OS_TYPES: [(&str, OsType); 2] = [("Linux", OsType::Linux), ("Windows", OsType::Windows)];
const REMOTE_LOGINS: [(&str, RemoteLogin); 3] = [
    ("Enabled", RemoteLogin::Enabled),
    ("Disabled", RemoteLogin::Disabled),
    ("NotSpecified", RemoteLogin::NotSpecified),
];

fn word<T: Copy + PartialEq>(words: &[(&'static str, T)], value: T) -> String {
    let found = words.iter().find(|(_, known)| *known == value);
    found.map(|(word, _)| (*word).to_owned()).expect("the tables above contain every value")
}

#[cfg(test)]
pub(crate) mod tests;
