//! Workspaces, and what their nodes cost.

use axum::http::StatusCode;
use axum::response::Response;
use muster_core::model::WorkspaceKey;
use muster_core::time::Wall;
use muster_store::{LedgerBy, LedgerQuery};
use muster_wire::{Page, Route, cost, workspace};

use super::{Call, Failed};
use crate::clock;
use crate::http::respond::document;

pub async fn get(call: &Call, key: WorkspaceKey) -> Result<Response, Failed> {
    let wanted = key.clone();
    let read = move |reader: &mut dyn muster_store::Reader| {
        let Some(workspace) = reader.workspace(&wanted)? else { return Ok(None) };
        let by = reader.principal(workspace.created_by)?;
        Ok(Some((workspace, by)))
    };
    let found = call.app.readers.read(read.clone()).await?;
    let found = match found {
        Some(found) => Some(found),
        None => {
            call.create_workspace(&key).await?;
            call.app.readers.read(read).await?
        }
    };
    let (found, by) = found.expect("it was created just now");
    let by = by.as_ref().map(|by| &*by.name);
    Ok(document(StatusCode::OK, &workspace::resource(&found, &call.app.base_url, by)))
}

pub async fn list(call: &Call, route: Route) -> Result<Response, Failed> {
    let (subscription, group) = match route {
        Route::WorkspacesOfSubscription { subscription } => (subscription, None),
        Route::WorkspacesOfGroup { subscription, resource_group } => {
            (subscription, Some(resource_group))
        }
        other => unreachable!("{other:?} lists no workspaces"),
    };
    let found = call
        .app
        .readers
        .read(move |reader| reader.workspaces(&subscription, group.as_deref()))
        .await?;
    let value =
        found.iter().map(|found| workspace::resource(found, &call.app.base_url, None)).collect();
    Ok(document(StatusCode::OK, &Page::whole(value)))
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
    Ok(document(StatusCode::OK, &cost::document(&request.by, &sums)))
}
