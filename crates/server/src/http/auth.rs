//! Authenticates requests by a bearer token that this server issued for an audience of the route, and authorizes them.

use axum::http::{HeaderMap, header};
use muster_core::model::{Action, Caller, Role, Scope};
use muster_wire::blob::StorageError;
use muster_wire::path::table::{Audience, Needs, Table as _};
use muster_wire::{ArmError, Route};

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

/// The audiences that a route accepts. Only the blob storage itself accepts a token for storage.
fn audiences<'a>(known: &'a Audiences, route: &Route) -> Vec<&'a [String]> {
    match route.audience() {
        Audience::Manager => vec![&known.arm],
        Audience::DataPlane => vec![&known.arm, &known.ml],
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

/// The permission that a request needs, by the row of its route.
pub fn need(method: &str, route: &Route) -> Need {
    match route.needs(method) {
        Needs::Nothing | Needs::Token => Need::Nothing,
        Needs::Something => Need::SomethingIn(route.scope()),
        Needs::To(action) => Need::To(action, route.scope()),
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
