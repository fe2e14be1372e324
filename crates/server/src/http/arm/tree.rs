//! Uploads of the files that jobs bring: a file list first, then the files that the server does not have yet.

use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::ids::WorkspaceId;
use muster_core::model::{BlobId, TreeId, WorkspaceKey};
use muster_wire::ArmError;
use muster_wire::trees::Missing;

use super::first_use::home;
use super::{Call, Failed, workspace};
use crate::app::App;
use crate::http::respond::document;
use crate::http::trees::Form;
use crate::http::{body, trees};
use crate::room::Kind;

/// More than any code base has; data belongs in a datastore.
const CODE_BYTES_MAX: u64 = 2 << 30;

pub async fn put(call: &Call, key: WorkspaceKey, id: Box<str>) -> Result<Response, Failed> {
    let id: TreeId = id.parse().map_err(|_| no_digest("id", &id))?;
    let workspace = home(call, &key).await?.id;
    let (blobs, text) = (call.app.blobs.clone(), call.body.clone());
    blobs.measured(workspace).await.map_err(|failed| trees::refusal(&failed))?;
    let list = move || blobs.list(workspace, &id, &text, CODE_BYTES_MAX, Kind::Upload);
    let listed = tokio::task::spawn_blocking(list).await;
    let listed = listed.map_err(|_| ArmError::internal("blob-list"))?;
    let listed = listed.map_err(|failed| trees::refusal(&failed))?;
    Ok(document(StatusCode::OK, &Missing { missing: listed.missing }))
}

/// Unlike all other bodies, this one is not read as a whole.
pub async fn put_blob(
    app: &Arc<App>,
    workspace: &WorkspaceKey,
    digest: &str,
    content: Body,
) -> Result<Response, Failed> {
    let ready = digest
        .parse::<BlobId>()
        .map_err(|_| Failed(no_digest("digest", digest)))
        .and_then(|digest| Ok((digest, workspace_id(app, workspace)?)));
    match ready {
        Ok((digest, workspace)) => {
            let (form, kind) = (Form::Plain, Kind::Upload);
            trees::receive(&app.blobs, workspace, digest, form, kind, content).await?;
            Ok(StatusCode::OK.into_response())
        }
        Err(refused) => {
            body::discard(content).await;
            Err(refused)
        }
    }
}

/// Checks that all files that a job brings have been uploaded.
pub async fn check_code(app: &App, key: &WorkspaceKey, code: TreeId) -> Result<(), Failed> {
    let missing = || {
        let message = format!(
            "the files {code} of the job have not been uploaded; send them first, as `muster job create --code` \
             does"
        );
        Failed(ArmError::invalid_property(muster_wire::job::property::CODE, message))
    };
    let workspace = workspace_id(app, key).map_err(|_| missing())?;
    let blobs = app.blobs.clone();
    let found = tokio::task::spawn_blocking(move || blobs.has_tree(workspace, &code)).await;
    let found = found.map_err(|_| ArmError::internal("blob-look"))?;
    match found.map_err(|failed| trees::refusal(&failed))? {
        true => Ok(()),
        false => Err(missing()),
    }
}

fn workspace_id(app: &App, key: &WorkspaceKey) -> Result<WorkspaceId, Failed> {
    match app.readers.look_up(|reader| reader.workspace(key))? {
        Some(found) => Ok(found.id),
        None => Err(workspace::no_such(key).into()),
    }
}

fn no_digest(target: &str, text: &str) -> ArmError {
    let shown: String = text.chars().take(80).collect();
    ArmError::invalid_property(
        target,
        format!("'{shown}' is not a BLAKE3 digest; give 64 hex digits"),
    )
}
