//! Asking for users, keys and roles. Whether the caller may ask is decided before this.

use std::sync::Arc;

use super::shorten;
use crate::access::AccessChange;
use crate::change::Change;
use crate::input::{AccessRequest, Answer, NewUser, Refused, Reply};
use crate::limits;
use crate::model::{KeyDigest, RoleAssignment, Scope, User, UserKey, check_path_name};
use crate::step::Turn;

pub(crate) fn change(turn: &mut Turn<'_>, request: &AccessRequest) -> Answer {
    match request {
        AccessRequest::CreateUser(user) => create_user(turn, user),
        AccessRequest::SetKey { user, digest } => set_key(turn, user, *digest),
        AccessRequest::DeleteUser { user } => delete_user(turn, user),
        AccessRequest::AssignRole(wanted) => assign(turn, wanted),
        AccessRequest::RemoveRole { name, scope } => remove_role(turn, name, scope),
    }
}

fn create_user(turn: &mut Turn<'_>, new: &NewUser) -> Answer {
    check_user_name(&new.name)?;
    let directory = turn.world.directory();
    if directory.user(&new.name).is_some() {
        return Err(Refused::conflict(
            "name",
            format!("there is a user '{}' already; choose another name", shorten(&new.name)),
        ));
    }
    if directory.users().len() >= limits::USERS_MAX {
        return Err(Refused::too_many(
            "name",
            format!("there are {} users, the most allowed; delete some", limits::USERS_MAX),
        ));
    }
    let now = turn.now.wall;
    let user = Arc::new(User {
        object_id: new.object_id.clone(),
        name: new.name.clone(),
        kind: new.kind,
        created_at: now,
        key: Some(UserKey { digest: new.digest, made_at: now }),
    });
    emit(turn, AccessChange::User(Arc::clone(&user)));
    Ok(Reply::User(user))
}

/// The old key is void from here on, and every token that was issued for it.
fn set_key(turn: &mut Turn<'_>, name: &str, digest: Option<KeyDigest>) -> Answer {
    let user = find_user(turn, name)?;
    let key = digest.map(|digest| UserKey { digest, made_at: turn.now.wall });
    let user = Arc::new(User { key, ..(**user).clone() });
    emit(turn, AccessChange::User(Arc::clone(&user)));
    Ok(Reply::User(user))
}

fn delete_user(turn: &mut Turn<'_>, name: &str) -> Answer {
    let user = Arc::clone(find_user(turn, name)?);
    let roles = turn.world.directory().roles();
    let roles = roles.filter(|role| role.object_id == user.object_id);
    let roles: Vec<Box<str>> = roles.map(|role| role.name.to_ascii_lowercase().into()).collect();
    for role in roles {
        emit(turn, AccessChange::RoleGone(role));
    }
    emit(turn, AccessChange::UserGone(user.name.to_ascii_lowercase().into()));
    Ok(Reply::Noted)
}

/// Roles on what goes, and on what was in it, go too.
pub(super) fn remove_roles_within(turn: &mut Turn<'_>, scope: &Scope) {
    let roles = turn.world.directory().roles().filter(|role| scope.contains(&role.scope));
    let roles: Vec<Box<str>> = roles.map(|role| role.name.to_ascii_lowercase().into()).collect();
    for role in roles {
        emit(turn, AccessChange::RoleGone(role));
    }
}

fn assign(turn: &mut Turn<'_>, wanted: &RoleAssignment) -> Answer {
    check_path_name(&wanted.name, limits::ROLE_NAME_BYTES_MAX).map_err(|why| {
        Refused::invalid("name", format!("role assignment {:?}: {why}", shorten(&wanted.name)))
    })?;
    let directory = turn.world.directory();
    if directory.user_by_object_id(&wanted.object_id).is_none() {
        return Err(Refused::invalid(
            "principalId",
            format!(
                "no user has the id '{}'; `muster user list` shows whom there is",
                shorten(&wanted.object_id)
            ),
        ));
    }
    let is_same = |other: &RoleAssignment| {
        (&other.object_id, other.role, &other.scope)
            == (&wanted.object_id, wanted.role, &wanted.scope)
    };
    if let Some(known) = directory.role(&wanted.name) {
        if is_same(known) {
            return Ok(Reply::Role(known.clone()));
        }
        return Err(Refused::conflict(
            "name",
            format!(
                "the role assignment '{}' gives another role; remove it and assign the new one",
                shorten(&wanted.name)
            ),
        ));
    }
    if let Some(other) = directory.roles().find(|other| is_same(other)) {
        return Err(Refused::conflict(
            "roleDefinitionId",
            format!("the user has this role there already, by '{}'", other.name),
        ));
    }
    if directory.roles().len() >= limits::ROLES_MAX {
        return Err(Refused::too_many(
            "name",
            format!("there are {} role assignments, the most; remove some", limits::ROLES_MAX),
        ));
    }
    let role = RoleAssignment { created_at: turn.now.wall, ..wanted.clone() };
    emit(turn, AccessChange::Role(role.clone()));
    Ok(Reply::Role(role))
}

fn remove_role(turn: &mut Turn<'_>, name: &str, scope: &Scope) -> Answer {
    let role = turn.world.directory().role(name).filter(|role| role.scope == *scope);
    let Some(role) = role.cloned() else { return Ok(Reply::NothingToDelete) };
    emit(turn, AccessChange::RoleGone(role.name.to_ascii_lowercase().into()));
    Ok(Reply::Role(role))
}

fn emit(turn: &mut Turn<'_>, change: AccessChange) {
    turn.emit(Change::AccessChanged(change));
}

fn find_user<'t>(turn: &'t Turn<'_>, name: &str) -> Result<&'t Arc<User>, Refused> {
    turn.world.directory().user(name).ok_or_else(|| {
        Refused::not_found(
            "name",
            format!("there is no user '{}'; `muster user list` shows whom there is", shorten(name)),
        )
    })
}

/// Names are shown in tables, logs and refusals, and typed into shells.
fn check_user_name(name: &str) -> Result<(), Refused> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '+');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && name.len() <= limits::USER_NAME_BYTES_MAX && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(Refused::invalid(
        "name",
        format!(
            "the user name {:?} is not possible; take up to {} letters, digits and . _ - @ +, with a letter or \
             digit first",
            shorten(name),
            limits::USER_NAME_BYTES_MAX
        ),
    ))
}
