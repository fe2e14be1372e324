//! The facts that a node's attempt passes to the programs of a job: the token of the run, and its workspace.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use muster_core::ErrorChain;
use muster_core::agent::RunFacts;
use muster_wire::workspace;

use super::agent_trees;
use crate::app::App;
use crate::clock;
use crate::tokens::RunToken;

pub async fn facts(
    State(app): State<Arc<App>>,
    Path(epoch): Path<String>,
    headers: HeaderMap,
) -> Response {
    let asking = match agent_trees::asking(&app, &headers, &epoch) {
        Ok(asking) => asking,
        Err(refused) => return refused.into_response(),
    };
    let id = asking.job;
    let read = app.readers.read(move |reader| {
        let Some(job) = reader.job_by_id(id)? else { return Ok(None) };
        Ok(reader.spec_of(&job)?.map(|spec| (job, spec)))
    });
    let (job, spec) = match read.await {
        Ok(Some(found)) => found,
        Ok(None) => return StatusCode::NOT_FOUND.into_response(),
        Err(error) => {
            tracing::error!(error = %ErrorChain(&error), "cannot look up a run");
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
    };
    // The job was submitted to an older version of the server.
    let Some(home) = spec.workspace else { return StatusCode::NOT_FOUND.into_response() };
    let token = RunToken { job: id, epoch: asking.epoch, name: job.name.clone(), workspace: *home };
    let (token, token_ends_unix) = match app.keyring.issue_run(&token, clock::stamp()) {
        Ok(issued) => issued,
        Err(error) => {
            tracing::error!(error = %ErrorChain(&error), "cannot create the token of a run");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    Json(RunFacts {
        token: token.into(),
        token_ends_unix: clock::to_wall_clock(token_ends_unix),
        endpoint: app.base_url.as_str().into(),
        workspace_id: workspace::guid(job.workspace).into(),
        identity: app.live.identity_of_node(&asking.node).map(|user| user.object_id.clone()),
        members_key: (job.nodes > 1).then(|| app.keyring.members_key(asking.epoch).into()),
    })
    .into_response()
}
