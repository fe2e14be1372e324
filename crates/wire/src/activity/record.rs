//! The state of an entity as text in a record of the log, with only the properties that users know.

use std::collections::BTreeMap;

use muster_core::ClusterPatch;
use muster_core::cluster_properties::Changes;
use muster_core::model::{ClusterPhase, ClusterSpec, Record};
use muster_core::refusal::{ClusterProperty, Field};
use serde_json::{Map, Value, json};

use crate::compute::properties;
use crate::{lock, spelling, timestamp};

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

/// Every property that can change, and the others that people look for, without envelopes.
fn compute(phase: ClusterPhase, spec: &ClusterSpec) -> Map<String, Value> {
    let wanted = ClusterPatch::of(spec);
    let mut shown = Map::new();
    let state = crate::compute::state_of(phase);
    shown.insert("provisioningState".to_owned(), json!(state));
    for property in ClusterProperty::ALL {
        let value = match property {
            ClusterProperty::Subnet => json!(spec.subnet),
            ClusterProperty::Admin => {
                let name = spec.admin.as_ref().map(|admin| &*admin.user_name);
                shown.insert(spelling::name(Field::AdminUserName).to_owned(), json!(name));
                continue;
            }
            ClusterProperty::Identity => {
                let identity = spec.identity.as_ref();
                let is_system = identity.is_some_and(|identity| identity.system_assigned);
                let assigned = identity.map(|identity| &identity.user_assigned);
                shown.insert("systemAssignedIdentity".to_owned(), json!(is_system));
                let assigned = json!(assigned.into_iter().flatten().collect::<Vec<_>>());
                shown.insert("userAssignedIdentities".to_owned(), assigned);
                continue;
            }
            ClusterProperty::ScaleUp => json!(spec.scale.scale_up.as_str()),
            ClusterProperty::Location | ClusterProperty::VmSize | ClusterProperty::Tier => {
                properties::write(*property, &wanted, None)
            }
            other if other.changes() == Changes::Always => {
                properties::write(*property, &wanted, None)
            }
            _ => continue,
        };
        shown.insert(spelling::name((*property).into()).to_owned(), value);
    }
    shown
}

#[cfg(test)]
mod tests {
    use muster_core::model::ComputeKind;

    use super::*;

    #[test]
    fn the_record_of_a_cluster_has_what_people_know() {
        let spec = ClusterSpec::new(ComputeKind::Cluster, "eastus");
        let record = Record::Compute { phase: ClusterPhase::Succeeded, spec: spec.into() };
        let found: Value = serde_json::from_str(&text(&record)).unwrap();
        let wanted = json!({
            "location": "eastus", "provisioningState": "Succeeded", "vmSize": "STANDARD_DS3_V2",
            "vmPriority": "Dedicated", "minNodeCount": 0, "maxNodeCount": 4,
            "nodeIdleTimeBeforeScaleDown": "PT2M", "scaleUp": "immediate", "description": null,
            "tags": {}, "subnet": null, "adminUserName": null, "systemAssignedIdentity": false,
            "userAssignedIdentities": [],
        });
        assert_eq!(found, wanted);
    }

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
