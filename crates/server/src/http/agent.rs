//! The API for nodes: whole states in both directions by long poll, job specifications by hash, and logs by offset.
//!
//! A node proves its identity with a secret derived from its name, and acts only on its own leases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use futures_util::future::join_all;
use muster_core::agent::{
    AttemptPhase, Desired, LogPart, LogReceived, NODE_HEADER, Report, SHORT_LOG_BYTES_MAX,
    SyncAnswer, SyncRequest,
};
use muster_core::ids::Epoch;
use muster_core::model::{JobSpec, SpecHash};
use muster_core::{ErrorChain, Input, Reply};
use tracing::error;

use super::{agent_run, listener};
use crate::app::App;
use crate::live::LiveAttempt;
use crate::logs::{AppendError, LogKey};
use crate::tokens;

/// The response to a caller that does not prove to be this node, or that acts on an attempt of another node.
pub const REFUSED: (StatusCode, &str) =
    (StatusCode::UNAUTHORIZED, "the secret is not valid for this node");
/// The response to a report that was followed by a newer one of the same node; the node no longer waits for it.
const SUPERSEDED: (StatusCode, &str) = (StatusCode::CONFLICT, "this node has sent a newer report");
/// How many new assignments get their specifications with the response; the node requests the others one by one.
const SPECS_MAX: usize = 16;
/// The maximum size of one piece of a log.
pub const LOG_CHUNK_BYTES_MAX: usize = 256 << 10;

/// Processes a report, and answers as soon as there is news for the node.
pub async fn sync(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Json(mut request): Json<SyncRequest>,
) -> Response {
    let Some(node) = node_of(&app, &headers) else { return refused() };
    if let Some(usage) = request.usage.take() {
        app.live.note_usage(&node, usage);
    }
    if !request.report.is_reasonable() {
        let words =
            "the boot ID, the address or the number of waiting ranges of this report is too long";
        return (StatusCode::BAD_REQUEST, words).into_response();
    }
    request.report.shorten_messages();
    let refused_logs = store_logs(&app, &node, &mut request).await;
    let mut news = app.live.news_of(&node);
    let mut newest = app.live.newest_report(&node, &request.report.boot_id, request.sequence);
    let mut stopping = app.stopping.clone();
    let deadline =
        tokio::time::Instant::now() + Duration::from_millis(request.wait_ms).min(app.held);
    loop {
        if newest.is_superseded() {
            return SUPERSEDED.into_response();
        }
        news.mark_unchanged();
        let input = Input::Report { node: node.clone(), report: request.report.clone() };
        let desired = match app.writer.submit(input).await {
            Ok(Ok(Reply::Desired(desired))) => *desired,
            Ok(other) => {
                error!(?other, "the core did not answer a report with a desired state");
                return StatusCode::INTERNAL_SERVER_ERROR.into_response();
            }
            Err(unavailable) => {
                return (StatusCode::SERVICE_UNAVAILABLE, unavailable.to_string()).into_response();
            }
        };
        let is_news = desired.is_news_to(&request.report);
        // Without news, the answer remains true, and the report has renewed the lease when it arrived. So only news is a
        // reason to ask the writer again.
        let has_news = !is_news
            && tokio::select! {
                has_news = tokio::time::timeout_at(deadline, news.changed()) => has_news.is_ok(),
                () = newest.superseded() => true,
                () = listener::stopped(&mut stopping) => false,
            };
        if !has_news {
            let specs = specs_for(&app, &desired, &request.report).await;
            let facts = agent_run::facts_for(&app, &node, &desired, &request.report, &specs);
            let sequence = request.sequence;
            let takes_logs = true;
            let answer = SyncAnswer { sequence, desired, specs, facts, takes_logs, refused_logs };
            return Json(answer).into_response();
        }
    }
}

/// Stores the logs that came with a report, before the ends of their attempts can be acknowledged. An attempt whose log
/// cannot be stored has not ended as far as the core is concerned; the node then sends that log by itself.
async fn store_logs(app: &App, node: &str, request: &mut SyncRequest) -> Vec<Epoch> {
    let logs = std::mem::take(&mut request.logs).into_iter();
    // Each waits for the disk, so they do so together.
    let stored = join_all(logs.map(|(epoch, text)| store_log(app, node, epoch, text))).await;
    let refused: Vec<Epoch> = stored.into_iter().flatten().collect();
    for attempt in &mut request.report.attempts {
        if refused.contains(&attempt.epoch) {
            (attempt.phase, attempt.held) = (AttemptPhase::Running, None);
        }
    }
    refused
}

/// Stores a log. Returns the epoch of its attempt if it cannot.
async fn store_log(app: &App, node: &str, epoch: Epoch, text: String) -> Option<Epoch> {
    // An attempt that is not live has ended already, or belongs to another server: its end changes nothing.
    let attempt = app.live.attempt(epoch)?;
    let rank = attempt.rank_of(node)?;
    let length = text.len() as u64;
    let stored = match text.len() <= SHORT_LOG_BYTES_MAX {
        true => append(app, &attempt, (epoch, rank), (0, false), text.into()).await,
        false => Ok(0),
    };
    if let Err(failed) = &stored
        && !failed.is_full()
        && !matches!(failed, AppendError::Over)
    {
        error!(error = %ErrorChain(failed), "cannot write a log");
    }
    (!stored.is_ok_and(|next| next >= length)).then_some(epoch)
}

async fn append(
    app: &App,
    attempt: &LiveAttempt,
    (epoch, rank): (Epoch, usize),
    at: (u64, bool),
    bytes: Bytes,
) -> Result<u64, AppendError> {
    let (log, workspace) = (LogKey { job: attempt.job, epoch, rank }, attempt.workspace);
    app.blobs.measure_soon(workspace);
    let blobs = app.blobs.clone();
    let reserve = move |bytes, kind| blobs.reserve_for_log(workspace, bytes, kind);
    let live = app.live.clone();
    let is_live = move || live.attempt(epoch).is_some();
    app.logs.append(log, at, bytes, is_live, reserve).await
}

/// The specifications of new assignments. The node requests those that cannot be read now later.
async fn specs_for(app: &App, desired: &Desired, report: &Report) -> BTreeMap<String, JobSpec> {
    let is_held = |epoch| report.attempts.iter().any(|held| held.epoch == epoch);
    let new =
        desired.assignments.iter().filter(|assignment| !is_held(assignment.epoch)).take(SPECS_MAX);
    let hashes: Vec<SpecHash> = new.map(|assignment| assignment.spec).collect();
    if hashes.is_empty() {
        return BTreeMap::new();
    }
    let read = app.readers.read(move |reader| {
        let mut specs = BTreeMap::new();
        for hash in hashes {
            specs.extend(reader.spec(&hash)?.map(|spec| (hash.to_string(), spec)));
        }
        Ok(specs)
    });
    read.await.unwrap_or_default()
}

pub async fn spec(
    State(app): State<Arc<App>>,
    Path(hash): Path<String>,
    headers: HeaderMap,
) -> Response {
    if node_of(&app, &headers).is_none() {
        return refused();
    }
    let Ok(hash) = hash.parse::<SpecHash>() else { return StatusCode::NOT_FOUND.into_response() };
    match app.readers.read(move |reader| reader.spec(&hash)).await {
        Ok(Some(spec)) => Json(spec).into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(failed) => {
            error!(error = %ErrorChain(&failed), "cannot read a job specification");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

pub async fn log(
    State(app): State<Arc<App>>,
    Path(epoch): Path<String>,
    Query(LogPart { offset, last }): Query<LogPart>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(node) = node_of(&app, &headers) else { return refused() };
    let Ok(epoch) = epoch.parse::<Epoch>() else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    // Only the holder of the live epoch may write; an older one learns that its attempt has ended.
    let Some(attempt) = app.live.attempt(epoch) else { return StatusCode::GONE.into_response() };
    let Some(rank) = attempt.rank_of(&node) else { return refused() };
    match append(&app, &attempt, (epoch, rank), (offset, last == 1), body).await {
        Ok(next) => Json(LogReceived { next }).into_response(),
        Err(AppendError::Over) => StatusCode::GONE.into_response(),
        Err(full) if full.is_full() => {
            (StatusCode::INSUFFICIENT_STORAGE, full.to_string()).into_response()
        }
        Err(failed) => {
            error!(error = %ErrorChain(&failed), "cannot write a log");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

/// The node that sends this request, if it proves its identity.
pub fn node_of(app: &App, headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let node = text(NODE_HEADER)?;
    let secret = tokens::bearer(text(header::AUTHORIZATION.as_str())).ok()?;
    app.keyring.check_node_secret(node, secret).then(|| node.to_owned())
}

fn refused() -> Response {
    REFUSED.into_response()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use muster_core::ClusterPatch;
    use muster_core::model::{Caller, WorkspaceKey};

    use super::*;
    use crate::Limits;
    use crate::run::in_test::InTest;

    /// Creates a cluster with one node, and returns the name of the node.
    async fn node(app: &App) -> String {
        let (key, by) =
            (WorkspaceKey::new("s", "g", "w"), Caller { object_id: "o".into(), name: "n".into() });
        let put = Input::PutCluster {
            workspace: key.clone(),
            name: "pool".into(),
            wanted: Box::new(ClusterPatch {
                nodes_min: Some(1),
                nodes_max: Some(1),
                ..ClusterPatch::default()
            }),
            by: by.clone(),
        };
        for input in [Input::workspace(key.clone(), "eastus", by), put] {
            assert!(app.writer.submit(input).await.unwrap().is_ok());
        }
        let nodes = app.readers.look_up(|reader| reader.nodes(&key, "pool")).unwrap();
        nodes[0].node.name.to_string()
    }

    /// At the end of each poll, the writer used to be asked again.
    #[tokio::test]
    async fn a_poll_that_ends_without_news_does_not_ask_the_writer() {
        let server = InTest::open(Limits::default()).await;
        let app = server.app();
        let node = node(&app).await;
        let mut headers = HeaderMap::new();
        headers.insert(NODE_HEADER, node.parse().unwrap());
        let secret = format!("Bearer {}", app.keyring.node_secret(&node));
        headers.insert(header::AUTHORIZATION, secret.parse().unwrap());
        let report = Report {
            boot_id: "boot".into(),
            address: "here".into(),
            floor: Epoch(0),
            attempts: Vec::new(),
            waiting: Vec::new(),
        };
        let poll = |sequence, wait_ms| {
            let request = SyncRequest {
                sequence,
                report: report.clone(),
                wait_ms,
                usage: None,
                logs: BTreeMap::new(),
            };
            Box::pin(sync(State(app.clone()), headers.clone(), Json(request)))
        };
        assert_eq!(poll(1, 0).await.status(), StatusCode::OK, "the node joins");
        let mut poll = poll(2, 1_000);
        assert!(poll.as_mut().now_or_never().is_none(), "the report waits for the writer");
        app.writer.is_there().await.unwrap();
        assert!(poll.as_mut().now_or_never().is_none(), "the answer waits for news");
        app.writer.stop();
        assert_eq!(poll.await.status(), StatusCode::OK);
    }
}
