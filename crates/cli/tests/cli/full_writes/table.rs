//! Every kind of write, with a request for each.

use std::collections::BTreeSet;

use muster_wire::path::table::Table as _;
use muster_wire::{Request, Route};
use serde_json::{Value, json};

use super::Client;
use crate::support::Site;

const ML: &str = "Microsoft.MachineLearningServices";

/// Requests with a method other than GET that write nothing to the store, or only to its activity log.
const READS: [(&str, &str); 20] = [
    ("POST", "ClientToken"), // Signs a token.
    ("POST", "ComputeKeys"), // Refused in any case.
    ("POST", "ComputeNodes"),
    ("POST", "DatastoreSecrets"), // Signs a URL.
    ("POST", "DeviceCode"),       // Refused in any case.
    ("POST", "JobCheck"),
    ("POST", "MachineIdentity"), // Signs a token.
    ("POST", "ResolvedData"),
    ("POST", "ResolvedModels"),
    ("POST", "RunData"),
    ("POST", "CollectGarbage"), // Deletes files, and so works while the disk is full.
    ("POST", "Token"),          // Signs a token.
    ("PUT", "V1Experiments"),   // Refused in any case, with every method.
    ("PATCH", "V1Experiments"),
    ("POST", "V1Experiments"),
    ("DELETE", "V1Experiments"),
    ("POST", "Validate"),
    ("POST", "WhatIf"),
    ("POST", "WorkspaceDiagnosis"),
    ("POST", "WorkspaceKeys"),
];

/// A change, and whether it works when there is space: some need more than is created here.
pub struct Row {
    pub method: &'static str,
    pub path: String,
    pub body: Value,
    pub works: bool,
    /// The status when the disk is full.
    pub status: u16,
}

/// What exists before the disk is full, by path.
pub fn given(at: &Places) -> Vec<(String, Value)> {
    let (ws, group) = (&at.workspace, &at.group);
    let mut given = vec![
        (format!("{ws}/computes/old"), cluster_of("old")),
        (format!("{ws}/datastores/old"), datastore("old-container")),
        (format!("{group}x"), json!({ "location": "eastus" })),
        (format!("{group}/providers/{ML}/workspaces/old"), json!({ "location": "eastus" })),
        (format!("{group}x/{LOCKS}/old"), lock("old")),
        (at.deployment("old"), nothing()),
        ("/providers/Muster.Identity/users/old".to_owned(), json!({})),
    ];
    for (kind, properties) in at.assets("old") {
        given.push((format!("{ws}/{kind}/old/versions/1"), json!({ "properties": properties })));
    }
    given
}

const LOCKS: &str = "providers/Microsoft.Authorization/locks";
const ROLES: &str = "providers/Microsoft.Authorization/roleAssignments";

fn cluster_of(note: &str) -> Value {
    let scale = json!({ "minNodeCount": 0, "maxNodeCount": 1 });
    let inner = json!({ "vmSize": "Standard_DS1_v2", "scaleSettings": scale });
    json!({
        "location": "eastus",
        "tags": { "note": note },
        "properties": { "computeType": "AmlCompute", "properties": inner },
    })
}

fn datastore(container: &str) -> Value {
    let kind = json!({ "credentialsType": "None" });
    json!({ "properties": {
        "datastoreType": "AzureBlob", "containerName": container, "accountName": "", "credentials": kind,
    }})
}

fn lock(note: &str) -> Value {
    json!({ "properties": { "level": "CanNotDelete", "notes": note } })
}

fn nothing() -> Value {
    json!({ "properties": { "mode": "Incremental", "template": {
        "contentVersion": "1.0.0.0", "resources": [],
    }}})
}

/// The paths that the rows use.
pub struct Places {
    pub workspace: String,
    pub group: String,
    subscription: String,
    code_uri: String,
    object_id: String,
    quota: String,
    host: String,
}

impl Places {
    fn deployment(&self, name: &str) -> String {
        format!("{}/providers/Microsoft.Resources/deployments/{name}", self.group)
    }

    fn assets(&self, note: &str) -> [(&'static str, Value); 5] {
        [
            ("codes", json!({ "codeUri": self.code_uri, "description": note })),
            ("environments", json!({ "image": "ubuntu:22.04", "description": note })),
            (
                "data",
                json!({ "dataType": "uri_file", "dataUri": "https://example.com/x", "description": note }),
            ),
            ("models", json!({ "modelUri": "https://example.com/x", "description": note })),
            (
                "components",
                json!({ "componentSpec": { "type": "command", "command": "true" }, "description": note }),
            ),
        ]
    }
}

fn row(method: &'static str, path: String, body: Value) -> Row {
    Row { method, path, body, works: true, status: 503 }
}

/// Changes to everything that exists; deletes come last.
pub fn rows(at: &Places) -> Vec<Row> {
    let ws = &at.workspace;
    let tags = || json!({ "tags": { "note": "late" } });
    let user = |rest: &str| format!("/providers/Muster.Identity/users/{rest}");
    let host = |rest: &str| format!("/providers/Muster.Hosts/hosts/{}{rest}", at.host);
    let (region, history) = (
        format!("/subscriptions/{}/providers/{ML}/locations/eastus", at.subscription),
        format!("/history/v1.0{ws}/runs/before"),
    );
    let job = json!({ "properties": {
        "jobType": "Command", "command": "true", "computeId": format!("{ws}/computes/cpu"),
    }});
    let role =
        json!({ "properties": { "roleDefinitionId": "Reader", "principalId": at.object_id } });
    let quota = json!({ "value": [{ "id": at.quota, "limit": 7, "unit": "Count" }] });
    let hosts_row =
        |method, rest: &str| Row { works: false, ..row(method, host(rest), Value::Null) };
    let tree = muster_trees::tree_of(b"muster-tree 1\n");
    let digest = muster_trees::blob_of(b"late");
    let files = |kind: &str, id: &str| format!("{ws}/providers/Muster.Jobs/{kind}/{id}");
    let evict = format!("{ws}/providers/Muster.Rehearsal/computes/cpu/nodes/none/evict");
    let workspaces = format!("{}/providers/{ML}/workspaces", at.group);
    let mut rows = vec![
        row("PUT", format!("{ws}/computes/late"), cluster_of("late")),
        row("PATCH", format!("{ws}/computes/old"), tags()),
        Row { works: false, ..row("POST", format!("{ws}/computes/old/stop"), Value::Null) },
        Row { works: false, ..row("POST", evict, Value::Null) },
        row("PUT", format!("{ws}/jobs/late"), job),
        row("PATCH", history, json!({ "description": "late" })),
        row("PUT", format!("{ws}/datastores/late"), datastore("late-container")),
        row("PUT", format!("{workspaces}/late"), json!({ "location": "eastus" })),
        row("PATCH", format!("{workspaces}/old"), tags()),
        row("PUT", format!("{}late", at.group), json!({ "location": "eastus" })),
        row("PATCH", format!("{}x", at.group), tags()),
        row("PUT", user("late"), json!({})),
        row("POST", user("old/rotateKey"), Value::Null),
        row("POST", user("old/revokeKey"), Value::Null),
        row("PUT", format!("{ws}/{ROLES}/late"), role),
        row("PUT", at.deployment("late"), nothing()),
        row("POST", format!("{region}/updateQuotas"), quota),
        row("POST", "/providers/Muster.Hosts/token".to_owned(), json!({})),
        // Files are not rows of the store. The client is told that the disk is full, and does not retry for minutes.
        Row {
            status: 507,
            ..row("PUT", files("trees", &tree.to_string()), json!("muster-tree 1\n"))
        },
        Row { status: 507, ..row("PUT", files("blobs", &digest.to_string()), json!("late")) },
        row("POST", host("/cordon"), Value::Null),
        row("POST", host("/uncordon"), Value::Null),
        hosts_row("POST", "/drain"),
        hosts_row("POST", "/giveUp"),
        hosts_row("DELETE", ""),
    ];
    for (kind, properties) in at.assets("late") {
        let late = json!({ "properties": properties });
        let container = json!({ "properties": { "description": "late" } });
        rows.push(row("PUT", format!("{ws}/{kind}/late/versions/1"), late));
        rows.push(row("PUT", format!("{ws}/{kind}/old"), container));
        if ["codes", "data", "models"].contains(&kind) {
            let upload = format!("{ws}/{kind}/sent/versions/1/startPendingUpload");
            rows.push(row("POST", upload, json!({})));
        }
        rows.push(row("DELETE", format!("{ws}/{kind}/old/versions/1"), Value::Null));
        rows.push(row("DELETE", format!("{ws}/{kind}/old"), Value::Null));
    }
    let gone = [
        format!("{}x/{LOCKS}/old", at.group),
        format!("{ws}/computes/late/{LOCKS}/late"),
        format!("{ws}/{ROLES}/late"),
        at.deployment("old"),
        user("old"),
        format!("{ws}/datastores/old"),
        format!("{ws}/computes/old"),
        format!("{ws}/jobs/before"),
        format!("{workspaces}/old"),
        format!("{}x", at.group),
    ];
    rows.push(row("PUT", format!("{ws}/computes/late/{LOCKS}/late"), lock("late")));
    rows.push(row("POST", format!("{ws}/jobs/long/cancel"), Value::Null));
    rows.extend(gone.map(|path| row("DELETE", path, Value::Null)));
    rows
}

fn row_of(path: &str) -> (Route, &'static str) {
    let request = Request::parse(path, None);
    let route = request.unwrap_or_else(|_| panic!("{path} is not a path")).route;
    let row = route.row().unwrap_or_else(|| panic!("{path} is not a route"));
    (route, row.name)
}

/// The names that the activity log must have for these changes.
pub fn operations<'r>(rows: impl Iterator<Item = &'r Row>) -> BTreeSet<String> {
    rows.filter_map(|row| row_of(&row.path).0.operation(row.method)).collect()
}

/// A new route that changes something must be added to the table here.
pub fn check_that_none_is_missing(rows: &[Row]) {
    let mut tried: BTreeSet<(&str, &str)> =
        rows.iter().map(|row| (row.method, row_of(&row.path).1)).collect();
    tried.extend(READS);
    let all = Route::rows().into_iter().flat_map(|row| {
        let changes = row.methods.iter().filter(|method| !method.reads());
        changes.map(|method| (method.as_str(), row.name))
    });
    let missing: Vec<_> = all.filter(|wanted| !tried.contains(wanted)).collect();
    assert!(missing.is_empty(), "add them to the rows here: {missing:?}");
}

pub fn places(site: &Site, client: &Client) -> Places {
    let id = site.json(&["job", "show", "-n", "before"])["id"].as_str().expect("text").to_owned();
    let workspace = id.split("/jobs/").next().expect("a workspace").to_owned();
    let group = workspace.split("/providers/").next().expect("a group").to_owned();
    let subscription = group.split('/').nth(2).expect("a subscription").to_owned();
    let upload = format!("{workspace}/codes/first/versions/1/startPendingUpload");
    let upload = client.call("POST", &upload, &json!({})).json();
    let code_uri = upload["blobReferenceForConsumption"]["blobUri"].as_str().expect("text");
    let user = client.call("PUT", "/providers/Muster.Identity/users/reader", &json!({})).json();
    let quotas = format!("/subscriptions/{subscription}/providers/{ML}/locations/eastus/quotas");
    let quota = client.call("GET", &quotas, &Value::Null).json();
    let hosts = client.call("GET", "/providers/Muster.Hosts/hosts", &Value::Null).json();
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("text: {value}")).to_owned();
    Places {
        code_uri: format!("{code_uri}/src"),
        object_id: text(&user["objectId"]),
        quota: text(&quota["value"][0]["id"]),
        host: text(&hosts["value"][0]["name"]),
        workspace,
        group,
        subscription,
    }
}
