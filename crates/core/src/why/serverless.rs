//! Why a job that names no compute waits. Its pool is the service's own: nobody can give it other limits.

use super::{Reason, Remedy};
use crate::model::Cluster;

/// The reasons with what their reader can do about them.
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
        | Remedy::Wait { .. } => false,
    };
    let reworded = |reason: Reason| match is_for_owners(&reason) {
        true => Reason::Serverless { cluster: cluster.name.clone(), what: Box::new(reason) },
        false => reason,
    };
    reasons.into_iter().map(reworded).collect()
}
