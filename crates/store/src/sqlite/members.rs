//! Applies the members that have changed since their job's document was written.

use std::path::Path;

use muster_core::MemberChange;
use muster_core::model::{Attempt, Job, JobState};
use rusqlite::Connection;

use super::doc;
use crate::StoreError;

/// A job in its current state.
pub(super) fn overlay(
    connection: &Connection,
    path: &Path,
    mut job: Job,
) -> Result<Job, StoreError> {
    if job.attempt().is_some() {
        let sql = "SELECT doc FROM members WHERE job = ?1 ORDER BY rank";
        let changes: Vec<MemberChange> = doc::many(connection, path, sql, (job.id.0,))?;
        for change in changes {
            apply(&mut job, change, path)?;
        }
    }
    Ok(job)
}

/// The same for all live jobs, which are sorted by id.
pub(super) fn overlay_all(
    connection: &Connection,
    path: &Path,
    jobs: &mut [Job],
) -> Result<(), StoreError> {
    let sql = "SELECT doc FROM members ORDER BY job, rank";
    let changes: Vec<MemberChange> = doc::many(connection, path, sql, [])?;
    for change in changes {
        let place = jobs.binary_search_by(|job| job.id.cmp(&change.job));
        let place = place.map_err(|_| damaged(path, &change))?;
        apply(&mut jobs[place], change, path)?;
    }
    Ok(())
}

fn apply(job: &mut Job, change: MemberChange, path: &Path) -> Result<(), StoreError> {
    let attempt = attempt_of(job).filter(|attempt| attempt.epoch == change.epoch);
    let Some(attempt) = attempt else { return Err(damaged(path, &change)) };
    let Some(member) = attempt.members.get_mut(change.rank as usize) else {
        return Err(damaged(path, &change));
    };
    *member = change.member;
    // It is the same in every row of the attempt, except in those written before it was known.
    if change.verdict.is_some() {
        attempt.verdict = change.verdict;
    }
    Ok(())
}

fn attempt_of(job: &mut Job) -> Option<&mut Attempt> {
    match &mut job.state {
        JobState::Starting(attempt)
        | JobState::Running(attempt)
        | JobState::CancelRequested(attempt) => Some(attempt),
        JobState::Queued
        | JobState::Parent(_)
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => None,
    }
}

fn damaged(path: &Path, change: &MemberChange) -> StoreError {
    let what = format!(
        "there is a row for member {} of {}, which has no such member",
        change.rank, change.job
    );
    StoreError::Damaged { path: path.to_owned(), what }
}
