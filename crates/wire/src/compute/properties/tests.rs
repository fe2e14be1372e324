//! Every property of the table is read, written, shown and recorded, and does what the table says.

use muster_core::cluster_properties::Effect;
use muster_core::model::{Cluster, ComputeKind, WorkspaceKey};

use super::*;
use crate::compute::{
    ComputeFacts, NodeCounts, document, parse_patch, parse_request, request_json,
};

/// A value other than the default.
fn sample(property: ClusterProperty) -> Value {
    let subnet =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/n";
    match property {
        ClusterProperty::Kind => json!("ComputeInstance"),
        ClusterProperty::ReleasesQuotaOnStop
        | ClusterProperty::IsolatedNetwork
        | ClusterProperty::DisableLocalAuth => json!(true),
        ClusterProperty::EnableNodePublicIp => json!(false),
        ClusterProperty::VmSize | ClusterProperty::Description => json!("other"),
        ClusterProperty::Location => json!("westus"),
        ClusterProperty::Tags => json!({ "a": "b" }),
        ClusterProperty::Tier => json!("LowPriority"),
        ClusterProperty::NodesMin | ClusterProperty::NodesMax => json!(9),
        ClusterProperty::IdleTime => json!("PT7S"),
        ClusterProperty::ScaleUp => json!("Predictive"),
        ClusterProperty::OsType => json!("Windows"),
        ClusterProperty::VirtualMachineImage => json!({ "id": "i" }),
        ClusterProperty::Subnet => json!({ "id": subnet }),
        ClusterProperty::Admin => json!({ "adminUserName": "ada" }),
        ClusterProperty::RemoteLogin => json!("Enabled"),
        ClusterProperty::Identity => json!({ "type": "SystemAssigned" }),
        ClusterProperty::PropertyBag => json!({ "b": { "c": 1 } }),
    }
}

fn body(property: ClusterProperty) -> String {
    let mut body = json!({ "properties": { "computeType": "AmlCompute" } });
    let at = place(property).split('.').fold(&mut body, |at, key| &mut at[key]);
    *at = sample(property);
    body.to_string()
}

fn requested(property: ClusterProperty) -> ClusterPatch {
    parse_request(body(property).as_bytes(), &|_| String::new()).unwrap()
}

fn bare() -> ClusterSpec {
    ClusterSpec::new(ComputeKind::Cluster, "eastus")
}

/// A cluster that differs from the default in one property.
pub(crate) fn specs() -> impl Iterator<Item = (ClusterProperty, ClusterSpec)> {
    ClusterProperty::ALL.iter().map(|property| {
        let mut spec = bare();
        spec.set(*property, &requested(*property));
        assert_ne!(spec, bare(), "{property:?}");
        (*property, spec)
    })
}

fn shown(spec: ClusterSpec) -> Value {
    let cluster = Cluster { spec, ..crate::compute::tests::recorded::cluster() };
    let facts = ComputeFacts {
        workspace: &WorkspaceKey::new("s", "g", "w"),
        cluster: &cluster,
        counts: NodeCounts::default(),
        created_by: None,
        creator_id: None,
        identity: None,
        state: None,
        resized_at: None,
        note: None,
    };
    serde_json::to_value(document(&facts)).unwrap()
}

#[test]
fn every_property_is_read_at_its_place_and_written_back() {
    for property in ClusterProperty::ALL {
        let patch = requested(*property);
        assert_eq!(patch.ignored.len(), 0, "{:?}", patch.ignored);
        for other in ClusterProperty::ALL {
            let is_asked = other == property || *other == ClusterProperty::Kind;
            assert_eq!(patch.gives(*other), is_asked, "{property:?} {other:?}");
        }
        let written = request_json(&patch, None);
        let again = parse_request(written.as_bytes(), &|_| String::new()).unwrap();
        assert_eq!(again, patch, "{property:?}");
        // Clients of an old version of the API leave out the inner envelope of a patch.
        let mut flat: Value = serde_json::from_str(&body(*property)).unwrap();
        let inner = flat["properties"].as_object_mut().unwrap().remove("properties");
        for (key, value) in inner.iter().filter_map(Value::as_object).flatten() {
            flat["properties"][key] = value.clone();
        }
        let flat = parse_patch(flat.to_string().as_bytes(), &|_| String::new()).unwrap();
        assert_eq!(flat, patch, "{property:?}");
    }
}

#[test]
fn every_property_is_shown() {
    for (property, spec) in specs() {
        let kind = match property {
            // Clusters do not stop.
            ClusterProperty::ReleasesQuotaOnStop => ComputeKind::Instance,
            _ => spec.kind,
        };
        let plain = ClusterSpec { kind, ..bare() };
        let before = if property == ClusterProperty::Kind { bare() } else { plain };
        let after = ClusterSpec { kind, ..spec };
        assert_ne!(shown(after), shown(before), "{property:?} is not shown");
    }
}

#[test]
fn a_property_without_effect_has_a_note_and_no_other_has() {
    for (property, spec) in specs() {
        let notes = crate::notes::of_cluster(&spec);
        assert_eq!(property.effect() == Effect::Noted, notes.len() == 1, "{property:?}: {notes:?}");
    }
    assert_eq!(crate::notes::of_cluster(&bare()), [""; 0]);
}
