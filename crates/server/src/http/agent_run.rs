//! The facts that a node's attempt passes to the programs of a job: the token of the run, and its workspace.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use muster_core::ErrorChain;
use muster_core::agent::{Desired, Report, RunFacts};
use muster_core::ids::{Epoch, JobId, WorkspaceId};
use muster_core::model::{JobSpec, WorkspaceKey};
use muster_wire::workspace;

use super::agent_trees;
use crate::app::App;
use crate::clock;
use crate::tokens::{RunToken, TokenError};

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
    let attempt = Attempt { job: id, name: &job.name, workspace: job.workspace, home: *home };
    match facts_of(&app, &asking.node, asking.epoch, attempt) {
        Ok(facts) => {
            let key = (job.nodes > 1).then(|| app.keyring.members_key(asking.epoch).into());
            Json(RunFacts { members_key: key, ..facts }).into_response()
        }
        Err(error) => {
            tracing::error!(error = %ErrorChain(&error), "cannot create the token of a run");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// The attempt that facts are about.
struct Attempt<'a> {
    job: JobId,
    name: &'a str,
    workspace: WorkspaceId,
    home: WorkspaceKey,
}

/// The facts of the attempts that a node has just been given, so that it need not request them one by one. Those of
/// multi-node attempts are left out.
pub fn facts_for(
    app: &App,
    node: &str,
    desired: &Desired,
    report: &Report,
    specs: &BTreeMap<String, JobSpec>,
) -> BTreeMap<Epoch, RunFacts> {
    let mut all = BTreeMap::new();
    for assignment in desired.assignments.iter().filter(|assignment| assignment.nodes == 1) {
        if assignment.epoch <= report.floor {
            continue;
        }
        let spec = specs.get(&assignment.spec.to_string());
        let Some(home) = spec.and_then(|spec| spec.workspace.clone()) else { continue };
        for epoch in (assignment.epoch.0..=assignment.last_epoch().0).map(Epoch) {
            let Some(live) = app.live.attempt_on(epoch, node) else { continue };
            let (job, name, workspace) = (live.job, &*live.job_name, live.workspace);
            let attempt = Attempt { job, name, workspace, home: (*home).clone() };
            // Otherwise the node requests them.
            all.extend(facts_of(app, node, epoch, attempt).map(|facts| (epoch, facts)));
        }
    }
    all
}

fn facts_of(
    app: &App,
    node: &str,
    epoch: Epoch,
    attempt: Attempt<'_>,
) -> Result<RunFacts, TokenError> {
    let Attempt { job, name, workspace, home } = attempt;
    let token = RunToken { job, epoch, name: name.into(), workspace: home };
    let (token, token_ends_unix) = app.keyring.issue_run(&token, clock::stamp())?;
    Ok(RunFacts {
        token: token.into(),
        token_ends_unix: clock::to_wall_clock(token_ends_unix),
        endpoint: app.base_url.as_str().into(),
        workspace_id: workspace::guid(workspace).into(),
        identity: app.live.identity_of_node(node).map(|user| user.object_id.clone()),
        members_key: None,
    })
}
