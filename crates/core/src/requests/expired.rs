//! Removing jobs that ended longer ago than they are kept.

use crate::change::Change;
use crate::ids::JobId;
use crate::input::{ExpiredJobs, InputResult, Reply};
use crate::model::{Job, Scope};
use crate::planted::{Bug, is_planted};
use crate::retention::Due;
use crate::step::Transaction;

/// Removes those of the jobs that are due, and leaves the others alone: the driver may have looked at older rows.
pub(crate) fn remove(tx: &mut Transaction<'_>, expired: &ExpiredJobs) -> InputResult {
    let mut removed = Vec::new();
    for job in &expired.known {
        if may_go(tx, job) {
            let (name, workspace) = (job.name.to_ascii_lowercase().into(), job.workspace);
            tx.emit(Change::JobGone { job: job.id, last: job.last_id(), workspace, name });
            removed.push(job.id);
        }
    }
    Ok(Reply::Removed(removed))
}

fn may_go(tx: &Transaction<'_>, job: &Job) -> bool {
    let is_due = tx.world.settings.retention.job(job, tx.now.wall) == Due::Now
        || is_planted(Bug::YoungJobRemoved);
    is_due && !is_gone(tx, job.id) && !is_locked(tx, job)
}

/// Whether an earlier input of this step has deleted it.
fn is_gone(tx: &Transaction<'_>, id: JobId) -> bool {
    tx.changes.iter().any(|change| matches!(change, Change::JobGone { job, .. } if *job == id))
}

/// Whether a lock protects it from being deleted, as it does when a user deletes it. Nothing protects what is left of a
/// deleted workspace.
fn is_locked(tx: &Transaction<'_>, job: &Job) -> bool {
    let workspace = tx.world.workspace_by_id(job.workspace);
    let scope = workspace.map(|workspace| Scope::workspace(&workspace.key));
    scope.is_some_and(|scope| tx.world.governance().against_delete(&scope).is_some())
}
