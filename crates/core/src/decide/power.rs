//! What is being done to an instance, and when it is done.

use std::sync::Arc;

use super::pool::{cluster, finish_operation, pool};
use crate::attempts;
use crate::change::Change;
use crate::ids::{ClusterId, JobId};
use crate::model::{
    Backoff, CancelReason, Cluster, ClusterEvent, ClusterPhase, OperationKind, OperationStatus,
    Power, Progress, ScaleSettings,
};
use crate::step::Turn;

/// Takes what is under way one step further, and says whether that was the last.
pub(super) fn settle(turn: &mut Turn<'_>, id: ClusterId) {
    let cluster_now = cluster(turn, id);
    let Some(power) = cluster_now.under_way() else { return };
    if !cluster_now.is_wanted_up() {
        // As on Azure nobody waits for what runs: the machine goes, and its jobs with it. Those that wait stay.
        end_jobs(turn, id);
        if pool(turn, id).existing() > 0 {
            return;
        }
        if power == Some(Power::Restart) {
            let mut cluster = cluster(turn, id).clone();
            cluster.spec.scale = ScaleSettings::of_instance(true);
            let event = ClusterEvent::UpdateAsked;
            turn.emit(Change::ClusterChanged { event, cluster: Arc::new(cluster) });
            return;
        }
        return finish(turn, id, Progress::Done, None);
    }
    let pool_now = pool(turn, id);
    if !pool_now.idle.is_empty() || !pool_now.leased.is_empty() {
        return finish(turn, id, Progress::Done, None);
    }
    let Backoff { failures, last, .. } = &cluster(turn, id).backoff;
    if *failures >= Backoff::BREAKER {
        let last = last.as_deref().unwrap_or("no reason was given");
        let error =
            format!("no node came up, {failures} times in a row; the last time because: {last}");
        finish(turn, id, Progress::Failed, Some(error));
    }
}

fn end_jobs(turn: &mut Turn<'_>, id: ClusterId) {
    let active: Vec<JobId> = pool(turn, id).active.iter().copied().collect();
    for job in active {
        let job = turn.world.job(job).expect("indexed").clone();
        attempts::cancel(turn, job, CancelReason::InstanceStopped);
    }
}

/// An instance that does not come up is stopped again: it must not cost anything while nobody looks.
fn finish(turn: &mut Turn<'_>, id: ClusterId, progress: Progress, error: Option<String>) {
    let mut cluster: Cluster = cluster(turn, id).clone();
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
    finish_operation(turn, &mut cluster, kind, status, error);
    let event = ClusterEvent::Provisioned;
    turn.emit(Change::ClusterChanged { event, cluster: Arc::new(cluster) });
}
