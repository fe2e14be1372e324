use std::collections::BTreeMap;
use std::path::PathBuf;

use muster_core::ids::{ClusterId, Epoch, JobId, NodeId, PrincipalId, WorkspaceId};
use muster_core::model::{
    Attempt, AttemptOutcome, AttemptRecord, CancelReason, Carrying, DataKind, DataLocation, Exit,
    Failure, Job, JobEnvironment, JobIdentity, JobInput, JobKind, JobSpec, JobState, JobTier,
    OnEviction, Priority, Registration, SERVERLESS, Scarce, ShareRequest, Source, SpecHash,
    Verdict, WorkspaceKey,
};
use muster_core::time::{Span, Wall};
use serde_json::{Value, json};

use super::*;
use crate::{ArmError, Page, asset};

const WS: &str = "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.MachineLearningServices/workspaces/ws1";

fn key() -> WorkspaceKey {
    WorkspaceKey::new("s1", "rg1", "ws1")
}

/// Knows every code, environment, data asset and datastore except `nowhere`, and no job.
struct Known;

impl Resolve for Known {
    fn code(&self, id: &str) -> Result<DataLocation, String> {
        Ok(DataLocation {
            container: "code".into(),
            path: id.rsplit('/').next().unwrap_or("").into(),
        })
    }

    fn environment(&self, id: &str) -> Result<JobEnvironment, String> {
        let (notes, variables) = (Vec::new(), BTreeMap::new());
        Ok(JobEnvironment { id: id.into(), recipe: None, image: None, notes, variables })
    }

    fn source(&self, _: DataKind, uri: &DataUri) -> Result<Source, String> {
        let place = |container: &str, path: &str| {
            Ok(Source::Blobs(DataLocation { container: container.into(), path: path.into() }))
        };
        match uri {
            DataUri::DataLocation(asset::AssetLocation::Datastore { datastore, path }) => {
                match &**datastore {
                    "nowhere" => Err("there is no such datastore".to_owned()),
                    datastore => place(datastore, path),
                }
            }
            DataUri::DataLocation(asset::AssetLocation::Url(_)) => Ok(Source::Url),
            DataUri::DataLocation(asset::AssetLocation::JobOutput { .. }) => {
                Err("there is no such job".to_owned())
            }
            DataUri::Asset(reference) => place("assets", reference.name()),
        }
    }

    fn registration(&self, _: DataKind, wanted: &Registration) -> Result<(), String> {
        match &*wanted.name {
            "taken" => Err("the version already exists".to_owned()),
            _ => Ok(()),
        }
    }

    fn output(&self, datastore: Option<&str>, path: &str) -> Result<DataLocation, String> {
        Ok(DataLocation { container: datastore.unwrap_or("default").into(), path: path.into() })
    }
}

fn read(body: &[u8], workspace: &WorkspaceKey) -> Result<JobSpec, ArmError> {
    parse_request(body, workspace, "calm_tree", &Known)
}

fn parse(body: &Value) -> Result<JobSpec, ArmError> {
    read(body.to_string().as_bytes(), &key())
}

/// The body that Azure's client sends for a command without code, inputs and environment.
fn plain() -> Value {
    json!({
        "properties": {
            "jobType": "Command",
            "command": "echo hello",
            "computeId": format!("{WS}/computes/cpu"),
            "displayName": "calm_tree",
            "experimentName": "exp",
            "properties": {"mlflow.source.git.branch": "main", "empty": null},
            "tags": {"a": "b", "empty_tag": null},
            "inputs": {},
            "outputs": {},
            "services": null,
            "environmentVariables": {"X": "1"},
            "identity": {"identityType": "AMLToken"},
            "isArchived": false,
            "resources": {"instanceCount": 2, "properties": {}, "shmSize": "2g"},
            "limits": {"jobLimitsType": "Command", "timeout": "PT1H"},
        },
    })
}

fn spec() -> JobSpec {
    JobSpec {
        nodes: 2,
        display_name: Some("calm_tree".into()),
        experiment_name: "exp".into(),
        tags: BTreeMap::from([("a".into(), "b".into())]),
        environment_variables: BTreeMap::from([("X".into(), "1".into())]),
        timeout: Some(Span::seconds(3_600)),
        shared_memory_mb: Some(2_048),
        properties: BTreeMap::from([("mlflow.source.git.branch".into(), "main".into())]),
        workspace: Some(Box::new(key())),
        identity: Some(Box::new(JobIdentity::AmlToken)),
        ..JobSpec::new("cpu", "echo hello")
    }
}

fn with(path: &str, value: Value) -> Value {
    let mut body = plain();
    let pointer = format!("/{}", path.replace('.', "/"));
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap()[key] = value;
    body
}

#[test]
fn a_command_job_is_read() {
    assert_eq!(parse(&plain()).unwrap(), spec());
    let least = json!({"properties": {"jobType": "command", "command": "ls", "computeId": "cpu"}});
    let least = parse(&least).unwrap();
    assert_eq!((least.nodes, &*least.experiment_name, least.timeout), (1, "Default", None));
    assert_eq!(least.display_name, None);
    let unnamed = parse(&with("properties.experimentName", json!(""))).unwrap();
    assert_eq!(&*unnamed.experiment_name, "Default");
}

#[test]
fn a_compute_is_named_in_several_ways() {
    for id in [
        "cpu".to_owned(),
        "azureml:cpu".to_owned(),
        format!("{WS}/computes/cpu"),
        format!("{WS}/computes/azureml:cpu"),
        format!("azureml:{WS}/computes/cpu"),
        format!("{}/COMPUTES/cpu", WS.to_ascii_uppercase()),
        WS.replace("resourceGroups", "resourcegroups") + "//computes/cpu",
    ] {
        let spec = parse(&with("properties.computeId", json!(id))).unwrap();
        assert_eq!(&*spec.compute, "cpu", "{id}");
    }
    for id in [
        "azureml:".to_owned(),
        "/".to_owned(),
        WS.to_owned(),
        format!("{WS}/computes/cpu/x"),
        format!("{WS}/virtualClusters/cpu"),
        format!("{WS}/computes/azureml:"),
        WS.replace("ws1", "ws2") + "/computes/cpu",
        WS.replace("rg1", "rg2") + "/computes/cpu",
        WS.replace("s1", "s2") + "/computes/cpu",
    ] {
        let error = parse(&with("properties.computeId", json!(id))).unwrap_err();
        assert_eq!(error.target(), Some("properties.computeId"), "{id}");
        assert_eq!(error.code(), "InvalidPropertyValue");
    }
    let mut serverless = plain();
    serverless["properties"].as_object_mut().unwrap().remove("computeId");
    let named = with("properties.computeId", json!(format!("{WS}/computes/Serverless")));
    for body in [serverless, named, with("properties.computeId", json!(""))] {
        assert_eq!(&*parse(&body).unwrap().compute, SERVERLESS);
    }
}

#[test]
fn a_job_without_compute_names_a_size_and_a_tier() {
    let mut body = with("properties.resources.instanceType", json!("Standard_D2s_v3"));
    body["properties"].as_object_mut().unwrap().remove("computeId");
    body["properties"]["queueSettings"] = json!({"jobTier": "Spot", "priority": 1});
    let spec = parse(&body).unwrap();
    assert!(spec.is_serverless());
    assert_eq!(spec.instance_type.as_deref(), Some("Standard_D2s_v3"));
    assert_eq!(spec.job_tier, Some(JobTier::Spot));
    let text = request_json(&spec, &key());
    assert!(text.contains(r#""queueSettings":{"jobTier":"Spot","priority":1}"#), "{text}");
    assert_eq!(read(request_json(&spec, &key()).as_bytes(), &key()).unwrap(), spec);
    body["properties"]["queueSettings"] = json!({"jobTier": "Gold"});
    assert_eq!(parse(&body).unwrap_err().target(), Some("properties.queueSettings.jobTier"));
    let local = with("properties.resources.properties", json!({"IsLocal": {"IsLocal": true}}));
    assert!(parse(&local).unwrap_err().to_string().contains("name a compute"));
}

#[test]
fn an_identity_is_kept_as_it_was_written() {
    for (given, shown) in [
        (json!({"identityType": "amltoken"}), "AMLToken"),
        (json!({"identityType": "UserIdentity"}), "UserIdentity"),
        (json!({"identityType": "Managed", "clientId": "c", "resourceId": "/r"}), "Managed"),
    ] {
        let spec = parse(&with("properties.identity", given)).unwrap();
        let text = request_json(&spec, &key());
        assert!(text.contains(&format!(r#""identityType":"{shown}""#)), "{text}");
        assert_eq!(read(text.as_bytes(), &key()).unwrap(), spec);
    }
    let mut body = with("properties.identity", json!({"identityType": "UserIdentity"}));
    assert_eq!(parse(&body).unwrap().properties.get(property::NOTE), None);
    body["properties"]["services"] = json!({"board": {"jobServiceType": "TensorBoard"}});
    let spec = parse(&body).unwrap();
    let note = spec.properties.get(property::NOTE).map(String::as_str).unwrap_or_default();
    assert!(
        note.starts_with("identity UserIdentity has no effect in a job with services"),
        "{note}"
    );
    assert_eq!(parse(&with("properties.identity", json!({}))).unwrap().identity, None);
    for bad in [json!({"identityType": "Other"}), json!({"clientId": "c"}), json!("Managed")] {
        assert_eq!(parse(&with("properties.identity", bad)).unwrap_err().status, 400);
    }
}

/// Azure shows them, so clients that resubmit a job send them back.
#[test]
fn what_every_job_has_is_no_wish() {
    let own =
        json!({"Tracking": {"jobServiceType": "Tracking"}, "Studio": {"jobServiceType": "Studio"}});
    assert_eq!(parse(&with("properties.services", own)).unwrap(), spec());
    let uri = "azureml://datastores/workspaceartifactstore/ExperimentRun/dcid.calm_tree";
    let outputs = json!({"default": {"jobOutputType": "uri_folder", "uri": uri}});
    assert_eq!(parse(&with("properties.outputs", outputs)).unwrap(), spec());
}

#[test]
fn what_would_change_the_job_is_refused_and_not_ignored() {
    for (path, value) in [
        ("properties.componentId", json!("c")),
        ("properties.resources.dockerArgs", json!("--x")),
        ("properties.jobType", json!("Sweep")),
    ] {
        let error = parse(&with(path, value)).unwrap_err();
        assert_eq!((error.status, error.code()), (400, "NotSupported"), "{path}");
        assert_eq!(error.target(), Some(path));
        assert!(error.to_string().contains("not supported in this version"), "{error}");
        // A property that is present but empty requests nothing.
        let empty = if path.ends_with("jobType") { json!("Command") } else { json!(null) };
        assert_eq!(parse(&with(path, empty)).unwrap(), spec(), "{path}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_its_path() {
    for (path, value) in [
        ("properties.jobType", json!(null)),
        ("properties.command", json!(null)),
        ("properties.command", json!(["ls"])),
        ("properties.resources.instanceCount", json!("2")),
        ("properties.resources.instanceCount", json!(-2)),
        ("properties.resources", json!(2)),
        ("properties.limits.timeout", json!("-PT1H")),
        ("properties.limits.timeout", json!(3_600)),
        ("properties.tags.a", json!(1)),
        ("properties.environmentVariables.X", json!(1)),
        ("properties.isArchived", json!("false")),
        ("properties.displayName", json!({})),
    ] {
        let error = parse(&with(path, value.clone())).unwrap_err();
        assert_eq!((error.status, error.code()), (400, "InvalidPropertyValue"), "{path} {value}");
        assert_eq!(error.target(), Some(path));
    }
    for body in [json!({}), json!({"properties": null}), json!({"properties": []})] {
        assert_eq!(parse(&body).unwrap_err().target(), Some("properties"), "{body}");
    }
    let long = with("properties.command", json!("x".repeat(BODY_BYTES_MAX)));
    assert_eq!(parse(&long).unwrap_err().status, 413);
}

#[test]
fn a_wish_is_written_as_it_is_read() {
    assert_eq!(read(request_json(&spec(), &key()).as_bytes(), &key()).unwrap(), spec());
    let mut least = spec();
    (least.display_name, least.timeout) = (None, None);
    let text = request_json(&least, &key());
    assert!(!text.contains("null"), "{text}");
    assert_eq!(read(text.as_bytes(), &key()).unwrap(), least);
}

#[test]
fn equal_specifications_have_one_text() {
    let text = spec_text(&spec());
    assert_eq!(
        text,
        concat!(
            r#"{"command":"echo hello","compute":"cpu","nodes":2,"display_name":"calm_tree","#,
            r#""experiment_name":"exp","description":null,"tags":{"a":"b"},"#,
            r#""environment_variables":{"X":"1"},"timeout":3600000000,"shared_memory_mb":2048,"#,
            r#""properties":{"mlflow.source.git.branch":"main"},"#,
            r#""workspace":{"subscription":"s1","resource_group":"rg1","name":"ws1"},"#,
            r#""identity":"AmlToken"}"#
        )
    );
    assert_eq!(parse_spec_text(&text).unwrap(), spec());
    assert!(parse_spec_text("{}").is_err());
}

fn job(state: JobState) -> Job {
    Job {
        id: JobId(1),
        workspace: WorkspaceId(1),
        cluster: ClusterId(1),
        name: "calm_tree".into(),
        kind: JobKind::Command,
        parent: None,
        principal: PrincipalId(1),
        nodes: 2,
        spec: SpecHash::made_up("00"),
        share: None,
        priority: Default::default(),
        losses: 0,
        on_eviction: OnEviction::default(),
        is_returned: false,
        environment: None,
        submitted_at: Wall(1_000_000),
        attempts: 2,
        state,
    }
}

fn attempt(verdict: Option<Verdict>) -> Box<Attempt> {
    Box::new(Attempt {
        epoch: Epoch(1),
        number: 2,
        granted_at: Wall(2_000_000),
        started_at: Some(Wall(3_000_000)),
        go: true,
        members: Vec::new(),
        verdict,
        notice: None,
        predicted: Default::default(),
        charged: Default::default(),
    })
}

fn record() -> AttemptRecord {
    AttemptRecord {
        job: JobId(1),
        epoch: Epoch(1),
        number: 1,
        granted_at: Wall(2_000_000),
        started_at: Some(Wall(3_000_000)),
        ended_at: Wall(4_000_000),
        members: Vec::new(),
        outcome: AttemptOutcome::Failed,
    }
}

/// The resource of the job and the details of its run, in this state.
fn shown(state: JobState, reason: Option<&str>) -> (JobResource, RunDetails) {
    let waits = reason.map(|words| Waits { words: words.into(), codes: "Behind".into() });
    let (workspace, job, spec, attempts) = (key(), job(state), spec(), [record()]);
    let facts = JobFacts {
        workspace: &workspace,
        job: &job,
        spec: &spec,
        submitted_by: Some("ada"),
        attempts: &attempts,
        waits: waits.as_ref(),
        is_archived: false,
        notes: &[],
        family: Family::Alone,
    };
    let log = ("user_logs/std_log.txt".to_owned(), "https://h/log?sig=x".to_owned());
    (resource(&facts), details(&facts, &BTreeMap::from([log])))
}

#[test]
fn statuses_are_azures() {
    let at = Wall(5_000_000);
    let lost = || Some(Verdict::NodeLost { node: NodeId(1) });
    let failed = Failure::NodesLost { attempts: 3 };
    let cases = [
        (JobState::Queued, "Queued", false),
        (JobState::Starting(attempt(None)), "Starting", false),
        (JobState::Running(attempt(None)), "Running", false),
        (JobState::Starting(attempt(lost())), "Finalizing", false),
        (JobState::Running(attempt(lost())), "Finalizing", false),
        (JobState::CancelRequested(attempt(lost())), "CancelRequested", false),
        (JobState::Completed { at }, "Completed", true),
        (JobState::Failed { at, why: failed.into() }, "Failed", true),
        (JobState::Canceled { at, why: CancelReason::Asked }, "Canceled", true),
    ];
    for (state, word, is_terminal) in cases {
        let (job, details) = shown(state, None);
        assert_eq!(job.properties.status.as_str(), word);
        assert_eq!(job.properties.status.is_terminal(), is_terminal);
        assert_eq!(crate::to_json(&details.status), format!("\"{word}\""));
        assert_eq!(details.end_time_utc.is_some(), is_terminal, "{word}");
    }
}

#[test]
fn a_job_has_azures_shape() {
    let (job, _) = shown(JobState::Queued, Some("2 jobs came first"));
    let text = crate::to_json(&Page::whole(vec![job.clone()]));
    let wanted = json!({
        "id": format!("{WS}/jobs/calm_tree"),
        "name": "calm_tree",
        "type": "Microsoft.MachineLearningServices/workspaces/jobs",
        "properties": {
            "jobType": "Command",
            "status": "Queued",
            "displayName": "calm_tree",
            "experimentName": "exp",
            "description": null,
            "command": "echo hello",
            "computeId": format!("{WS}/computes/cpu"),
            "resources": {"instanceCount": 2, "properties": {}, "shmSize": "2048m"},
            "identity": {"identityType": "AMLToken"},
            "limits": {"jobLimitsType": "Command", "timeout": "PT1H"},
            "environmentVariables": {"X": "1"},
            "tags": {"a": "b"},
            "properties": {"mlflow.source.git.branch": "main", "muster.attempts": "2", "muster.lowPriority": crate::notes::at_low_priority(&spec()), "muster.waitCode": "Behind", "muster.waitReason": "2 jobs came first"},
            "services": {},
            "inputs": {},
            "outputs": {},
            "isArchived": false,
            "creationContext": {
                "createdAt": "1970-01-01T00:00:01Z",
                "createdBy": "ada",
                "createdByType": "User",
            },
        },
        "systemData": {
            "createdAt": "1970-01-01T00:00:01Z",
            "createdBy": "ada",
            "createdByType": "User",
            "lastModifiedAt": "1970-01-01T00:00:03Z",
        },
    });
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["value"][0], wanted);
    let read: Page<JobResource> = crate::from_json(text.as_bytes()).unwrap();
    assert_eq!(read.value, [job]);
    // Clients read a job, change a tag and send it back.
    assert_eq!(parse(&wanted).unwrap(), spec());
}

#[test]
fn a_failure_says_what_happened() {
    let node = NodeId(7);
    let exit = |exit| Failure::Exit { node, rank: 0, exit };
    let message = "no such directory";
    let over = |of| exit(Exit::OverLimit { of, most: 7 << 29 });
    let data = |doing| exit(Exit::Data { doing, message: message.into() });
    let (user, system) = ("UserError", "SystemError");
    let cases = [
        (exit(Exit::Code(3)), user, "user code", "exit code 3"),
        (exit(Exit::Signal(9)), user, "user code", "signal 9"),
        (exit(Exit::Stopped), system, "node", "stopped"),
        (exit(Exit::Evicted), system, "node", "evicted"),
        (Failure::Evicted { node }, system, "node", property::ON_EVICTION),
        (exit(Exit::TimedOut), user, "user code", "raise limits.timeout"),
        (over(Scarce::Memory), user, "user code", "(rank 0), 3.5 GiB, and was killed"),
        (over(Scarce::Disk), user, "user code", "the 3.5 GiB that it may"),
        (over(Scarce::Files), user, "user code", "the 3758096384 that it may"),
        (over(Scarce::FileLength), user, "user code", "longer than the 3.5 GiB that it may"),
        (exit(Exit::NotStarted { message: message.into() }), system, "prepare", message),
        (data(Carrying::Fetch), system, "data", "could not be fetched"),
        (data(Carrying::Save), system, "data", "outputs could not be saved"),
        (Failure::NodesLost { attempts: 3 }, system, "node", "3 attempts"),
    ];
    for (why, code, class, words) in cases {
        let (job, details) = shown(JobState::Failed { at: Wall(5_000_000), why: why.into() }, None);
        let text = &job.properties.properties[property::FAILURE];
        assert!(text.contains(words), "{text}");
        assert_eq!(job.properties.properties[property::FAILURE_CLASS], class, "{text}");
        let error = details.error.clone().unwrap();
        assert_eq!((error.error.code.as_str(), &error.error.message), (code, text));
        let json = crate::to_json(&details);
        assert!(json.contains(r#""error":{"error":{"code":"#), "{json}");
        assert_eq!(crate::from_json::<RunDetails>(json.as_bytes()).unwrap(), details);
    }
    let why = CancelReason::ClusterDeleted;
    let (job, _) = shown(JobState::Canceled { at: Wall(5_000_000), why }, None);
    assert!(job.properties.properties.contains_key(property::CANCEL_REASON));
}

#[test]
fn details_have_what_streaming_clients_read() {
    let (_, details) = shown(JobState::Running(attempt(None)), None);
    let value: Value = serde_json::from_str(&crate::to_json(&details)).unwrap();
    let wanted = json!({
        "runId": "calm_tree",
        "target": "cpu",
        "status": "Running",
        "startTimeUtc": "1970-01-01T00:00:03Z",
        "endTimeUtc": null,
        "services": {},
        "properties": {
            "mlflow.source.git.branch": "main",
            "muster.attempts": "2",
            "muster.lowPriority": crate::notes::at_low_priority(&spec()),
        },
        "inputDatasets": [],
        "outputDatasets": [],
        "logFiles": {"user_logs/std_log.txt": "https://h/log?sig=x"},
        "submittedBy": "ada",
    });
    assert_eq!(value, wanted);
}

#[test]
fn recorded_jobs_are_read_or_refused_for_a_reason() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/wire/v2");
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let key = WorkspaceKey::new("00000000-0000-0000-0000-000000000001", "rg1", "ws1");
    let (mut understood, mut refused) = (0, 0);
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let exchanges: Vec<Value> =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for request in exchanges.iter().map(|exchange| &exchange["request"]) {
            let place = request["path"].as_str().unwrap_or_default();
            if request["method"] != "PUT" || !place.contains("/jobs/") {
                continue;
            }
            match read(request["body"].to_string().as_bytes(), &key) {
                Ok(spec) => {
                    understood += 1;
                    // All that a real client sends has its effect.
                    let note = spec.properties.get(property::NOTE);
                    assert_eq!(note, None, "{}", path.display());
                }
                // It is of another type, has applications, names no compute, or uses Ray.
                Err(error) => {
                    let is_later = error.code() == "NotSupported";
                    let target = error.target().unwrap_or_default();
                    let is_known =
                        ["properties.computeId", "properties.distribution.distributionType"];
                    assert!(is_later || is_known.contains(&target), "{path:?}: {error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(understood > 15 && refused > 3, "{understood} were read, {refused} refused");
}

#[test]
fn inputs_and_outputs_are_read_and_shown_again() {
    let mut body = plain();
    body["properties"]["codeId"] = json!(format!("{WS}/codes/c/versions/1"));
    body["properties"]["environmentId"] = json!("azureml:mine:1");
    body["properties"]["distribution"] =
        json!({"distributionType": "PyTorch", "processCountPerInstance": 2});
    body["properties"]["inputs"] = json!({
        "lr": {"jobInputType": "literal", "value": "0.1"},
        "on": {"value": true},
        "data": {"jobInputType": "uri_folder", "uri": "azureml://datastores/mine/paths/a/b/", "mode": "Download"},
        "web": {"jobInputType": "UriFile", "uri": "https://h/x.csv"},
        "asset": {"jobInputType": "mltable", "uri": "azureml:table@latest", "mode": "EvalMount"},
        "left_out": null,
    });
    body["properties"]["outputs"] = json!({
        "model": {"jobOutputType": "custom_model"},
        "report": {"jobOutputType": "uri_file", "assetName": "azureml:reports"},
        "kept": {"jobOutputType": "mltable", "assetName": "tables", "assetVersion": 3},
        "there": {"jobOutputType": "uri_folder", "mode": "Upload",
                  "uri": "azureml://datastores/mine/paths/x/${{name}}/"},
    });
    let spec = parse(&body).unwrap();
    assert_eq!(spec.inputs.len(), 5);
    assert_eq!(spec.inputs["on"], JobInput::Literal("true".into()));
    let JobInput::Data { source: Source::Blobs(place), .. } = &spec.inputs["data"] else {
        panic!("{:?}", spec.inputs["data"]);
    };
    assert_eq!((&*place.container, place.path.trim_end_matches('/')), ("mine", "a/b"));
    let to = |name: &str| (&*spec.outputs[name].to.container, &*spec.outputs[name].to.path);
    assert_eq!(to("model"), ("default", "azureml/calm_tree/model"));
    assert_eq!(to("report"), ("default", "azureml/calm_tree/report/report"));
    assert_eq!(to("there"), ("mine", "x/calm_tree"));
    let registered = |name: &str| spec.outputs[name].register.as_deref().cloned();
    let wanted = |name: &str, version: Option<&str>| {
        Some(Registration { name: name.into(), version: version.map(Into::into) })
    };
    assert_eq!(registered("model"), None);
    assert_eq!(registered("report"), wanted("reports", None));
    assert_eq!(registered("kept"), wanted("tables", Some("3")));
    let again: Value = serde_json::from_str(&request_json(&spec, &key())).unwrap();
    assert_eq!(parse(&again).unwrap(), spec);
}

#[test]
fn outputs_that_cannot_be_registered_are_refused() {
    for (output, word) in [
        (json!({"jobOutputType": "uri_file", "assetVersion": "1"}), "missing"),
        (
            json!({"jobOutputType": "uri_file", "assetName": "taken", "assetVersion": "1"}),
            "already exists",
        ),
    ] {
        let mut body = plain();
        body["properties"]["outputs"] = json!({ "x": output });
        let error = parse(&body).unwrap_err().to_string();
        assert!(
            error.contains("properties.outputs.x.assetName") && error.contains(word),
            "{error}"
        );
    }
}

#[test]
fn inputs_that_cannot_be_are_refused_by_name() {
    for (input, word) in [
        (json!({"jobInputType": "uri_nothing", "uri": "x:1"}), "uri_file"),
        (json!({"jobInputType": "uri_file"}), "missing"),
        (json!({"jobInputType": "uri_file", "uri": ""}), "missing"),
        (json!({"jobInputType": "literal"}), "missing"),
        (json!({"jobInputType": "literal", "value": {"a": 1}}), "a string"),
        (json!({"jobInputType": "uri_file", "uri": "./x.csv"}), "your own machine"),
        (json!({"jobInputType": "uri_file", "uri": "/home/x.csv"}), "your own machine"),
        (
            json!({"jobInputType": "uri_file", "uri": "azureml://datastores/nowhere/paths/x"}),
            "datastore",
        ),
        (
            json!({"jobInputType": "uri_file", "uri": "azureml://datastores/mine/paths/../x"}),
            "'..'",
        ),
        (json!({"jobInputType": "uri_file", "uri": "azureml://jobs/j/outputs/o"}), "job"),
        (json!({"jobInputType": "uri_file", "uri": "x:1", "mode": "ReadWriteMount"}), "output"),
        (json!({"jobInputType": "uri_file", "uri": "x:1", "mode": "Smoke"}), "Smoke"),
    ] {
        let refused = parse(&with("properties.inputs", json!({"x": input}))).unwrap_err();
        assert_eq!(refused.status, 400);
        let target = refused.target().unwrap_or_default();
        assert!(target.starts_with("properties.inputs.x"), "{target}");
        assert!(refused.to_string().contains(word), "{input}: {refused}");
    }
}

#[test]
fn priorities_and_shares_are_read_in_both_spellings_and_shown_again() {
    let action = |queue: Value, properties: Value| {
        let body = json!({"properties": {"jobType": "Command", "command": "true", "computeId": "cpu",
            "queueSettings": queue, "resources": {"properties": properties}}});
        read(body.to_string().as_bytes(), &WorkspaceKey::new("s", "g", "w"))
    };
    let share = |vcpus, memory_mb, gpus| ShareRequest { vcpus, memory_mb, gpus };
    for (queue, wanted) in [
        (json!(null), Priority::Medium),
        (json!({}), Priority::Medium),
        (json!({"jobTier": "Standard", "priority": 1}), Priority::Low),
        (json!({"priority": "2"}), Priority::Medium),
        (json!({"priority": "High"}), Priority::High),
    ] {
        assert_eq!(action(queue.clone(), json!(null)).unwrap().priority, wanted, "{queue}");
    }
    for (properties, wanted) in [
        (json!({"AISuperComputer": {"x": 1}}), share(None, None, None)),
        (json!({"cpus": 2, "memory": "4GB", "gpus": 1}), share(Some(2), Some(4_096), Some(1))),
        (json!({"cpus": "2", "memory": 512, "gpus": "0"}), share(Some(2), Some(512), Some(0))),
    ] {
        assert_eq!(action(json!(null), properties.clone()).unwrap().share, wanted, "{properties}");
    }
    for (queue, properties, target) in [
        (json!({"priority": 4}), json!({}), "properties.queueSettings.priority"),
        (json!({"priority": "urgent"}), json!({}), "properties.queueSettings.priority"),
        (json!({"priority": true}), json!({}), "properties.queueSettings.priority"),
        (json!({}), json!({"cpus": 1.5}), "properties.resources.properties.cpus"),
        (json!({}), json!({"gpus": -1}), "properties.resources.properties.gpus"),
        (json!({}), json!({"memory": "4 elephants"}), "properties.resources.properties.memory"),
    ] {
        let error = action(queue, properties).unwrap_err();
        assert_eq!((error.status, error.target()), (400, Some(target)), "{error}");
    }
    let key = WorkspaceKey::new("s", "g", "w");
    let wanted = action(json!({"priority": 3}), json!({"cpus": 2, "memory": "512MB"})).unwrap();
    let again = read(request_json(&wanted, &key).as_bytes(), &key).unwrap();
    assert_eq!(again, wanted);
}

#[test]
fn a_job_says_what_happens_when_its_node_is_evicted() {
    let wanted = |text: Value| with("properties.properties", json!({ "muster.onEviction": text }));
    assert_eq!(parse(&wanted(json!("Fail"))).unwrap().on_eviction, OnEviction::Fail);
    let usual = JobSpec { properties: BTreeMap::new(), ..spec() };
    assert_eq!(parse(&wanted(json!("requeue"))).unwrap(), usual);
    let refused = parse(&wanted(json!("panic"))).unwrap_err();
    assert!(refused.to_string().contains("'requeue' or 'fail'"), "{refused}");
    let spec = JobSpec { on_eviction: OnEviction::Fail, ..spec() };
    let again: Value = serde_json::from_str(&request_json(&spec, &key())).unwrap();
    assert_eq!(parse(&again).unwrap(), spec);
}
