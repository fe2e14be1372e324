//! Asking for a cluster: create, update by merge, delete.

use super::cluster_rules::{check_spec, merge, new_spec};
use super::{find_workspace, principal};
use crate::change::Change;
use crate::ids::{ClusterId, OperationId, WorkspaceId};
use crate::input::{Answer, ClusterPatch, Refused, Reply};
use crate::limits;
use crate::model::{
    Backoff, Caller, Cluster, ClusterEvent, ClusterName, ClusterPhase, ClusterSpec, Operation,
    OperationKind, OperationStatus, WorkspaceKey,
};
use crate::step::Turn;

/// What Azure's clients send when the user names no size.
pub const DEFAULT_VM_SIZE: &str = "STANDARD_DS3_V2";

pub(crate) fn put(
    turn: &mut Turn<'_>,
    workspace: &WorkspaceKey,
    name: &str,
    wanted: &ClusterPatch,
    by: &Caller,
) -> Answer {
    let workspace = find_workspace(turn, workspace)?;
    let (workspace, home) = (workspace.id, workspace.location.clone());
    match turn.world.cluster_by_name(workspace, name).cloned() {
        Some(cluster) => update(turn, cluster, wanted),
        None => {
            let name = ClusterName::new(name)
                .map_err(|why| Refused::invalid("name", format!("compute name {name:?}: {why}")))?;
            let spec = new_spec(wanted, &home)?;
            create(turn, workspace, name, spec, by)
        }
    }
}

fn create(
    turn: &mut Turn<'_>,
    workspace: WorkspaceId,
    name: ClusterName,
    spec: ClusterSpec,
    by: &Caller,
) -> Answer {
    check_spec(turn.world, &spec)?;
    check_size_is_offered(turn, &spec)?;
    if turn.world.cluster_in_region(&spec.location, name.as_str()).is_some() {
        // Not by whom: that is none of the caller's business.
        return Err(Refused::conflict(
            "name",
            format!(
                "the compute name '{name}' is taken in region '{}'; choose another name or region",
                spec.location
            ),
        ));
    }
    if turn.world.clusters().count() >= limits::CLUSTERS_MAX {
        return Err(Refused::too_many(
            "name",
            format!("there are {} computes, the most allowed; delete one", limits::CLUSTERS_MAX),
        ));
    }
    let created_by = principal(turn, by);
    let id = ClusterId(turn.world.draw());
    let operation = OperationId(turn.world.draw());
    let cluster = Cluster {
        id,
        workspace,
        name,
        spec,
        phase: ClusterPhase::Creating,
        operation: Some(operation),
        created_at: turn.now.wall,
        created_by,
        modified_at: turn.now.wall,
        backoff: Backoff::default(),
    };
    start_operation(turn, operation, workspace, OperationKind::PutCluster);
    let event = ClusterEvent::CreateAsked;
    turn.emit(Change::ClusterChanged { event, cluster: cluster.clone() });
    Ok(Reply::Cluster { cluster: Box::new(cluster), operation, is_new: true })
}

fn update(turn: &mut Turn<'_>, mut cluster: Cluster, wanted: &ClusterPatch) -> Answer {
    if cluster.phase == ClusterPhase::Deleting {
        return Err(Refused::conflict(
            "name",
            format!("compute '{}' is being deleted; wait until it is gone", cluster.name),
        ));
    }
    cluster.spec = merge(&cluster.spec, wanted)?;
    check_spec(turn.world, &cluster.spec)?;
    let operation = OperationId(turn.world.draw());
    cluster.phase = ClusterPhase::Updating;
    cluster.operation = Some(operation);
    cluster.modified_at = turn.now.wall;
    // A new wish is a new try: whatever was wrong may just have been put right.
    cluster.backoff = Backoff::default();
    start_operation(turn, operation, cluster.workspace, OperationKind::PutCluster);
    let event = ClusterEvent::UpdateAsked;
    turn.emit(Change::ClusterChanged { event, cluster: cluster.clone() });
    Ok(Reply::Cluster { cluster: Box::new(cluster), operation, is_new: false })
}

pub(crate) fn delete(turn: &mut Turn<'_>, workspace: &WorkspaceKey, name: &str) -> Answer {
    let workspace = find_workspace(turn, workspace)?.id;
    let Some(cluster) = turn.world.cluster_by_name(workspace, name) else {
        return Ok(Reply::NothingToDelete);
    };
    let mut cluster = cluster.clone();
    if cluster.phase == ClusterPhase::Deleting {
        let operation = cluster.operation.expect("a delete under way has an operation");
        return Ok(Reply::ClusterDeleting { operation });
    }
    let operation = OperationId(turn.world.draw());
    cluster.phase = ClusterPhase::Deleting;
    cluster.operation = Some(operation);
    cluster.modified_at = turn.now.wall;
    start_operation(turn, operation, workspace, OperationKind::DeleteCluster);
    turn.emit(Change::ClusterChanged { event: ClusterEvent::DeleteAsked, cluster });
    Ok(Reply::ClusterDeleting { operation })
}

fn start_operation(
    turn: &mut Turn<'_>,
    id: OperationId,
    workspace: WorkspaceId,
    kind: OperationKind,
) {
    turn.emit(Change::OperationChanged(Operation {
        id,
        workspace,
        kind,
        status: OperationStatus::InProgress,
        started_at: turn.now.wall,
        ended_at: None,
    }));
}

/// Only a new cluster is refused a retired size; one that exists goes on.
fn check_size_is_offered(turn: &Turn<'_>, spec: &ClusterSpec) -> Result<(), Refused> {
    let Some(size) = turn.world.catalogue.get(&spec.vm_size) else { return Ok(()) };
    if size.retirement.accepts_creation() {
        return Ok(());
    }
    Err(Refused::invalid(
        "vmSize",
        format!(
            "the VM size '{}' is retired; create the cluster with another size, for example {}",
            spec.vm_size, DEFAULT_VM_SIZE
        ),
    ))
}
