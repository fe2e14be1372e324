//! The post-mortems of a compute's failed and lost nodes.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use muster_core::model::WorkspaceKey;
use muster_wire::post_mortem::PostMortem;
use muster_wire::{ArmError, Page};

use super::{Call, Failed, cluster};
use crate::http::respond::document;

/// Newest first. There are so few that they fit on one page.
pub async fn list(
    call: &Call,
    workspace: WorkspaceKey,
    compute: Box<str>,
) -> Result<Response, Failed> {
    let all = all(call, &workspace, &compute).await?;
    let value = all.into_iter().map(PostMortem::without_log).collect();
    Ok(document(StatusCode::OK, &Page::new(value, None)))
}

pub async fn get(
    call: &Call,
    workspace: WorkspaceKey,
    compute: Box<str>,
    node: Box<str>,
) -> Result<Response, Failed> {
    let all = all(call, &workspace, &compute).await?;
    let found = all.into_iter().find(|found| found.node.eq_ignore_ascii_case(&node));
    let missing = || {
        ArmError::not_found(
            "node",
            format!(
                "there is no post-mortem of node '{node}' of compute '{compute}': it is running, ended normally, or \
                 ended too long ago; list the existing ones"
            ),
        )
    };
    Ok(document(StatusCode::OK, &found.ok_or_else(missing)?))
}

async fn all(
    call: &Call,
    workspace: &WorkspaceKey,
    compute: &str,
) -> Result<Vec<PostMortem>, Failed> {
    let (key, wanted) = (workspace.clone(), compute.to_owned());
    let found = call.app.readers.read(move |reader| reader.cluster(&key, &wanted)).await?;
    let cluster = found.ok_or_else(|| cluster::no_such(workspace, compute))?.cluster.id;
    let kept = Arc::clone(&call.app.post_mortems);
    // This fails only if the thread panics, and then there is nothing to show.
    Ok(tokio::task::spawn_blocking(move || kept.of(cluster)).await.unwrap_or_default())
}
