use muster_core::ids::WorkspaceId;
use muster_core::model::Caller;
use muster_core::time::Wall;
use serde_json::{Value, json};

use super::*;

fn key() -> WorkspaceKey {
    WorkspaceKey::new("Sub", "Rg", "Ws")
}

fn parse(kind: AssetKind, properties: Value) -> Result<VersionRequest, ArmError> {
    let body = json!({ "properties": properties }).to_string();
    parse_request(kind, &key(), body.as_bytes())
}

fn kept(kind: AssetKind, wanted: VersionRequest) -> Asset {
    Asset {
        workspace: WorkspaceId(1),
        kind,
        name: "N".into(),
        version: "1".into(),
        about: wanted.spec,
        is_archived: wanted.is_archived.unwrap_or(false),
        created_at: Wall(0),
        created_by: Caller { object_id: "o".into(), name: "Ada".into() },
        changed_at: Wall(0),
        changed_by: Caller { object_id: "p".into(), name: "Bob".into() },
    }
}

/// The response that a client gets for what it has put.
fn shown(kind: AssetKind, properties: Value) -> Value {
    let asset = kept(kind, parse(kind, properties).unwrap());
    let text = crate::to_json(&resource(&key(), &asset).unwrap());
    serde_json::from_str(&text).unwrap()
}

const CODE: &str = "https://h:1/muster.blob.x/code-1/src";

fn examples() -> [(AssetKind, Value); 5] {
    [
        (
            AssetKind::Code,
            json!({"codeUri": CODE, "isAnonymous": true,
                   "properties": {"hash_sha256": "66", "hash_version": 202208}}),
        ),
        (
            AssetKind::Environment,
            json!({"image": "ubuntu:22.04", "condaFile": "name: x\n", "tags": {"a": "b"},
                   "description": "d", "isAnonymous": false, "isArchived": false}),
        ),
        (
            AssetKind::Data,
            json!({"dataUri": "azureml://datastores/D/paths/a b/c", "dataType": "UriFolder"}),
        ),
        (AssetKind::Model, json!({"modelUri": "runs:/j1/model", "stage": "Production"})),
        (
            AssetKind::Component,
            json!({"componentSpec": {"type": "command", "command": "true", "display_name": "D",
                   "inputs": {"n": {"default": 1.5}}}, "properties": {}, "isAnonymous": true}),
        ),
    ]
}

#[test]
fn what_is_read_back_and_put_again_is_the_same() {
    for (kind, properties) in examples() {
        let as_kept = |wanted: VersionRequest| {
            let Asset { name, version, .. } = kept(kind, parse(kind, properties.clone()).unwrap());
            wanted.kept_as(kind, &name, &version)
        };
        let first = as_kept(parse(kind, properties.clone()).unwrap());
        let seen = shown(kind, properties.clone());
        let again = as_kept(parse(kind, seen["properties"].clone()).unwrap());
        assert_eq!(again.spec.body, first.spec.body, "{kind:?}");
        assert_eq!(
            (&again.spec.metadata, &again.spec.hash),
            (&first.spec.metadata, &first.spec.hash)
        );
        assert_eq!(again.spec.is_anonymous, first.spec.is_anonymous);
        assert_eq!(seen["properties"]["provisioningState"], "Succeeded");
        assert_eq!(seen["name"], "1");
        let read: AssetResource = crate::from_json(seen.to_string().as_bytes()).unwrap();
        assert_eq!(crate::to_json(&read), seen_text(kind));
    }
}

fn seen_text(kind: AssetKind) -> String {
    let (_, properties) = examples().into_iter().find(|(known, _)| *known == kind).unwrap();
    crate::to_json(&resource(&key(), &kept(kind, parse(kind, properties).unwrap())).unwrap())
}

#[test]
fn each_kind_shows_what_its_clients_read() {
    let [code, environment, data, model, component] =
        examples().map(|(kind, properties)| shown(kind, properties));
    assert_eq!(code["properties"]["codeUri"], CODE);
    assert_eq!(code["properties"]["properties"]["hash_version"], 202208);
    let by = &environment["systemData"];
    assert_eq!((&by["createdBy"], &by["lastModifiedBy"]), (&json!("Ada"), &json!("Bob")));
    let seen = &environment["properties"];
    assert_eq!(
        (&seen["environmentType"], &seen["osType"]),
        (&json!("UserCreated"), &json!("Linux"))
    );
    assert_eq!((&seen["image"], &seen["condaFile"]), (&json!("ubuntu:22.04"), &json!("name: x\n")));
    assert_eq!(
        environment["id"],
        "/subscriptions/Sub/resourceGroups/Rg/providers/Microsoft.MachineLearningServices/workspaces/Ws\
         /environments/N/versions/1"
    );
    let table = json!({"dataUri": "https://h/t", "dataType": "mltable",
                       "referencedUris": ["./iris.csv", "a/b.csv", "wasbs://c@a/x"]});
    let seen = shown(AssetKind::Data, table.clone());
    assert_eq!(seen["properties"]["referencedUris"], table["referencedUris"]);
    let long =
        "azureml://subscriptions/Sub/resourcegroups/Rg/workspaces/Ws/datastores/D/paths/a b/c";
    assert_eq!(data["properties"]["dataUri"], long);
    assert_eq!(data["properties"]["dataType"], "uri_folder");
    let seen = &model["properties"];
    assert_eq!(seen["modelUri"], "azureml://jobs/j1/outputs/artifacts/paths/model");
    assert_eq!((&seen["flavors"], &seen["modelType"]), (&json!({}), &json!("custom_model")));
    assert_eq!(seen["stage"], "Production");
    let spec = &component["properties"]["componentSpec"];
    assert_eq!(
        (&spec["display_name"], &spec["inputs"]["n"]["default"]),
        (&json!("D"), &json!(1.5))
    );
}

#[test]
fn other_spellings_of_the_same_are_the_same() {
    let body = |kind, properties| parse(kind, properties).unwrap().spec.body;
    let short = json!({"dataUri": "azureml://datastores/d/paths/x", "dataType": "uri_file"});
    let long = json!({"dataType": "URI-FILE", "dataUri":
        "AZUREML://Subscriptions/sub/resourceGroups/RG/workspaces/ws/datastores/d/paths/x"});
    assert_eq!(body(AssetKind::Data, short), body(AssetKind::Data, long));
    let bare = json!({"modelUri": "https://h/m", "modelType": "MLflowModel"});
    let filled = json!({"modelUri": "https://h/m", "modelType": "mlflow_model", "flavors": {}, "jobName": null});
    assert_eq!(body(AssetKind::Model, bare), body(AssetKind::Model, filled));
    let one =
        br#"{"properties":{"componentSpec":{"type":"command","a":{"x":1,"y":2},"_source":"A"}}}"#;
    let two =
        br#"{"properties":{"componentSpec":{"id":"/x","creation_context":{},"a":{"y":2,"x":1},"type":"command","_source":"B"}}}"#;
    let of = |text: &[u8]| parse_request(AssetKind::Component, &key(), text).unwrap().spec;
    assert_eq!(of(one).body, of(two).body, "the order does not matter");
    assert_ne!(of(one).metadata, of(two).metadata);
    let build = json!({"build": {"contextUri": "https://h/c/src/"}});
    let named =
        json!({"build": {"contextUri": "https://h/c/src/", "dockerfilePath": "./Dockerfile"}});
    assert_eq!(body(AssetKind::Environment, build), body(AssetKind::Environment, named));
}

#[test]
fn what_is_no_asset_is_refused_with_its_place() {
    let cases = [
        (AssetKind::Code, json!({}), "properties.codeUri"),
        (AssetKind::Code, json!({"codeUri": CODE, "properties": []}), "properties.properties"),
        (
            AssetKind::Code,
            json!({"codeUri": CODE, "properties": {"hash_sha256": 1}}),
            "properties.properties.hash_sha256",
        ),
        (AssetKind::Environment, json!({}), "properties"),
        (AssetKind::Environment, json!({"image": "a b"}), "properties.image"),
        (AssetKind::Environment, json!({"image": "i", "osType": "Windows"}), "properties.osType"),
        (
            AssetKind::Environment,
            json!({"image": "i", "build": {"contextUri": "https://h/c"}}),
            "properties.build",
        ),
        (
            AssetKind::Environment,
            json!({"build": {"contextUri": "https://h/c", "dockerfilePath": "../D"}}),
            "properties.build.dockerfilePath",
        ),
        (AssetKind::Data, json!({"dataUri": "https://h/x"}), "properties.dataType"),
        (
            AssetKind::Data,
            json!({"dataType": "csv", "dataUri": "https://h/x"}),
            "properties.dataType",
        ),
        (
            AssetKind::Data,
            json!({"dataType": "uri_file", "dataUri": "./x.csv"}),
            "properties.dataUri",
        ),
        (
            AssetKind::Data,
            json!({"dataType": "mltable", "dataUri": "https://h/x", "referencedUris": ["../x"]}),
            "properties.referencedUris[0]",
        ),
        (AssetKind::Model, json!({"modelUri": "/etc/passwd"}), "properties.modelUri"),
        (AssetKind::Model, json!({"modelUri": "https://h/x", "flavors": []}), "properties.flavors"),
        (AssetKind::Component, json!({"componentSpec": {}}), "properties.componentSpec"),
        (AssetKind::Component, json!({"componentSpec": "x"}), "properties.componentSpec"),
    ];
    for (kind, properties, target) in cases {
        let refused = parse(kind, properties.clone()).unwrap_err();
        assert_eq!((refused.status, refused.target()), (400, Some(target)), "{properties}");
    }
    let large = vec![b' '; BODY_BYTES_MAX + 1];
    assert_eq!(parse_request(AssetKind::Data, &key(), &large).unwrap_err().status, 413);
}

#[test]
fn a_location_is_a_url_without_dot_segments() {
    let uri = |text: &str| AssetLocation::parse(text, &key()).map(|place| place.to_uri(&key()));
    let same = [
        "https://h/c/x?sig=../a",
        "abfss://fs@acc.dfs.core.windows.net/a/b",
        "wasbs://c@acc.blob.core.windows.net/a",
        "azureml://jobs/j1/outputs/default",
        "azureml://jobs/j1/outputs/artifacts/paths/model/",
    ];
    for text in same {
        assert_eq!(uri(text).as_deref(), Ok(text));
    }
    assert_eq!(
        uri("azureml://datastores/d/").as_deref(),
        Ok("azureml://subscriptions/Sub/resourcegroups/Rg/workspaces/Ws/datastores/d/paths/")
    );
    let is = |text: &str, why: fn(&BadLocation) -> bool| {
        let refused = uri(text).unwrap_err();
        assert!(why(&refused), "{text}: {refused}");
    };
    for local in ["x", "./x", "/tmp/x", "C:\\x", "file:///tmp/x", "../x", "~/x"] {
        is(local, |why| matches!(why, BadLocation::Local { .. }));
    }
    let dots = [
        "azureml://datastores/d/paths/../x",
        "azureml://datastores/d/paths/a/%2e%2E/x",
        "azureml://datastores/d/paths/a%2f..%2fx",
        "azureml://jobs/j/outputs/o/paths/..",
        "https://h/c/../x",
        "runs:/j/../x",
    ];
    for text in dots {
        is(text, |why| matches!(why, BadLocation::Dots { .. }));
    }
    for unknown in
        ["ftp://h/x", "https://", "https://u:p@h/x", "azureml://nowhere/x", "azureml:d:1", "runs:/"]
    {
        is(unknown, |why| matches!(why, BadLocation::Unknown { .. }));
    }
    let other = "azureml://subscriptions/s/resourcegroups/Rg/workspaces/other/datastores/d/paths/x";
    is(other, |why| matches!(why, BadLocation::Elsewhere { .. }));
    is("a\nb", |why| *why == BadLocation::Control);
    is(&"x".repeat(5_000), |why| matches!(why, BadLocation::TooLong { .. }));
}

#[test]
fn a_reference_is_read_in_every_form() {
    const WS: &str = "/subscriptions/sub/resourceGroups/rg/providers/Microsoft.MachineLearningServices/workspaces/ws";
    let parse = |text: &str| Reference::parse(AssetKind::Environment, text, &key());
    let ours = |which: Which| {
        let (kind, name) = (AssetKind::Environment, "myenv".into());
        Ok(Reference::Workspace { kind, name, which })
    };
    let third = || Which::Version("3".into());
    for text in [
        "azureml:myenv:3".to_owned(),
        "myenv:3".to_owned(),
        "AzureML:myenv:3".to_owned(),
        format!("{WS}/environments/myenv/versions/3"),
        format!("azureml:{WS}/environments/azureml:myenv/versions/3"),
        "azureml://subscriptions/Sub/resourcegroups/Rg/workspaces/Ws/environments/myenv/versions/3"
            .to_owned(),
    ] {
        assert_eq!(parse(&text), ours(third()), "{text}");
    }
    for text in
        ["azureml:myenv@latest", "myenv@Latest", &format!("{WS}/environments/myenv/labels/latest")]
    {
        assert_eq!(parse(text), ours(Which::Latest), "{text}");
    }
    let component = Reference::parse(AssetKind::Component, "c:azureml_default", &key());
    assert!(matches!(component, Ok(Reference::Workspace { which: Which::Latest, .. })));
    assert_eq!(parse("myenv:18.04:2022"), ours(Which::Version("18.04:2022".into())));
    let curated = |which| Ok(Reference::Curated { name: "AzureML-x-1".into(), which });
    assert_eq!(parse("azureml:AzureML-x-1@latest"), curated(Which::Latest));
    assert_eq!(parse("AzureML-x-1:3"), curated(third()));
    assert_eq!(parse(&format!("{WS}/environments/AzureML-x-1/versions/3")), curated(third()));
    let shared = |which| {
        let (registry, kind, name) = ("azureml".into(), AssetKind::Environment, "e".into());
        Ok(Reference::Registry { registry, kind, name, which })
    };
    assert_eq!(parse("azureml://registries/azureml/environments/e/versions/3"), shared(third()));
    assert_eq!(
        parse("azureml://registries/azureml/environments/e/labels/latest"),
        shared(Which::Latest)
    );
}

#[test]
fn a_bad_reference_says_what_is_wrong_with_it() {
    let other = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/other";
    let cases = [
        ("", "empty"),
        ("myenv", "myenv@latest"),
        ("myenv:", "names no version"),
        ("myenv@prod", "the only label is 'latest'"),
        (":3", "not a reference"),
        ("a/b:3", "not a reference"),
        ("/subscriptions/s", "not a reference"),
        ("azureml://locations/l/workspaces/w/environments/e/versions/1", "not a reference"),
        ("azureml://registries/azureml/environments/e", "names no version"),
        ("azureml://registries/azureml/models/e/versions/1", "environments are expected"),
    ];
    for (text, says) in cases {
        let refused = Reference::parse(AssetKind::Environment, text, &key()).unwrap_err();
        assert!(refused.to_string().contains(says), "{text}: {refused}");
        assert_eq!(refused.at("properties.environmentId").status, 400);
    }
    let id = format!("{other}/environments/e/versions/1");
    let refused = Reference::parse(AssetKind::Environment, &id, &key()).unwrap_err();
    assert!(matches!(refused, BadReference::Elsewhere { .. }), "{refused}");
}

#[test]
fn lists_are_asked_for_in_azures_words() {
    let query = |text: &str| crate::Request::parse("/x", Some(text)).unwrap().query;
    assert_eq!(View::parse(&query("")).unwrap(), View::Active);
    assert_eq!(View::parse(&query("listViewType=archivedonly")).unwrap(), View::Archived);
    assert_eq!(View::parse(&query("listViewType=All")).unwrap(), View::All);
    assert_eq!(View::parse(&query("listViewType=x")).unwrap_err().status, 400);
    assert!(!is_oldest_first(&query("$orderBy=createdtime%20desc")).unwrap());
    assert!(is_oldest_first(&query("$orderby=CreatedTime+asc")).unwrap());
    assert_eq!(is_oldest_first(&query("$orderBy=name")).unwrap_err().status, 400);
}

#[test]
fn a_component_contains_the_version_that_it_is_stored_under() {
    let spec = json!({"componentSpec": {"type": "command", "command": "true", "version": null}});
    let wanted = parse(AssetKind::Component, spec).unwrap();
    let made = wanted.kept_as(AssetKind::Component, "hello", "3");
    let again = parse(AssetKind::Component, json!({"componentSpec": from_str(&made.spec.body)}));
    assert_eq!(
        again.unwrap().spec.body,
        made.spec.body,
        "a response can be sent back as a request"
    );
    let said: Value = from_str(&made.spec.body);
    assert_eq!((&said["name"], &said["version"]), (&json!("hello"), &json!("3")));
    let own = json!({"componentSpec": {"type": "command", "name": "mine", "version": "7"}});
    let own = parse(AssetKind::Component, own).unwrap().kept_as(AssetKind::Component, "x", "1");
    assert_eq!(from_str(&own.spec.body)["version"], "7");
}

fn from_str(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}
