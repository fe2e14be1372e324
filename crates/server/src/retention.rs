//! Removes ended jobs, and logs of ended jobs, that have been kept for as long as the settings say.
//!
//! Which of them are due is decided in the core (`core/src/retention.rs`). This task looks for them in the rows, in the
//! order in which they were submitted, and stops at the first that is too young. A few jobs at a time go the way of jobs
//! that users delete: their records on disk make sure that a server which is killed in between leaves nothing behind,
//! and everything that was not proposed yet is found again by the next round.
//!
//! A job stays as long as something references its files: a version of an asset, a datastore, or a job that has not
//! ended. Named outputs are no part of a job and are never removed here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_core::ids::{JobId, WorkspaceId};
use muster_core::model::Job;
use muster_core::retention::Due;
use muster_core::time::Wall;
use muster_core::{ErrorChain, ExpiredJobs, Input, Refused, Reply};
use muster_store::StoreError;
use tracing::{info, warn};

use crate::app::App;
use crate::artifacts::{ArtifactError, removal};
use crate::clock;
use crate::writer::Unavailable;

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_secs(600);
/// The pause between two steps of a round, in which the writer and the disk are there for others.
const STEP_PAUSE: Duration = Duration::from_millis(20);
/// How many jobs, or logs, are looked at in one read.
const PAGE: usize = 64;
/// How many jobs are removed in one transaction, and how many children they may have together. A job with more children
/// is removed alone.
const JOBS_PER_STEP: usize = 8;
const CHILDREN_PER_STEP: u32 = 1_000;

/// What a round has removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Round {
    pub jobs: u64,
    /// The number of jobs whose logs were removed although the jobs are kept.
    pub logs: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Artifacts(#[from] ArtifactError),
    #[error("the folder of logs cannot be read")]
    Logs(#[source] std::io::Error),
    #[error("the writer sent an unexpected answer")]
    Unexpected,
}

/// Removes in rounds, until dropped.
pub async fn run(app: Arc<App>) {
    loop {
        // Rows that may be damaged must not cause a removal.
        if app.storage.may_collect() {
            let mut done = Round::default();
            let ended = round(&app, &mut done).await;
            if done != Round::default() {
                let Round { jobs, logs } = done;
                info!(jobs, logs, "removed ended jobs and logs that were kept for long enough");
            }
            if let Err(failed) = ended {
                warn!(error = %ErrorChain(&failed), "cannot remove all ended jobs that are due; trying again later");
            }
            tokio::time::sleep(PAUSE).await;
        } else {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Removes everything that is due now, and counts it in `done`.
pub async fn round(app: &App, done: &mut Round) -> Result<(), RetentionError> {
    // One that fails must not keep the other from being done.
    let jobs = remove_jobs(app, done).await;
    let logs = remove_logs(app, done).await;
    jobs.and(logs)
}

async fn remove_jobs(app: &App, done: &mut Round) -> Result<(), RetentionError> {
    if app.kept.jobs.jobs.is_none() {
        return Ok(());
    }
    let mut after = JobId(0);
    loop {
        let page = app.readers.read(move |reader| reader.ended_jobs(after, PAGE)).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.id;
        let now = clock::now().wall;
        let dues: Vec<Due> = page.iter().map(|job| app.kept.jobs.job(job, now)).collect();
        let due = page.into_iter().zip(&dues).filter(|(_, due)| **due == Due::Now);
        let due: Vec<Job> = due.map(|(job, _)| job).collect();
        for step in steps(unreferenced(app, due).await?) {
            done.jobs += remove(app, &step).await?;
            tokio::time::sleep(STEP_PAUSE).await;
        }
        if dues.contains(&Due::LaterWithAllThatFollow) {
            return Ok(());
        }
    }
}

/// Those of the jobs whose files nothing references.
async fn unreferenced(app: &App, mut jobs: Vec<Job>) -> Result<Vec<Job>, StoreError> {
    let workspaces: BTreeSet<WorkspaceId> = jobs.iter().map(|job| job.workspace).collect();
    let referenced = app.readers.read(move |reader| {
        let names = |workspace| Ok((workspace, reader.referenced_jobs(workspace)?));
        workspaces.into_iter().map(names).collect::<Result<BTreeMap<_, _>, StoreError>>()
    });
    let referenced = referenced.await?;
    let is_referenced = |job: &Job| {
        let names = referenced.get(&job.workspace);
        names.is_some_and(|names| names.contains(&*job.name.to_ascii_lowercase()))
    };
    jobs.retain(|job| !is_referenced(job));
    Ok(jobs)
}

/// The jobs that are removed in one transaction each.
fn steps(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    let mut steps: Vec<Vec<Job>> = Vec::new();
    let mut children = 0;
    for job in jobs {
        children += job.children();
        match steps.last_mut() {
            Some(step) if step.len() < JOBS_PER_STEP && children <= CHILDREN_PER_STEP => {
                step.push(job);
            }
            _ => {
                children = job.children();
                steps.push(vec![job]);
            }
        }
    }
    steps
}

/// Removes these jobs as if a user had deleted them, and returns how many were due.
async fn remove(app: &App, jobs: &[Job]) -> Result<u64, RetentionError> {
    for job in jobs {
        removal::begin(app, job).await;
    }
    let proposed = ExpiredJobs { jobs: jobs.iter().map(|job| job.id).collect(), known: Vec::new() };
    // After an error, some of them may have been removed: their records remain until that is known.
    let removed = match app.writer.submit(Input::RemoveExpired(Box::new(proposed))).await?? {
        Reply::Removed(removed) => removed,
        _ => return Err(RetentionError::Unexpected),
    };
    for job in jobs {
        match removed.contains(&job.id) {
            true => removal::finish(app, job).await,
            false => removal::give_up(app, job.id).await,
        }
    }
    Ok(removed.len() as u64)
}

async fn remove_logs(app: &App, done: &mut Round) -> Result<(), RetentionError> {
    if app.kept.jobs.logs.is_none() {
        return Ok(());
    }
    let logs = app.logs.clone();
    let found = tokio::task::spawn_blocking(move || logs.jobs()).await;
    let jobs = found.map_err(|_| ArtifactError::Panicked)?.map_err(RetentionError::Logs)?;
    let mut failed = Ok(());
    for page in jobs.chunks(PAGE) {
        let (page, kept, now) = (page.to_vec(), app.kept.jobs, clock::now().wall);
        let read = app.readers.read(move |reader| {
            let mut due = Vec::new();
            for id in page {
                // The logs of deleted jobs are removed by others.
                let Some(job) = reader.job_by_id(id)? else { continue };
                let parent = job.parent.map(|parent| reader.job_by_id(parent)).transpose()?;
                match kept.logs(parent.flatten().as_ref().unwrap_or(&job), now) {
                    Due::Now => due.push(job),
                    Due::Later => {}
                    Due::LaterWithAllThatFollow => return Ok((due, true)),
                }
            }
            Ok((due, false))
        });
        let (due, is_last) = read.await?;
        for job in due {
            match removal::remove_logs(app, &job).await {
                Ok(()) => done.logs += 1,
                // The others are removed all the same.
                Err(error) => failed = Err(error.into()),
            }
            tokio::time::sleep(STEP_PAUSE).await;
        }
        if is_last {
            break;
        }
    }
    failed
}

/// Whether the logs of this job have been removed, or are about to be, although it is kept.
pub fn has_no_logs(app: &App, job: &Job, now: Wall) -> Result<bool, StoreError> {
    let parent = match job.parent {
        Some(parent) => app.readers.look_up(|reader| reader.job_by_id(parent))?,
        None => None,
    };
    Ok(app.kept.jobs.logs(parent.as_ref().unwrap_or(job), now) == Due::Now)
}

#[cfg(test)]
mod tests;
