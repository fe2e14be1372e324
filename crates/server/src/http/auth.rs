//! Who is asking: a bearer token made by us, for an audience that this route takes. And whether they may.

use axum::http::{HeaderMap, header};
use muster_core::model::{Action, Caller, Scope};
use muster_wire::{AccessRoute, ArmError, Manager, Route};

use crate::app::App;
use crate::clock;
use crate::tokens;

/// The caller of an ARM or run-history route, or the 401 that says why not.
pub fn caller(app: &App, headers: &HeaderMap) -> Result<Caller, ArmError> {
    // Of two, a proxy in front may have looked at the other one.
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let authorization = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    };
    let accepted: [&[String]; 2] = [&app.audiences.arm, &app.audiences.ml];
    let directory = app.live.directory();
    let principal = tokens::bearer(authorization)
        .and_then(|token| app.keyring.verify(token, &accepted, clock::unix_seconds(), &directory))
        .map_err(|rejected| ArmError::unauthorized(&app.base_url, &rejected.to_string()))?;
    Ok(Caller { object_id: principal.id.into(), name: principal.name.into() })
}

/// What a request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// A token.
    Nothing,
    /// A role on anything in there; what the others have is left out of the answer.
    SomethingIn(Scope),
    To(Action, Scope),
}

/// What each endpoint needs. No endpoint without a line here.
pub fn need(method: &str, route: &Route) -> Need {
    let on = |action, workspace| Need::To(action, Scope::workspace(workspace));
    let read = |workspace| on(Action::Read, workspace);
    // Whatever the method is: where it does not exist, the refusal must not say more than that.
    let reads = matches!(method, "GET" | "HEAD");
    match route {
        // They are answered before anybody is known, or to everybody.
        Route::Metadata | Route::Token | Route::Discovery | Route::Unknown => Need::Nothing,
        Route::WorkspacesOfSubscription { subscription }
        | Route::Operation { subscription, .. }
        | Route::Usages { subscription, .. }
        | Route::VmSizes { subscription, .. }
        | Route::Quotas { subscription, .. } => {
            Need::SomethingIn(Scope::subscription(subscription))
        }
        Route::UpdateQuotas { subscription, .. } => {
            Need::To(Action::ManageQuota, Scope::subscription(subscription))
        }
        Route::WorkspacesOfGroup { subscription, resource_group } => {
            Need::SomethingIn(Scope::group(subscription, resource_group))
        }
        Route::Workspace(key) if reads => read(key),
        Route::Workspace(key) => on(Action::ManageWorkspaces, key),
        Route::Compute { workspace, .. } if !reads => on(Action::ManageComputes, workspace),
        Route::ComputeAction { workspace, .. } => on(Action::ManageComputes, workspace),
        Route::Job { workspace, .. } if !reads => on(Action::RunJobs, workspace),
        Route::JobCancel { workspace, .. } => on(Action::RunJobs, workspace),
        Route::Computes(key) | Route::Jobs(key) | Route::Ledger(key) => read(key),
        Route::Compute { workspace, .. }
        | Route::ComputeNodes { workspace, .. }
        | Route::Job { workspace, .. }
        | Route::RunDetails { workspace, .. }
        | Route::WhyJob { workspace, .. }
        | Route::WhyCompute { workspace, .. } => read(workspace),
        Route::Access(route) => access_need(reads, route),
        Route::Manager(route) => manager_need(route),
    }
}

/// They tell of workspaces and what is in them, and leave out what the caller may not read.
fn manager_need(route: &Manager) -> Need {
    match route {
        Manager::Tenants | Manager::Subscriptions => Need::Nothing,
        Manager::Subscription { subscription }
        | Manager::Locations { subscription }
        | Manager::Providers { subscription }
        | Manager::Provider { subscription, .. }
        | Manager::ResourceGroups { subscription }
        | Manager::Resources { subscription }
        | Manager::MachineSizes { subscription, .. }
        | Manager::MachineUsages { subscription, .. } => {
            Need::SomethingIn(Scope::subscription(subscription))
        }
        Manager::ResourceGroup { subscription, name }
        | Manager::ResourcesOfGroup { subscription, name } => {
            Need::SomethingIn(Scope::group(subscription, name))
        }
    }
}

fn access_need(reads: bool, route: &AccessRoute) -> Need {
    match route {
        AccessRoute::Me => Need::Nothing,
        // Users belong to the whole server.
        AccessRoute::Users
        | AccessRoute::User { .. }
        | AccessRoute::RotateKey { .. }
        | AccessRoute::RevokeKey { .. } => Need::To(Action::ManageAccess, Scope::Everything),
        AccessRoute::RoleDefinitions(_) => Need::Nothing,
        AccessRoute::RoleAssignments(scope) => Need::To(Action::Read, scope.clone()),
        AccessRoute::RoleAssignment { scope, .. } => {
            let action = if reads { Action::Read } else { Action::ManageAccess };
            Need::To(action, scope.clone())
        }
    }
}

/// Whether the caller has what is needed. The refusal is the same whether what they ask for exists or not.
pub fn authorize(app: &App, caller: &Caller, need: &Need) -> Result<(), ArmError> {
    let (is_allowed, action, scope) = match need {
        Need::Nothing => return Ok(()),
        Need::To(action, scope) => (may(app, caller, *action, scope), *action, scope),
        Need::SomethingIn(scope) => {
            let sees = app.live.directory().sees(&caller.object_id, scope);
            (sees || app.keyring.is_owner(&caller.object_id), Action::Read, scope)
        }
    };
    if is_allowed {
        return Ok(());
    }
    Err(ArmError::forbidden(format!(
        "'{}' (object id {}) may not {} on {scope}; ask an owner for a role there: muster role assignment \
         create --assignee {} --role ROLE --scope {scope}",
        caller.name,
        caller.object_id,
        action.as_str(),
        caller.name,
    )))
}

pub fn may(app: &App, caller: &Caller, action: Action, scope: &Scope) -> bool {
    app.keyring.is_owner(&caller.object_id)
        || app.live.directory().allows(&caller.object_id, action, scope)
}
