//! Requests about users, keys and roles. Whether the caller is allowed to make them is checked before.

use std::sync::Arc;

use super::shorten;
use crate::access::AccessChange;
use crate::change::Change;
use crate::input::{AccessRequest, InputResult, NewUser, Refused, Reply};
use crate::limits;
use crate::model::{
    Cluster, ClusterPhase, KeyDigest, RoleAssignment, Scope, User, UserKey, UserKind,
    check_path_name,
};
use crate::refusal::{Field, words};
use crate::step::Transaction;
use crate::time::Wall;
use crate::why::{Listing, Remedy};

pub(crate) fn change(tx: &mut Transaction<'_>, request: &AccessRequest) -> InputResult {
    match request {
        AccessRequest::CreateUser(user) => create_user(tx, user),
        AccessRequest::SetKey { user, digest } => set_key(tx, user, *digest),
        AccessRequest::DeleteUser { user } => delete_user(tx, user),
        AccessRequest::AssignRole(wanted) => assign(tx, wanted),
        AccessRequest::RemoveRole { name, scope } => remove_role(tx, name, scope),
    }
}

fn create_user(tx: &mut Transaction<'_>, new: &NewUser) -> InputResult {
    check_user_name(&new.name)?;
    let directory = tx.world.directory();
    if directory.user(&new.name).is_some() {
        return Err(Refused::conflict(
            "name",
            format!("a user '{}' already exists; choose another name", shorten(&new.name)),
        ));
    }
    if directory.accounts() >= limits::USERS_MAX {
        return Err(Refused::too_many(
            "name",
            format!("there are {} users, which is the maximum; delete some", limits::USERS_MAX),
        ));
    }
    let now = tx.now.wall;
    let user = Arc::new(User {
        object_id: new.object_id.clone(),
        name: new.name.clone(),
        kind: new.kind,
        created_at: now,
        key: Some(UserKey { digest: new.digest, made_at: now }),
    });
    emit(tx, AccessChange::User(Arc::clone(&user)));
    Ok(Reply::User(user))
}

/// From now on the old key is invalid, as is every token that was issued for it.
fn set_key(tx: &mut Transaction<'_>, name: &str, digest: Option<KeyDigest>) -> InputResult {
    let user = find_account(tx, name)?;
    let key = digest.map(|digest| UserKey { digest, made_at: tx.now.wall });
    let user = Arc::new(User { key, ..(**user).clone() });
    emit(tx, AccessChange::User(Arc::clone(&user)));
    Ok(Reply::User(user))
}

fn delete_user(tx: &mut Transaction<'_>, name: &str) -> InputResult {
    let user = Arc::clone(find_account(tx, name)?);
    forget(tx, &user);
    Ok(Reply::Noted)
}

fn forget(tx: &mut Transaction<'_>, user: &User) {
    let roles = tx.world.directory().roles();
    let roles = roles.filter(|role| role.object_id == user.object_id);
    let roles: Vec<Box<str>> = roles.map(|role| role.name.to_ascii_lowercase().into()).collect();
    for role in roles {
        emit(tx, AccessChange::RoleGone(role));
    }
    emit(tx, AccessChange::UserGone(user.name.to_ascii_lowercase().into()));
}

/// Creates the cluster's managed identity, or deletes it with all its roles, according to the cluster's specification.
pub(super) fn follow_identity(tx: &mut Transaction<'_>, cluster: &Cluster) {
    let is_wanted = cluster.phase != ClusterPhase::Deleting
        && cluster.spec.identity.as_ref().is_some_and(|identity| identity.system_assigned);
    let there = tx.world.directory().identity_of(cluster.id).cloned();
    match (is_wanted, there) {
        (true, None) => {
            let home = tx.world.workspace_by_id(cluster.workspace);
            let home = &home.expect("a workspace outlives its clusters").key;
            // The name of a user who was created by hand cannot contain a slash.
            let name = format!(
                "{}/{}/{}/computes/{}",
                home.subscription, home.resource_group, home.name, cluster.name
            );
            let user = User {
                object_id: identity_id(cluster, tx.now.wall).into(),
                name: name.into(),
                kind: UserKind::Managed(cluster.id),
                created_at: tx.now.wall,
                key: None,
            };
            emit(tx, AccessChange::User(Arc::new(user)));
        }
        (false, Some(user)) => forget(tx, &user),
        (true, Some(_)) | (false, None) => {}
    }
}

/// A UUID of version 8 (custom content). As on Azure, an identity that is removed and added again gets a new ID.
fn identity_id(cluster: &Cluster, now: Wall) -> String {
    let (now, id) = (now.0, cluster.id.0);
    format!(
        "{:08x}-{:04x}-8{:03x}-a{:03x}-{:012x}",
        (now >> 28) & 0xffff_ffff,
        (now >> 12) & 0xffff,
        now & 0xfff,
        (id >> 48) & 0xfff,
        id & 0xffff_ffff_ffff
    )
}

/// Removes the roles on a deleted resource and on everything that was in it.
pub(super) fn remove_roles_within(tx: &mut Transaction<'_>, scope: &Scope) {
    let roles = tx.world.directory().roles().filter(|role| scope.contains(&role.scope));
    let roles: Vec<Box<str>> = roles.map(|role| role.name.to_ascii_lowercase().into()).collect();
    for role in roles {
        emit(tx, AccessChange::RoleGone(role));
    }
}

fn assign(tx: &mut Transaction<'_>, wanted: &RoleAssignment) -> InputResult {
    check_path_name(&wanted.name, limits::ROLE_NAME_BYTES_MAX).map_err(|why| {
        Refused::invalid("name", format!("role assignment {:?}: {why}", shorten(&wanted.name)))
    })?;
    let directory = tx.world.directory();
    if directory.user_by_object_id(&wanted.object_id).is_none() {
        return Err(Refused::invalid(
            Field::RolePrincipal,
            words![
                format!("no user has the ID '{}'; `", shorten(&wanted.object_id)),
                Remedy::List(Listing::Users),
                "` shows all users"
            ],
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
        let name = shorten(&wanted.name);
        // Names are unique across all scopes, but not every caller may know what has the name elsewhere.
        let message = match known.scope == wanted.scope {
            true => format!(
                "the role assignment '{name}' already assigns another role; remove it and assign the new one"
            ),
            false => {
                format!(
                    "the role assignment name '{name}' is taken; choose another name (a new UUID)"
                )
            }
        };
        return Err(Refused::conflict("name", message));
    }
    if let Some(other) = directory.roles().find(|other| is_same(other)) {
        return Err(Refused::conflict(
            Field::RoleDefinition,
            format!(
                "the user already has this role at this scope, through the role assignment '{}'",
                other.name
            ),
        ));
    }
    if directory.roles().len() >= limits::ROLES_MAX {
        return Err(Refused::too_many(
            "name",
            format!(
                "there are {} role assignments, which is the maximum; remove some",
                limits::ROLES_MAX
            ),
        ));
    }
    let role = RoleAssignment { created_at: tx.now.wall, ..wanted.clone() };
    emit(tx, AccessChange::Role(role.clone()));
    Ok(Reply::Role(role))
}

fn remove_role(tx: &mut Transaction<'_>, name: &str, scope: &Scope) -> InputResult {
    let role = tx.world.directory().role(name).filter(|role| role.scope == *scope);
    let Some(role) = role.cloned() else { return Ok(Reply::NothingToDelete) };
    emit(tx, AccessChange::RoleGone(role.name.to_ascii_lowercase().into()));
    Ok(Reply::Role(role))
}

fn emit(tx: &mut Transaction<'_>, change: AccessChange) {
    tx.emit(Change::AccessChanged(change));
}

/// Finds a user that is not a managed identity.
fn find_account<'t>(tx: &'t Transaction<'_>, name: &str) -> Result<&'t Arc<User>, Refused> {
    let user = find_user(tx, name)?;
    match user.kind {
        UserKind::Person | UserKind::Service => Ok(user),
        UserKind::Managed(_) => Err(Refused::conflict(
            "name",
            format!(
                "'{}' is the identity of a cluster: it has no key, and is deleted with the cluster or when \
                 the cluster's identity is set to none",
                shorten(name)
            ),
        )),
    }
}

fn find_user<'t>(tx: &'t Transaction<'_>, name: &str) -> Result<&'t Arc<User>, Refused> {
    tx.world.directory().user(name).ok_or_else(|| {
        Refused::not_found(
            "name",
            words![
                format!("there is no user '{}'; `", shorten(name)),
                Remedy::List(Listing::Users),
                "` shows all users"
            ],
        )
    })
}

/// Names are shown in tables, logs and refusals, and typed into shells, so they must be simple.
fn check_user_name(name: &str) -> Result<(), Refused> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '+');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && name.len() <= limits::USER_NAME_BYTES_MAX && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(Refused::invalid(
        "name",
        format!(
            "the user name {:?} is not valid; use up to {} letters, digits and . _ - @ +, starting with a \
             letter or digit",
            shorten(name),
            limits::USER_NAME_BYTES_MAX
        ),
    ))
}
