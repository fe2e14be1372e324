//! Transfers the files of a node's attempts: those that an attempt brings and those left by earlier ones go to the
//! node, and the ones that it leaves come from the node. Every request names the attempt's epoch, and is accepted only
//! while the attempt is live.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use muster_core::agent::{AttemptEnd, FileForm, LeftTree, MissingFiles, TreePurpose};
use muster_core::ids::{Epoch, JobId, WorkspaceId};
use muster_core::model::{BlobId, SavedTree, TreeId};
use muster_core::{ErrorChain, Input, SaveRequest};
use muster_trees::TREE_BYTES_MAX;
use muster_wire::ArmError;
use muster_wire::error::code;

use super::trees::Form;
use super::{agent, body, trees};
use crate::app::App;
use crate::artifacts::{self, ArtifactError, Kept};
use crate::blobs::BlobError;
use crate::room::Kind;
use crate::storage::Unavailable;

/// The node that sends a request, and the member of a live attempt for which it does.
pub struct Asking {
    pub node: String,
    pub epoch: Epoch,
    pub rank: usize,
    pub job: JobId,
    pub workspace: WorkspaceId,
}

pub fn asking(
    app: &App,
    headers: &HeaderMap,
    epoch: &str,
) -> Result<Asking, (StatusCode, &'static str)> {
    let node = agent::node_of(app, headers).ok_or(agent::REFUSED)?;
    let epoch: Epoch =
        epoch.parse().map_err(|_| (StatusCode::BAD_REQUEST, "this is not an epoch"))?;
    let attempt = app.live.attempt(epoch).ok_or((StatusCode::GONE, "this attempt has ended"))?;
    let rank = attempt.rank_of(&node).ok_or(agent::REFUSED)?;
    Ok(Asking { node, epoch, rank, job: attempt.job, workspace: attempt.workspace })
}

/// Answers with plain text, because an agent writes it to the job's log.
fn failed(error: &ArmError) -> Response {
    let status = match error.code() {
        // A conflict would tell an agent that its attempt has ended.
        code::QUOTA_EXCEEDED => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    };
    (status, error.to_string()).into_response()
}

fn unreadable(error: &BlobError) -> Response {
    failed(&trees::refusal(error))
}

pub async fn left(
    State(app): State<Arc<App>>,
    Path(epoch): Path<String>,
    headers: HeaderMap,
) -> Response {
    let asking = match asking(&app, &headers, &epoch) {
        Ok(asking) => asking,
        Err(refused) => return refused.into_response(),
    };
    match app.readers.read(move |reader| reader.saved_trees(asking.job)).await {
        Ok(all) => {
            let own = |saved: &&SavedTree| saved.rank as usize == asking.rank;
            Json(LeftTree { saved: all.iter().find(own).map(|saved| saved.tree) }).into_response()
        }
        Err(error) => {
            tracing::error!(error = %ErrorChain(&error), "cannot look up the files that a job left");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

pub async fn tree(
    State(app): State<Arc<App>>,
    Path((epoch, tree)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let asking = match asking(&app, &headers, &epoch) {
        Ok(asking) => asking,
        Err(refused) => return refused.into_response(),
    };
    let Ok(tree) = tree.parse::<TreeId>() else { return StatusCode::NOT_FOUND.into_response() };
    let blobs = app.blobs.clone();
    let read = tokio::task::spawn_blocking(move || blobs.tree(asking.workspace, &tree));
    match read.await {
        Ok(Ok(Some(text))) => text.into_response(),
        Ok(Ok(None)) => StatusCode::NOT_FOUND.into_response(),
        Ok(Err(error)) => unreadable(&error),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

pub async fn file(
    State(app): State<Arc<App>>,
    Path((epoch, tree, digest)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Response {
    let asking = match asking(&app, &headers, &epoch) {
        Ok(asking) => asking,
        Err(refused) => return refused.into_response(),
    };
    let (Ok(tree), Ok(digest)) = (tree.parse::<TreeId>(), digest.parse::<BlobId>()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let blobs = app.blobs.clone();
    let found =
        tokio::task::spawn_blocking(move || blobs.file_of(asking.workspace, &tree, &digest));
    match found.await {
        Ok(Ok(Some(file))) => trees::send(file),
        Ok(Ok(None)) => StatusCode::NOT_FOUND.into_response(),
        Ok(Err(error)) => unreadable(&error),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

pub async fn put_file(
    State(app): State<Arc<App>>,
    Path((epoch, digest)): Path<(String, String)>,
    Query(FileForm { packed }): Query<FileForm>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let asking = match asking(&app, &headers, &epoch) {
        Ok(asking) => asking,
        Err(refused) => {
            body::discard(body).await;
            return refused.into_response();
        }
    };
    let Ok(digest) = digest.parse::<BlobId>() else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let form = if packed { Form::Packed { node: asking.node } } else { Form::Plain };
    match trees::receive(&app.blobs, asking.workspace, digest, form, Kind::OfJob, body).await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => failed(&error),
    }
}

/// Returns the files of a list that are missing. If there are none, the list becomes the result of the attempt.
pub async fn put_tree(
    State(app): State<Arc<App>>,
    Path((epoch, tree)): Path<(String, String)>,
    Query(TreePurpose { end }): Query<TreePurpose>,
    headers: HeaderMap,
    text: Bytes,
) -> Response {
    let asking = match asking(&app, &headers, &epoch) {
        Ok(asking) => asking,
        Err(refused) => return refused.into_response(),
    };
    let Ok(tree) = tree.parse::<TreeId>() else { return StatusCode::BAD_REQUEST.into_response() };
    let (blobs, workspace) = (app.blobs.clone(), asking.workspace);
    if let Err(failed) = blobs.measured(workspace).await {
        return unreadable(&failed);
    }
    let list = move || blobs.list(workspace, &tree, &text, TREE_BYTES_MAX, Kind::OfJob);
    let listed = match tokio::task::spawn_blocking(list).await {
        Ok(Ok(listed)) => listed,
        Ok(Err(error)) => return unreadable(&error),
        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    if !listed.missing.is_empty() {
        return Json(MissingFiles { missing: listed.missing }).into_response();
    }
    // All files are on disk, so the upload can be recorded.
    let request = SaveRequest {
        node: asking.node.clone(),
        epoch: asking.epoch,
        tree,
        files: u32::try_from(listed.tree.files().len()).unwrap_or(u32::MAX),
        bytes: listed.tree.bytes(),
        is_final: end == Some(AttemptEnd::Well),
    };
    let (job, epoch, rank) = (asking.job, asking.epoch, asking.rank);
    let kept = Kept { job, epoch, rank, id: tree, tree: &listed.tree };
    match app.writer.submit(Input::SaveTree(Box::new(request))).await {
        // Only the holder of the live epoch gets here.
        Ok(Ok(_)) => match artifacts::publish(&app, &kept).await {
            Ok(()) => Json(MissingFiles { missing: Vec::new() }).into_response(),
            Err(error @ ArtifactError::Over) => {
                (StatusCode::GONE, error.to_string()).into_response()
            }
            Err(error) => {
                tracing::error!(error = %ErrorChain(&error), "cannot publish the files that a job left");
                (publish_status(&error), ErrorChain(&error).to_string()).into_response()
            }
        },
        Ok(Err(refused)) => (StatusCode::CONFLICT, refused.to_string()).into_response(),
        Err(unavailable) => {
            (StatusCode::SERVICE_UNAVAILABLE, unavailable.to_string()).into_response()
        }
    }
}

/// Whether the upload is worth retrying.
fn publish_status(error: &ArtifactError) -> StatusCode {
    match error {
        ArtifactError::Refused(_) | ArtifactError::Unregistered { .. } => StatusCode::BAD_REQUEST,
        ArtifactError::Storage(Unavailable::Full | Unavailable::OnReserve) => {
            StatusCode::INSUFFICIENT_STORAGE
        }
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_workspace_is_distinguished_from_an_attempt_that_has_ended() {
        let used = BlobError::ShareUsed { used: 1, more: 2, limit: 2 };
        // An agent takes 409 and 410 to mean the end of its attempt.
        assert_eq!(unreadable(&used).status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
}
