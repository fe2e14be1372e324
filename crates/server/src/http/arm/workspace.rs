//! Workspaces, and the cost of their nodes.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::model::{Action, Scope, WorkspaceKey};
use muster_core::time::Wall;
use muster_core::{Input, Reply};
use muster_store::{LedgerBy, LedgerQuery};
use muster_wire::{ArmError, Route, cost, diagnosis, workspace};

use super::first_use::home;
use super::{Call, Failed, cluster, unexpected};
use crate::clock;
use crate::http::respond::{document, with_operation};
use crate::readers::WorldReader;

pub async fn get(call: &Call, key: WorkspaceKey) -> Result<Response, Failed> {
    let found = home(call, &key).await?;
    let by = call.app.readers.look_up(|reader| reader.principal(found.created_by))?;
    let by = by.as_ref().map(|by| &*by.name);
    Ok(document(StatusCode::OK, &workspace::resource(&found, &call.app.base_url, by)))
}

pub fn no_such(key: &WorkspaceKey) -> ArmError {
    ArmError::not_found(
        "workspace",
        format!(
            "workspace '{}' does not exist in resource group '{}'; check the names, or create it: \
             muster workspace create --name {} --resource-group {}",
            key.name, key.resource_group, key.name, key.resource_group
        ),
    )
}

/// How many computes are examined for notes.
const COMPUTES_READ: usize = 200;

/// Creates a workspace, or changes its properties.
pub async fn put(call: &Call, key: WorkspaceKey) -> Result<Response, Failed> {
    let mut wanted = workspace::parse_request(&call.body)?;
    let known = key.clone();
    let known = call.app.readers.read(move |reader| reader.workspace(&known)).await?;
    if known.is_none() && wanted.location.is_none() {
        wanted.location = Some(call.app.location.clone());
    }
    let (wanted, by) = (Box::new(wanted), call.caller.clone());
    call.submit(Input::PutWorkspace { key: key.clone(), wanted, by }).await?;
    get(call, key).await
}

pub async fn patch(call: &Call, key: WorkspaceKey) -> Result<Response, Failed> {
    let wanted = Box::new(workspace::parse_request(&call.body)?);
    call.submit(Input::PatchWorkspace { key: key.clone(), wanted }).await?;
    get(call, key).await
}

/// Deletes a workspace with all its computes, in the background.
pub async fn delete(call: &Call, key: WorkspaceKey) -> Result<Response, Failed> {
    let subscription = key.subscription.clone();
    let reply = call.submit(Input::DeleteWorkspace { key }).await?;
    deleting(call, &subscription, reply)
}

/// The response to a delete, with the URL of the operation to follow.
pub fn deleting(call: &Call, subscription: &str, reply: Reply) -> Result<Response, Failed> {
    match reply {
        Reply::Deleting { operation } => {
            let url = cluster::operation_url(call, subscription, operation);
            Ok(with_operation(StatusCode::ACCEPTED.into_response(), &url))
        }
        Reply::NothingToDelete => Ok(StatusCode::NO_CONTENT.into_response()),
        other => Err(unexpected(&other)),
    }
}

/// As with any other request, the workspace must exist or is created by this one.
pub async fn diagnose(call: &Call, key: WorkspaceKey) -> Result<Response, Failed> {
    get(call, key.clone()).await?;
    let governance = call.app.live.governance();
    let scope = Scope::workspace(&key);
    let locks = governance.locks().filter(|lock| lock.scope.contains(&scope));
    let found = diagnosis::document(locks.map(|lock| &**lock));
    Ok(document(StatusCode::OK, &found))
}

/// A workspace has no keys that could be out of date, so this is complete with the response.
pub async fn resync_keys(call: &Call, key: WorkspaceKey) -> Result<Response, Failed> {
    get(call, key).await?;
    Ok(StatusCode::OK.into_response())
}

pub async fn list(
    call: &Call,
    subscription: Box<str>,
    group: Option<Box<str>>,
) -> Result<Response, Failed> {
    let route = match group.clone() {
        None => Route::WorkspacesOfSubscription { subscription: subscription.clone() },
        Some(resource_group) => {
            Route::WorkspacesOfGroup { subscription: subscription.clone(), resource_group }
        }
    };
    let found = call
        .app
        .readers
        .read(move |reader| reader.workspaces(&subscription, group.as_deref()))
        .await?;
    let value = found
        .iter()
        .filter(|found| call.may(Action::Read, &Scope::workspace(&found.key)))
        .map(|found| workspace::resource(found, &call.app.base_url, None))
        .map(|found| (found.id.to_lowercase(), found))
        .collect();
    call.page(&route, value)
}

pub async fn ledger(call: &Call, key: WorkspaceKey) -> Result<Response, Failed> {
    let request = cost::LedgerRequest::parse(&call.query)?;
    let by = match &request.by {
        cost::By::Cluster => LedgerBy::Cluster,
        cost::By::User => LedgerBy::User,
        cost::By::Category => LedgerBy::Category,
        cost::By::Tag(key) => LedgerBy::Tag(key.clone()),
    };
    let query = LedgerQuery { by, since: request.since, now: Wall(clock::unix_us()) };
    let notes = gpu_notes(call, &key).await?;
    let sums = call.app.readers.read(move |reader| reader.ledger_by(&key, &query)).await?;
    let sums: Vec<_> = sums
        .iter()
        .map(|sum| cost::LedgerSum {
            group: sum.group.as_deref(),
            category: sum.category,
            outcome: sum.outcome,
            node_us: sum.node_us,
            micro_usd: sum.micro_usd,
        })
        .collect();
    Ok(document(StatusCode::OK, &cost::document(&request.by, &sums, notes)))
}

/// Notes about computes that cost the price of a GPU size although no host has the GPUs.
async fn gpu_notes(call: &Call, key: &WorkspaceKey) -> Result<Vec<String>, Failed> {
    let wanted = key.clone();
    let read = move |reader: &mut WorldReader| reader.clusters(&wanted, None, COMPUTES_READ);
    let page = call.app.readers.read(read).await?;
    let with_gpus = page.items.iter().filter(|view| view.cluster.capacity.gpus > 0);
    let notes = with_gpus.filter_map(|view| {
        let note = cluster::gpu_note(call, key, view)?;
        Some(format!("{}: {note}", view.cluster.name))
    });
    Ok(notes.collect())
}
