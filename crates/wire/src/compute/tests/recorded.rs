//! The responses, and bodies that real clients and Azure itself have sent.

use std::path::PathBuf;

use serde::Deserialize;

use super::*;

pub(crate) fn cluster() -> Cluster {
    Cluster {
        id: ClusterId(1),
        workspace: WorkspaceId(1),
        name: ClusterName::new("cpu-cluster").unwrap(),
        spec: ClusterSpec {
            vm_size: "STANDARD_DS3_v2".into(),
            disable_local_auth: true,
            ..ClusterSpec::new(ComputeKind::Cluster, "westus")
        },
        phase: ClusterPhase::Succeeded,
        operation: None,
        created_at: Wall(1_794_772_332_000_000),
        created_by: PrincipalId(1),
        modified_at: Wall(1_794_772_333_000_000),
        backoff: Backoff::default(),
        capacity: Default::default(),
        family: "standardDSv2Family".into(),
        rest: Default::default(),
        boot: None,
        last: None,
    }
}

fn shown(cluster: &Cluster, counts: NodeCounts) -> ComputeResource {
    let workspace = WorkspaceKey::new("s1", "rg1", "ws1");
    resource(&ComputeFacts {
        workspace: &workspace,
        cluster,
        counts,
        created_by: None,
        creator_id: None,
        identity: None,
        state: None,
        resized_at: None,
        note: None,
    })
}

#[test]
fn a_plain_cluster_has_exactly_azures_shape() {
    let text = crate::to_json(&shown(&cluster(), NodeCounts::default()));
    let wanted = json!({
        "id": "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.MachineLearningServices/\
               workspaces/ws1/computes/cpu-cluster",
        "name": "cpu-cluster",
        "type": "Microsoft.MachineLearningServices/workspaces/computes",
        "location": "westus",
        "tags": {},
        "properties": {
            "createdOn": "2026-11-15T19:52:12Z",
            "modifiedOn": "2026-11-15T19:52:13Z",
            "disableLocalAuth": true,
            "description": null,
            "resourceId": null,
            "computeType": "AmlCompute",
            "computeLocation": "westus",
            "provisioningState": "Succeeded",
            "provisioningErrors": null,
            "isAttachedCompute": false,
            "properties": {
                "vmSize": "STANDARD_DS3_v2",
                "vmPriority": "Dedicated",
                "scaleSettings": {
                    "maxNodeCount": 4,
                    "minNodeCount": 0,
                    "nodeIdleTimeBeforeScaleDown": "PT2M",
                },
                "subnet": null,
                "currentNodeCount": 0,
                "targetNodeCount": 0,
                "nodeStateCounts": {
                    "preparingNodeCount": 0,
                    "runningNodeCount": 0,
                    "idleNodeCount": 0,
                    "unusableNodeCount": 0,
                    "leavingNodeCount": 0,
                    "preemptedNodeCount": 0,
                },
                "allocationState": "Steady",
                "allocationStateTransitionTime": "2026-11-15T19:52:13Z",
                "errors": null,
                "remoteLoginPortPublicAccess": "NotSpecified",
                "osType": "Linux",
                "virtualMachineImage": null,
                "isolatedNetwork": false,
                "enableNodePublicIp": true,
                "userAccountCredentials": null,
                "propertyBag": {},
            },
        },
    });
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), wanted);
}

#[test]
fn a_full_cluster_shows_everything_but_its_secrets() {
    let mut cluster = cluster();
    cluster.spec.tier = Tier::LowPriority;
    cluster.spec.subnet = Some(SUBNET.into());
    cluster.spec.property_bag = Some(r#"{ "x": 1.50 }"#.into());
    cluster.spec.identity =
        Some(Identity { system_assigned: true, user_assigned: BTreeSet::from(["/r/i".into()]) });
    cluster.spec.admin = Some(AdminAccount {
        user_name: "u".into(),
        ssh_public_key: Some("ssh-rsa AAAA".into()),
        password_digest: Some("digest".into()),
    });
    cluster.phase = ClusterPhase::Updating;
    cluster.backoff = Backoff { failures: 3, until: Wall(0), last: None };
    let counts =
        NodeCounts { preparing: 1, idle: 2, running: 3, unusable: 4, leaving: 5, preempted: 6 };
    let shown = shown(&cluster, counts);
    let text = crate::to_json(&Page::new(vec![shown.clone()], Some("https://next".into())));
    assert!(!text.contains("digest") && !text.contains("ssh-rsa"), "{text}");
    for part in [
        r#""userAccountCredentials":{"adminUserName":"u"}"#,
        r#""propertyBag":{ "x": 1.50 }"#,
        r#""identity":{"type":"SystemAssigned,UserAssigned","userAssignedIdentities":{"/r/i":{}}}"#,
        r#""vmPriority":"LowPriority""#,
        r#""provisioningState":"Updating""#,
        r#""allocationState":"Resizing""#,
        r#""currentNodeCount":15,"targetNodeCount":6"#,
        r#""errors":[{"error":{"code":"NodeCreationFailed""#,
        r#""nextLink":"https://next""#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let read: Page<ComputeResource> = crate::from_json(text.as_bytes()).unwrap();
    assert_eq!(read.value, [shown]);
}

#[test]
fn what_is_shown_can_be_written_back() {
    let mut cluster = cluster();
    cluster.spec.subnet = Some(SUBNET.into());
    cluster.spec.admin = Some(AdminAccount {
        user_name: "u".into(),
        ssh_public_key: None,
        password_digest: Some("digest".into()),
    });
    let patch = parse(&crate::to_json(&shown(&cluster, NodeCounts::default()))).unwrap();
    assert_eq!(patch.subnet.as_deref(), Some(SUBNET));
    assert_eq!(patch.location.as_deref(), Some("westus"));
    assert_eq!(patch.tier, Some(Tier::Dedicated));
    assert_eq!(patch.admin.unwrap().password_digest, None);
    assert_eq!(patch.property_bag.as_deref(), Some("{}"));
}

#[test]
fn a_state_can_be_shown_in_place_of_the_phase() {
    let workspace = WorkspaceKey::new("s1", "rg1", "ws1");
    let cluster = cluster();
    let resource = resource(&ComputeFacts {
        workspace: &workspace,
        cluster: &cluster,
        counts: NodeCounts::default(),
        created_by: Some("ada"),
        creator_id: None,
        identity: None,
        state: Some(ProvisioningState::Failed),
        resized_at: Some(Wall(0)),
        note: None,
    });
    assert_eq!(resource.properties.provisioning_state, ProvisioningState::Failed);
    assert_eq!(resource.system_data.unwrap().created_by.as_deref(), Some("ada"));
    let transition = resource.properties.properties.allocation_state_transition_time;
    assert_eq!(transition.as_deref(), Some("1970-01-01T00:00:00Z"));
}

#[test]
fn a_wish_is_written_as_it_is_read() {
    let mut patch = minimal_patch();
    patch.tier = Some(Tier::LowPriority);
    patch.tags = Some(BTreeMap::from([("a".into(), "b".into())]));
    patch.subnet = Some(SUBNET.into());
    patch.identity = Some(Identity { system_assigned: false, user_assigned: BTreeSet::new() });
    patch.property_bag = Some(r#"{"a":1}"#.into());
    patch.admin = Some(AdminAccount {
        user_name: "u".into(),
        ssh_public_key: Some("k".into()),
        password_digest: Some("digest of 2 bytes".into()),
    });
    assert_eq!(parse(&request_json(&patch, Some("pw"))).unwrap(), patch);
    let empty = bare_patch();
    let text = request_json(&empty, None);
    assert!(!text.contains("null"), "{text}");
    assert_eq!(parse(&text).unwrap(), empty);
}

fn shared(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path)
}

/// What each form of the client's entity means. A form that is not named here means the minimal cluster.
fn meaning(form: &str) -> Result<ClusterPatch, &'static str> {
    let mut patch = minimal_patch();
    if let Some(idle) = form.strip_prefix("idle=") {
        patch.idle_time = match idle {
            "0" | "None" => None,
            "'120'" | "120.5" => Some(Span::seconds(120)),
            seconds => Some(Span::seconds(seconds.parse().unwrap())),
        };
    }
    match form {
        "tier='Dedicated'" | "tier='dedicated'" | "yaml tier Dedicated" => {
            patch.tier = Some(Tier::Dedicated);
        }
        "tier='Spot'" => return Err("properties.properties.vmPriority"),
        "tier=None" | "tier=''" => {}
        form if form.starts_with("tier=") => patch.tier = Some(Tier::LowPriority),
        "net names" => patch.subnet = Some(SUBNET.into()),
        "net arm id" | "net subnet only" => return Err("properties.properties.subnet.id"),
        "ssh" => {
            patch.admin = Some(AdminAccount {
                user_name: "u".into(),
                ssh_public_key: Some("ssh-rsa AAA".into()),
                password_digest: Some("digest of 1 bytes".into()),
            });
            patch.remote_login = Some(RemoteLogin::Enabled);
            patch.disable_local_auth = Some(false);
        }
        "ssh off" => patch.remote_login = Some(RemoteLogin::Disabled),
        form if form.starts_with("ident") => patch.identity = Some(identity_meaning(form)),
        "npip" => {
            patch.location = Some("x".into());
            patch.description = Some("d".into());
            patch.tags = Some(BTreeMap::from([("a".into(), "b".into())]));
            patch.enable_node_public_ip = Some(false);
        }
        "min>max" => (patch.nodes_min, patch.nodes_max) = (Some(5), Some(2)),
        "neg" => return Err("properties.properties.scaleSettings.minNodeCount"),
        "str" => return Err("properties.properties.scaleSettings.maxNodeCount"),
        "max None" => (patch.nodes_min, patch.nodes_max) = (None, None),
        "yaml ok" => {
            patch.vm_size = Some("STANDARD_DS3_v2".into());
            patch.tier = Some(Tier::LowPriority);
            patch.nodes_max = Some(2);
        }
        "yaml net+ident+ssh" => {
            patch.location = Some("eastus".into());
            patch.tags = Some(BTreeMap::from([("a".into(), "b".into())]));
            patch.subnet = Some(SUBNET.into());
            patch.identity =
                Some(Identity { system_assigned: true, user_assigned: BTreeSet::new() });
            patch.admin = Some(AdminAccount {
                user_name: "u".into(),
                ssh_public_key: Some("k".into()),
                password_digest: None,
            });
            patch.remote_login = Some(RemoteLogin::Enabled);
            patch.enable_node_public_ip = Some(false);
            patch.disable_local_auth = Some(false);
        }
        _ => {}
    }
    Ok(patch)
}

fn identity_meaning(form: &str) -> Identity {
    const LONG: &str = "/subscriptions/s/resourcegroups/r/providers/Microsoft.ManagedIdentity/\
                        userAssignedIdentities/i";
    let (system_assigned, id) = match form {
        "idents" | "ident sys" => (true, None),
        "ident user" => (false, Some(LONG)),
        "ident UserAssigned" => (false, Some("/r/i")),
        "ident both" => (true, Some("/r/i")),
        other => panic!("the meaning of {other} is unknown"),
    };
    Identity { system_assigned, user_assigned: id.into_iter().map(str::to_owned).collect() }
}

#[test]
fn every_form_of_the_clients_entity_means_what_its_user_meant() {
    let path = shared("wire/v2/amlcompute_entity_matrix.txt");
    // Recorded next to the repository; the bodies above are always available.
    let Ok(matrix) = std::fs::read_to_string(path) else { return };
    let mut forms = 0;
    for line in matrix.lines() {
        let Some((form, body)) = line.split_once(" => {") else { continue };
        let parsed = parse(&format!("{{{body}"));
        match meaning(form) {
            Ok(patch) => assert_eq!(parsed.unwrap(), patch, "{form}"),
            Err(target) => assert_eq!(parsed.unwrap_err().target(), Some(target), "{form}"),
        }
        forms += 1;
    }
    assert!(forms > 45, "only {forms} forms were found");
}

/// A recorded exchange, in either of the two layouts.
#[derive(Deserialize)]
struct Exchange {
    #[serde(default)]
    request: Option<Half>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    uri: Option<String>,
    #[serde(default)]
    body: Option<Value>,
    #[serde(default)]
    response: Value,
}

#[derive(Deserialize)]
struct Half {
    method: String,
    path: String,
    #[serde(default)]
    body: Option<Value>,
}

#[test]
fn recorded_bodies_and_answers_are_read() {
    let mut count = 0;
    for folder in ["wire/v2", "wire/azure-recorded"] {
        let Ok(entries) = std::fs::read_dir(shared(folder)) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let is_compute = path.file_name().unwrap().to_string_lossy().contains("compute");
            if !is_compute || path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let exchanges: Vec<Exchange> = serde_json::from_str(&text).unwrap();
            count += exchanges.iter().filter(|exchange| check_exchange(exchange)).count();
        }
    }
    assert!(count == 0 || count > 20, "only {count} recorded exchanges were found");
}

/// Returns whether the exchange was about the resource of a cluster.
fn check_exchange(exchange: &Exchange) -> bool {
    let (method, place, sent) = match &exchange.request {
        Some(half) => (half.method.clone(), half.path.clone(), half.body.clone()),
        None => (
            exchange.method.clone().unwrap_or_default(),
            exchange.uri.clone().unwrap_or_default(),
            exchange.body.clone(),
        ),
    };
    if !place.contains("/computes/") || place.contains("/listNodes") {
        return false;
    }
    let is_aml = |body: &Value| body["properties"]["computeType"] == "AmlCompute";
    if let Some(body) = sent.filter(|body| method == "PUT" && is_aml(body)) {
        let patch = parse(&body.to_string()).unwrap();
        let max = body["properties"]["properties"]["scaleSettings"]["maxNodeCount"].as_u64();
        assert_eq!(patch.nodes_max.map(u64::from), max);
    }
    let answer = exchange.response.get("body").unwrap_or(&exchange.response);
    if !is_aml(answer) {
        return false;
    }
    let read: ComputeResource = crate::from_json(answer.to_string().as_bytes()).unwrap();
    assert_eq!(Some(read.name.as_str()), answer["name"].as_str());
    true
}

/// The keys that a real instance has, from the recording of a running one.
#[test]
fn an_instance_has_azures_keys_and_no_made_up_address() {
    let mut one = cluster();
    one.spec.kind = ComputeKind::Instance;
    one.spec.scale = ScaleSettings::of_instance(true);
    let at = Wall(1_794_772_332_000_000);
    one.last = Some(LastOperation { power: None, at, progress: Progress::Done });
    let workspace = WorkspaceKey::new("s1", "rg1", "ws1");
    let shown = document(&ComputeFacts {
        workspace: &workspace,
        cluster: &one,
        counts: NodeCounts { idle: 1, ..NodeCounts::default() },
        created_by: Some("ada"),
        creator_id: Some("ada-id"),
        identity: None,
        state: None,
        resized_at: None,
        note: None,
    });
    let shown: Value = serde_json::from_str(&crate::to_json(&shown)).unwrap();
    assert_eq!(shown["properties"]["computeType"], "ComputeInstance");
    let inner = &shown["properties"]["properties"];
    let wanted = json!({
        "vmSize": "STANDARD_DS3_v2",
        "subnet": null,
        "sshSettings": {"sshPublicAccess": "Disabled", "adminUserName": "azureuser", "sshPort": null,
                        "adminPublicKey": null},
        "autologgerSettings": null,
        "errors": [],
        "connectivityEndpoints": {"publicIpAddress": null, "privateIpAddress": null},
        "applications": [],
        "state": "Running",
        "lastOperation": {"operationName": "Create", "operationTime": "2026-11-15T19:52:12Z",
                          "operationStatus": "Succeeded", "operationTrigger": "User"},
        "createdBy": {"userName": "ada", "userOrgId": null, "userId": "ada-id"},
        "applicationSharingPolicy": null,
        "computeInstanceAuthorizationType": "personal",
        "personalComputeInstanceSettings": null,
        "setupScripts": null,
        "enableNodePublicIp": true,
        "releaseQuotaOnStop": false,
        "dataMounts": null,
        "dataDisks": null,
        "containers": null,
        "updateStatus": null,
        "versions": null,
        "customServices": [],
        "osImageMetadata": null,
    });
    assert_eq!(inner, &wanted);
    let read: SeenCompute = crate::from_json(shown.to_string().as_bytes()).unwrap();
    let seen = read.properties.properties;
    assert_eq!(seen.state.as_deref(), Some("Running"));
    assert_eq!((seen.scale_settings.as_ref(), seen.nodes().total()), (None, 1));
}

#[test]
fn sdk_v1_gets_keys_without_a_value_only_where_it_can_read_them() {
    let shown = shown(&cluster(), NodeCounts::default());
    let document = ComputeDocument::Cluster(Box::new(shown));
    let text = crate::to_json(&v1_document(&document));
    for absent in ["userAccountCredentials", "identity"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    for present in [r#""description":null"#, r#""resourceId":null"#, r#""subnet":null"#] {
        assert!(text.contains(present), "{present} in {text}");
    }
    let list = V1Computes { value: vec![v1_document(&document)], next_link: None };
    assert!(!crate::to_json(&list).contains("nextLink"));
}
