//! Requests about workspaces: create, change, delete.

use super::governance::{
    being_deleted, finish_deletion, finish_group, locked, need_group, refuse_locked,
};
use super::{
    check_region, check_tags, check_text, cluster, find_workspace, principal, shorten,
    start_operation,
};
use crate::change::Change;
use crate::ids::{ClusterId, OperationId, WorkspaceId};
use crate::input::{InputResult, Refused, Reply, WorkspacePatch};
use crate::limits;
use crate::model::{
    About, Caller, Deletion, OperationKind, Scope, Workspace, WorkspaceKey, check_path_name,
};
use crate::refusal::{Field, Target, words};
use crate::step::Transaction;

const MANAGED_NETWORK_BYTES_MAX: usize = 65_536;
/// Azure's limit on the length of the name.
const WORKSPACE_NAME_MAX: usize = 33;

/// Creates a workspace, or changes an existing one.
pub(crate) fn put(
    tx: &mut Transaction<'_>,
    key: &WorkspaceKey,
    wanted: &WorkspacePatch,
    by: &Caller,
) -> InputResult {
    if tx.world.workspace(key).is_some() {
        return patch(tx, key, wanted);
    }
    let location = wanted.location.as_deref().unwrap_or_default();
    let parts = [
        ("subscription".into(), &*key.subscription, limits::SUBSCRIPTION_BYTES_MAX),
        (
            Target::from(Field::ResourceGroup),
            &*key.resource_group,
            limits::RESOURCE_GROUP_NAME_BYTES_MAX,
        ),
        ("workspace".into(), &*key.name, WORKSPACE_NAME_MAX),
        ("location".into(), location, limits::LOCATION_BYTES_MAX),
    ];
    for (target, name, max) in parts {
        check_path_name(name, max).map_err(|why| {
            let words = words![&target, format!(" {:?}: {why}", shorten(name))];
            Refused::invalid(target, words)
        })?;
    }
    check_region(tx.world, location)?;
    let about = merge(&About::default(), wanted)?;
    if let Some(lock) = tx.world.governance().against_change(&Scope::workspace(key)) {
        return Err(locked("workspace", &key.name, "created", lock));
    }
    if tx.world.workspaces().count() >= limits::WORKSPACES_MAX {
        return Err(Refused::too_many(
            "workspace",
            format!(
                "there are {} workspaces, which is the maximum; reuse one",
                limits::WORKSPACES_MAX
            ),
        ));
    }
    need_group(tx, key, location)?;
    let created_by = principal(tx, by);
    let workspace = Workspace {
        id: WorkspaceId(tx.world.draw()),
        key: key.clone(),
        location: location.into(),
        created_at: tx.now.wall,
        created_by,
        about,
        deletion: None,
    };
    tx.emit(Change::WorkspaceChanged(workspace.clone()));
    Ok(Reply::Workspace { workspace, is_new: true })
}

pub(crate) fn patch(
    tx: &mut Transaction<'_>,
    key: &WorkspaceKey,
    wanted: &WorkspacePatch,
) -> InputResult {
    let known = find_workspace(tx, key)?.clone();
    if known.deletion.is_some() {
        return Err(being_deleted("workspace", "workspace", &key.name));
    }
    if let Some(location) = &wanted.location
        && !location.eq_ignore_ascii_case(&known.location)
    {
        return Err(Refused::conflict(
            "location",
            format!(
                "workspace '{}' is in location '{}', which cannot be changed to '{}'; leave it out, or \
                 create another workspace",
                known.key.name,
                known.location,
                shorten(location)
            ),
        ));
    }
    let about = merge(&known.about, wanted)?;
    let workspace = Workspace { about, ..known.clone() };
    if workspace != known {
        refuse_locked(tx, &Scope::workspace(key), "workspace", &key.name)?;
        tx.emit(Change::WorkspaceChanged(workspace.clone()));
    }
    Ok(Reply::Workspace { workspace, is_new: false })
}

/// Properties that are not given are kept.
fn merge(about: &About, wanted: &WorkspacePatch) -> Result<About, Refused> {
    check_text(
        Field::FriendlyName,
        wanted.friendly_name.as_deref(),
        limits::FRIENDLY_NAME_BYTES_MAX,
    )?;
    check_text("description", wanted.description.as_deref(), limits::DESCRIPTION_BYTES_MAX)?;
    let network = wanted.managed_network.as_deref();
    check_text(Field::ManagedNetwork, network, MANAGED_NETWORK_BYTES_MAX)?;
    if let Some(tags) = &wanted.tags {
        check_tags(tags)?;
    }
    Ok(About {
        friendly_name: wanted.friendly_name.clone().or_else(|| about.friendly_name.clone()),
        description: wanted.description.clone().or_else(|| about.description.clone()),
        tags: wanted.tags.clone().unwrap_or_else(|| about.tags.clone()),
        managed_network: wanted.managed_network.clone().or_else(|| about.managed_network.clone()),
        ignored: about.ignored.union(&wanted.ignored).take(limits::IGNORED_MAX).cloned().collect(),
    })
}

/// Deletes a workspace with all its computes. Their jobs are canceled; their costs are kept in the ledger.
pub(crate) fn delete(tx: &mut Transaction<'_>, key: &WorkspaceKey) -> InputResult {
    let Some(workspace) = tx.world.workspace(key) else { return Ok(Reply::NothingToDelete) };
    if let Some(deletion) = &workspace.deletion {
        return Ok(Reply::Deleting { operation: deletion.operation });
    }
    let id = workspace.id;
    if let Some(lock) = tx.world.governance().against_delete(&Scope::workspace(key)) {
        return Err(locked("workspace", &key.name, "deleted", lock));
    }
    refuse_locked_networks(tx, id)?;
    let operation = begin_delete(tx, id);
    Ok(Reply::Deleting { operation })
}

/// A lock on a network protects the computes in it, and so their workspace.
pub(super) fn refuse_locked_networks(tx: &Transaction<'_>, id: WorkspaceId) -> Result<(), Refused> {
    tx.world
        .clusters_of(id)
        .try_for_each(|cluster| super::governance::refuse_locked_delete(tx, cluster.id))
}

pub(super) fn begin_delete(tx: &mut Transaction<'_>, id: WorkspaceId) -> OperationId {
    let workspace = tx.world.workspace_by_id(id).expect("looked up by the caller").clone();
    if let Some(deletion) = &workspace.deletion {
        return deletion.operation;
    }
    let operation = OperationId(tx.world.draw());
    let scope = Scope::workspace(&workspace.key);
    start_operation(tx, operation, scope, OperationKind::DeleteWorkspace);
    let by = tx.by.as_ref().map(|by| by.object_id.clone());
    let deletion = Some(Deletion { operation, since: tx.now.wall, by });
    tx.emit(Change::WorkspaceChanged(Workspace { deletion, ..workspace }));
    let clusters: Vec<ClusterId> = tx.world.clusters_of(id).map(|cluster| cluster.id).collect();
    for cluster in clusters {
        cluster::begin_delete(tx, cluster);
    }
    finish_delete(tx, id);
    operation
}

/// A workspace that is being deleted is removed together with the last of its computes.
pub(crate) fn finish_delete(tx: &mut Transaction<'_>, id: WorkspaceId) {
    let Some(workspace) = tx.world.workspace_by_id(id) else { return };
    let Some(deletion) = workspace.deletion.clone() else { return };
    if tx.world.clusters_of(id).next().is_some() {
        return;
    }
    let scope = Scope::workspace(&workspace.key);
    finish_deletion(tx, deletion, &scope, OperationKind::DeleteWorkspace);
    tx.emit(Change::WorkspaceGone(id));
    finish_group(tx, &scope.parent().expect("a workspace is in a group"));
}
