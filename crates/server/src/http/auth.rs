//! Authenticates requests by a bearer token that this server issued for an audience of the route, and authorizes them.

use axum::http::{HeaderMap, header};
use muster_core::model::{Action, Caller, Role, Scope};
use muster_wire::blob::StorageError;
use muster_wire::{
    AccessRoute, ArmError, GovernanceRoute, HistoryRoute, Manager, Route, StorageRoute, V1Route,
    WorkspaceAction,
};

use crate::app::App;
use crate::clock;
use crate::tokens::{self, Audiences, Principal, TokenRejected};

/// A limit that keeps refusals readable.
const ROLES_SHOWN_MAX: usize = 5;

/// The caller of a route, or a 401 that says what is wrong.
pub fn caller(app: &App, headers: &HeaderMap, route: &Route) -> Result<Caller, ArmError> {
    let authorization = single(headers);
    let accepted = audiences(&app.audiences, route);
    let principal =
        tokens::bearer(authorization)
            .and_then(|token| verify(app, token, &accepted))
            .map_err(|rejected| ArmError::unauthorized(&app.base_url, &rejected.to_string()))?;
    Ok(Caller { object_id: principal.id.into(), name: principal.name.into() })
}

/// The caller of a blob request with a token, which must be for the storage audience.
pub fn storage_caller(app: &App, headers: &HeaderMap) -> Result<Caller, StorageError> {
    let authorization = single(headers);
    if !headers.contains_key(header::AUTHORIZATION) {
        return Err(StorageError::no_authentication());
    }
    let accepted = [&app.audiences.storage[..]];
    let principal =
        tokens::bearer(authorization).and_then(|token| verify(app, token, &accepted)).map_err(
            |rejected| StorageError::new(401, "InvalidAuthenticationInfo", rejected.to_string()),
        )?;
    Ok(Caller { object_id: principal.id.into(), name: principal.name.into() })
}

/// The caller that opens a service of a job with a token for any audience of the service endpoints. `None` if there is
/// no bearer token; other credentials are for the service itself.
pub fn service_caller(app: &App, headers: &HeaderMap) -> Result<Option<Caller>, String> {
    let authorization = single(headers);
    let Ok(token) = tokens::bearer(authorization) else { return Ok(None) };
    let accepted = [&app.audiences.arm[..], &app.audiences.ml];
    let principal = verify(app, token, &accepted);
    let principal = principal.map_err(|rejected| rejected.to_string())?;
    Ok(Some(Caller { object_id: principal.id.into(), name: principal.name.into() }))
}

/// Checks a token now, including that the attempt it was issued to is still live.
fn verify(app: &App, token: &str, accepted: &[&[String]]) -> Result<Principal, TokenRejected> {
    let is_live = |epoch| app.live.attempt(epoch).is_some();
    let directory = app.live.directory();
    app.keyring.verify(token, accepted, clock::unix_seconds(), &directory, is_live)
}

/// The `Authorization` header. If there are two, none is used, because a proxy in front may have checked the other one.
pub fn single(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// The audiences that each endpoint accepts: the resource manager's, and for the data plane of a workspace also Azure
/// ML's. Azure's clients use both there; azure-ai-ml 1.35 and azureml-core use the former. Only the blob storage itself
/// accepts a token for storage. An endpoint that is not listed here accepts the fewest.
fn audiences<'a>(known: &'a Audiences, route: &Route) -> Vec<&'a [String]> {
    match route {
        Route::History(_) | Route::V1(_) => vec![&known.arm, &known.ml],
        _ => vec![&known.arm],
    }
}

/// The permission that a request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// Any valid token.
    Nothing,
    /// A role on anything in this scope; the response leaves out everything that the caller may not read.
    SomethingIn(Scope),
    To(Action, Scope),
}

impl Need {
    /// The scope of the request.
    pub fn scope(&self) -> Scope {
        match self {
            Need::Nothing => Scope::Everything,
            Need::SomethingIn(scope) | Need::To(_, scope) => scope.clone(),
        }
    }
}

/// The permission that each endpoint needs. Every endpoint has a line here.
pub fn need(method: &str, route: &Route) -> Need {
    let on = |action, workspace| Need::To(action, Scope::workspace(workspace));
    let read = |workspace| on(Action::Read, workspace);
    // Independent of whether the method exists, so that a refusal does not reveal more than that.
    let reads = matches!(method, "GET" | "HEAD");
    match route {
        // These are answered without a caller, or to every caller; the owner of an operation is checked later.
        Route::Metadata
        | Route::Token
        | Route::Login(_)
        | Route::Discovery
        | Route::Operation { .. }
        | Route::Unknown => Need::Nothing,
        Route::WorkspacesOfSubscription { subscription }
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
        Route::WorkspaceAction { workspace, action: WorkspaceAction::Diagnose } => read(workspace),
        Route::WorkspaceAction { workspace, action: WorkspaceAction::ResyncKeys } => {
            on(Action::ManageWorkspaces, workspace)
        }
        Route::Compute { workspace, .. } if !reads => on(Action::ManageComputes, workspace),
        Route::ComputeAction { workspace, .. } | Route::EvictNode { workspace, .. } => {
            on(Action::ManageComputes, workspace)
        }
        Route::Job { workspace, .. } if !reads => on(Action::RunJobs, workspace),
        Route::JobCancel { workspace, .. }
        | Route::JobCheck { workspace, .. }
        | Route::Tree { workspace, .. }
        | Route::Blob { workspace, .. } => on(Action::RunJobs, workspace),
        Route::Computes(key)
        | Route::Jobs(key)
        | Route::Ledger(key)
        | Route::WorkspaceUsages(key) => read(key),
        Route::Compute { workspace, .. }
        | Route::ComputeNodes { workspace, .. }
        | Route::Job { workspace, .. }
        | Route::WhyJob { workspace, .. }
        | Route::PostMortems { workspace, .. }
        | Route::PostMortem { workspace, .. }
        | Route::JobAttempts { workspace, .. }
        | Route::WhyCompute { workspace, .. } => read(workspace),
        Route::History(HistoryRoute::Run { workspace, .. }) if !reads => {
            on(Action::RunJobs, workspace)
        }
        // All other requests only read, whatever their method is.
        Route::History(route) => read(route.workspace()),
        Route::V1(V1Route::V1Experiments(workspace)) if !reads => on(Action::RunJobs, workspace),
        Route::V1(route) => read(route.workspace()),
        Route::Access(route) => access_need(reads, route),
        // A joined host runs jobs of all users, so joining requires the right to everything.
        Route::Hosts(_) => Need::To(Action::ManageAccess, Scope::Everything),
        Route::Storage(route) => storage_need(reads, route),
        // Users who run jobs create the assets for them.
        Route::Assets(route) if reads => read(route.workspace()),
        Route::Assets(route) => on(Action::RunJobs, route.workspace()),
        Route::Governance(route) => governance_need(reads, route),
        // The resources of a template are checked when it is read, and so is who may see which deployment.
        Route::Deployments(route) => Need::SomethingIn(route.home().scope()),
        Route::Manager(route) => manager_need(reads, route),
    }
}

/// These list workspaces and their contents, and leave out what the caller may not read.
fn manager_need(reads: bool, route: &Manager) -> Need {
    match route {
        Manager::ResourceGroup { subscription, name } if !reads => {
            Need::To(Action::ManageWorkspaces, Scope::group(subscription, name))
        }
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

/// Users who run jobs upload data and download results.
fn storage_need(reads: bool, route: &StorageRoute) -> Need {
    let on = |action, workspace| Need::To(action, Scope::workspace(workspace));
    match route {
        StorageRoute::Datastores(key) => on(Action::Read, key),
        StorageRoute::Datastore { workspace, .. } if reads => on(Action::Read, workspace),
        StorageRoute::Datastore { workspace, .. }
        | StorageRoute::DatastoreSecrets { workspace, .. } => on(Action::RunJobs, workspace),
        // It examines the files of all users.
        StorageRoute::CollectGarbage => Need::To(Action::ManageAccess, Scope::Everything),
    }
}

/// As in Azure, locks are managed by those who manage roles.
fn governance_need(reads: bool, route: &GovernanceRoute) -> Need {
    match route {
        GovernanceRoute::Locks(scope) => Need::SomethingIn(scope.clone()),
        GovernanceRoute::Lock { scope, .. } if reads => Need::To(Action::Read, scope.clone()),
        GovernanceRoute::Lock { scope, .. } => Need::To(Action::ManageAccess, scope.clone()),
        GovernanceRoute::Activity { subscription: Some(subscription) } => {
            Need::SomethingIn(Scope::subscription(subscription))
        }
        GovernanceRoute::Activity { subscription: None } | GovernanceRoute::ActivityChain => {
            Need::To(Action::Read, Scope::Everything)
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

/// Whether the caller has the permission. The refusal is the same whether the requested resource exists or not.
pub fn authorize(app: &App, caller: &Caller, need: &Need) -> Result<(), ArmError> {
    let (is_allowed, action, scope) = match need {
        Need::Nothing => return Ok(()),
        Need::To(action, scope) => (may(app, caller, *action, scope), *action, scope),
        Need::SomethingIn(scope) => (sees(app, caller, scope), Action::Read, scope),
    };
    if is_allowed {
        return Ok(());
    }
    Err(forbidden(app, caller, action, scope))
}

/// The refusal names the caller's roles, a role that is sufficient, and the command with which an owner can assign it.
fn forbidden(app: &App, caller: &Caller, action: Action, scope: &Scope) -> ArmError {
    let directory = app.live.directory();
    let mut own: Vec<String> = directory
        .roles_of(&caller.object_id)
        .map(|given| format!("{} on {}", given.role.as_str(), given.scope))
        .collect();
    own.sort();
    let more = own.len().saturating_sub(ROLES_SHOWN_MAX);
    own.truncate(ROLES_SHOWN_MAX);
    let own = match (own.is_empty(), more) {
        (true, _) => "has no role anywhere".to_owned(),
        (false, 0) => format!("has {}", own.join(", ")),
        (false, more) => format!("has {} and {more} more", own.join(", ")),
    };
    let enough: Vec<&str> = Role::that_allow(action).map(Role::as_str).collect();
    let least = enough.first().copied().unwrap_or(Role::Owner.as_str());
    let Caller { name, object_id } = caller;
    ArmError::forbidden(format!(
        "'{name}' (object id {object_id}) may not {} on {scope}: {name} {own}, but this requires {} there or above; ask an \
         owner: muster role assignment create --assignee {name} --role '{least}' --scope {scope}",
        action.as_str(),
        enough.join(" or "),
    ))
}

/// Whether the caller has a role on this scope, above or below.
pub fn sees(app: &App, caller: &Caller, scope: &Scope) -> bool {
    app.keyring.is_owner(&caller.object_id) || app.live.directory().sees(&caller.object_id, scope)
}

pub fn may(app: &App, caller: &Caller, action: Action, scope: &Scope) -> bool {
    app.keyring.is_owner(&caller.object_id)
        || app.live.directory().allows(&caller.object_id, action, scope)
}
