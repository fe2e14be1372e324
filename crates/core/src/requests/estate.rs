//! Asking for resource groups and locks. Whether the caller may ask is decided before this.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{check_region, check_tags, check_text, shorten, start_operation, workspace};
use crate::change::Change;
use crate::estate::EstateChange;
use crate::ids::{ClusterId, OperationId, WorkspaceId};
use crate::input::{Answer, EstateRequest, GroupPatch, NewLock, Refused, Reply};
use crate::limits;
use crate::model::{
    ClusterPhase, Deletion, Lock, Operation, OperationKind, OperationStatus, ResourceGroup, Scope,
    WorkspaceKey, check_path_name,
};
use crate::step::Turn;

pub(crate) fn change(turn: &mut Turn<'_>, request: &EstateRequest) -> Answer {
    match request {
        EstateRequest::PutGroup { subscription, name, wanted } => {
            put_group(turn, subscription, name, wanted)
        }
        EstateRequest::DeleteGroup { subscription, name } => delete_group(turn, subscription, name),
        EstateRequest::PutLock(new) => put_lock(turn, new),
        EstateRequest::DeleteLock { scope, name } => delete_lock(turn, scope, name),
    }
}

/// Makes a group, or changes its tags.
fn put_group(turn: &mut Turn<'_>, subscription: &str, name: &str, wanted: &GroupPatch) -> Answer {
    if let Some(tags) = &wanted.tags {
        check_tags(tags)?;
    }
    let known = turn.world.estate().group(subscription, name).cloned();
    let Some(known) = known else {
        let Some(location) = &wanted.location else {
            return Err(Refused::not_found(
                "resourceGroup",
                format!("resource group '{}' does not exist; create it with a PUT", shorten(name)),
            ));
        };
        check_location(location)?;
        check_region(turn.world, location)?;
        return new_group(turn, subscription, name, location, wanted.tags.clone())
            .map(|group| Reply::Group { group, is_new: true });
    };
    refuse_locked(turn, &known.scope(), "resource group", name)?;
    if known.deletion.is_some() {
        return Err(being_deleted("resourceGroup", "resource group", name));
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
        emit(turn, EstateChange::Group(Arc::clone(&group)));
    }
    Ok(Reply::Group { group, is_new: false })
}

/// A group for a workspace to be in: there as soon as it is needed.
pub(super) fn need_group(
    turn: &mut Turn<'_>,
    key: &WorkspaceKey,
    location: &str,
) -> Result<(), Refused> {
    match turn.world.estate().group(&key.subscription, &key.resource_group) {
        Some(group) if group.deletion.is_some() => {
            Err(being_deleted("resourceGroup", "resource group", &key.resource_group))
        }
        Some(_) => Ok(()),
        None => new_group(turn, &key.subscription, &key.resource_group, location, None).map(|_| ()),
    }
}

fn new_group(
    turn: &mut Turn<'_>,
    subscription: &str,
    name: &str,
    location: &str,
    tags: Option<BTreeMap<String, String>>,
) -> Result<Arc<ResourceGroup>, Refused> {
    let parts = [
        ("subscription", subscription, limits::SUBSCRIPTION_BYTES_MAX),
        ("resourceGroup", name, limits::RESOURCE_GROUP_NAME_BYTES_MAX),
    ];
    for (target, name, max) in parts {
        check_path_name(name, max).map_err(|why| {
            Refused::invalid(target, format!("{target} {:?}: {why}", shorten(name)))
        })?;
    }
    if let Some(lock) = turn.world.estate().against_change(&Scope::subscription(subscription)) {
        return Err(locked("resource group", name, "created", lock));
    }
    if turn.world.estate().groups().len() >= limits::RESOURCE_GROUPS_MAX {
        let most = limits::RESOURCE_GROUPS_MAX;
        return Err(Refused::too_many(
            "resourceGroup",
            format!("there are {most} resource groups, the most allowed; delete some"),
        ));
    }
    let group = Arc::new(ResourceGroup {
        subscription: subscription.into(),
        name: name.into(),
        location: location.into(),
        tags: tags.unwrap_or_default(),
        created_at: turn.now.wall,
        deletion: None,
    });
    emit(turn, EstateChange::Group(Arc::clone(&group)));
    Ok(group)
}

/// With everything in it.
fn delete_group(turn: &mut Turn<'_>, subscription: &str, name: &str) -> Answer {
    let Some(group) = turn.world.estate().group(subscription, name).cloned() else {
        return Ok(Reply::NothingToDelete);
    };
    if let Some(deletion) = &group.deletion {
        return Ok(Reply::Deleting { operation: deletion.operation });
    }
    let scope = group.scope();
    if let Some(lock) = turn.world.estate().against_delete(&scope) {
        return Err(locked("resource group", &group.name, "deleted", lock));
    }
    let inside: Vec<WorkspaceId> =
        turn.world.workspaces_in(&scope).map(|workspace| workspace.id).collect();
    for workspace in &inside {
        workspace::refuse_locked_networks(turn, *workspace)?;
    }
    let operation = OperationId(turn.world.draw());
    start_operation(turn, operation, scope.clone(), OperationKind::DeleteGroup);
    let by = turn.by.as_ref().map(|by| by.object_id.clone());
    let deletion = Some(Deletion { operation, since: turn.now.wall, by });
    emit(turn, EstateChange::Group(Arc::new(ResourceGroup { deletion, ..(*group).clone() })));
    for workspace in inside {
        workspace::begin_delete(turn, workspace);
    }
    finish_group(turn, &scope);
    Ok(Reply::Deleting { operation })
}

/// A group that is being deleted goes with the last of its workspaces.
pub(super) fn finish_group(turn: &mut Turn<'_>, scope: &Scope) {
    let Scope::Group { subscription, resource_group } = scope else { return };
    let group = turn.world.estate().group(subscription, resource_group);
    let Some(deletion) = group.and_then(|group| group.deletion.clone()) else { return };
    if turn.world.workspaces_in(scope).next().is_some() {
        return;
    }
    finish_deletion(turn, deletion, scope, OperationKind::DeleteGroup);
    emit(turn, EstateChange::GroupGone(scope.clone()));
}

/// Roles go with what they are on: whoever makes it again must not let old users in.
pub(super) fn finish_deletion(
    turn: &mut Turn<'_>,
    deletion: Deletion,
    scope: &Scope,
    kind: OperationKind,
) {
    super::access::remove_roles_within(turn, scope);
    turn.emit(Change::OperationChanged(Operation {
        id: deletion.operation,
        scope: scope.clone(),
        by: deletion.by,
        kind,
        status: OperationStatus::Succeeded,
        started_at: deletion.since,
        ended_at: Some(turn.now.wall),
        error: None,
    }));
}

fn put_lock(turn: &mut Turn<'_>, new: &NewLock) -> Answer {
    check_path_name(&new.name, limits::LOCK_NAME_BYTES_MAX)
        .map_err(|why| Refused::invalid("name", format!("lock {:?}: {why}", shorten(&new.name))))?;
    check_text("notes", new.notes.as_deref(), limits::LOCK_NOTES_BYTES_MAX)?;
    check_lockable(turn, &new.scope)?;
    let known = turn.world.estate().lock(&new.scope, &new.name).cloned();
    if known.is_none() && turn.world.estate().locks().count() >= limits::LOCKS_MAX {
        return Err(Refused::too_many(
            "name",
            format!("there are {} locks, the most allowed; delete some", limits::LOCKS_MAX),
        ));
    }
    let is_new = known.is_none();
    let lock = Arc::new(Lock {
        name: known.as_ref().map_or_else(|| new.name.clone(), |known| known.name.clone()),
        scope: new.scope.clone(),
        level: new.level,
        notes: new.notes.clone(),
        created_at: known.as_ref().map_or(turn.now.wall, |known| known.created_at),
    });
    if known.as_ref() != Some(&lock) {
        emit(turn, EstateChange::Lock(Arc::clone(&lock)));
        turn.world.touch_within(&new.scope);
    }
    Ok(Reply::Lock { lock, is_new })
}

fn delete_lock(turn: &mut Turn<'_>, scope: &Scope, name: &str) -> Answer {
    if turn.world.estate().lock(scope, name).is_none() {
        return Ok(Reply::NothingToDelete);
    }
    let name = name.to_ascii_lowercase().into();
    emit(turn, EstateChange::LockGone { scope: scope.clone(), name });
    // What it held back may go on.
    turn.world.touch_within(scope);
    Ok(Reply::Noted)
}

/// Only what is there can be locked, and not what is on its way out.
fn check_lockable(turn: &Turn<'_>, scope: &Scope) -> Result<(), Refused> {
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
            let group = turn.world.estate().group(subscription, resource_group);
            let is_going = group.is_some_and(|group| group.deletion.is_some());
            (group.is_some(), is_going, "resource group", resource_group)
        }
        Scope::Workspace(key) => {
            let workspace = turn.world.workspace(key);
            let is_going = workspace.is_some_and(|workspace| workspace.deletion.is_some());
            (workspace.is_some(), is_going, "workspace", &key.name)
        }
        Scope::Compute { workspace, name } => {
            let home = turn.world.workspace(workspace);
            let cluster = home.and_then(|home| turn.world.cluster_by_name(home.id, name));
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
    turn: &Turn<'_>,
    place: &Scope,
    what: &str,
    name: &str,
) -> Result<(), Refused> {
    match turn.world.estate().against_change(place) {
        Some(lock) => Err(locked(what, name, "changed", lock)),
        None => Ok(()),
    }
}

/// `deed` is what cannot be done: "deleted", "changed", …
pub(super) fn locked(what: &str, name: &str, deed: &str, lock: &Lock) -> Refused {
    Refused::locked(
        "scope",
        format!(
            "{what} '{}' cannot be {deed}: the lock '{}' ({}) on {} forbids it; remove that lock first: \
             muster lock delete --ids {}",
            shorten(name),
            lock.name,
            lock.level.as_str(),
            lock.scope,
            lock.id()
        ),
    )
}

pub(super) fn being_deleted(target: &str, what: &str, name: &str) -> Refused {
    let message = format!("{what} '{}' is being deleted; wait until it is gone", shorten(name));
    Refused::conflict(target, message)
}

/// The lock that keeps a compute from being made, changed or grown.
pub(super) fn refuse_locked_compute(
    turn: &Turn<'_>,
    workspace: &WorkspaceKey,
    name: &str,
    network: Option<&Scope>,
    deed: &str,
) -> Result<(), Refused> {
    let place = Scope::compute(workspace, name);
    match turn.world.estate().against_scaling(&place, network) {
        Some(lock) => Err(locked("compute", name, deed, lock)),
        None => Ok(()),
    }
}

/// The lock that keeps a compute from being deleted.
pub(super) fn refuse_locked_delete(turn: &Turn<'_>, id: ClusterId) -> Result<(), Refused> {
    let Some(cluster) = turn.world.cluster(id) else { return Ok(()) };
    let place = turn.world.scope_of(cluster);
    let network = cluster.spec.network_group();
    let estate = turn.world.estate();
    let lock =
        estate.against_delete(&place).or_else(|| estate.against_scaling(&place, network.as_ref()));
    match lock {
        Some(lock) => Err(locked("compute", cluster.name.as_str(), "deleted", lock)),
        None => Ok(()),
    }
}

fn emit(turn: &mut Turn<'_>, change: EstateChange) {
    turn.emit(Change::EstateChanged(change));
}
