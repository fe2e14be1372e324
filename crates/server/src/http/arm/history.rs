//! Run history: the view of jobs that clients use to stream logs and to download outputs.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::Response;
use muster_core::model::WorkspaceKey;
use muster_wire::job::{
    self, ResolvedPaths, ResolvedUris, RunData, RunList, parse_asset_id, parse_run_id,
    parse_values, resolved,
};
use muster_wire::{ArmError, HistoryRoute};

use super::datastore::home;
use super::job::{details, facts, find, patch};
use super::{Call, Failed};
use crate::http::respond::document;
use crate::http::service;
use crate::registered::datastore_of;

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
        ("GET", HistoryRoute::RunServices { workspace, run, node }) => {
            let view = find(call, &workspace, &run).await?;
            let epoch = view.job.attempt().map(|attempt| attempt.epoch);
            let known = |name: &str, rank| {
                service::view(&call.app, Some(&call.caller), (epoch?, rank), name)
            };
            let shown = job::instances(&facts(&workspace, &view, None), &node, known)?;
            Ok(document(StatusCode::OK, &shown))
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
    let name = parse_run_id(&call.body)?;
    call.run.as_ref().map_or(Ok(()), |run| run.check_name(&name))?;
    let view = find(call, key, &name).await?;
    let home = home(call, key).await?;
    let run_metadata = job::run(&facts(key, &view, None), &home.location, call.dialect);
    Ok(document(StatusCode::OK, &RunData { run_metadata }))
}

/// The URIs of named outputs. As in Azure, unknown ones are left out.
async fn resolve(call: &Call, key: &WorkspaceKey) -> Result<ResolvedUris, Failed> {
    home(call, key).await?;
    let mut values = BTreeMap::new();
    for id in parse_values(&call.body)? {
        let Some((job, output)) = parse_asset_id(&id) else { continue };
        let view = call.app.readers.look_up(|reader| reader.job(key, job))?;
        let Some(mut view) = view else { continue };
        let Some(output) = view.spec.outputs.remove(output) else { continue };
        let Some(datastore) = datastore_of(&call.app, &view.job, &output)? else { continue };
        let at = resolved(key, &datastore, &output.to.path, output.kind, call.dialect);
        values.insert(id, at);
    }
    Ok(ResolvedUris { values })
}
