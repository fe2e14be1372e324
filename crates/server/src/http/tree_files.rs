//! Serves the files that jobs left by signed URL: a file list, and each file on it, read only, for at most an hour.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::ids::WorkspaceId;
use muster_core::model::{BlobId, TreeId};

use super::log_files::{self, LIFETIME_S, NotServed, Signed};
use super::respond::Failed;
use super::trees;
use crate::app::App;
use crate::clock;

/// The signed URL of a file list. With a digest appended to its path, it is the URL of one file on the list.
pub fn url(app: &App, workspace: WorkspaceId, tree: &TreeId) -> String {
    let path = path(workspace, tree);
    let expires = clock::stamp() + LIFETIME_S;
    let signature = app.keyring.sign_log_url(&path, expires);
    format!("{}{path}?se={expires}&sig={signature}", app.files_url)
}

fn path(workspace: WorkspaceId, tree: &TreeId) -> String {
    format!("/trees/{workspace}/{tree}")
}

/// The file list of a URL, if its signature is valid.
fn signed(
    app: &App,
    workspace: &str,
    tree: &str,
    Signed { se, sig }: &Signed,
) -> Result<(WorkspaceId, TreeId), NotServed> {
    let (Ok(workspace), Ok(tree)) = (workspace.parse(), tree.parse()) else {
        return Err(NotServed(StatusCode::NOT_FOUND, String::new()));
    };
    let path = path(workspace, &tree);
    let checked = app.keyring.check_log_url(&path, *se, sig, clock::unix_seconds());
    if let Err(rejected) = checked {
        return Err(NotServed(StatusCode::FORBIDDEN, rejected.to_string()));
    }
    log_files::keep_pace(app, workspace).map(|()| (workspace, tree))
}

pub async fn tree(
    State(app): State<Arc<App>>,
    Path((workspace, tree)): Path<(String, String)>,
    Query(signature): Query<Signed>,
) -> Response {
    let (workspace, tree) = match signed(&app, &workspace, &tree, &signature) {
        Ok(found) => found,
        Err(refused) => return refused.into_response(),
    };
    let blobs = app.blobs.clone();
    match tokio::task::spawn_blocking(move || blobs.tree(workspace, &tree)).await {
        Ok(Ok(Some(text))) => text.into_response(),
        Ok(Ok(None)) => StatusCode::NOT_FOUND.into_response(),
        Ok(Err(error)) => Failed(trees::refusal(&error)).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

pub async fn file(
    State(app): State<Arc<App>>,
    Path((workspace, tree, digest)): Path<(String, String, String)>,
    Query(signature): Query<Signed>,
) -> Response {
    let (workspace, tree) = match signed(&app, &workspace, &tree, &signature) {
        Ok(found) => found,
        Err(refused) => return refused.into_response(),
    };
    let Ok(digest) = digest.parse::<BlobId>() else { return StatusCode::NOT_FOUND.into_response() };
    let blobs = app.blobs.clone();
    match tokio::task::spawn_blocking(move || blobs.file_of(workspace, &tree, &digest)).await {
        Ok(Ok(Some(file))) => trees::send(file),
        Ok(Ok(None)) => StatusCode::NOT_FOUND.into_response(),
        Ok(Err(error)) => Failed(trees::refusal(&error)).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
