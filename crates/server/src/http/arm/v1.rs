//! Requests that only azureml-core (SDK v1) sends.

use axum::http::StatusCode;
use axum::response::Response;
use muster_wire::compute::{V1Computes, v1_document};
use muster_wire::routes::v1::{Delete, Endpoint, Get, Patch, Post, Put};
use muster_wire::{ArmError, Route, V1Route};

use super::{Call, Failed, cluster};
use crate::http::respond::document;

pub async fn handle(call: &Call, endpoint: Endpoint) -> Result<Response, Failed> {
    match endpoint {
        Endpoint::Get(Get::V1Computes(workspace)) => {
            let route = Route::V1(V1Route::V1Computes(workspace.clone()));
            let (value, next_link) = cluster::page(call, workspace, &route).await?;
            let value = value.iter().map(v1_document).collect();
            Ok(document(StatusCode::OK, &V1Computes { value, next_link }))
        }
        Endpoint::Get(Get::V1Compute { workspace, name }) => {
            let found = cluster::find(call, &workspace, &name)?;
            Ok(document(StatusCode::OK, &v1_document(&found)))
        }
        Endpoint::Get(Get::V1Experiments(_))
        | Endpoint::Put(Put::V1Experiments(_))
        | Endpoint::Patch(Patch::V1Experiments(_))
        | Endpoint::Post(Post::V1Experiments(_))
        | Endpoint::Delete(Delete::V1Experiments(_)) => Err(ArmError::not_supported(
            "experiment",
            "experiments and runs of azureml-core (SDK v1) are not supported in this version, only its workspaces \
             and computes; submit a command job instead: with azure-ai-ml, \
             MLClient.jobs.create_or_update(command(code=..., command=..., environment=..., compute=...)), or with \
             muster job create",
        )
        .into()),
    }
}
