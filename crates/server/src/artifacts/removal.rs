//! Removes what a deleted job leaves: its logs, and the blobs in its folder. This happens after the delete is on disk.
//! Anything that cannot be removed then, or that remains because the client disconnected, is removed later, and always
//! before another job gets the same name.
//!
//! The affected jobs are recorded on disk, so that after a crash the next server continues the work.

mod notes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use muster_core::ErrorChain;
use muster_core::ids::{JobId, WorkspaceId};
use muster_core::model::{Job, WorkspaceKey};
use muster_store::JobView;
use muster_store::storage::{ContainerId, Folder, StorageCommand};
use muster_wire::datastore::own_container;
use tokio::sync::Notify;
use tracing::{info, warn};

use self::notes::{Deleted, Notes};
use super::{ArtifactError, LOG_COPIES, folder_of, submit};
use crate::app::App;

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_secs(30);
/// A delete that is not on disk after this time will not happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// Jobs that are being deleted, and deleted jobs whose logs or blobs still exist.
pub struct Unremoved {
    left: Mutex<BTreeMap<JobId, Left>>,
    notes: Notes,
    /// Notified when something is left to the background task.
    news: Notify,
}

#[derive(Clone)]
struct Left {
    deleted: Deleted,
    since: Instant,
}

impl Unremoved {
    /// Loads the records of an earlier server from the folder of logs.
    pub fn noted_in(logs: PathBuf) -> Unremoved {
        let (notes, since) = (Notes::in_folder(logs), Instant::now());
        let noted = notes.all().into_iter();
        let left = noted.map(|(job, deleted)| (job, Left { deleted, since }));
        Unremoved { left: Mutex::new(left.collect()), notes, news: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Left>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the job was not in the set before.
    fn add(&self, job: &Job) -> bool {
        let left = Left { deleted: deleted(job), since: Instant::now() };
        self.lock().insert(job.id, left).is_none()
    }

    fn get(&self, job: JobId) -> Option<Left> {
        self.lock().get(&job).cloned()
    }

    async fn forget(&self, job: JobId) {
        self.lock().remove(&job);
        if let Err(failed) = self.with_notes(move |notes| notes.remove(job)).await {
            // The next server that starts finds nothing of this job, and removes its record.
            warn!(%job, error = %ErrorChain(&failed), "cannot remove the record of a finished delete");
        }
    }

    async fn with_notes(
        &self,
        work: impl FnOnce(&Notes) -> std::io::Result<()> + Send + 'static,
    ) -> std::io::Result<()> {
        let notes = self.notes.clone();
        let worked = tokio::task::spawn_blocking(move || work(&notes)).await;
        worked.unwrap_or_else(|panicked| Err(std::io::Error::other(panicked)))
    }

    fn of_name(&self, workspace: WorkspaceId, name: &str) -> Vec<JobId> {
        let is_it =
            |left: &Left| left.deleted.workspace == workspace && left.deleted.has_name(name);
        self.lock().iter().filter(|(_, left)| is_it(left)).map(|(job, _)| *job).collect()
    }

    fn all(&self) -> Vec<JobId> {
        self.lock().keys().copied().collect()
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

fn deleted(job: &Job) -> Deleted {
    let tasks = job.array().map(|plan| plan.indices.clone());
    Deleted { workspace: job.workspace, name: job.name.clone(), tasks }
}

/// Records that this job is about to be deleted. From then on it is not forgotten, whatever happens to the request.
pub async fn begin(app: &App, job: &Job) {
    if !app.unremoved.add(job) {
        return;
    }
    let (id, deleted) = (job.id, deleted(job));
    let noted = app.unremoved.with_notes(move |notes| notes.write(id, &deleted)).await;
    if let Err(failed) = noted {
        // The delete still goes ahead: on a full disk, deletes are what helps.
        warn!(job = %id, error = %ErrorChain(&failed), "cannot record a delete: the job's files remain if the server is killed before it removes them");
    }
}

/// Drops the record of a job whose delete was refused.
pub async fn give_up(app: &App, job: JobId) {
    app.unremoved.forget(job).await;
}

/// Removes the logs and blobs of a deleted job. Anything that cannot be removed now is removed later. That includes the
/// case that the workspace must be measured first: the delete is already on disk, and its response does not wait for
/// that.
pub async fn finish(app: &App, job: &Job) {
    // A concurrent delete of the same job that was refused may have dropped the record.
    begin(app, job).await;
    match app.blobs.is_measured(job.workspace) {
        true => finish_later(app, job.id).await,
        false => app.unremoved.news.notify_one(),
    }
}

async fn finish_later(app: &App, job: JobId) {
    if let Err(failed) = try_finish(app, job).await {
        warn!(%job, error = %ErrorChain(&failed), "the files of a deleted job could not be removed yet; trying again later");
    }
}

async fn try_finish(app: &App, job: JobId) -> Result<(), ArtifactError> {
    let Some(left) = app.unremoved.get(job) else { return Ok(()) };
    // Measure before taking the lock, because jobs of other workspaces may be waiting for it.
    app.blobs.measured(left.deleted.workspace).await?;
    let _turn = app.turns.of(job).await;
    if app.unremoved.get(job).is_none() {
        return Ok(());
    }
    if app.readers.look_up(|reader| reader.job_by_id(job))?.is_some() {
        // The delete is still in progress, or was refused.
        if left.since.elapsed() > PATIENCE {
            app.unremoved.forget(job).await;
        }
        return Ok(());
    }
    let (logs, blobs, workspace) = (app.logs.clone(), app.blobs.clone(), left.deleted.workspace);
    let ids: Vec<JobId> = left.deleted.jobs(job).map(|(id, _)| id).collect();
    let remove = move || blobs.removing(workspace, || ids.iter().map(|id| logs.remove(*id)).sum());
    let removed = tokio::task::spawn_blocking(remove).await;
    let removed = removed.map_err(|_| ArtifactError::Panicked)?.map_err(ArtifactError::Log);
    // Blobs are removed even if the logs could not be.
    for (_, name) in left.deleted.jobs(job) {
        remove_blobs(app, workspace, &name).await?;
    }
    removed?;
    app.unremoved.forget(job).await;
    Ok(())
}

/// Runs before a job of this name is submitted or deleted, so that nothing of a deleted job can be mistaken for its
/// own.
pub async fn clear_name(app: &App, key: &WorkspaceKey, name: &str) -> Result<(), ArtifactError> {
    if app.unremoved.is_empty() {
        return Ok(());
    }
    let Some(workspace) = app.readers.look_up(|reader| reader.workspace(key))? else {
        return Ok(());
    };
    for job in app.unremoved.of_name(workspace.id, name) {
        try_finish(app, job).await?;
    }
    Ok(())
}

/// Removes the blobs that a job of this name left behind.
pub async fn clear_leftovers(
    app: &App,
    key: &WorkspaceKey,
    name: &str,
) -> Result<(), ArtifactError> {
    match app.readers.look_up(|reader| reader.workspace(key))? {
        Some(workspace) => remove_blobs(app, workspace.id, name).await,
        None => Ok(()),
    }
}

/// Removes all blobs in the folder of a deleted job. If another job has this name by now, only the copies of logs are
/// removed: they are recreated from that job's own logs, and it has replaced the other blobs or will do so.
async fn remove_blobs(app: &App, workspace: WorkspaceId, job: &str) -> Result<(), ArtifactError> {
    let name = own_container(workspace, false);
    let Some(own) = app.storage.readers.look_up(|reader| reader.container(&name))? else {
        return Ok(());
    };
    // This lookup comes last: a job that is submitted after it writes its blobs after the command below.
    let namesake = app.readers.look_up(|reader| reader.job(&own.owner, job))?;
    let is_its = |view: JobView| view.job.workspace == workspace && *view.job.name == *job;
    let name = match namesake.is_some_and(is_its) {
        true => format!("{}/{LOG_COPIES}", folder_of(job)),
        false => folder_of(job),
    };
    remove_folder(app, workspace, own.id, &name).await
}

async fn remove_folder(
    app: &App,
    workspace: WorkspaceId,
    container: ContainerId,
    name: &str,
) -> Result<(), ArtifactError> {
    let folder = Folder { container, name: name.into(), files: Vec::new(), is_all: true };
    submit(app, StorageCommand::Publish { workspace, folders: vec![folder] }).await.map(drop)
}

/// Removes the logs of a job that is kept. Their copies are removed first, because a later round finds the job by its
/// logs.
pub async fn remove_logs(app: &App, job: &Job) -> Result<(), ArtifactError> {
    let (id, workspace) = (job.id, job.workspace);
    app.blobs.measured(workspace).await?;
    let _turn = app.turns.of(id).await;
    let container = own_container(workspace, false);
    if let Some(own) = app.storage.readers.look_up(|reader| reader.container(&container))? {
        let copies = format!("{}/{LOG_COPIES}", folder_of(&job.name));
        remove_folder(app, workspace, own.id, &copies).await?;
    }
    let (logs, blobs) = (app.logs.clone(), app.blobs.clone());
    let remove = move || blobs.removing(workspace, || logs.remove(id));
    let removed = tokio::task::spawn_blocking(remove).await;
    removed.map_err(|_| ArtifactError::Panicked)?.map_err(ArtifactError::Log)
}

/// Removes leftovers in rounds, until dropped.
pub async fn run(app: Arc<App>) {
    let mut are_logs_known = false;
    loop {
        // Rows that may be damaged must not cause a removal.
        if app.storage.may_collect() {
            if !are_logs_known {
                are_logs_known = remove_logs_of_no_job(&app).await;
            }
            // In parallel, so that a workspace that takes long to measure does not delay the others.
            let left = app.unremoved.all();
            futures_util::future::join_all(left.into_iter().map(|job| finish_later(&app, job)))
                .await;
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = app.unremoved.news.notified() => {}
        }
    }
}

/// Removes logs of jobs that were deleted by a server that was killed before it removed them. Returns false if the logs
/// could not be examined.
async fn remove_logs_of_no_job(app: &App) -> bool {
    let (logs, readers) = (app.logs.clone(), app.readers.clone());
    let removed = tokio::task::spawn_blocking(move || {
        let is_gone = |job| {
            let found = readers.look_up(|reader| reader.job_by_id(job));
            found.map(|found| found.is_none()).map_err(std::io::Error::other)
        };
        logs.remove_if(is_gone)
    });
    match removed.await {
        Ok(Ok(0)) => true,
        Ok(Ok(jobs)) => {
            info!(jobs, "removed logs of deleted jobs");
            true
        }
        Ok(Err(failed)) => {
            warn!(error = %ErrorChain(&failed), "cannot look for logs of deleted jobs");
            false
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
