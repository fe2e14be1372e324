//! Everything that can be requested has an effect, is refused, or is named in a note: nothing is accepted and then
//! ignored.

use std::collections::BTreeMap;

use muster_core::model::{
    AssetKind, DataKind, DataLocation, JobEnvironment, Registration, RemoteLogin, Source,
    WorkspaceKey,
};
use serde_json::{Value, json};

use super::*;
use crate::job::{DataUri, Resolve};
use crate::{ArmError, asset, compute, datastore, job, workspace};

struct Anything;

impl Resolve for Anything {
    fn code(&self, _: &str) -> Result<DataLocation, String> {
        Ok(DataLocation { container: "code".into(), path: "x".into() })
    }

    fn environment(&self, id: &str) -> Result<JobEnvironment, String> {
        let (notes, variables) = (Vec::new(), BTreeMap::new());
        Ok(JobEnvironment { id: id.into(), recipe: None, image: None, notes, variables })
    }

    fn source(&self, _: DataKind, _: &DataUri) -> Result<Source, String> {
        Ok(Source::Url)
    }

    fn registration(&self, _: DataKind, _: &Registration) -> Result<(), String> {
        Ok(())
    }

    fn output(&self, _: Option<&str>, path: &str) -> Result<DataLocation, String> {
        Ok(DataLocation { container: "default".into(), path: path.into() })
    }
}

/// The result of a request: everything that is stored, and the note for the client.
type Taken = Result<(String, String), ArmError>;

fn key() -> WorkspaceKey {
    WorkspaceKey::new("s", "g", "w")
}

fn take_compute(body: &Value) -> Taken {
    let patch = compute::parse_request(body.to_string().as_bytes(), &|_| String::new())?;
    let note = without_effect(&patch.ignored).unwrap_or_default();
    Ok((format!("{patch:?}"), note))
}

fn take_job(body: &Value) -> Taken {
    let spec = job::parse_request(body.to_string().as_bytes(), &key(), "j", &Anything)?;
    let note = spec.properties.get(NOTE).cloned().unwrap_or_default();
    Ok((format!("{spec:?}"), note))
}

fn take_workspace(body: &Value) -> Taken {
    let patch = workspace::parse_request(body.to_string().as_bytes())?;
    let note = without_effect(&patch.ignored).unwrap_or_default();
    Ok((format!("{patch:?}"), note))
}

fn take_datastore(body: &Value) -> Taken {
    let own = datastore::Own { account: "localhost:1/muster", suffix: "x" };
    let spec = datastore::parse_request(body.to_string().as_bytes(), own)?.spec;
    let note = spec.properties.get(NOTE).cloned().unwrap_or_default();
    Ok((format!("{spec:?}"), note))
}

fn take_asset(kind: AssetKind, body: &Value) -> Taken {
    let spec = asset::parse_request(kind, &key(), body.to_string().as_bytes())?.spec;
    let bag: BTreeMap<String, Value> = match spec.properties.as_deref() {
        Some(bag) => serde_json::from_str(bag).unwrap(),
        None => BTreeMap::new(),
    };
    let note = bag.get(NOTE).and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok((format!("{spec:?}"), note))
}

fn cluster() -> Value {
    json!({ "properties": { "computeType": "AmlCompute", "properties": { "vmSize": "STANDARD_DS3_V2" } } })
}

fn instance() -> Value {
    json!({ "properties": { "computeType": "ComputeInstance", "properties": { "vmSize": "S" } } })
}

fn command() -> Value {
    json!({ "properties": { "jobType": "Command", "command": "true", "computeId": "cpu",
                            "resources": {}, "queueSettings": {}, "limits": {},
                            "outputs": { "o": { "jobOutputType": "uri_folder" } },
                            "inputs": { "i": { "jobInputType": "literal", "value": "3" } } } })
}

/// `base` with the value at `pointer` set, and with the objects on the way there.
fn with(mut base: Value, pointer: &str, value: &Value) -> Value {
    let mut at = &mut base;
    for part in pointer.split('.') {
        at = &mut at[part];
    }
    *at = value.clone();
    base
}

/// Each property either changes what is stored, or is refused, or is named in the note.
fn check(base: &Value, take: &dyn Fn(&Value) -> Taken, asked: &[(&str, Value)]) {
    let (bare, note) = take(base).unwrap();
    assert_eq!(note, "", "a plain request needs no note");
    for (pointer, value) in asked {
        let Ok((kept, note)) = take(&with(base.clone(), pointer, value)) else { continue };
        let strip = |kept: &str| kept.replace(&note, "");
        let is_named = note.contains(pointer);
        assert!(is_named || strip(&kept) != bare, "{pointer} is accepted and then ignored");
    }
}

fn unsupported(take: &dyn Fn(&Value) -> Taken, base: &Value, pointer: &str, value: &Value) {
    let (_, note) = take(&with(base.clone(), pointer, value)).unwrap();
    assert!(note.contains(pointer) && note.contains("no effect"), "{pointer}: {note:?}");
}

#[test]
fn nothing_that_a_compute_asks_for_is_forgotten() {
    let subnet =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/n";
    // Every property of Azure's AmlCompute (api-version 2025-12-01) that can be written.
    let asked = [
        ("location", json!("westus")),
        ("tags", json!({ "a": "b" })),
        ("identity", json!({ "type": "SystemAssigned" })),
        ("properties.description", json!("d")),
        ("properties.disableLocalAuth", json!(true)),
        ("properties.computeLocation", json!("westus")),
        ("properties.resourceId", json!("")),
        ("properties.properties.osType", json!("Windows")),
        ("properties.properties.vmSize", json!("other")),
        ("properties.properties.vmPriority", json!("LowPriority")),
        ("properties.properties.virtualMachineImage", json!({ "id": "i" })),
        ("properties.properties.isolatedNetwork", json!(true)),
        ("properties.properties.scaleSettings", json!({ "maxNodeCount": 9 })),
        ("properties.properties.userAccountCredentials", json!({ "adminUserName": "ada" })),
        ("properties.properties.subnet", json!({ "id": subnet })),
        ("properties.properties.remoteLoginPortPublicAccess", json!("Enabled")),
        ("properties.properties.enableNodePublicIp", json!(false)),
        ("properties.properties.propertyBag", json!({ "a": { "b": 1 } })),
        ("properties.properties.enableBatchPrivateLink", json!(true)),
        ("properties.properties.scaleSettings.unknown", json!(1)),
        ("unknown", json!("x")),
    ];
    let asked: Vec<_> = asked.into_iter().filter(|(_, value)| value != &json!("")).collect();
    check(&cluster(), &take_compute, &asked);
    unsupported(
        &take_compute,
        &cluster(),
        "properties.properties.enableBatchPrivateLink",
        &json!(1),
    );
    // Every property of ComputeInstance that can be written.
    let asked = [
        ("properties.properties.sshSettings", json!({ "sshPublicAccess": "Enabled" })),
        ("properties.properties.autologgerSettings", json!({ "mlflowAutologger": "Enabled" })),
        ("properties.properties.personalComputeInstanceSettings", json!({ "assignedUser": {} })),
        ("properties.properties.setupScripts", json!({ "scripts": { "a": 1 } })),
        ("properties.properties.schedules", json!({ "computeStartStop": [1] })),
        ("properties.properties.idleTimeBeforeShutdown", json!("PT1H")),
        ("properties.properties.customServices", json!([1])),
        ("properties.properties.enableOSPatching", json!(true)),
        ("properties.properties.releaseQuotaOnStop", json!(true)),
    ];
    check(&instance(), &take_compute, &asked);
}

#[test]
fn nothing_that_a_job_asks_for_is_forgotten() {
    // Every property of Azure's CommandJob (api-version 2025-01-01-preview) that can be written.
    let asked = [
        ("properties.description", json!("d")),
        ("properties.displayName", json!("d")),
        ("properties.experimentName", json!("d")),
        ("properties.properties", json!({ "a": "b" })),
        ("properties.tags", json!({ "a": "b" })),
        ("properties.codeId", json!("azureml:c:1")),
        ("properties.componentId", json!("azureml:c:1")),
        ("properties.environmentId", json!("azureml:e:1")),
        ("properties.environmentVariables", json!({ "A": "b" })),
        ("properties.identity", json!({ "identityType": "UserIdentity" })),
        ("properties.distribution", json!({ "distributionType": "Mpi" })),
        ("properties.services", json!({ "s": { "jobServiceType": "SSH" } })),
        ("properties.autologgerSettings", json!({ "mlflowAutologger": "Enabled" })),
        ("properties.notificationSetting", json!({ "emails": ["a@b"] })),
        ("properties.secretsConfiguration", json!({ "s": { "uri": "u" } })),
        ("properties.parameters", json!({ "p": 1 })),
        ("properties.schedule", json!({ "x": 1 })),
        ("properties.parentJobName", json!("p")),
        ("properties.limits.timeout", json!("PT1H")),
        ("properties.queueSettings.jobTier", json!("Spot")),
        ("properties.queueSettings.priority", json!(3)),
        ("properties.resources.instanceCount", json!(3)),
        ("properties.resources.instanceType", json!("S")),
        ("properties.resources.shmSize", json!("3g")),
        ("properties.resources.dockerArgs", json!("--privileged")),
        ("properties.resources.dockerArgsList", json!(["--privileged"])),
        ("properties.resources.locations", json!(["westus"])),
        ("properties.resources.maxInstanceCount", json!(9)),
        ("properties.resources.properties", json!({ "cpus": 1 })),
        ("properties.resources.properties.AISuperComputer", json!({ "x": 1 })),
        ("properties.outputs.o.autoDeleteSetting", json!({ "value": "30d" })),
        ("properties.outputs.o.uri", json!("azureml://datastores/d/paths/x")),
        ("properties.outputs.o.mode", json!("Upload")),
        ("properties.outputs.o.description", json!("d")),
        ("properties.inputs.i.description", json!("d")),
        ("properties.inputs.i.value", json!("4")),
        ("unknown", json!("x")),
    ];
    check(&command(), &take_job, &asked);
    let late = [
        "properties.notificationSetting",
        "properties.autologgerSettings",
        "properties.outputs.o.autoDeleteSetting",
        "properties.resources.locations",
    ];
    for pointer in late {
        unsupported(&take_job, &command(), pointer, &json!({ "x": 1 }));
    }
    let shown = with(command(), "properties.properties", &json!({ NOTE: "an old one" }));
    assert_eq!(take_job(&shown).unwrap().1, "", "a note that was shown is not a request");
}

#[test]
fn nothing_that_a_workspace_asks_for_is_forgotten() {
    let base = json!({ "location": "eastus", "properties": {} });
    let asked = [
        ("tags", json!({ "a": "b" })),
        ("properties.friendlyName", json!("d")),
        ("properties.description", json!("d")),
        ("properties.hbiWorkspace", json!(true)),
        ("properties.publicNetworkAccess", json!("Disabled")),
        ("properties.imageBuildCompute", json!("c")),
        ("properties.managedNetwork", json!({ "isolationMode": "AllowOnlyApprovedOutbound" })),
        ("properties.encryption", json!({ "status": "Enabled" })),
        ("properties.sharedPrivateLinkResources", json!([1])),
        ("properties.primaryUserAssignedIdentity", json!("i")),
        ("properties.serverlessComputeSettings", json!({ "serverlessComputeNoPublicIP": true })),
        ("properties.systemDatastoresAuthMode", json!("Identity")),
        ("properties.v1LegacyMode", json!(true)),
        ("properties.ipAllowlist", json!(["10.0.0.0/8"])),
        ("properties.enableDataIsolation", json!(true)),
        ("identity.userAssignedIdentities", json!({ "i": {} })),
    ];
    check(&base, &take_workspace, &asked);
    // The properties that azure-ai-ml always sends.
    let usual = json!({ "location": "eastus", "identity": { "type": "SystemAssigned" }, "properties": {
        "storageAccount": "s", "keyVault": "k", "applicationInsights": "a", "publicNetworkAccess": "Enabled",
        "hbiWorkspace": false, "managedNetwork": { "isolationMode": "Disabled", "outboundRules": {} } } });
    assert_eq!(take_workspace(&usual).unwrap().1, "");
}

#[test]
fn nothing_that_datastores_and_assets_ask_for_is_forgotten() {
    let base = json!({ "properties": { "datastoreType": "AzureBlob", "containerName": "data" } });
    let asked = [
        ("properties.description", json!("d")),
        ("properties.serviceDataAccessAuthIdentity", json!("WorkspaceSystemAssignedIdentity")),
        ("properties.intellectualProperty", json!({ "publisher": "p" })),
    ];
    check(&base, &take_datastore, &asked);
    let image = json!({ "properties": { "image": "i" } });
    let asked = [
        ("properties.condaFile", json!("c")),
        ("properties.inferenceConfig", json!({ "livenessRoute": { "path": "/", "port": 1 } })),
        ("properties.autoRebuild", json!("OnBaseImageUpdate")),
        ("properties.stage", json!("s")),
        ("properties.osType", json!("Windows")),
        ("properties.autoDeleteSetting", json!({ "value": "30d" })),
    ];
    check(&image, &|body| take_asset(AssetKind::Environment, body), &asked);
    let data = json!({ "properties": { "dataUri": "https://x/y", "dataType": "uri_file" } });
    let asked = [
        ("properties.referencedUris", json!(["https://x/z"])),
        ("properties.autoDeleteSetting", json!({ "value": "30d" })),
        ("properties.stage", json!("s")),
    ];
    check(&data, &|body| take_asset(AssetKind::Data, body), &asked);
    let model = json!({ "properties": { "modelUri": "https://x/y" } });
    let asked = [
        ("properties.flavors", json!({ "python_function": { "data": {} } })),
        ("properties.jobName", json!("j")),
        ("properties.systemMetadata", json!({ "x": 1 })),
        ("properties.autoDeleteSetting", json!({ "value": "30d" })),
    ];
    check(&model, &|body| take_asset(AssetKind::Model, body), &asked);
}

type Change<'c> = &'c dyn Fn(&mut ClusterSpec);

#[test]
fn what_has_no_effect_is_said_on_the_cluster() {
    let sets = |change: Change<'_>| {
        let mut spec = crate::compute::tests::recorded::cluster().spec;
        change(&mut spec);
        of_cluster(&spec)
    };
    assert_eq!(sets(&|_| {}), [""; 0]);
    let cases: [(Change<'_>, &str); 5] = [
        (&|spec| spec.remote_login = RemoteLogin::Enabled, "SSH"),
        (&|spec| spec.subnet = Some("x".into()), "subnet"),
        (&|spec| spec.enable_node_public_ip = false, "enableNodePublicIp"),
        (&|spec| spec.virtual_machine_image = Some("x".into()), "image"),
        (&|spec| spec.ignored = ["properties.x".into()].into(), "properties.x"),
    ];
    for (change, word) in cases {
        let notes = sets(change);
        assert!(notes.len() == 1 && notes[0].contains(word), "{notes:?}");
    }
}

#[test]
fn one_name_and_several_are_sentences() {
    let set = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect();
    assert_eq!(without_effect(&set(&[])), None);
    let one = without_effect(&set(&["properties.schedule"])).unwrap();
    assert_eq!(one, "properties.schedule is not supported in this version and has no effect");
    let two = without_effect(&set(&["b", "a"])).unwrap();
    assert!(two.ends_with("have no effect: a, b"), "{two}");
}
