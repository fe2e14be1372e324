//! The state of an entity as text in a record of the log, with only the properties that users know.

use std::collections::BTreeMap;

use muster_core::model::{ClusterPhase, ClusterSpec, Record};
use serde::Serialize;

use crate::{duration, lock, timestamp};

pub(super) fn text(record: &Record) -> String {
    match record {
        Record::Compute { phase, spec } => crate::to_json(&compute(*phase, spec)),
        Record::Workspace { location, about, is_deleting } => crate::to_json(&serde_json::json!({
            "location": location,
            "friendlyName": about.friendly_name,
            "description": about.description,
            "tags": about.tags,
            "provisioningState": if *is_deleting { "Deleting" } else { "Succeeded" },
        })),
        Record::Group(group) => crate::to_json(&serde_json::json!({
            "location": group.location,
            "tags": group.tags,
            "provisioningState": if group.deletion.is_some() { "Deleting" } else { "Succeeded" },
        })),
        Record::Lock(found) => crate::to_json(&lock::document(found).properties),
        Record::Quota(quota) => {
            let limits: BTreeMap<String, u64> =
                quota.limits.iter().map(|(name, limit)| (name.to_string(), *limit)).collect();
            crate::to_json(
                &serde_json::json!({ "location": quota.scope.location, "limits": limits }),
            )
        }
        Record::User { name, kind, key_made_at } => crate::to_json(&serde_json::json!({
            "name": name,
            "principalType": kind.as_str(),
            "keyMadeOn": key_made_at.map(timestamp::format),
        })),
        Record::Role(role) => crate::to_json(&serde_json::json!({
            "principalId": role.object_id,
            "roleName": role.role.as_str(),
            "scope": role.scope.to_string(),
        })),
        Record::Host { name, capacity, intent, state } => crate::to_json(&serde_json::json!({
            "name": name.as_str(),
            "state": state.as_str(),
            "vCPUs": capacity.vcpus,
            "memoryMB": capacity.memory_mb,
            "gpus": capacity.gpus,
            "pool": intent.to_string(),
        })),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Compute<'a> {
    location: &'a str,
    provisioning_state: crate::compute::ProvisioningState,
    vm_size: &'a str,
    vm_priority: String,
    min_node_count: u32,
    max_node_count: u32,
    node_idle_time_before_scale_down: String,
    scale_up: &'a str,
    description: Option<&'a str>,
    tags: &'a BTreeMap<String, String>,
    subnet: Option<&'a str>,
    admin_user_name: Option<&'a str>,
    system_assigned_identity: bool,
    user_assigned_identities: Vec<&'a str>,
}

fn compute(phase: ClusterPhase, spec: &ClusterSpec) -> Compute<'_> {
    let identity = spec.identity.as_ref();
    Compute {
        location: &spec.location,
        provisioning_state: crate::compute::state_of(phase),
        vm_size: &spec.vm_size,
        vm_priority: format!("{:?}", spec.tier),
        min_node_count: spec.scale.nodes_min,
        max_node_count: spec.scale.nodes_max,
        node_idle_time_before_scale_down: duration::format(spec.scale.idle_time),
        scale_up: spec.scale.scale_up.as_str(),
        description: spec.description.as_deref(),
        tags: &spec.tags,
        subnet: spec.subnet.as_deref(),
        admin_user_name: spec.admin.as_ref().map(|admin| &*admin.user_name),
        system_assigned_identity: identity.is_some_and(|identity| identity.system_assigned),
        user_assigned_identities: identity
            .map(|identity| identity.user_assigned.iter().map(String::as_str).collect())
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::cluster_properties::Changes;
    use muster_core::model::ComputeKind;

    use super::*;

    /// The log has the state before and after a change, so whatever can change must be in it.
    #[test]
    fn every_property_that_can_change_is_recorded() {
        let record = |spec| text(&Record::Compute { phase: ClusterPhase::Succeeded, spec });
        let bare = ClusterSpec::new(ComputeKind::Cluster, "eastus");
        for (property, spec) in crate::compute::properties::tests::specs() {
            if property.changes() == Changes::Always {
                assert_ne!(record(spec.into()), record(bare.clone().into()), "{property:?}");
            }
        }
    }
}
