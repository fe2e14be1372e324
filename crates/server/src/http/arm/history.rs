//! Run history: jobs as clients read them while they stream, and when they download.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::Response;
use muster_core::model::{
    ARTIFACT_DATASTORE, DEFAULT_DATASTORE, JobOutput, Workspace, WorkspaceKey,
};
use muster_wire::datastore::own_container;
use muster_wire::job::{
    self, ResolvedPaths, ResolvedUris, RunData, RunList, ServiceInstances, parse_asset_id,
    parse_run_id, parse_values, resolved,
};
use muster_wire::{ArmError, HistoryRoute};

use super::datastore::home;
use super::job::{details, facts, find, patch};
use super::{Call, Failed};
use crate::http::respond::document;

pub async fn handle(call: &Call, method: &str, route: HistoryRoute) -> Result<Response, Failed> {
    match (method, route) {
        ("GET", HistoryRoute::RunDetails { workspace, run }) => details(call, workspace, run).await,
        ("GET", HistoryRoute::Run { workspace, run: name }) => run(call, workspace, name).await,
        ("PATCH", HistoryRoute::Run { workspace, run }) => patch(call, workspace, run).await,
        ("POST", HistoryRoute::RunData(key)) => run_data(call, &key).await,
        ("GET", HistoryRoute::RunChildren { workspace, run }) => {
            find(call, &workspace, &run).await?;
            Ok(document(StatusCode::OK, &RunList { value: Vec::new() }))
        }
        ("GET", HistoryRoute::RunServices { workspace, run, .. }) => {
            find(call, &workspace, &run).await?;
            Ok(document(StatusCode::OK, &ServiceInstances::default()))
        }
        ("POST", HistoryRoute::ResolvedData(key)) => {
            Ok(document(StatusCode::OK, &resolve(call, &key).await?))
        }
        ("POST", HistoryRoute::ResolvedModels(key)) => {
            let paths = ResolvedPaths::from(resolve(call, &key).await?);
            Ok(document(StatusCode::OK, &paths))
        }
        (method, route) => {
            let allowed = muster_wire::Route::History(route).methods();
            Err(ArmError::method_not_allowed(method, allowed).into())
        }
    }
}

pub(super) async fn run(
    call: &Call,
    key: WorkspaceKey,
    name: Box<str>,
) -> Result<Response, Failed> {
    let view = find(call, &key, &name).await?;
    let home = home(call, &key).await?;
    let run = job::run(&facts(&key, &view, None), &home.location, call.dialect);
    Ok(document(StatusCode::OK, &run))
}

async fn run_data(call: &Call, key: &WorkspaceKey) -> Result<Response, Failed> {
    let view = find(call, key, &parse_run_id(&call.body)?).await?;
    let home = home(call, key).await?;
    let run_metadata = job::run(&facts(key, &view, None), &home.location, call.dialect);
    Ok(document(StatusCode::OK, &RunData { run_metadata }))
}

/// Where what jobs left by name is. What is not known is left out, as Azure does.
async fn resolve(call: &Call, key: &WorkspaceKey) -> Result<ResolvedUris, Failed> {
    let home = home(call, key).await?;
    let mut values = BTreeMap::new();
    for id in parse_values(&call.body)? {
        let Some((job, output)) = parse_asset_id(&id) else { continue };
        let view = call.app.readers.look_up(|reader| reader.job(key, job))?;
        let Some(output) = view.and_then(|mut view| view.spec.outputs.remove(output)) else {
            continue;
        };
        let Some(datastore) = datastore_of(call, &home, &output)? else { continue };
        let at = resolved(key, &datastore, &output.to.path, output.kind, call.dialect);
        values.insert(id, at);
    }
    Ok(ResolvedUris { values })
}

/// A datastore of the workspace that shows the container that an output went to.
fn datastore_of(
    call: &Call,
    home: &Workspace,
    output: &JobOutput,
) -> Result<Option<String>, Failed> {
    for (name, is_default) in [(DEFAULT_DATASTORE, true), (ARTIFACT_DATASTORE, false)] {
        if *output.to.container == own_container(home.id, is_default) {
            return Ok(Some(name.to_owned()));
        }
    }
    let others = call.app.readers.look_up(|reader| reader.datastores(home.id))?;
    let is_it = |about: &muster_core::model::DatastoreSpec| {
        about.account.is_none() && about.container == output.to.container
    };
    let found = others.into_iter().find(|found| is_it(&found.about));
    Ok(found.map(|found| found.name.to_string()))
}
