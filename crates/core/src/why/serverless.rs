//! Why a serverless job waits. Its cluster belongs to Muster, so users cannot change its limits.

use super::{Reason, Remedy};
use crate::model::Cluster;

/// Wraps the reasons whose remedy would change the cluster, so that the advice is to wait instead.
pub(super) fn reword(cluster: &Cluster, reasons: Vec<Reason>) -> Vec<Reason> {
    if !cluster.is_serverless() {
        return reasons;
    }
    let is_for_owners = |reason: &Reason| match reason.remedy() {
        Remedy::SetMaximum { .. }
        | Remedy::SetMinimum { .. }
        | Remedy::SetIdleTime { .. }
        | Remedy::TryAgain { .. }
        | Remedy::GrowAtOnce { .. }
        | Remedy::Start { .. }
        | Remedy::Stop { .. } => true,
        Remedy::SetQuota { .. }
        | Remedy::JoinHost
        | Remedy::CheckServer
        | Remedy::OpenHost { .. }
        | Remedy::Unlock { .. }
        | Remedy::Cancel { .. }
        | Remedy::Wait { .. }
        | Remedy::DrainHost { .. }
        | Remedy::ListTasks { .. }
        | Remedy::List(_) => false,
    };
    let reworded = |reason: Reason| match is_for_owners(&reason) {
        true => Reason::Serverless { cluster: cluster.name.clone(), what: Box::new(reason) },
        false => reason,
    };
    reasons.into_iter().map(reworded).collect()
}
