//! The API through which nodes report the services of their attempts, and accept calls to them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use hyper_util::rt::TokioIo;
use muster_core::agent::{SERVICE_PROTOCOL, ServicesReport};
use muster_core::ids::Epoch;
use tracing::error;

use super::agent_trees::{Asking, asking};
use super::listener;
use crate::app::App;
use crate::services::MemberServices;

/// How long a request is held open.
const HELD: Duration = Duration::from_secs(15);
/// The maximum length of the reason why a call cannot be connected.
const WHY_CHARS_MAX: usize = 200;

type Refused = (StatusCode, &'static str);

/// Stores the state of the services, and answers as soon as a client calls one of them.
pub async fn report(
    State(app): State<Arc<App>>,
    Path(epoch): Path<String>,
    headers: HeaderMap,
    Json(mut report): Json<ServicesReport>,
) -> Response {
    let services_of_member = match services_of_member(&app, &headers, &epoch, &mut report).await {
        Ok(services_of_member) => services_of_member,
        Err(refused) => return refused.into_response(),
    };
    services_of_member.update(report);
    let mut stopping = app.stopping.clone();
    tokio::select! {
        calls = services_of_member.wanted(HELD.min(app.held)) => Json(calls).into_response(),
        () = listener::stopped(&mut stopping) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// The services of an attempt's member. Services that the specification does not name are ignored.
async fn services_of_member(
    app: &App,
    headers: &HeaderMap,
    epoch: &str,
    report: &mut ServicesReport,
) -> Result<Arc<MemberServices>, Refused> {
    let Asking { epoch, rank, job, .. } = asking(app, headers, epoch)?;
    if let Some(known) = app.services.of(epoch, rank) {
        report.services.retain(|name, _| known.names.contains(name));
        return Ok(known);
    }
    let read = app.readers.read(move |reader| match reader.job_by_id(job)? {
        Some(job) => reader.spec_of(&job),
        None => Ok(None),
    });
    let spec = read.await.map_err(|failed| {
        error!(error = %muster_core::ErrorChain(&failed), "cannot read a job specification");
        (StatusCode::SERVICE_UNAVAILABLE, "the server cannot read its store")
    })?;
    let Some(spec) = spec else { return Err((StatusCode::GONE, "this job does not exist")) };
    let Some(workspace) = spec.workspace else {
        return Err((StatusCode::NOT_FOUND, "this job has no workspace"));
    };
    let names = spec.services.into_keys().collect();
    let is_live = |epoch: Epoch| app.live.attempt(epoch).is_some();
    let services_of_member = app.services.add((epoch, rank), *workspace, names, is_live);
    report.services.retain(|name, _| services_of_member.names.contains(name));
    Ok(services_of_member)
}

/// The node connects the client that waits with this call number.
pub async fn take(
    State(app): State<Arc<App>>,
    Path((epoch, call)): Path<(String, u64)>,
    mut request: Request,
) -> Response {
    let services_of_member = match known(&app, request.headers(), &epoch) {
        Ok(services_of_member) => services_of_member,
        Err(refused) => return refused.into_response(),
    };
    let asked = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
    if asked != Some(SERVICE_PROTOCOL) {
        let words = [(header::UPGRADE, SERVICE_PROTOCOL)];
        return (StatusCode::UPGRADE_REQUIRED, words).into_response();
    }
    let Some(answer) = services_of_member.take(call) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(stream) => answer.give(Ok(TokioIo::new(stream))),
            Err(failed) => {
                tracing::debug!(error = %failed, "the connection of a node was interrupted")
            }
        }
    });
    let words = [(header::CONNECTION, "upgrade"), (header::UPGRADE, SERVICE_PROTOCOL)];
    (StatusCode::SWITCHING_PROTOCOLS, words).into_response()
}

/// The node cannot connect the client that waits with this call number.
pub async fn refuse(
    State(app): State<Arc<App>>,
    Path((epoch, call)): Path<(String, u64)>,
    headers: HeaderMap,
    why: Bytes,
) -> Response {
    let services_of_member = match known(&app, &headers, &epoch) {
        Ok(services_of_member) => services_of_member,
        Err(refused) => return refused.into_response(),
    };
    let Some(answer) = services_of_member.take(call) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let why = String::from_utf8_lossy(&why).chars().take(WHY_CHARS_MAX).map(plain).collect();
    answer.give(Err(why));
    StatusCode::OK.into_response()
}

fn known(app: &App, headers: &HeaderMap, epoch: &str) -> Result<Arc<MemberServices>, Refused> {
    let Asking { epoch, rank, .. } = asking(app, headers, epoch)?;
    let nothing = (StatusCode::NOT_FOUND, "this attempt has not reported any services");
    app.services.of(epoch, rank).ok_or(nothing)
}
