//! Why a job waits, and why a cluster is as large as it is.

use axum::http::StatusCode;
use axum::response::Response;
use muster_core::model::WorkspaceKey;
use muster_wire::why;

use super::{Call, Failed, cluster, job};
use crate::http::respond::document;

pub async fn job(call: &Call, workspace: WorkspaceKey, name: Box<str>) -> Result<Response, Failed> {
    let view = job::find(call, &workspace, &name).await?;
    let reasons = call.app.writer.why(&call.caller, view.job.id).await?;
    // One that does not wait says what it does, as of after the question: it may have just begun.
    let view = match reasons.is_empty() {
        true => job::find(call, &workspace, &name).await?,
        false => view,
    };
    let (key, compute) = (workspace.clone(), view.spec.compute.clone());
    let compute = call.app.readers.read(move |reader| reader.cluster(&key, &compute)).await?;
    let on = |compute| cluster::notes_for_job(call, &workspace, &compute, &view.spec);
    let notes = compute.map(on).unwrap_or_default();
    let facts = job::facts(&workspace, &view, None);
    Ok(document(StatusCode::OK, &why::job_document(&facts, &reasons, notes)))
}

pub async fn compute(
    call: &Call,
    workspace: WorkspaceKey,
    name: Box<str>,
) -> Result<Response, Failed> {
    let (key, wanted) = (workspace.clone(), name.clone());
    let found = call.app.readers.read(move |reader| reader.cluster(&key, &wanted)).await?;
    let found = found.ok_or_else(|| cluster::no_such(&workspace, &name))?;
    let reasons = call.app.writer.why_cluster(&call.caller, found.cluster.id).await?;
    if reasons.is_empty() {
        // It went in the meantime.
        return Err(cluster::no_such(&workspace, &name).into());
    }
    let notes = cluster::notes_on(call, &workspace, &found);
    Ok(document(StatusCode::OK, &why::compute_document(&reasons, notes)))
}
