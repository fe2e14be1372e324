//! Explains why a job is waiting, and why a cluster has its current size.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use axum::response::Response;
use muster_core::model::{Action, Role, RoleAssignment, Scope, WorkspaceKey};
use muster_core::why::{Reason, Remedy};
use muster_wire::spelling;
use muster_wire::why::{self, WhyDocument};

use super::{Call, Failed, cluster, job};
use crate::http::respond::document;

/// How many users the advice names.
const ASKED_MAX: usize = 3;

pub async fn job(call: &Call, workspace: WorkspaceKey, name: Box<str>) -> Result<Response, Failed> {
    let view = job::find(call, &workspace, &name).await?;
    let reasons = call.app.writer.why(&call.caller, view.job.id).await?;
    // A job that does not wait is read again after the question, because it may have just started.
    let view = match reasons.is_empty() {
        true => job::find(call, &workspace, &name).await?,
        false => view,
    };
    let (key, compute) = (workspace.clone(), view.spec.compute.clone());
    let compute = call.app.readers.read(move |reader| reader.cluster(&key, &compute)).await?;
    let on = |compute| cluster::notes_for_job(call, &workspace, &compute, &view.spec);
    let mut notes = compute.map(on).unwrap_or_default();
    notes.extend(store_note(call, &reasons).await?);
    let facts = job::facts(&workspace, &view, None);
    let found = why::job_document(&facts, &reasons, notes);
    Ok(document(StatusCode::OK, &with_advice(call, &workspace, &reasons, found)))
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
        // The compute was deleted in the meantime.
        return Err(cluster::no_such(&workspace, &name).into());
    }
    let mut notes = cluster::notes_on(call, &workspace, &found);
    notes.extend(store_note(call, &reasons).await?);
    let found = why::compute_document(&reasons, notes);
    Ok(document(StatusCode::OK, &with_advice(call, &workspace, &reasons, found)))
}

/// A note about a store that does not accept new work. It concerns all users, even if it is not the reason for this
/// wait.
async fn store_note(call: &Call, reasons: &[Reason]) -> Result<Option<String>, Failed> {
    let is_told = reasons.iter().any(|reason| matches!(reason, Reason::Store(_)));
    let trouble = call.app.writer.store_trouble().await?.filter(|_| !is_told);
    let note = |reason: Reason| spelling::reason(&reason);
    Ok(trouble.map(|trouble| note(Reason::Store(trouble))))
}

/// Adds whom to ask, if the caller may not follow the advice.
fn with_advice(
    call: &Call,
    workspace: &WorkspaceKey,
    reasons: &[Reason],
    mut found: WhyDocument,
) -> WhyDocument {
    for (shown, reason) in found.value.iter_mut().zip(reasons) {
        let needs = needs(workspace, &reason.remedy());
        shown.ask = needs.and_then(|(action, scope)| whom_to_ask(call, action, &scope));
    }
    found
}

/// The permission that following the advice requires, and its scope.
fn needs(workspace: &WorkspaceKey, remedy: &Remedy) -> Option<(Action, Scope)> {
    match remedy {
        Remedy::SetMaximum { .. }
        | Remedy::SetMinimum { .. }
        | Remedy::SetIdleTime { .. }
        | Remedy::TryAgain { .. }
        | Remedy::GrowAtOnce { .. }
        | Remedy::Start { .. }
        | Remedy::Stop { .. } => Some((Action::ManageComputes, Scope::workspace(workspace))),
        Remedy::SetQuota { .. } => {
            Some((Action::ManageQuota, Scope::subscription(&workspace.subscription)))
        }
        Remedy::JoinHost
        | Remedy::OpenHost { .. }
        | Remedy::DrainHost { .. }
        | Remedy::CheckServer => Some((Action::ManageAccess, Scope::Everything)),
        Remedy::Unlock { lock } => Some((Action::ManageAccess, lock.scope.clone())),
        Remedy::Cancel { .. } => Some((Action::RunJobs, Scope::workspace(workspace))),
        Remedy::Wait { .. } | Remedy::ListTasks { .. } | Remedy::List(_) => None,
    }
}

/// The users who have the permission; `None` if the caller has it.
fn whom_to_ask(call: &Call, action: Action, scope: &Scope) -> Option<String> {
    if call.may(action, scope) {
        return None;
    }
    let directory = call.app.live.directory();
    let can = |given: &&RoleAssignment| given.role.allows(action) && given.scope.contains(scope);
    let holders = directory.roles().filter(can);
    let users = holders.filter_map(|given| directory.user_by_object_id(&given.object_id));
    let names: BTreeSet<&str> = users.map(|user| &*user.name).take(ASKED_MAX).collect();
    let names: Vec<&str> = match names.is_empty() {
        true => vec!["the owner of this server"],
        false => names.into_iter().collect(),
    };
    let roles: Vec<&str> =
        Role::ALL.iter().filter(|role| role.allows(action)).map(|role| role.as_str()).collect();
    Some(format!(
        "you may not {} there; ask {}, or request the role {}",
        action.as_str(),
        names.join(" or "),
        roles.join(" or ")
    ))
}
