//! The checks of array jobs.

use crate::change::Change;
use crate::ids::WorkspaceId;
use crate::input::{JobRequest, Refused};
use crate::limits;
use crate::model::{JobSpec, parent_and_index};
use crate::step::Transaction;

pub(super) fn check(spec: &JobSpec) -> Result<(), Refused> {
    let Some(plan) = &spec.array else { return Ok(()) };
    if plan.concurrency == Some(0) {
        return Err(Refused::invalid(
            "array",
            "the array may run 0 tasks at once; allow at least 1, or leave the limit out",
        ));
    }
    match plan.timeout {
        Some(timeout) if timeout.0 == 0 || timeout > limits::JOB_TIMEOUT_MAX => {
            Err(Refused::invalid(
                "array",
                format!(
                    "the time limit of the whole array is {} s; give 1 to {} s, or leave it out",
                    timeout.as_seconds(),
                    limits::JOB_TIMEOUT_MAX.as_seconds()
                ),
            ))
        }
        Some(_) | None => Ok(()),
    }
}

/// The names of the tasks must be free, and not too long.
pub(super) fn check_names(
    tx: &Transaction<'_>,
    workspace: WorkspaceId,
    request: &JobRequest,
) -> Result<(), Refused> {
    let Some(plan) = &request.spec.array else { return Ok(()) };
    let last = format!("{}_{}", request.name, plan.indices.last());
    if last.len() > limits::JOB_NAME_BYTES_MAX {
        return Err(Refused::invalid(
            "name",
            format!(
                "the name of the last task would have {} bytes; at most {} are allowed, so shorten the name of the array",
                last.len(),
                limits::JOB_NAME_BYTES_MAX
            ),
        ));
    }
    // The rows do not show what earlier requests of the same step submitted.
    let new = tx.changes.iter().filter_map(|change| match change {
        Change::JobSubmitted { job, .. } if job.workspace == workspace => {
            let (parent, number) = parent_and_index(&job.name)?;
            parent.eq_ignore_ascii_case(&request.name).then_some(number)
        }
        _ => None,
    });
    let is_task = |number: &u32| plan.indices.position_of(*number).is_some();
    match request.numbered.iter().copied().chain(new).find(is_task) {
        None => Ok(()),
        Some(number) => Err(Refused::conflict(
            "name",
            format!(
                "a job named '{name}_{number}' already exists, and a task of the array would have the same name; \
                 choose another name for the array",
                name = request.name
            ),
        )),
    }
}

/// How many more jobs wait as soon as such a job is accepted.
pub(super) fn waiting_at_once(spec: &JobSpec) -> u32 {
    let Some(plan) = &spec.array else { return 1 };
    plan.indices.len().min(plan.concurrency.unwrap_or(u32::MAX))
}

/// How the number of waiting jobs exceeds its maximum.
pub(super) fn beyond(new: u32, max: u32, of: &str) -> String {
    match new {
        1 => format!(", which is the maximum for {of}"),
        _ => format!(
            ", and with {new} tasks of this array that may run at once there would be more than {max}, the maximum for \
             {of}; let fewer of its tasks run at once, as with 0-99%8"
        ),
    }
}
