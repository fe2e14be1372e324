//! Requests about resource groups and locks. Whether the caller is allowed to make them is checked before.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{check_region, check_tags, check_text, shorten, start_operation, workspace};
use crate::change::Change;
use crate::governance::GovernanceChange;
use crate::ids::{ClusterId, OperationId, WorkspaceId};
use crate::input::{GovernanceRequest, GroupPatch, InputResult, NewLock, Refused, Reply};
use crate::limits;
use crate::model::{
    ClusterPhase, Deletion, Lock, Operation, OperationKind, OperationStatus, ResourceGroup, Scope,
    WorkspaceKey, check_path_name,
};
use crate::refusal::{Field, Target, words};
use crate::step::Transaction;
use crate::why::Remedy;

pub(crate) fn change(tx: &mut Transaction<'_>, request: &GovernanceRequest) -> InputResult {
    match request {
        GovernanceRequest::PutGroup { subscription, name, wanted } => {
            put_group(tx, subscription, name, wanted)
        }
        GovernanceRequest::DeleteGroup { subscription, name } => {
            delete_group(tx, subscription, name)
        }
        GovernanceRequest::PutLock(new) => put_lock(tx, new),
        GovernanceRequest::DeleteLock { scope, name } => delete_lock(tx, scope, name),
    }
}

/// Creates a group, or changes its tags.
fn put_group(
    tx: &mut Transaction<'_>,
    subscription: &str,
    name: &str,
    wanted: &GroupPatch,
) -> InputResult {
    if let Some(tags) = &wanted.tags {
        check_tags(tags)?;
    }
    let known = tx.world.governance().group(subscription, name).cloned();
    let Some(known) = known else {
        let Some(location) = &wanted.location else {
            return Err(Refused::not_found(
                Field::ResourceGroup,
                format!("resource group '{}' does not exist; create it with a PUT", shorten(name)),
            ));
        };
        check_location(location)?;
        check_region(tx.world, location)?;
        return new_group(tx, subscription, name, location, wanted.tags.clone())
            .map(|group| Reply::Group { group, is_new: true });
    };
    refuse_locked(tx, &known.scope(), "resource group", name)?;
    if known.deletion.is_some() {
        return Err(being_deleted(Field::ResourceGroup, "resource group", name));
    }
    if let Some(location) = &wanted.location
        && !location.eq_ignore_ascii_case(&known.location)
    {
        return Err(Refused::conflict(
            "location",
            format!(
                "resource group '{}' is in location '{}', which cannot be changed to '{}'; leave it out, or \
                 choose another name",
                known.name,
                known.location,
                shorten(location)
            ),
        ));
    }
    let tags = wanted.tags.clone().unwrap_or_else(|| known.tags.clone());
    let group = Arc::new(ResourceGroup { tags, ..(*known).clone() });
    if group != known {
        emit(tx, GovernanceChange::Group(Arc::clone(&group)));
    }
    Ok(Reply::Group { group, is_new: false })
}

/// The group of a new workspace, which is created if it does not exist.
pub(super) fn need_group(
    tx: &mut Transaction<'_>,
    key: &WorkspaceKey,
    location: &str,
) -> Result<(), Refused> {
    match tx.world.governance().group(&key.subscription, &key.resource_group) {
        Some(group) if group.deletion.is_some() => {
            Err(being_deleted(Field::ResourceGroup, "resource group", &key.resource_group))
        }
        Some(_) => Ok(()),
        None => new_group(tx, &key.subscription, &key.resource_group, location, None).map(|_| ()),
    }
}

fn new_group(
    tx: &mut Transaction<'_>,
    subscription: &str,
    name: &str,
    location: &str,
    tags: Option<BTreeMap<String, String>>,
) -> Result<Arc<ResourceGroup>, Refused> {
    let parts = [
        ("subscription".into(), subscription, limits::SUBSCRIPTION_BYTES_MAX),
        (Target::from(Field::ResourceGroup), name, limits::RESOURCE_GROUP_NAME_BYTES_MAX),
    ];
    for (target, name, max) in parts {
        check_path_name(name, max).map_err(|why| {
            let words = words![&target, format!(" {:?}: {why}", shorten(name))];
            Refused::invalid(target, words)
        })?;
    }
    if let Some(lock) = tx.world.governance().against_change(&Scope::subscription(subscription)) {
        return Err(locked("resource group", name, "created", lock));
    }
    if tx.world.governance().groups().len() >= limits::RESOURCE_GROUPS_MAX {
        let most = limits::RESOURCE_GROUPS_MAX;
        return Err(Refused::too_many(
            Field::ResourceGroup,
            format!("there are {most} resource groups, which is the maximum; delete some"),
        ));
    }
    let group = Arc::new(ResourceGroup {
        subscription: subscription.into(),
        name: name.into(),
        location: location.into(),
        tags: tags.unwrap_or_default(),
        created_at: tx.now.wall,
        deletion: None,
    });
    emit(tx, GovernanceChange::Group(Arc::clone(&group)));
    Ok(group)
}

/// Deletes a group with everything in it.
fn delete_group(tx: &mut Transaction<'_>, subscription: &str, name: &str) -> InputResult {
    let Some(group) = tx.world.governance().group(subscription, name).cloned() else {
        return Ok(Reply::NothingToDelete);
    };
    if let Some(deletion) = &group.deletion {
        return Ok(Reply::Deleting { operation: deletion.operation });
    }
    let scope = group.scope();
    if let Some(lock) = tx.world.governance().against_delete(&scope) {
        return Err(locked("resource group", &group.name, "deleted", lock));
    }
    let inside: Vec<WorkspaceId> =
        tx.world.workspaces_in(&scope).map(|workspace| workspace.id).collect();
    for workspace in &inside {
        workspace::refuse_locked_networks(tx, *workspace)?;
    }
    let operation = OperationId(tx.world.draw());
    start_operation(tx, operation, scope.clone(), OperationKind::DeleteGroup);
    let by = tx.by.as_ref().map(|by| by.object_id.clone());
    let deletion = Some(Deletion { operation, since: tx.now.wall, by });
    emit(tx, GovernanceChange::Group(Arc::new(ResourceGroup { deletion, ..(*group).clone() })));
    for workspace in inside {
        workspace::begin_delete(tx, workspace);
    }
    finish_group(tx, &scope);
    Ok(Reply::Deleting { operation })
}

/// A group that is being deleted is removed together with the last of its workspaces.
pub(super) fn finish_group(tx: &mut Transaction<'_>, scope: &Scope) {
    let Scope::Group { subscription, resource_group } = scope else { return };
    let group = tx.world.governance().group(subscription, resource_group);
    let Some(deletion) = group.and_then(|group| group.deletion.clone()) else { return };
    if tx.world.workspaces_in(scope).next().is_some() {
        return;
    }
    finish_deletion(tx, deletion, scope, OperationKind::DeleteGroup);
    emit(tx, GovernanceChange::GroupGone(scope.clone()));
}

/// Roles are deleted together with their scope: if it is created again, the old users must not have access to it.
pub(super) fn finish_deletion(
    tx: &mut Transaction<'_>,
    deletion: Deletion,
    scope: &Scope,
    kind: OperationKind,
) {
    super::access::remove_roles_within(tx, scope);
    tx.emit(Change::OperationChanged(Operation {
        id: deletion.operation,
        scope: scope.clone(),
        by: deletion.by,
        kind,
        status: OperationStatus::Succeeded,
        started_at: deletion.since,
        ended_at: Some(tx.now.wall),
        error: None,
    }));
}

fn put_lock(tx: &mut Transaction<'_>, new: &NewLock) -> InputResult {
    check_path_name(&new.name, limits::LOCK_NAME_BYTES_MAX)
        .map_err(|why| Refused::invalid("name", format!("lock {:?}: {why}", shorten(&new.name))))?;
    check_text("notes", new.notes.as_deref(), limits::LOCK_NOTES_BYTES_MAX)?;
    check_lockable(tx, &new.scope)?;
    let known = tx.world.governance().lock(&new.scope, &new.name).cloned();
    if known.is_none() && tx.world.governance().locks().count() >= limits::LOCKS_MAX {
        return Err(Refused::too_many(
            "name",
            format!("there are {} locks, which is the maximum; delete some", limits::LOCKS_MAX),
        ));
    }
    let is_new = known.is_none();
    let lock = Arc::new(Lock {
        name: known.as_ref().map_or_else(|| new.name.clone(), |known| known.name.clone()),
        scope: new.scope.clone(),
        level: new.level,
        notes: new.notes.clone(),
        created_at: known.as_ref().map_or(tx.now.wall, |known| known.created_at),
    });
    if known.as_ref() != Some(&lock) {
        emit(tx, GovernanceChange::Lock(Arc::clone(&lock)));
        tx.world.touch_within(&new.scope);
    }
    Ok(Reply::Lock { lock, is_new })
}

fn delete_lock(tx: &mut Transaction<'_>, scope: &Scope, name: &str) -> InputResult {
    if tx.world.governance().lock(scope, name).is_none() {
        return Ok(Reply::NothingToDelete);
    }
    let name = name.to_ascii_lowercase().into();
    emit(tx, GovernanceChange::LockGone { scope: scope.clone(), name });
    // Clusters that the lock held back may grow again.
    tx.world.touch_within(scope);
    Ok(Reply::Noted)
}

/// Only an existing resource that is not being deleted can be locked.
fn check_lockable(tx: &Transaction<'_>, scope: &Scope) -> Result<(), Refused> {
    let (is_there, is_going, what, name) = match scope {
        Scope::Everything => {
            return Err(Refused::invalid(
                "scope",
                "a lock cannot be on everything; put it on a subscription, a resource group, a workspace or \
                 a compute",
            ));
        }
        Scope::Subscription(_) => return Ok(()),
        Scope::Group { subscription, resource_group } => {
            let group = tx.world.governance().group(subscription, resource_group);
            let is_going = group.is_some_and(|group| group.deletion.is_some());
            (group.is_some(), is_going, "resource group", resource_group)
        }
        Scope::Workspace(key) => {
            let workspace = tx.world.workspace(key);
            let is_going = workspace.is_some_and(|workspace| workspace.deletion.is_some());
            (workspace.is_some(), is_going, "workspace", &key.name)
        }
        Scope::Compute { workspace, name } => {
            let home = tx.world.workspace(workspace);
            let cluster = home.and_then(|home| tx.world.cluster_by_name(home.id, name));
            let is_going = cluster.is_some_and(|cluster| cluster.phase == ClusterPhase::Deleting);
            (cluster.is_some(), is_going, "compute", name)
        }
    };
    if !is_there {
        let message = format!("{what} '{}' does not exist; create it first", shorten(name));
        return Err(Refused::not_found("scope", message));
    }
    if is_going {
        return Err(being_deleted("scope", what, name));
    }
    Ok(())
}

fn check_location(location: &str) -> Result<(), Refused> {
    check_path_name(location, limits::LOCATION_BYTES_MAX).map_err(|why| {
        Refused::invalid("location", format!("location {:?}: {why}", shorten(location)))
    })
}

pub(super) fn refuse_locked(
    tx: &Transaction<'_>,
    place: &Scope,
    what: &str,
    name: &str,
) -> Result<(), Refused> {
    match tx.world.governance().against_change(place) {
        Some(lock) => Err(locked(what, name, "changed", lock)),
        None => Ok(()),
    }
}

/// `action` is what cannot be done: "deleted", "changed" and so on.
pub(super) fn locked(what: &str, name: &str, action: &str, lock: &Lock) -> Refused {
    Refused::locked(
        "scope",
        words![
            format!(
                "{what} '{}' cannot be {action}: the lock '{}' ({}) on {} forbids it; remove that lock first: ",
                shorten(name),
                lock.name,
                lock.level.as_str(),
                lock.scope,
            ),
            Remedy::Unlock { lock: lock.clone() }
        ],
    )
}

pub(super) fn being_deleted(target: impl Into<Target>, what: &str, name: &str) -> Refused {
    let message = format!("{what} '{}' is being deleted; wait until that is done", shorten(name));
    Refused::conflict(target, message)
}

/// Refuses to create, change or grow a compute if a lock forbids it.
pub(super) fn refuse_locked_compute(
    tx: &Transaction<'_>,
    workspace: &WorkspaceKey,
    name: &str,
    network: Option<&Scope>,
    action: &str,
) -> Result<(), Refused> {
    let place = Scope::compute(workspace, name);
    match tx.world.governance().against_scaling(&place, network) {
        Some(lock) => Err(locked("compute", name, action, lock)),
        None => Ok(()),
    }
}

/// Refuses to delete a compute if a lock forbids it.
pub(super) fn refuse_locked_delete(tx: &Transaction<'_>, id: ClusterId) -> Result<(), Refused> {
    let Some(cluster) = tx.world.cluster(id) else { return Ok(()) };
    let place = tx.world.scope_of(cluster);
    let network = cluster.spec.network_group();
    let governance = tx.world.governance();
    let lock = governance
        .against_delete(&place)
        .or_else(|| governance.against_scaling(&place, network.as_ref()));
    match lock {
        Some(lock) => Err(locked("compute", cluster.name.as_str(), "deleted", lock)),
        None => Ok(()),
    }
}

fn emit(tx: &mut Transaction<'_>, change: GovernanceChange) {
    tx.emit(Change::GovernanceChanged(change));
}
