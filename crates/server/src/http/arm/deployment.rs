//! Template deployments, which are carried out completely or not at all.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::ids::OperationId;
use muster_core::model::{Action, ActivityRequest, Deployment, Operation, Scope};
use muster_core::time::Wall;
use muster_core::{DeployRequest, DeployStep, DeployWhat, Foreseen, Input, Reply};
use muster_store::StoreError;
use muster_wire::deployment::{self, DeploymentDocument, Plan, Progress, Setting};
use muster_wire::path::Home;
use muster_wire::routes::deployments::{Delete, Endpoint, Get, Head, Post, Put};
use muster_wire::{ArmError, DeploymentRoute, Page, Route};

use super::paging::LARGE;
use super::{Call, Failed, unexpected};
use crate::Workspaces;
use crate::http::auth::{self, Need};
use crate::http::respond::{document, with_operation, with_retry_after};
use crate::readers::WorldReader;
use crate::{clock, secrets};

pub async fn handle(call: &Call, endpoint: Endpoint) -> Result<Response, Failed> {
    match endpoint {
        Endpoint::Get(Get::OfGroup(home)) => list(call, &home).await,
        Endpoint::Get(Get::One { home, name }) => {
            let found = find(call, &home, &name).await?;
            Ok(document(StatusCode::OK, &deployment::document(&found.progress())))
        }
        Endpoint::Head(Head::One { home, name }) => {
            find(call, &home, &name).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        Endpoint::Put(Put::One { home, name }) => put(call, home, name).await,
        Endpoint::Delete(Delete::One { home, name }) => delete(call, &home, &name).await,
        Endpoint::Get(Get::Operations { home, name }) => {
            let found = find(call, &home, &name).await?;
            let lines = deployment::operations(&found.progress());
            Ok(document(StatusCode::OK, &Page::whole(lines)))
        }
        Endpoint::Get(Get::OneOperation { home, name, id }) => {
            let found = find(call, &home, &name).await?;
            let lines = deployment::operations(&found.progress());
            let line = lines.iter().find(|line| line.operation_id.eq_ignore_ascii_case(&id));
            let line = line.ok_or_else(|| no_such("operation", &id, "list the operations"))?;
            Ok(document(StatusCode::OK, line))
        }
        Endpoint::Get(Get::Status { home, name, id }) => {
            let found = find(call, &home, &name).await?;
            if found.deployment.id.to_string() != *id {
                return Err(no_such(
                    "operation",
                    &id,
                    "the deployment was replaced by a newer one",
                )
                .into());
            }
            let status = deployment::status(&found.progress());
            Ok(with_retry_after(document(StatusCode::OK, &status)))
        }
        Endpoint::Post(Post::Validate { home, name }) => {
            let (tried, _) = carry_out(call, home, name, true).await?;
            Ok(document(StatusCode::OK, &deployment::validation(&tried)))
        }
        Endpoint::Post(Post::WhatIf { home, name }) => {
            let (tried, foreseen) = carry_out(call, home, name, true).await?;
            Ok(document(StatusCode::OK, &deployment::what_if(&tried, &foreseen)))
        }
    }
}

/// A deployment with the state of the operations that it waits for.
struct Found {
    deployment: Deployment,
    operations: Vec<Operation>,
}

impl Found {
    fn progress(&self) -> Progress<'_> {
        let (deployment, operations) = (&self.deployment, self.operations.as_slice());
        Progress { deployment, operations, now: Wall(clock::unix_us()) }
    }
}

fn with_operations(reader: &mut WorldReader, deployment: Deployment) -> Result<Found, StoreError> {
    let mut operations = Vec::new();
    let waited: Vec<OperationId> =
        deployment.made.iter().filter_map(|made| made.operation).collect();
    for id in waited {
        operations.extend(reader.operation(id)?);
    }
    Ok(Found { deployment, operations })
}

/// A deployment that the caller may not see is reported as missing.
async fn find(call: &Call, home: &Home, name: &str) -> Result<Found, Failed> {
    let (scope, wanted) = (home.scope(), name.to_owned());
    let read = move |reader: &mut WorldReader| {
        let Some(found) = reader.deployment(&scope, &wanted)? else { return Ok(None) };
        with_operations(reader, found).map(Some)
    };
    let found = call.app.readers.read(read).await?;
    let found = found.filter(|found| sees(call, &found.deployment));
    Ok(found.ok_or_else(|| no_such("deployment", name, "list the deployments of the group"))?)
}

fn no_such(what: &str, name: &str, remedy: &str) -> ArmError {
    ArmError::deployment_not_found(format!("{what} '{name}' does not exist; {remedy}"))
}

/// Outputs may reveal anything in the group, so a role on a part of it is not enough.
fn sees(call: &Call, deployment: &Deployment) -> bool {
    deployment.by.object_id == call.caller.object_id || call.may(Action::Read, &deployment.scope())
}

async fn list(call: &Call, home: &Home) -> Result<Response, Failed> {
    let state = match call.query.get("$filter") {
        None => None,
        Some(filter) => Some(deployment::filter(filter)?),
    };
    let (scope, size) = (home.scope(), call.page_size(LARGE)?);
    let mut all = call.app.readers.read(move |reader| reader.deployments(&scope)).await?;
    // Later deployments have larger ids, and come first.
    let key = |found: &Deployment| format!("{:016x}", u64::MAX - found.id.0);
    let after = call.query.skip().unwrap_or("");
    all.retain(|found| sees(call, found) && key(found).as_str() > after);
    all.sort_by_key(key);
    // Only the deployments on this page are examined, because the progress of each takes a read per instance in it.
    let read = move |reader: &mut WorldReader| {
        let mut page = Vec::new();
        for found in all {
            if page.len() > size {
                break;
            }
            let found = with_operations(reader, found)?;
            let shown = deployment::document(&found.progress());
            if state.as_deref().is_none_or(|state| shown.is_in(state)) {
                page.push((found.deployment.id, shown));
            }
        }
        Ok(page)
    };
    let mut page: Vec<(OperationId, DeploymentDocument)> = call.app.readers.read(read).await?;
    let is_more = page.len() > size;
    page.truncate(size);
    let route = Route::Deployments(DeploymentRoute::OfGroup(home.clone()));
    let last = page.last().filter(|_| is_more).map(|(id, _)| format!("{:016x}", u64::MAX - id.0));
    let next = last.and_then(|last| call.next_link(&route, &last));
    let value = page.into_iter().map(|(_, shown)| shown).collect();
    Ok(document(StatusCode::OK, &Page::new(value, next)))
}

async fn put(call: &Call, home: Home, name: Box<str>) -> Result<Response, Failed> {
    let (scope, wanted) = (home.scope(), name.clone());
    let known = call.app.readers.read(move |reader| reader.deployment(&scope, &wanted)).await?;
    if let Some(known) = &known {
        check_own(call, known)?;
    }
    let (made, _) = carry_out(call, home.clone(), name.clone(), false).await?;
    let id = made.id.to_string().into();
    let read = move |reader: &mut WorldReader| with_operations(reader, made);
    let found = call.app.readers.read(read).await?;
    let version = call.query.api_version().unwrap_or("2020-06-01");
    let route = Route::Deployments(DeploymentRoute::Status { home, name, id });
    let url =
        route.url(&call.app.base_url, &[("api-version", version)]).expect("a deployment has a URL");
    let status = if known.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    let answer = document(status, &deployment::document(&found.progress()));
    Ok(with_operation(answer, &url))
}

async fn delete(call: &Call, home: &Home, name: &str) -> Result<Response, Failed> {
    let found = match find(call, home, name).await {
        Ok(found) => found,
        Err(Failed(error)) if error.status == 404 => {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        Err(failed) => return Err(failed),
    };
    check_own(call, &found.deployment)?;
    call.submit(Input::DeleteDeployment { group: home.scope(), name: name.into() }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A deployment by another user may be replaced or deleted only by a caller who manages the group.
fn check_own(call: &Call, known: &Deployment) -> Result<(), ArmError> {
    if known.by.object_id == call.caller.object_id {
        return Ok(());
    }
    let need = Need::To(Action::ManageWorkspaces, known.scope());
    auth::authorize(&call.app, &call.caller, &need)
}

/// Reads the template, checks that the caller may create everything in it, and carries it out, or only validates it.
async fn carry_out(
    call: &Call,
    home: Home,
    name: Box<str>,
    is_trial: bool,
) -> Result<(Deployment, Vec<Foreseen>), Failed> {
    let seed = secrets::random();
    // Passwords take long to hash, so permission is checked first.
    let mut plan = read(call, &home, &name, seed, &|_| String::new())?;
    for need in needs(&plan, &home) {
        auth::authorize(&call.app, &call.caller, &need)?;
    }
    if !is_trial && has_passwords(&plan) {
        plan = tokio::task::block_in_place(|| read(call, &home, &name, seed, &secrets::digest))?;
    }
    let correlation = call
        .activity_request
        .as_ref()
        .map_or_else(|| "".into(), |activity_request| activity_request.correlation.clone());
    let step = |what: DeployWhat| {
        let (route, scope) = match &what {
            DeployWhat::Workspace { key, .. } => {
                (Route::Workspace(key.clone()), Scope::workspace(key))
            }
            DeployWhat::Compute { workspace, name, .. } => {
                let (workspace, name) = (workspace.clone(), name.clone());
                let scope = Scope::workspace(&workspace);
                (Route::Compute { workspace, name }, scope)
            }
        };
        let activity_request = ActivityRequest {
            operation: route.operation("PUT").unwrap_or_default().into(),
            resource: route.path().unwrap_or_default().into(),
            scope,
            correlation: correlation.clone(),
        };
        DeployStep { activity_request, what }
    };
    let request = DeployRequest {
        subscription: home.subscription,
        resource_group: home.resource_group,
        name,
        by: call.caller.clone(),
        correlation: correlation.clone(),
        template_hash: plan.template_hash.into(),
        steps: plan.steps.into_iter().map(step).collect(),
        left_out: plan.left_out,
        outputs: plan.outputs.map(|outputs| outputs.as_str().into()),
        is_trial,
    };
    match call.submit(Input::Deploy(Box::new(request))).await? {
        Reply::Deployment(deployment) => Ok((*deployment, Vec::new())),
        Reply::Tried { deployment, foreseen } => Ok((*deployment, foreseen)),
        other => Err(unexpected(&other)),
    }
}

/// As in Azure, the group of a deployment must exist, unless groups are created on first use.
fn read(
    call: &Call,
    home: &Home,
    name: &str,
    seed: [u8; 16],
    digest: &dyn Fn(&str) -> String,
) -> Result<Plan, Failed> {
    let governance = call.app.live.governance();
    let group = governance.group(&home.subscription, &home.resource_group);
    let none = BTreeMap::new();
    let (location, tags) = match group {
        Some(group) => (&group.location, &group.tags),
        None if call.app.workspaces == Workspaces::OnFirstUse => (&call.app.location, &none),
        None => {
            let missing =
                muster_wire::manager::no_such_group(&home.subscription, &home.resource_group);
            return Err(missing.into());
        }
    };
    let setting = Setting {
        subscription: &home.subscription,
        resource_group: &home.resource_group,
        location,
        tags,
        tenant: call.app.keyring.tenant_id(),
        deployment: name,
        now: Wall(clock::unix_us()),
        seed,
    };
    Ok(deployment::plan(&call.body, &setting, digest)?)
}

fn has_passwords(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| match step {
        DeployWhat::Workspace { .. } => false,
        DeployWhat::Compute { wanted, .. } => {
            wanted.admin.as_ref().is_some_and(|admin| admin.password_digest.is_some())
        }
    })
}

/// The permissions that each resource needs when it is created by itself. A template without resources still needs
/// permission on the group.
fn needs(plan: &Plan, home: &Home) -> Vec<Need> {
    if plan.steps.is_empty() {
        return vec![Need::To(Action::ManageWorkspaces, home.scope())];
    }
    let need = |step: &DeployWhat| match step {
        DeployWhat::Workspace { key, .. } => {
            Need::To(Action::ManageWorkspaces, Scope::workspace(key))
        }
        DeployWhat::Compute { workspace, .. } => {
            Need::To(Action::ManageComputes, Scope::workspace(workspace))
        }
    };
    plan.steps.iter().map(need).collect()
}
