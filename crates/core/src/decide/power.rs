//! Starting, stopping and restarting compute instances.

use std::sync::Arc;

use super::cluster::{cluster, cluster_index, finish_operation};
use crate::attempts;
use crate::change::Change;
use crate::ids::{ClusterId, JobId};
use crate::model::{
    Backoff, CancelReason, Cluster, ClusterEvent, ClusterPhase, OperationKind, OperationStatus,
    Power, Progress, ScaleSettings,
};
use crate::step::Transaction;

/// Advances the operation that is under way, and finishes it if nothing is left to do.
pub(super) fn settle(tx: &mut Transaction<'_>, id: ClusterId) {
    let cluster_now = cluster(tx, id);
    let Some(power) = cluster_now.under_way() else { return };
    if !cluster_now.is_wanted_up() {
        // As on Azure, stopping does not wait for running jobs: they are canceled. Queued jobs are kept.
        end_jobs(tx, id);
        if cluster_index(tx, id).existing() > 0 {
            return;
        }
        if power == Some(Power::Restart) {
            let mut cluster = cluster(tx, id).clone();
            cluster.spec.scale = ScaleSettings::of_instance(true);
            let event = ClusterEvent::UpdateAsked;
            tx.emit(Change::ClusterChanged { event, cluster: Arc::new(cluster) });
            return;
        }
        return finish(tx, id, Progress::Done, None);
    }
    let index = cluster_index(tx, id);
    if !index.idle.is_empty() || !index.leased.is_empty() {
        return finish(tx, id, Progress::Done, None);
    }
    let Backoff { failures, last, .. } = &cluster(tx, id).backoff;
    if *failures >= Backoff::BREAKER {
        let last = last.as_deref().unwrap_or("no reason was given");
        let error =
            format!("the node failed to start {failures} times in a row; last error: {last}");
        finish(tx, id, Progress::Failed, Some(error));
    }
}

fn end_jobs(tx: &mut Transaction<'_>, id: ClusterId) {
    let active: Vec<JobId> = cluster_index(tx, id).active.iter().copied().collect();
    for job in active {
        let job = tx.world.job(job).expect("indexed").clone();
        attempts::cancel(tx, job, CancelReason::InstanceStopped);
    }
}

/// Finishes the operation. An instance that failed to start is stopped, so that it costs nothing while it is
/// unattended.
fn finish(tx: &mut Transaction<'_>, id: ClusterId, progress: Progress, error: Option<String>) {
    let mut cluster: Cluster = cluster(tx, id).clone();
    let last = cluster.last.as_mut().expect("something is under way");
    last.progress = progress;
    let kind = last.power.map_or(OperationKind::PutCluster, |_| OperationKind::Power);
    let status = match progress {
        Progress::Failed => {
            cluster.spec.scale = ScaleSettings::of_instance(false);
            OperationStatus::Failed
        }
        Progress::Done | Progress::UnderWay => OperationStatus::Succeeded,
    };
    cluster.phase = ClusterPhase::Succeeded;
    finish_operation(tx, &mut cluster, kind, status, error);
    let event = ClusterEvent::Provisioned;
    tx.emit(Change::ClusterChanged { event, cluster: Arc::new(cluster) });
}
