//! Run history: the view of jobs that clients use to stream logs and to download outputs.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::Response;
use muster_core::model::WorkspaceKey;
use muster_store::JobQuery;
use muster_wire::job::{
    self, ResolvedPaths, ResolvedUris, RunData, RunList, parse_asset_id, parse_run_id,
    parse_values, resolved,
};
use muster_wire::routes::history::{Endpoint, Get, Patch, Post};
use muster_wire::{HistoryRoute, Route};

use super::first_use::home;
use super::job::{details, facts, find, patch};
use super::{Call, Failed};
use crate::http::respond::document;
use crate::http::service;
use crate::readers::WorldReader;
use crate::registered::datastore_of;

/// The most children of a run on one page.
const CHILDREN: usize = 10_000;

pub async fn handle(call: &Call, endpoint: Endpoint) -> Result<Response, Failed> {
    match endpoint {
        Endpoint::Get(Get::RunDetails { workspace, run }) => details(call, workspace, run).await,
        Endpoint::Get(Get::Run { workspace, run: name }) => run(call, workspace, name).await,
        Endpoint::Patch(Patch::Run { workspace, run }) => patch(call, workspace, run).await,
        Endpoint::Post(Post::RunData(key)) => run_data(call, &key).await,
        Endpoint::Get(Get::RunChildren { workspace, run }) => children(call, workspace, run).await,
        Endpoint::Get(Get::RunServices { workspace, run, node }) => {
            let view = find(call, &workspace, &run).await?;
            let epoch = view.job.attempt().map(|attempt| attempt.epoch);
            let known = |name: &str, rank| {
                service::view(&call.app, Some(&call.caller), (epoch?, rank), name)
            };
            let shown = job::instances(&facts(&workspace, &view, None), &node, known)?;
            Ok(document(StatusCode::OK, &shown))
        }
        Endpoint::Post(Post::ResolvedData(key)) => {
            Ok(document(StatusCode::OK, &resolve(call, &key).await?))
        }
        Endpoint::Post(Post::ResolvedModels(key)) => {
            let paths = ResolvedPaths::from(resolve(call, &key).await?);
            Ok(document(StatusCode::OK, &paths))
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

/// The children of a run. azure-ai-ml 1.35 reads only the first page, so that one has as many as an array of usual size.
async fn children(call: &Call, key: WorkspaceKey, name: Box<str>) -> Result<Response, Failed> {
    find(call, &key, &name).await?;
    let home = home(call, &key).await?;
    let route =
        Route::History(HistoryRoute::RunChildren { workspace: key.clone(), run: name.clone() });
    let (mut after, size) = (call.query.skip().map(str::to_owned), call.page_size(CHILDREN)?);
    let query = JobQuery { parent: Some(name), ..JobQuery::default() };
    let mut value = Vec::new();
    loop {
        let (owner, query, from) = (key.clone(), query.clone(), after);
        let left = size - value.len();
        let read =
            move |reader: &mut WorldReader| reader.jobs(&owner, &query, from.as_deref(), left);
        let page = call.app.readers.read(read).await?;
        let run = |view| job::run(&facts(&key, view, None), &home.location, call.dialect);
        value.extend(page.items.iter().map(run));
        after = page.next;
        if after.is_none() || value.len() >= size {
            break;
        }
    }
    let next_link = after.as_deref().and_then(|next| call.next_link(&route, next));
    Ok(document(StatusCode::OK, &RunList { value, continuation_token: after, next_link }))
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
