//! Requests that only azureml-core (SDK v1) sends.

use axum::http::StatusCode;
use axum::response::Response;
use muster_wire::compute::{V1Computes, v1_document};
use muster_wire::{ArmError, Route, V1Route};

use super::{Call, Failed, cluster};
use crate::http::respond::document;

pub async fn handle(call: &Call, method: &str, route: V1Route) -> Result<Response, Failed> {
    match (method, route) {
        ("GET", V1Route::V1Computes(workspace)) => {
            let route = Route::V1(V1Route::V1Computes(workspace.clone()));
            let (value, next_link) = cluster::page(call, workspace, &route).await?;
            let value = value.iter().map(v1_document).collect();
            Ok(document(StatusCode::OK, &V1Computes { value, next_link }))
        }
        ("GET", V1Route::V1Compute { workspace, name }) => {
            let found = cluster::find(call, &workspace, &name)?;
            Ok(document(StatusCode::OK, &v1_document(&found)))
        }
        (_, V1Route::V1Experiments(_)) => Err(ArmError::not_supported(
            "experiment",
            "experiments and runs of azureml-core (SDK v1) are not supported in this version, only its workspaces \
             and computes; submit a command job instead: with azure-ai-ml, \
             MLClient.jobs.create_or_update(command(code=..., command=..., environment=..., compute=...)), or with \
             muster job create",
        )
        .into()),
        (method, route) => Err(ArmError::method_not_allowed(method, route.methods()).into()),
    }
}
