use std::net::IpAddr;
use std::path::Path;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt as _;
use muster_core::agent::{Report, ServicesReport};
use muster_core::ids::{Epoch, JobId, WorkspaceId};
use muster_core::model::{Capacity, HostName};
use muster_providers::joined::protocol::{JoinRequest, VERSION};
use muster_wire::activity::ActivityDocument;
use muster_wire::path::examples;
use muster_wire::path::table::{Needs, Table as _};
use muster_wire::{Page, Request as WireRequest, Route, from_json};
use serde_json::json;
use tower_service::Service as _;

use super::*;
use crate::Limits;
use crate::http::login::Source;
use crate::http::{files, router};
use crate::run::in_test::InTest;
use crate::tokens;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/arm.md");
const END: &str = "<!-- end -->\n";

/// The table of the other routes, as docs/reference/arm.md shows it.
fn documentation() -> String {
    let head = "| port | path | methods | caller | activity log | description |\n|---|---|---|---|---|---|\n";
    let mut page = String::from(head);
    let ports = [("API", API), ("files", FILES), ("files", SERVICES), ("metrics", METRICS)];
    for (port, rows) in ports {
        for row in rows {
            let log = match row.log {
                Log::OnlyReads => String::new(),
                Log::As(name) => format!("`{name}`"),
                Log::Not(why) => format!("no: {why}"),
            };
            let (path, allow, from) = (row.path, row.allow(), row.from.as_str());
            let text = row.documentation.trim();
            page += &format!("| {port} | `{path}` | {allow} | {from} | {log} | {text} |\n");
        }
    }
    page
}

#[test]
fn the_page_lists_every_route() {
    let before = std::fs::read_to_string(PAGE).expect("the page exists");
    let mut page = String::new();
    let mut rest = before.as_str();
    for table in [muster_wire::path::documentation(), documentation()] {
        let (comment, _) = rest.split_once("<!-- Written by").expect("the table has a comment");
        page += comment;
        let (line, after) = rest[comment.len()..].split_once('\n').expect("the comment ends");
        let (_, after) = after.split_once(END).expect("the table has an end");
        page += &format!("{line}\n\n{table}\n{END}");
        rest = after;
    }
    page += rest;
    if std::env::var_os("MUSTER_GOLDEN").is_some() {
        std::fs::write(Path::new(PAGE), &page).expect("the page can be written");
        return;
    }
    assert!(
        page == before,
        "docs/reference/arm.md is not up to date: MUSTER_GOLDEN=write writes it"
    );
}

async fn send(router: &mut Router, method: &str, path: &str, key: &str, body: &str) -> Response {
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("content-type", "application/json");
    if !key.is_empty() {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let mut request = request.body(Body::from(body.to_owned())).expect("a request");
    let address = IpAddr::from([127, 0, 0, 1]);
    request.extensions_mut().insert(Source { address, node: None });
    router.call(request).await.expect("a router always answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_token_every_row_is_refused_or_open() {
    let server = InTest::open(Limits::default()).await;
    let mut router = router(server.app());
    let (mut refused, mut open) = (0, 0);
    for row in Route::rows() {
        for path in examples(row) {
            let route = WireRequest::parse(&path, None).expect("a path").route;
            let found = route.row().map(|row| row.name);
            assert_eq!(found, Some(row.name), "{path} is the path of another row");
            for method in row.methods {
                let method = method.as_str();
                let answer = send(&mut router, method, &path, "", "{}").await;
                let is_refused = answer.status() == StatusCode::UNAUTHORIZED;
                match route.needs(method) {
                    Needs::Nothing => {
                        let status = answer.status();
                        let is_served = !matches!(status.as_u16(), 404 | 405 | 500..);
                        assert!(is_served, "{method} {path}: {status}");
                        open += 1;
                    }
                    Needs::Token | Needs::Something | Needs::To(_) => {
                        assert!(is_refused, "{method} {path}: {}", answer.status());
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 120 && open > 8, "{refused} refused, {open} open");
}

/// A body that can be read, where a route reads it before it looks for a secret.
fn body_of(path: &str) -> String {
    let body = match path {
        "/agent/v1/sync" => {
            let (boot_id, address) = ("b".into(), "a".into());
            let report = Report {
                boot_id,
                address,
                floor: Epoch(0),
                attempts: Vec::new(),
                waiting: Vec::new(),
            };
            json!({ "sequence": 1, "wait_ms": 0, "report": report })
        }
        "/agent/v1/services/{epoch}" => json!(ServicesReport::default()),
        "/host/v1/join" => json!(JoinRequest {
            version: VERSION,
            secret: "unknown".to_owned(),
            name: HostName::new("h").expect("a name"),
            capacity: Capacity { gpus: 0, vcpus: 1, memory_mb: 1 },
            key: tokens::digest_of("key"),
        }),
        _ => return String::new(),
    };
    body.to_string()
}

/// The same for queries.
fn query_of(row: &Row) -> &'static str {
    match row.path {
        "/agent/v1/logs/{epoch}" => "offset=0",
        "/agent/v1/data/{epoch}/{what}/file" => "path=x",
        _ if row.from == From::Link => "se=1&sig=x",
        _ => "",
    }
}

/// Which credentials each of the other routes asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_credentials_every_other_row_is_refused_or_open() {
    let server = InTest::open(Limits::default()).await;
    let (mut api, mut on_files) = (router(server.app()), files::router(server.app()));
    for row in [API, FILES, SERVICES].into_iter().flatten() {
        let router =
            if API.iter().any(|known| known.path == row.path) { &mut api } else { &mut on_files };
        let piece = |piece: &str| match piece {
            "{digest}" | "{tree}" | "{hash}" => "0".repeat(64),
            "{epoch}" => Epoch(1).to_string(),
            "{job}" => JobId(1).to_string(),
            "{workspace}" => WorkspaceId(1).to_string(),
            "{file}" => format!("{}.0.log", Epoch(1)),
            "{*path}" => format!("{}/0/jupyter/", Epoch(1)),
            "{*blob}" => "b".to_owned(),
            piece if piece.starts_with('{') => "1".to_owned(),
            piece => piece.to_owned(),
        };
        let path = row.path.split('/').map(piece).collect::<Vec<_>>().join("/");
        let path = format!("{path}?{}", query_of(row));
        for method in row.methods {
            // The only POST of the blob storage is a batch.
            let batch = "/muster/1?restype=container&comp=batch";
            let is_batch = row.from == From::LinkOrToken && *method == Method::Post;
            let path = if is_batch { batch } else { &path };
            let answer = send(router, method.as_str(), path, "", &body_of(row.path)).await;
            let status = answer.status().as_u16();
            let wanted = match row.from {
                From::Anyone => 200,
                From::Link => 403,
                From::Node
                | From::Host
                | From::JoinToken
                | From::Reader
                | From::LinkOrToken
                | From::ServiceUser => 401,
            };
            assert_eq!(status, wanted, "{} {path}", method.as_str());
        }
    }
}

/// Actions that the core does not carry out are in the log, and a dry run is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actions_on_blobs_and_credentials_are_in_the_activity_log() {
    let server = InTest::open(Limits::default()).await;
    let app = server.app();
    let mut router = router(app.clone());
    let key = std::fs::read_to_string(server.folder().join("keys/owner.key")).expect("a key");
    let directory = app.live.directory();
    let owner = app.keyring.authenticate_key(key.trim(), &directory).expect("the owner");
    let now = crate::clock::stamp();
    let token = app.keyring.issue(&owner, &app.base_url, &app.audiences, now, &directory);
    let token = token.expect("a token").token;
    let workspace = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w";
    let gc = "/providers/Muster.Storage/collectGarbage";
    for (path, body) in [
        (format!("{workspace}/datastores/workspaceblobstore/listSecrets"), "{}"),
        (format!("{workspace}/models/m/versions/1/startPendingUpload"), "{}"),
        (gc.to_owned(), r#"{"dryRun":true}"#),
        (gc.to_owned(), "{}"),
        (format!("{workspace}/diagnose"), "{}"),
    ] {
        let answer = send(&mut router, "POST", &path, &token, body).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
    }
    let log = "/providers/Microsoft.Insights/eventtypes/management/values";
    let answer = send(&mut router, "GET", log, &token, "").await;
    let text = answer.into_body().collect().await.expect("a body").to_bytes();
    let page: Page<ActivityDocument> = from_json(&text).expect("the log");
    let operations: Vec<_> =
        page.value.iter().map(|entry| &*entry.operation_name.value).rev().collect();
    let ml = "Microsoft.MachineLearningServices/workspaces";
    let wanted = [
        format!("{ml}/write"),
        format!("{ml}/datastores/listSecrets/action"),
        format!("{ml}/models/versions/startPendingUpload/action"),
        "Muster.Storage/collectGarbage/action".to_owned(),
    ];
    assert_eq!(operations, wanted);
}
