//! Users, keys and roles.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::model::{Action, RoleAssignment, Scope};
use muster_core::nearest;
use muster_core::time::Wall;
use muster_core::{AccessRequest, Input, NewUser, Reply};
use muster_wire::access::{self, MeDocument, MyRole};
use muster_wire::routes::access::{Delete, Endpoint, Get, Post, Put};
use muster_wire::{AccessRoute, ArmError, Page, Route};

use super::{Call, Failed, unexpected};
use crate::http::respond::document;
use crate::readers::WorldReader;
use crate::tokens;

pub async fn handle(call: &Call, endpoint: Endpoint) -> Result<Response, Failed> {
    match endpoint {
        Endpoint::Get(Get::Me) => Ok(me(call)),
        Endpoint::Get(Get::Users) => users(call),
        Endpoint::Get(Get::User { name }) => user(call, &name),
        Endpoint::Put(Put::User { name }) => create_user(call, name).await,
        Endpoint::Delete(Delete::User { name }) => {
            submit(call, AccessRequest::DeleteUser { user: name }).await?;
            Ok(StatusCode::OK.into_response())
        }
        Endpoint::Post(Post::RotateKey { name }) => rotate(call, name).await,
        Endpoint::Post(Post::RevokeKey { name }) => answer_user(
            submit(call, AccessRequest::SetKey { user: name, digest: None }).await?,
            None,
        ),
        Endpoint::Get(Get::RoleAssignments(scope)) => roles(call, scope),
        Endpoint::Get(Get::RoleAssignment { scope, name }) => role(call, &scope, &name),
        Endpoint::Put(Put::RoleAssignment { scope, name }) => assign(call, scope, name).await,
        Endpoint::Delete(Delete::RoleAssignment { scope, name }) => {
            match submit(call, AccessRequest::RemoveRole { name, scope }).await? {
                Reply::NothingToDelete => Ok(StatusCode::NO_CONTENT.into_response()),
                reply => answer_role(call, reply, None, StatusCode::OK),
            }
        }
        Endpoint::Get(Get::RoleDefinitions(_)) => {
            let found = access::role_definitions(call.query.get("$filter"))?;
            Ok(document(StatusCode::OK, &Page::whole(found)))
        }
    }
}

async fn submit(call: &Call, request: AccessRequest) -> Result<Reply, Failed> {
    call.submit(Input::ChangeAccess(Box::new(request))).await
}

fn me(call: &Call) -> Response {
    let directory = call.app.live.directory();
    let mine = directory.roles().filter(|role| role.object_id == call.caller.object_id);
    let roles = mine
        .map(|role| MyRole { role: role.role.as_str().to_owned(), scope: role.scope.to_string() });
    let document = MeDocument {
        name: call.caller.name.to_string(),
        object_id: call.caller.object_id.to_string(),
        tenant_id: call.app.keyring.tenant_id().to_owned(),
        is_owner: call.app.keyring.is_owner(&call.caller.object_id),
        roles: roles.collect(),
    };
    self::document(StatusCode::OK, &document)
}

fn users(call: &Call) -> Result<Response, Failed> {
    let directory = call.app.live.directory();
    let value = directory.users();
    let value = value.map(|user| (user.name.to_lowercase(), access::user(user, None))).collect();
    call.page(&Route::Access(AccessRoute::Users), value)
}

fn user(call: &Call, name: &str) -> Result<Response, Failed> {
    let directory = call.app.live.directory();
    let user = directory.user(name).ok_or_else(|| {
        ArmError::not_found("name", "there is no such user; `muster user list` shows all users")
    })?;
    Ok(document(StatusCode::OK, &access::user(user, None)))
}

async fn create_user(call: &Call, name: Box<str>) -> Result<Response, Failed> {
    let kind = access::parse_user(&call.body)?;
    let (key, digest) = new_key()?;
    let object_id = tokens::new_id().map_err(no_random)?.into();
    let new = NewUser { name, kind, object_id, digest };
    answer_user(submit(call, AccessRequest::CreateUser(new)).await?, Some(&key))
}

async fn rotate(call: &Call, user: Box<str>) -> Result<Response, Failed> {
    let (key, digest) = new_key()?;
    let request = AccessRequest::SetKey { user, digest: Some(digest) };
    answer_user(submit(call, request).await?, Some(&key))
}

fn new_key() -> Result<(String, muster_core::model::KeyDigest), Failed> {
    tokens::new_key().map_err(no_random)
}

fn no_random(failed: tokens::TokenError) -> Failed {
    tracing::error!(error = %failed, "cannot get random numbers");
    Failed(ArmError::internal("no-random-numbers"))
}

fn answer_user(reply: Reply, key: Option<&str>) -> Result<Response, Failed> {
    let Reply::User(user) = reply else { return Err(unexpected(&reply)) };
    Ok(document(StatusCode::OK, &access::user(&user, key)))
}

/// The role assignments that apply to a scope: those on it and above it, and below it if the caller has a role above.
fn roles(call: &Call, scope: Scope) -> Result<Response, Failed> {
    let directory = call.app.live.directory();
    let value = directory
        .roles()
        .filter(|role| role.scope.contains(&scope) || scope.contains(&role.scope))
        .map(|role| {
            let user = directory.user_by_object_id(&role.object_id);
            let found = access::role_assignment(role, user.map(|user| &**user));
            (role.name.to_lowercase(), found)
        })
        .collect();
    call.page(&Route::Access(AccessRoute::RoleAssignments(scope)), value)
}

fn role(call: &Call, scope: &Scope, name: &str) -> Result<Response, Failed> {
    let directory = call.app.live.directory();
    let role = directory.role(name).filter(|role| role.scope == *scope).ok_or_else(|| {
        ArmError::not_found("name", "there is no such role assignment on this scope")
    })?;
    let user = directory.user_by_object_id(&role.object_id);
    Ok(document(StatusCode::OK, &access::role_assignment(role, user.map(|user| &**user))))
}

async fn assign(call: &Call, scope: Scope, name: Box<str>) -> Result<Response, Failed> {
    let (role, object_id) = access::parse_role_assignment(&call.body)?;
    let wanted = RoleAssignment { name, object_id, role, scope, created_at: Wall(0) };
    let note = absence(call, &wanted.scope).await?;
    let reply = submit(call, AccessRequest::AssignRole(wanted)).await?;
    answer_role(call, reply, note, StatusCode::CREATED)
}

fn answer_role(
    call: &Call,
    reply: Reply,
    note: Option<String>,
    status: StatusCode,
) -> Result<Response, Failed> {
    let Reply::Role(role) = reply else { return Err(unexpected(&reply)) };
    let directory = call.app.live.directory();
    let user = directory.user_by_object_id(&role.object_id);
    let mut shown = access::role_assignment(&role, user.map(|user| &**user));
    shown.properties.note = note;
    Ok(document(status, &shown))
}

/// A note about a role on a scope that does not exist, because a typing error would give no access to anything. Only
/// names that the caller may see are suggested.
async fn absence(call: &Call, scope: &Scope) -> Result<Option<String>, Failed> {
    let governance = call.app.live.governance();
    let (what, name, known): (_, &str, Vec<String>) = match scope {
        Scope::Everything | Scope::Compute { .. } => return Ok(None),
        Scope::Subscription(subscription) => {
            let groups = super::governance::groups(call, &governance, None);
            let names = groups.map(|group| group.subscription.to_string());
            ("subscription", subscription, names.collect())
        }
        Scope::Group { subscription, resource_group } => {
            let groups = super::governance::groups(call, &governance, Some(subscription));
            let names = groups.map(|group| group.name.to_string()).collect();
            ("resource group", resource_group, names)
        }
        Scope::Workspace(key) => {
            let (subscription, group) = (key.subscription.clone(), key.resource_group.clone());
            let read =
                move |reader: &mut WorldReader| reader.workspaces(&subscription, Some(&group));
            let found = call.app.readers.read(read).await?;
            let names = found.iter().map(|workspace| &workspace.key);
            let names = names.filter(|key| call.may(Action::Read, &Scope::workspace(key)));
            ("workspace", &key.name, names.map(|key| key.name.to_string()).collect())
        }
    };
    if known.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return Ok(None);
    }
    let near = nearest::suggestion(name, known.iter().map(String::as_str));
    let near = near.map(|near| format!(" {near}")).unwrap_or_default();
    Ok(Some(format!(
        "{scope} does not exist: there is no {what} '{name}'. The role takes effect once it does.{near}"
    )))
}
