//! Requests to start, stop or restart a compute instance. For a cluster they are refused, with what to do instead.

use std::sync::Arc;

use super::cluster::check_reservation;
use super::governance::refuse_locked_compute;
use super::{find_workspace, shorten, start_operation};
use crate::change::Change;
use crate::cluster_properties::Kinds;
use crate::ids::OperationId;
use crate::input::{ClusterPatch, InputResult, Refused, Reply};
use crate::model::{
    Backoff, Cluster, ClusterEvent, ClusterPhase, ComputeKind, LastOperation, Operation,
    OperationKind, OperationStatus, Power, Progress, ScaleSettings, Tier, WorkspaceKey,
};
use crate::refusal::{ClusterProperty, ClusterRule, JobField};
use crate::step::Transaction;

/// Starts, stops or restarts an instance. There is nothing to do if it already is in the requested state, and a
/// repeated request returns the operation that is under way. Any other request replaces that operation.
pub(crate) fn power(
    tx: &mut Transaction<'_>,
    workspace: &WorkspaceKey,
    name: &str,
    power: Power,
) -> InputResult {
    let id = find_workspace(tx, workspace)?.id;
    let Some(mut cluster) = tx.world.cluster_by_name(id, name).cloned() else {
        return Err(Refused::not_found(
            "name",
            format!(
                "compute '{}' does not exist in workspace '{}'; check the name, or create it",
                shorten(name),
                workspace.name
            ),
        ));
    };
    super::serverless::refuse(&cluster)?;
    if !cluster.is_instance() {
        return Err(not_for_clusters(&cluster, power));
    }
    if cluster.phase == ClusterPhase::Deleting {
        let message = format!("instance '{}' is being deleted; create it again", cluster.name);
        return Err(Refused::conflict("name", message));
    }
    let network = cluster.spec.network_group();
    let activity_request = match power {
        Power::Start => "started",
        Power::Stop => "stopped",
        Power::Restart => "restarted",
    };
    refuse_locked_compute(
        tx,
        workspace,
        cluster.name.as_str(),
        network.as_ref(),
        activity_request,
    )?;
    if power == Power::Restart && !cluster.is_wanted_up() && cluster.under_way().is_none() {
        let message = format!("instance '{}' is stopped; start it instead", cluster.name);
        return Err(Refused::conflict("name", message));
    }
    // The request ends the back-off, because the problem may have been fixed.
    cluster.backoff = Backoff::default();
    let operation = match (cluster.operation, is_same(&cluster, power)) {
        (Some(operation), true) => operation,
        (_, true | false) => begin(tx, &mut cluster, power)?,
    };
    cluster.phase = ClusterPhase::Updating;
    let event = ClusterEvent::UpdateAsked;
    let cluster = Arc::new(cluster);
    tx.emit(Change::ClusterChanged { event, cluster: Arc::clone(&cluster) });
    Ok(Reply::InstanceChanging { cluster, operation })
}

/// Whether the operation that is under way has the requested result.
fn is_same(cluster: &Cluster, power: Power) -> bool {
    match (cluster.under_way(), power) {
        (Some(None | Some(Power::Start | Power::Restart)), Power::Start)
        | (Some(Some(Power::Stop)), Power::Stop)
        | (Some(Some(Power::Restart)), Power::Restart) => true,
        (Some(None | Some(Power::Start | Power::Stop | Power::Restart)) | None, _) => false,
    }
}

fn begin(
    tx: &mut Transaction<'_>,
    cluster: &mut Cluster,
    power: Power,
) -> Result<OperationId, Refused> {
    let before = cluster.clone();
    // A restart begins with a stop.
    cluster.spec.scale = ScaleSettings::of_instance(power == Power::Start);
    cluster.last =
        Some(LastOperation { power: Some(power), at: tx.now.wall, progress: Progress::UnderWay });
    let more = cluster.reserved_nodes().saturating_sub(before.reserved_nodes());
    let size = (&cluster.family, cluster.capacity);
    check_reservation(tx, cluster.workspace, &cluster.spec, size, more)?;
    supersede(tx, &before);
    let operation = OperationId(tx.world.draw());
    cluster.operation = Some(operation);
    cluster.modified_at = tx.now.wall;
    start_operation(tx, operation, tx.world.scope_of(cluster), OperationKind::Power);
    Ok(operation)
}

/// Ends the operation that is under way, because another one replaces it.
pub(super) fn supersede(tx: &mut Transaction<'_>, cluster: &Cluster) {
    let Some(id) = cluster.operation else { return };
    let is_creation = cluster.under_way() == Some(None);
    tx.emit(Change::OperationChanged(Operation {
        id,
        scope: tx.world.scope_of(cluster),
        by: None,
        kind: if is_creation { OperationKind::PutCluster } else { OperationKind::Power },
        status: OperationStatus::Canceled,
        started_at: cluster.modified_at,
        ended_at: Some(tx.now.wall),
        error: Some("another operation on the compute replaced this one".into()),
    }));
}

fn not_for_clusters(cluster: &Cluster, power: Power) -> Refused {
    let rule = ClusterRule::NotAnInstance { cluster: cluster.name.clone(), power };
    Refused::invalid(ClusterProperty::Kind, rule)
}

/// Refuses properties that a new instance cannot have.
pub(super) fn check_wanted(kind: ComputeKind, wanted: &ClusterPatch) -> Result<(), Refused> {
    if kind != ComputeKind::Instance {
        return Ok(());
    }
    let of_clusters = |property: &&ClusterProperty| property.kinds() == Kinds::Clusters;
    let mut given = ClusterProperty::ALL.iter().filter(of_clusters);
    if let Some(property) = given.find(|property| wanted.gives(**property)) {
        return Err(Refused::invalid(*property, ClusterRule::NotForInstances));
    }
    if wanted.tier == Some(Tier::LowPriority) {
        let rule = ClusterRule::InstanceNeverEvicted;
        return Err(Refused::invalid(ClusterProperty::Tier, rule));
    }
    Ok(())
}

/// A job that needs more than one node would wait for ever.
pub(super) fn check_nodes(cluster: &Cluster, nodes: u32) -> Result<(), Refused> {
    if !cluster.is_instance() || nodes <= 1 {
        return Ok(());
    }
    Err(Refused::invalid(
        JobField::Nodes,
        format!(
            "the job needs {nodes} nodes, but '{}' is an instance and has 1; ask for 1, or use a cluster",
            cluster.name
        ),
    ))
}
