//! Requests about clusters: create, update by merge, delete.

use std::sync::Arc;

use super::access::follow_identity;
use super::cluster_rules::{check_only_changeable, check_spec, merge, new_spec};
use super::governance::{being_deleted, refuse_locked_compute, refuse_locked_delete};
use super::host::check_gpus;
use super::{
    check_region, find_workspace, instance, principal, serverless, shorten, start_operation,
};
use crate::change::Change;
use crate::ids::{ClusterId, OperationId, WorkspaceId};
use crate::input::{ClusterPatch, InputResult, Refused, Reply};
use crate::limits;
use crate::model::{
    Backoff, Caller, Capacity, Cluster, ClusterEvent, ClusterName, ClusterPhase, ClusterSpec,
    ComputeKind, DEFAULT_VM_SIZE, LastOperation, OperationKind, Progress, QuotaName, QuotaScope,
    Rest, WorkspaceKey,
};
use crate::refusal::{ClusterProperty, Field, JobField, QuotaTooSmall, words};
use crate::step::Transaction;
use crate::world::QuotaShort;

pub(crate) fn put(
    tx: &mut Transaction<'_>,
    workspace: &WorkspaceKey,
    name: &str,
    wanted: &ClusterPatch,
    by: &Caller,
) -> InputResult {
    let home = find_workspace(tx, workspace)?;
    let (id, location) = (home.id, home.location.clone());
    if home.deletion.is_some() {
        return Err(being_deleted("workspace", "workspace", &workspace.name));
    }
    match tx.world.cluster_by_name(id, name).cloned() {
        Some(cluster) => {
            serverless::refuse(&cluster)?;
            update(tx, cluster, wanted)
        }
        None => {
            let name = ClusterName::new(name).map_err(|why| {
                Refused::invalid("name", format!("compute name {:?}: {why}", shorten(name)))
            })?;
            let spec = new_spec(wanted, &location)?;
            let network = spec.network_group();
            refuse_locked_compute(tx, workspace, name.as_str(), network.as_ref(), "created")?;
            create(tx, id, name, spec, by)
        }
    }
}

pub(crate) fn patch(
    tx: &mut Transaction<'_>,
    workspace: &WorkspaceKey,
    name: &str,
    wanted: &ClusterPatch,
) -> InputResult {
    let id = find_workspace(tx, workspace)?.id;
    let Some(cluster) = tx.world.cluster_by_name(id, name).cloned() else {
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
    // A patch contains only what is to change, so properties that were ignored before are still ignored.
    let ignored =
        cluster.spec.ignored.union(&wanted.ignored).take(limits::IGNORED_MAX).cloned().collect();
    update(tx, cluster, &ClusterPatch { ignored, ..wanted.clone() })
}

fn create(
    tx: &mut Transaction<'_>,
    workspace: WorkspaceId,
    name: ClusterName,
    spec: ClusterSpec,
    by: &Caller,
) -> InputResult {
    check_spec(tx.world, &spec)?;
    check_region(tx.world, &spec.location)?;
    check_size_is_offered(tx, &spec)?;
    if tx.world.is_name_taken(&spec.location, name.as_str()) {
        // The message does not tell which workspace has it, which may be none of the caller's business.
        return Err(Refused::conflict(
            "name",
            format!(
                "the compute name '{name}' is taken in region '{}'; choose another name or region",
                spec.location
            ),
        ));
    }
    if tx.world.clusters().len() >= limits::CLUSTERS_MAX {
        return Err(Refused::too_many(
            "name",
            format!(
                "there are {} computes, which is the maximum; delete one",
                limits::CLUSTERS_MAX
            ),
        ));
    }
    let size = tx.world.catalogue.get(&spec.vm_size).expect("checked with the rest");
    let (family, capacity) = (Arc::clone(&size.family), size.capacity());
    check_gpus(tx, workspace, name.as_str(), &spec, capacity)?;
    check_reservation(tx, workspace, &spec, (&family, capacity), spec.scale.nodes_max)?;
    let created_by = principal(tx, by);
    let made = LastOperation { power: None, at: tx.now.wall, progress: Progress::UnderWay };
    let last = Some(made).filter(|_| spec.kind == ComputeKind::Instance);
    let id = ClusterId(tx.world.draw());
    let operation = OperationId(tx.world.draw());
    let cluster = Arc::new(Cluster {
        id,
        workspace,
        name,
        spec,
        phase: ClusterPhase::Creating,
        operation: Some(operation),
        created_at: tx.now.wall,
        created_by,
        modified_at: tx.now.wall,
        capacity,
        family,
        backoff: Backoff::default(),
        rest: Rest::default(),
        boot: None,
        last,
    });
    start_operation(tx, operation, tx.world.scope_of(&cluster), OperationKind::PutCluster);
    let event = ClusterEvent::CreateAsked;
    tx.emit(Change::ClusterChanged { event, cluster: Arc::clone(&cluster) });
    follow_identity(tx, &cluster);
    Ok(Reply::Cluster { cluster, operation, is_new: true })
}

fn update(tx: &mut Transaction<'_>, mut cluster: Cluster, wanted: &ClusterPatch) -> InputResult {
    if cluster.phase == ClusterPhase::Deleting {
        return Err(Refused::conflict(
            "name",
            format!("compute '{}' is being deleted; wait until that is done", cluster.name),
        ));
    }
    let home =
        tx.world.workspace_by_id(cluster.workspace).expect("a workspace outlives its clusters");
    let (name, network) = (cluster.name.as_str(), cluster.spec.network_group());
    refuse_locked_compute(tx, &home.key, name, network.as_ref(), "changed")?;
    let reserved = cluster.spec.scale.nodes_max;
    cluster.spec = merge(&cluster.spec, wanted)?;
    check_spec(tx.world, &cluster.spec)?;
    let size = (&cluster.family, cluster.capacity);
    let more = cluster.spec.scale.nodes_max.saturating_sub(reserved);
    check_reservation(tx, cluster.workspace, &cluster.spec, size, more)?;
    cluster.phase = ClusterPhase::Updating;
    cluster.modified_at = tx.now.wall;
    // While an instance is being started or stopped, the client has to wait for that operation.
    let operation = match cluster.operation {
        Some(operation) => operation,
        None => {
            let operation = OperationId(tx.world.draw());
            let scope = tx.world.scope_of(&cluster);
            start_operation(tx, operation, scope, OperationKind::PutCluster);
            operation
        }
    };
    cluster.operation = Some(operation);
    // An update ends the back-off, because it may have fixed the problem.
    cluster.backoff = Backoff::default();
    let event = ClusterEvent::UpdateAsked;
    let cluster = Arc::new(cluster);
    tx.emit(Change::ClusterChanged { event, cluster: Arc::clone(&cluster) });
    follow_identity(tx, &cluster);
    Ok(Reply::Cluster { cluster, operation, is_new: false })
}

pub(crate) fn delete(
    tx: &mut Transaction<'_>,
    workspace: &WorkspaceKey,
    name: &str,
) -> InputResult {
    let workspace = find_workspace(tx, workspace)?.id;
    let Some(cluster) = tx.world.cluster_by_name(workspace, name) else {
        return Ok(Reply::NothingToDelete);
    };
    serverless::refuse(cluster)?;
    let (id, phase) = (cluster.id, cluster.phase);
    if phase != ClusterPhase::Deleting {
        refuse_locked_delete(tx, id)?;
    }
    Ok(Reply::Deleting { operation: begin_delete(tx, id) })
}

pub(super) fn begin_delete(tx: &mut Transaction<'_>, id: ClusterId) -> OperationId {
    let mut cluster = tx.world.cluster(id).expect("looked up by the caller").clone();
    if cluster.phase == ClusterPhase::Deleting {
        return cluster.operation.expect("a delete under way has an operation");
    }
    instance::supersede(tx, &cluster);
    let operation = OperationId(tx.world.draw());
    cluster.phase = ClusterPhase::Deleting;
    cluster.operation = Some(operation);
    cluster.modified_at = tx.now.wall;
    start_operation(tx, operation, tx.world.scope_of(&cluster), OperationKind::DeleteCluster);
    follow_identity(tx, &cluster);
    let event = ClusterEvent::DeleteAsked;
    tx.emit(Change::ClusterChanged { event, cluster: Arc::new(cluster) });
    operation
}

/// Checks that this many more nodes can be reserved. The maximum is reserved when it is requested, so that an existing
/// cluster can always grow to it as far as the quota is concerned. A maximum can always be lowered, even if limits were
/// lowered below what is reserved.
pub(super) fn check_reservation(
    tx: &Transaction<'_>,
    workspace: WorkspaceId,
    spec: &ClusterSpec,
    (family, node): (&Arc<str>, Capacity),
    nodes: u32,
) -> Result<(), Refused> {
    if nodes == 0 {
        return Ok(());
    }
    let workspace = tx.world.workspace_by_id(workspace).expect("looked up by the caller");
    let scope = QuotaScope::new(&workspace.key.subscription, &spec.location);
    let names = QuotaName::of(spec.tier, family);
    let vcpus = u64::from(nodes) * u64::from(node.vcpus);
    let Some(short) = tx.world.quota_short_to_reserve(&scope, &names, vcpus) else {
        return Ok(());
    };
    let QuotaShort { name, limit, taken } = short;
    let needed = taken + vcpus;
    let (target, advice): (Field, &str) = match spec.kind {
        ComputeKind::Cluster => (ClusterProperty::NodesMax.into(), "lower "),
        ComputeKind::Instance => (ClusterProperty::VmSize.into(), "choose a smaller "),
        ComputeKind::Serverless => (JobField::Nodes.into(), "lower "),
    };
    let rule = QuotaTooSmall {
        nodes: spec.scale.nodes_max,
        vcpus_per_node: node.vcpus,
        quota: name,
        location: spec.location.clone(),
        limit,
        reserved: Some(taken),
        needed,
        advice: words![advice, target],
    };
    Err(Refused::quota(target, rule))
}

/// Refuses a retired size for a new cluster. Existing clusters may keep it.
pub(super) fn check_size_is_offered(
    tx: &Transaction<'_>,
    spec: &ClusterSpec,
) -> Result<(), Refused> {
    let Some(size) = tx.world.catalogue.get(&spec.vm_size) else { return Ok(()) };
    if size.retirement.accepts_creation() {
        return Ok(());
    }
    Err(Refused::invalid(
        ClusterProperty::VmSize,
        format!(
            "the VM size '{}' is retired; create the cluster with another size, for example {}",
            spec.vm_size, DEFAULT_VM_SIZE
        ),
    ))
}
