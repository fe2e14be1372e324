//! Serverless clusters: found, or created with the first job that needs one.

use std::sync::Arc;

use super::cluster::check_size_is_offered;
use super::cluster_rules::{check_known_size, new_spec};
use super::governance::{being_deleted, refuse_locked_compute};
use super::host::check_gpus;
use crate::change::Change;
use crate::ids::{ClusterId, PrincipalId, WorkspaceId};
use crate::input::{ClusterPatch, Refused};
use crate::limits;
use crate::model::{
    Backoff, Cluster, ClusterEvent, ClusterName, ClusterPhase, ComputeKind, JobSpec, JobTier,
    QuotaName, QuotaScope, Rest, SERVERLESS_VM_SIZE, Tier,
};
use crate::refusal::{JobField, JobRule, QuotaTooSmall, words};
use crate::step::Transaction;

/// The compute that a job will run on.
pub(super) enum JobTarget {
    There(Arc<Cluster>),
    /// A cluster to be created, complete except for its ID and its creator.
    ToMake(Box<Cluster>),
}

impl JobTarget {
    pub(super) fn cluster(&self) -> &Cluster {
        match self {
            JobTarget::There(cluster) => cluster,
            JobTarget::ToMake(cluster) => cluster,
        }
    }
}

/// The cluster of a serverless job, if the job can ever run there. Changes nothing.
pub(super) fn find(
    tx: &Transaction<'_>,
    workspace: WorkspaceId,
    spec: &JobSpec,
) -> Result<JobTarget, Refused> {
    let vm_size = spec.instance_type.as_deref().unwrap_or(SERVERLESS_VM_SIZE);
    check_known_size(tx.world, JobField::InstanceType, vm_size)?;
    if spec.nodes > limits::SERVERLESS_NODES_MAX {
        let (nodes, max) = (spec.nodes, limits::SERVERLESS_NODES_MAX);
        let rule = JobRule::LargerThanServerless { nodes, max };
        return Err(Refused::invalid(JobField::Nodes, rule));
    }
    let home = tx.world.workspace_by_id(workspace).expect("looked up by the caller");
    if home.deletion.is_some() {
        return Err(being_deleted("workspace", "workspace", &home.key.name));
    }
    let tier = spec.job_tier.map_or(Tier::Dedicated, JobTier::tier);
    let name = spec.cluster_name();
    let found = tx.world.cluster_by_name(workspace, name.as_str()).map(|cluster| cluster.id);
    let target = match found.and_then(|id| tx.world.shared_cluster(id)) {
        Some(cluster) => JobTarget::There(Arc::clone(cluster)),
        None => JobTarget::ToMake(Box::new(new_cluster(tx, workspace, name, (vm_size, tier))?)),
    };
    check_quota(tx, target.cluster(), spec.nodes)?;
    Ok(target)
}

fn new_cluster(
    tx: &Transaction<'_>,
    workspace: WorkspaceId,
    name: ClusterName,
    (vm_size, tier): (&str, Tier),
) -> Result<Cluster, Refused> {
    let home = tx.world.workspace_by_id(workspace).expect("looked up by the caller");
    let size = tx.world.catalogue.get(vm_size).expect("checked by the caller");
    let wanted = ClusterPatch {
        kind: Some(ComputeKind::Serverless),
        vm_size: Some((*size.name).into()),
        tier: Some(tier),
        ..ClusterPatch::default()
    };
    let spec = new_spec(&wanted, &home.location)?;
    check_size_is_offered(tx, &spec)?;
    refuse_locked_compute(tx, &home.key, name.as_str(), None, "created")?;
    let capacity = size.capacity();
    check_gpus(tx, workspace, name.as_str(), &spec, capacity)?;
    if tx.world.clusters().len() >= limits::CLUSTERS_MAX {
        return Err(Refused::too_many(
            JobField::Compute,
            format!(
                "there are {} computes, which is the maximum; name one of them, or delete one",
                limits::CLUSTERS_MAX
            ),
        ));
    }
    Ok(Cluster {
        // Drawn when the cluster is created.
        id: ClusterId(0),
        workspace,
        name,
        family: Arc::clone(&size.family),
        spec,
        phase: ClusterPhase::Creating,
        operation: None,
        created_at: tx.now.wall,
        created_by: PrincipalId(0),
        modified_at: tx.now.wall,
        capacity,
        backoff: Backoff::default(),
        rest: Rest::default(),
        boot: None,
        last: None,
    })
}

/// Nothing is reserved for these clusters, but a job that could not run even in an empty region would wait for ever.
fn check_quota(tx: &Transaction<'_>, cluster: &Cluster, nodes: u32) -> Result<(), Refused> {
    let home = tx.world.workspace_by_id(cluster.workspace).expect("looked up by the caller");
    let scope = QuotaScope::new(&home.key.subscription, &cluster.spec.location);
    let vcpus = u64::from(nodes) * u64::from(cluster.capacity.vcpus);
    for name in QuotaName::of(cluster.spec.tier, &cluster.family) {
        let limit = tx.world.quota_limit(&scope, &name).filter(|limit| *limit < vcpus);
        let Some(limit) = limit else { continue };
        let rule = QuotaTooSmall {
            nodes,
            vcpus_per_node: cluster.capacity.vcpus,
            quota: name,
            location: cluster.spec.location.clone(),
            limit,
            reserved: None,
            needed: vcpus,
            advice: words![
                "lower ",
                JobField::Nodes,
                ", choose a smaller ",
                JobField::InstanceType
            ],
        };
        return Err(Refused::quota(JobField::Nodes, rule));
    }
    Ok(())
}

/// The ID of the cluster, which is created if it does not exist yet.
pub(super) fn make(tx: &mut Transaction<'_>, target: JobTarget, by: PrincipalId) -> ClusterId {
    let cluster = match target {
        JobTarget::There(cluster) => return cluster.id,
        JobTarget::ToMake(cluster) => cluster,
    };
    let id = ClusterId(tx.world.draw());
    let cluster = Arc::new(Cluster { id, created_by: by, ..*cluster });
    tx.emit(Change::ClusterChanged { event: ClusterEvent::CreateAsked, cluster });
    id
}

/// Refuses to let users change or delete a cluster that Muster created for itself.
pub(super) fn refuse(cluster: &Cluster) -> Result<(), Refused> {
    if !cluster.is_serverless() {
        return Ok(());
    }
    Err(Refused::conflict(
        "name",
        format!(
            "'{}' is a serverless cluster, which Muster creates and deletes by itself; create a compute of your \
             own instead",
            cluster.name
        ),
    ))
}
