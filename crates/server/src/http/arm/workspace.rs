//! Workspaces, and what their nodes cost.

use axum::http::StatusCode;
use axum::response::Response;
use muster_core::model::WorkspaceKey;
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
    let sums = call.app.readers.read(move |reader| reader.ledger(&key, clock::unix_us())).await?;
    let sums: Vec<_> = sums
        .iter()
        .map(|sum| cost::LedgerSum {
            cluster: &sum.cluster,
            category: sum.category,
            outcome: sum.outcome,
            node_us: sum.node_us,
            micro_usd: sum.micro_usd,
        })
        .collect();
    Ok(document(StatusCode::OK, &cost::document(&sums)))
}
