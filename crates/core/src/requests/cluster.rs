//! Asking for a cluster: create, update by merge, delete.

use std::sync::Arc;

use super::access::follow_identity;
use super::cluster_rules::{check_only_changeable, check_spec, merge, new_spec};
use super::estate::{being_deleted, refuse_locked_compute, refuse_locked_delete};
use super::host::check_gpus;
use super::{
    check_region, find_workspace, instance, principal, serverless, shorten, start_operation,
};
use crate::change::Change;
use crate::ids::{ClusterId, OperationId, WorkspaceId};
use crate::input::{Answer, ClusterPatch, Refused, Reply};
use crate::limits;
use crate::model::{
    Backoff, Caller, Capacity, Cluster, ClusterEvent, ClusterName, ClusterPhase, ClusterSpec,
    ComputeKind, LastOperation, OperationKind, Progress, QuotaName, QuotaScope, Rest, WorkspaceKey,
};
use crate::step::Turn;
use crate::world::QuotaShort;

/// What Azure's clients send when the user names no size.
pub const DEFAULT_VM_SIZE: &str = "STANDARD_DS3_V2";

pub(crate) fn put(
    turn: &mut Turn<'_>,
    workspace: &WorkspaceKey,
    name: &str,
    wanted: &ClusterPatch,
    by: &Caller,
) -> Answer {
    let home = find_workspace(turn, workspace)?;
    let (id, location) = (home.id, home.location.clone());
    if home.deletion.is_some() {
        return Err(being_deleted("workspace", "workspace", &workspace.name));
    }
    match turn.world.cluster_by_name(id, name).cloned() {
        Some(cluster) => {
            serverless::refuse(&cluster)?;
            update(turn, cluster, wanted)
        }
        None => {
            let name = ClusterName::new(name).map_err(|why| {
                Refused::invalid("name", format!("compute name {:?}: {why}", shorten(name)))
            })?;
            let spec = new_spec(wanted, &location)?;
            let network = spec.network_group();
            refuse_locked_compute(turn, workspace, name.as_str(), network.as_ref(), "created")?;
            create(turn, id, name, spec, by)
        }
    }
}

pub(crate) fn patch(
    turn: &mut Turn<'_>,
    workspace: &WorkspaceKey,
    name: &str,
    wanted: &ClusterPatch,
) -> Answer {
    let id = find_workspace(turn, workspace)?.id;
    let Some(cluster) = turn.world.cluster_by_name(id, name).cloned() else {
        return Err(Refused::not_found(
            "name",
            format!(
                "compute '{}' does not exist in workspace '{}'; check the name, or create it with a PUT",
                shorten(name),
                workspace.name
            ),
        ));
    };
    serverless::refuse(&cluster)?;
    check_only_changeable(&cluster.spec, wanted)?;
    // It says only what is to change: what was asked for before still has no effect.
    let ignored =
        cluster.spec.ignored.union(&wanted.ignored).take(limits::IGNORED_MAX).cloned().collect();
    update(turn, cluster, &ClusterPatch { ignored, ..wanted.clone() })
}

fn create(
    turn: &mut Turn<'_>,
    workspace: WorkspaceId,
    name: ClusterName,
    spec: ClusterSpec,
    by: &Caller,
) -> Answer {
    check_spec(turn.world, &spec)?;
    check_region(turn.world, &spec.location)?;
    check_size_is_offered(turn, &spec)?;
    if turn.world.is_name_taken(&spec.location, name.as_str()) {
        // Not by whom: that is none of the caller's business.
        return Err(Refused::conflict(
            "name",
            format!(
                "the compute name '{name}' is taken in region '{}'; choose another name or region",
                spec.location
            ),
        ));
    }
    if turn.world.clusters().len() >= limits::CLUSTERS_MAX {
        return Err(Refused::too_many(
            "name",
            format!("there are {} computes, the most allowed; delete one", limits::CLUSTERS_MAX),
        ));
    }
    let size = turn.world.catalogue.get(&spec.vm_size).expect("checked with the rest");
    let (family, capacity) = (Arc::clone(&size.family), size.capacity());
    check_gpus(turn, workspace, name.as_str(), &spec, capacity)?;
    check_reservation(turn, workspace, &spec, (&family, capacity), spec.scale.nodes_max)?;
    let created_by = principal(turn, by);
    let made = LastOperation { power: None, at: turn.now.wall, progress: Progress::UnderWay };
    let last = Some(made).filter(|_| spec.kind == ComputeKind::Instance);
    let id = ClusterId(turn.world.draw());
    let operation = OperationId(turn.world.draw());
    let cluster = Arc::new(Cluster {
        id,
        workspace,
        name,
        spec,
        phase: ClusterPhase::Creating,
        operation: Some(operation),
        created_at: turn.now.wall,
        created_by,
        modified_at: turn.now.wall,
        capacity,
        family,
        backoff: Backoff::default(),
        rest: Rest::default(),
        boot: None,
        last,
    });
    start_operation(turn, operation, turn.world.scope_of(&cluster), OperationKind::PutCluster);
    let event = ClusterEvent::CreateAsked;
    turn.emit(Change::ClusterChanged { event, cluster: Arc::clone(&cluster) });
    follow_identity(turn, &cluster);
    Ok(Reply::Cluster { cluster, operation, is_new: true })
}

fn update(turn: &mut Turn<'_>, mut cluster: Cluster, wanted: &ClusterPatch) -> Answer {
    if cluster.phase == ClusterPhase::Deleting {
        return Err(Refused::conflict(
            "name",
            format!("compute '{}' is being deleted; wait until it is gone", cluster.name),
        ));
    }
    let home = turn.world.workspace_by_id(cluster.workspace).expect("a cluster's workspace stays");
    let (name, network) = (cluster.name.as_str(), cluster.spec.network_group());
    refuse_locked_compute(turn, &home.key, name, network.as_ref(), "changed")?;
    let reserved = cluster.spec.scale.nodes_max;
    cluster.spec = merge(&cluster.spec, wanted)?;
    check_spec(turn.world, &cluster.spec)?;
    let size = (&cluster.family, cluster.capacity);
    let more = cluster.spec.scale.nodes_max.saturating_sub(reserved);
    check_reservation(turn, cluster.workspace, &cluster.spec, size, more)?;
    cluster.phase = ClusterPhase::Updating;
    cluster.modified_at = turn.now.wall;
    // While an instance is being started or stopped that is what there is to wait for.
    let operation = match cluster.operation {
        Some(operation) => operation,
        None => {
            let operation = OperationId(turn.world.draw());
            let scope = turn.world.scope_of(&cluster);
            start_operation(turn, operation, scope, OperationKind::PutCluster);
            operation
        }
    };
    cluster.operation = Some(operation);
    // A new wish is a new try: whatever was wrong may just have been put right.
    cluster.backoff = Backoff::default();
    let event = ClusterEvent::UpdateAsked;
    let cluster = Arc::new(cluster);
    turn.emit(Change::ClusterChanged { event, cluster: Arc::clone(&cluster) });
    follow_identity(turn, &cluster);
    Ok(Reply::Cluster { cluster, operation, is_new: false })
}

pub(crate) fn delete(turn: &mut Turn<'_>, workspace: &WorkspaceKey, name: &str) -> Answer {
    let workspace = find_workspace(turn, workspace)?.id;
    let Some(cluster) = turn.world.cluster_by_name(workspace, name) else {
        return Ok(Reply::NothingToDelete);
    };
    serverless::refuse(cluster)?;
    let (id, phase) = (cluster.id, cluster.phase);
    if phase != ClusterPhase::Deleting {
        refuse_locked_delete(turn, id)?;
    }
    Ok(Reply::Deleting { operation: begin_delete(turn, id) })
}

pub(super) fn begin_delete(turn: &mut Turn<'_>, id: ClusterId) -> OperationId {
    let mut cluster = turn.world.cluster(id).expect("looked up by the caller").clone();
    if cluster.phase == ClusterPhase::Deleting {
        return cluster.operation.expect("a delete under way has an operation");
    }
    instance::supersede(turn, &cluster);
    let operation = OperationId(turn.world.draw());
    cluster.phase = ClusterPhase::Deleting;
    cluster.operation = Some(operation);
    cluster.modified_at = turn.now.wall;
    start_operation(turn, operation, turn.world.scope_of(&cluster), OperationKind::DeleteCluster);
    follow_identity(turn, &cluster);
    let event = ClusterEvent::DeleteAsked;
    turn.emit(Change::ClusterChanged { event, cluster: Arc::new(cluster) });
    operation
}

/// Whether so many more nodes can be reserved. The maximum is reserved when it is asked for: a cluster that
/// exists can always grow to it, as far as quota goes. Lowering a maximum is always possible, even where limits were lowered below what is reserved.
pub(super) fn check_reservation(
    turn: &Turn<'_>,
    workspace: WorkspaceId,
    spec: &ClusterSpec,
    (family, node): (&Arc<str>, Capacity),
    nodes: u32,
) -> Result<(), Refused> {
    if nodes == 0 {
        return Ok(());
    }
    let workspace = turn.world.workspace_by_id(workspace).expect("looked up by the caller");
    let scope = QuotaScope::new(&workspace.key.subscription, &spec.location);
    let names = QuotaName::of(spec.tier, family);
    let vcpus = u64::from(nodes) * u64::from(node.vcpus);
    let Some(short) = turn.world.quota_short_to_reserve(&scope, &names, vcpus) else {
        return Ok(());
    };
    let QuotaShort { name, limit, taken } = short;
    let needed = taken + vcpus;
    let (target, way_out) = match spec.kind {
        ComputeKind::Cluster => ("maxNodeCount", "lower maxNodeCount"),
        ComputeKind::Instance => ("vmSize", "choose a smaller vmSize"),
        ComputeKind::Serverless => ("instanceCount", "lower instanceCount"),
    };
    Err(Refused::quota(
        target,
        format!(
            "{} nodes of {} vCPUs do not fit into the quota {name} of region '{}': its limit is {limit} \
             vCPUs, {taken} are reserved, {needed} would be needed; {way_out}, or raise the \
             limit: muster quota update --location {} --name '{name}' --limit {needed}",
            spec.scale.nodes_max, node.vcpus, spec.location, spec.location
        ),
    ))
}

/// Only a new cluster is refused a retired size; one that exists goes on.
pub(super) fn check_size_is_offered(turn: &Turn<'_>, spec: &ClusterSpec) -> Result<(), Refused> {
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
