use std::collections::{BTreeMap, BTreeSet};

use muster_core::ClusterPatch;
use muster_core::ids::{ClusterId, PrincipalId, WorkspaceId};
use muster_core::model::{
    AdminAccount, Backoff, Cluster, ClusterName, ClusterPhase, ClusterSpec, ComputeKind, Identity,
    LastOperation, OsType, Progress, RemoteLogin, ScaleSettings, Tier, WorkspaceKey,
};
use muster_core::time::{Span, Wall};
use serde_json::{Value, json};

use super::*;
use crate::{ArmError, Page};

pub(crate) mod recorded;

const SUBNET: &str = "/subscriptions/SUB/resourceGroups/RG/providers/Microsoft.Network/\
                      virtualNetworks/v/subnets/s";

fn parse(body: &str) -> Result<ClusterPatch, ArmError> {
    parse_request(body.as_bytes(), &|clear| format!("digest of {} bytes", clear.len()))
}

/// The body that Azure's client sends if the user gives nothing but a name.
fn minimal() -> Value {
    json!({
        "properties": {
            "computeType": "AmlCompute",
            "properties": {
                "vmSize": "STANDARD_DS3_V2",
                "scaleSettings": {
                    "maxNodeCount": 4,
                    "minNodeCount": 0,
                    "nodeIdleTimeBeforeScaleDown": "PT2M",
                },
                "remoteLoginPortPublicAccess": "NotSpecified",
                "enableNodePublicIp": true,
                "osType": "Linux",
            },
            "disableLocalAuth": true,
        },
    })
}

/// The minimal body with the value at `pointer` replaced or added.
fn with(pointer: &str, value: Value) -> String {
    let mut body = minimal();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap()[key] = value;
    body.to_string()
}

/// A patch that says only that the compute is a cluster.
fn bare_patch() -> ClusterPatch {
    ClusterPatch { kind: Some(ComputeKind::Cluster), ..ClusterPatch::default() }
}

fn minimal_patch() -> ClusterPatch {
    ClusterPatch {
        vm_size: Some("STANDARD_DS3_V2".into()),
        nodes_min: Some(0),
        nodes_max: Some(4),
        idle_time: Some(Span::seconds(120)),
        os_type: Some(OsType::Linux),
        remote_login: Some(RemoteLogin::NotSpecified),
        enable_node_public_ip: Some(true),
        disable_local_auth: Some(true),
        ..bare_patch()
    }
}

#[test]
fn the_minimal_body_is_read_without_additions() {
    assert_eq!(parse(&minimal().to_string()).unwrap(), minimal_patch());
    let bare = r#"{"properties":{"computeType":"amlcompute"}}"#;
    assert_eq!(parse(bare).unwrap(), bare_patch());
    let nulls = r#"{"location":null,"tags":null,"identity":null,"properties":{"computeType":"AmlCompute",
        "description":null,"properties":{"vmPriority":null,"scaleSettings":null,"subnet":null,
        "userAccountCredentials":null,"propertyBag":null,"errors":null}}}"#;
    assert_eq!(parse(nulls).unwrap(), bare_patch());
}

#[test]
fn a_patch_may_be_nested_either_way() {
    let parse = |body: &str| parse_patch(body.as_bytes(), &|clear| clear.to_owned());
    let wanted = ClusterPatch { nodes_max: Some(9), nodes_min: Some(1), ..ClusterPatch::default() };
    for body in [
        r#"{"properties":{"scaleSettings":{"maxNodeCount":9,"minNodeCount":1}}}"#,
        r#"{"properties":{"properties":{"scaleSettings":{"maxNodeCount":9,"minNodeCount":1}}}}"#,
        r#"{"properties":{"computeType":"AmlCompute","properties":{"scaleSettings":
            {"maxNodeCount":9,"minNodeCount":1},"subnet":{}}}}"#,
    ] {
        let patch = ClusterPatch { kind: None, ..parse(body).unwrap() };
        assert_eq!(patch, wanted, "{body}");
    }
    assert_eq!(parse("{}").unwrap(), ClusterPatch::default());
    let rest = r#"{"tags":{"a":"b"},"identity":{"type":"None"},"properties":{"description":"d",
        "vmSize":"x","propertyBag":{"a": 1}}}"#;
    let patch = parse(rest).unwrap();
    assert_eq!(patch.tags, Some(BTreeMap::from([("a".into(), "b".into())])));
    assert_eq!((patch.description.as_deref(), patch.vm_size.as_deref()), (Some("d"), Some("x")));
    assert_eq!(patch.property_bag.as_deref(), Some(r#"{"a": 1}"#));
    assert!(patch.identity.is_some());

    for (body, target) in [
        (r#"{"properties":{"scaleSettings":{},"properties":{}}}"#, "properties.scaleSettings"),
        (r#"{"properties":{"computeType":"Databricks"}}"#, "properties.computeType"),
        (
            r#"{"properties":{"scaleSettings":{"maxNodeCount":"9"}}}"#,
            "properties.scaleSettings.maxNodeCount",
        ),
        (r#"{"properties":{"properties":7}}"#, "properties.properties"),
    ] {
        assert_eq!(parse(body).unwrap_err().target(), Some(target), "{body}");
    }
    assert_eq!(parse("").unwrap_err().status, 400);
}

#[test]
fn every_property_is_read() {
    let body = r#"{"location":"westeurope","tags":{"team":"a","none":null},
        "identity":{"type":"SystemAssigned, UserAssigned","userAssignedIdentities":{"/r/i":{},
            "/r/gone":null}},
        "properties":{"description":"d","computeType":"AmlCompute","disableLocalAuth":false,
        "provisioningState":"Succeeded","properties":{"vmSize":"STANDARD_NC6",
        "vmPriority":"LowPriority","userAccountCredentials":{"adminUserName":"u",
        "adminUserPassword":"hunter2","adminUserSshPublicKey":"ssh-rsa AAAA"},
        "scaleSettings":{"maxNodeCount":3,"minNodeCount":1,"nodeIdleTimeBeforeScaleDown":"PT30M",
            "scaleUp":"predictive"},
        "virtualMachineImage":{"id":"/image"},"isolatedNetwork":true,
        "subnet":{"id":"/subscriptions/SUB/resourceGroups/RG/providers/Microsoft.Network/virtualNetworks/v/subnets/s"},
        "remoteLoginPortPublicAccess":"enabled","enableNodePublicIp":false,"osType":"linux",
        "allocationState":"Steady","propertyBag":{ "b": 1.50, "a": [] },"new":{"in":"2030"}}}}"#;
    let wanted = ClusterPatch {
        kind: Some(ComputeKind::Cluster),
        releases_quota_on_stop: None,
        location: Some("westeurope".into()),
        description: Some("d".into()),
        tags: Some(BTreeMap::from([("team".into(), "a".into())])),
        vm_size: Some("STANDARD_NC6".into()),
        tier: Some(Tier::LowPriority),
        nodes_min: Some(1),
        nodes_max: Some(3),
        idle_time: Some(Span::seconds(1_800)),
        scale_up: Some(muster_core::model::ScaleUp::Predictive),
        os_type: Some(OsType::Linux),
        virtual_machine_image: Some("/image".into()),
        isolated_network: Some(true),
        subnet: Some(SUBNET.into()),
        admin: Some(AdminAccount {
            user_name: "u".into(),
            ssh_public_key: Some("ssh-rsa AAAA".into()),
            password_digest: Some("digest of 7 bytes".into()),
        }),
        remote_login: Some(RemoteLogin::Enabled),
        enable_node_public_ip: Some(false),
        disable_local_auth: Some(false),
        identity: Some(Identity {
            system_assigned: true,
            user_assigned: BTreeSet::from(["/r/i".into()]),
        }),
        property_bag: Some(r#"{ "b": 1.50, "a": [] }"#.into()),
        ignored: BTreeSet::from(["properties.properties.new".into()]),
    };
    assert_eq!(parse(body).unwrap(), wanted);
    assert!(!format!("{:?}", parse(body)).contains("hunter2"));
}

#[test]
fn what_clients_write_back_after_reading_is_no_wish_to_change() {
    let inner = "/properties/properties";
    for (pointer, value) in [
        ("/subnet", json!({})),
        ("/subnet", json!({"id": null})),
        ("/subnet", json!({"id": ""})),
        ("/userAccountCredentials", json!({})),
        ("/virtualMachineImage", json!({})),
        ("/propertyBag", json!(null)),
    ] {
        let body = with(&format!("{inner}{pointer}"), value);
        assert_eq!(parse(&body).unwrap(), minimal_patch(), "{body}");
    }
    assert_eq!(parse(&with("/identity", json!({}))).unwrap().identity, None);
    let named =
        with("/properties/properties/userAccountCredentials", json!({"adminUserName": "u"}));
    let admin = parse(&named).unwrap().admin.unwrap();
    assert_eq!((admin.ssh_public_key, admin.password_digest), (None, None));
    assert_eq!(parse(&with("/tags", json!({}))).unwrap().tags, Some(BTreeMap::new()));
}

#[test]
fn the_computes_own_location_wins() {
    let mut body = minimal();
    body["location"] = json!("eastus");
    assert_eq!(parse(&body.to_string()).unwrap().location.as_deref(), Some("eastus"));
    body["properties"]["computeLocation"] = json!("westus");
    assert_eq!(parse(&body.to_string()).unwrap().location.as_deref(), Some("westus"));
}

#[test]
fn tiers_and_identities_are_read_in_every_spelling() {
    let tier = |word: &str| {
        parse(&with("/properties/properties/vmPriority", json!(word))).map(|patch| patch.tier)
    };
    for word in ["Dedicated", "dedicated", "DEDICATED"] {
        assert_eq!(tier(word).unwrap(), Some(Tier::Dedicated), "{word}");
    }
    for word in ["LowPriority", "Lowpriority", "low_priority", "Low-priority", "LOWPRIORITY"] {
        assert_eq!(tier(word).unwrap(), Some(Tier::LowPriority), "{word}");
    }
    let identity = |kind: &str, ids: Value| {
        let body = json!({"type": kind, "userAssignedIdentities": ids});
        parse(&with("/identity", body)).unwrap().identity.unwrap()
    };
    let users = || json!({"/r/i": {"principalId": "3", "clientId": "4"}});
    for (kind, ids, system, user) in [
        ("Systemassigned", json!(null), true, 0),
        ("system_assigned", json!({}), true, 0),
        ("Userassigned", users(), false, 1),
        ("SystemAssigned,UserAssigned", users(), true, 1),
        ("userassigned, systemassigned", users(), true, 1),
        ("None", json!(null), false, 0),
    ] {
        let identity = identity(kind, ids);
        assert_eq!(
            (identity.system_assigned, identity.user_assigned.len()),
            (system, user),
            "{kind}"
        );
    }
}

#[test]
fn a_wrong_value_is_refused_with_its_path_value_and_remedy() {
    let inner = "properties.properties";
    let scale = format!("{inner}.scaleSettings");
    let whole = "give a whole number from 0 to 4294967295, without quotes";
    let cases: Vec<(String, Value, String)> = vec![
        (format!("{scale}.maxNodeCount"), json!("4"), format!("\"4\" (a string); {whole}")),
        (format!("{scale}.maxNodeCount"), json!(1.5), format!("1.5 (a number); {whole}")),
        (format!("{scale}.minNodeCount"), json!(-1), format!("-1 (a number); {whole}")),
        (
            format!("{scale}.maxNodeCount"),
            json!(4_294_967_296u64),
            format!("4294967296 (a number); {whole}"),
        ),
        (
            format!("{scale}.nodeIdleTimeBeforeScaleDown"),
            json!(120),
            "120 (a number); give a string".into(),
        ),
        (
            format!("{inner}.vmPriority"),
            json!("Spot"),
            "'Spot'; give 'Dedicated' or 'LowPriority'".into(),
        ),
        (format!("{inner}.vmPriority"), json!(""), "''; give 'Dedicated'".into()),
        (format!("{inner}.osType"), json!("BeOS"), "'BeOS'; give 'Linux' or 'Windows'".into()),
        (
            format!("{inner}.remoteLoginPortPublicAccess"),
            json!("Maybe"),
            "'Maybe'; give 'Enabled', 'Disabled' or 'NotSpecified'".into(),
        ),
        (
            format!("{inner}.enableNodePublicIp"),
            json!("true"),
            "\"true\" (a string); give true or false".into(),
        ),
        (format!("{inner}.scaleSettings"), json!([1]), "an array; give a JSON object".into()),
        (format!("{inner}.propertyBag"), json!("x"), "\"x\" (a string); give a JSON object".into()),
        ("tags".into(), json!(["a"]), "an array; give a JSON object".into()),
        ("tags.a".into(), json!(1), "1 (a number); give a string".into()),
        ("identity.type".into(), json!("Both"), "'Both'; give 'None', 'SystemAssigned'".into()),
        ("location".into(), json!(true), "true (a boolean); give a string".into()),
    ];
    for (path, value, words) in cases {
        let pointer = format!("/{}", path.replace('.', "/"));
        let mut body = minimal();
        body["tags"] = json!({});
        body["identity"] = json!({});
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[key] = value;
        let error = parse(&body.to_string()).unwrap_err();
        assert_eq!((error.status, error.code()), (400, "InvalidPropertyValue"), "{path}");
        assert_eq!(error.target(), Some(path.as_str()));
        let message = &error.body.error.message;
        assert!(message.starts_with(&format!("{path} is {words}")), "{message}");
    }
}

#[test]
fn a_wrong_duration_is_refused_with_its_value() {
    for text in ["-PT2M", "P1Y", "two minutes", "", "PT99999999999999999H"] {
        let pointer = "/properties/properties/scaleSettings/nodeIdleTimeBeforeScaleDown";
        let error = parse(&with(pointer, json!(text))).unwrap_err();
        assert_eq!(error.target(), Some(&pointer[1..].replace('/', ".")[..]), "{text}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn identities_must_agree_with_their_type() {
    let users = || json!({"/r/i": {}});
    for (body, target) in [
        (json!({"type": "UserAssigned"}), "identity.userAssignedIdentities"),
        (
            json!({"type": "UserAssigned", "userAssignedIdentities": {"/r/i": null}}),
            "identity.userAssignedIdentities",
        ),
        (
            json!({"type": "SystemAssigned", "userAssignedIdentities": users()}),
            "identity.userAssignedIdentities",
        ),
        (json!({"userAssignedIdentities": users()}), "identity.type"),
        (
            json!({"type": "UserAssigned", "userAssignedIdentities": {"/r/i": 1}}),
            "identity.userAssignedIdentities./r/i",
        ),
    ] {
        let error = parse(&with("/identity", body.clone())).unwrap_err();
        assert_eq!(error.target(), Some(target), "{body}");
    }
}

#[test]
fn a_subnet_is_a_subnets_id() {
    let nested = SUBNET.replace("/v/subnets/s", &format!("/None/subnets/{SUBNET}"));
    let bad = [
        "s",
        "/subscriptions/SUB",
        &SUBNET.replace("/v/", "/None/"),
        &SUBNET.replace("/v/", "//"),
        &SUBNET.replace("Microsoft.Network", "Microsoft.Compute"),
        &format!("{SUBNET}/x"),
        &nested,
    ];
    for id in bad {
        let error = parse(&with("/properties/properties/subnet", json!({ "id": id }))).unwrap_err();
        assert_eq!(error.target(), Some("properties.properties.subnet.id"), "{id}");
    }
    for id in [SUBNET.to_owned(), SUBNET.to_ascii_uppercase(), SUBNET[1..].to_owned()] {
        let patch = parse(&with("/properties/properties/subnet", json!({ "id": id }))).unwrap();
        assert_eq!(patch.subnet.as_deref(), Some(id.as_str()));
    }
}

#[test]
fn other_computes_are_refused_as_not_supported_yet() {
    for kind in ["Kubernetes", "VirtualMachine", "Databricks", "nonsense"] {
        let error = parse(&with("/properties/computeType", json!(kind))).unwrap_err();
        assert_eq!((error.status, error.code()), (400, "NotSupported"));
        assert_eq!(error.target(), Some("properties.computeType"));
        assert!(
            error.to_string().contains(kind) && error.to_string().contains("not supported yet")
        );
    }
    for body in ["{}", r#"{"properties":null}"#, r#"{"properties":{"properties":{}}}"#] {
        let error = parse(body).unwrap_err();
        assert_eq!(error.target(), Some("properties.computeType"), "{body}");
    }
    let error = parse(r#"{"properties":[]}"#).unwrap_err();
    assert_eq!(error.target(), Some("properties"));
}

#[test]
fn secrets_are_never_repeated() {
    let at = "/properties/properties/userAccountCredentials";
    for (body, target) in [
        (json!({"adminUserPassword": "hunter2"}), "adminUserName"),
        (json!({"adminUserName": 5, "adminUserPassword": "hunter2"}), "adminUserName"),
        (json!({"adminUserName": "u", "adminUserPassword": ["hunter2"]}), "adminUserPassword"),
        (json!({"adminUserName": "u", "adminUserPassword": ""}), "adminUserPassword"),
    ] {
        let error = parse(&with(at, body)).unwrap_err();
        let wanted = format!("properties.properties.userAccountCredentials.{target}");
        assert_eq!(error.target(), Some(wanted.as_str()));
        assert!(!error.to_json().contains("hunter2"), "{error}");
    }
}

#[test]
fn a_body_has_a_limit() {
    let body = with("/properties/description", json!("x".repeat(BODY_BYTES_MAX)));
    assert_eq!(parse(&body).unwrap_err().status, 413);
}
