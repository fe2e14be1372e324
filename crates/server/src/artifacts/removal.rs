//! What a deleted job left: its logs, and the blobs below its folder. They are removed after the delete is on disk. What
//! cannot be removed then, or was left because the client hung up, is removed later, and before another job gets the name.
//!
//! Which jobs these are is noted on disk, so that a server that starts goes on where an earlier one was killed.

mod notes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use muster_core::ErrorChain;
use muster_core::ids::{JobId, WorkspaceId};
use muster_core::model::{Job, WorkspaceKey};
use muster_store::JobView;
use muster_store::storage::{Folder, StorageCommand};
use muster_wire::datastore::own_container;
use tokio::sync::Notify;
use tracing::{info, warn};

use self::notes::Notes;
use super::{ArtifactError, LOG_COPIES, folder_of, say};
use crate::app::App;

/// Between two rounds.
const PAUSE: Duration = Duration::from_secs(30);
/// A delete that is not on disk after this time never will be.
const PATIENCE: Duration = Duration::from_secs(120);

/// Jobs that are being deleted, and those whose logs or blobs are left.
pub struct Unremoved {
    left: Mutex<BTreeMap<JobId, Left>>,
    notes: Notes,
    /// Something was left to the task that removes it.
    news: Notify,
}

#[derive(Clone)]
struct Left {
    workspace: WorkspaceId,
    name: Box<str>,
    since: Instant,
}

impl Unremoved {
    /// With what an earlier server left, which is noted in the folder of logs.
    pub fn noted_in(logs: PathBuf) -> Unremoved {
        let (notes, since) = (Notes::in_folder(logs), Instant::now());
        let noted = notes.all().into_iter();
        let left = noted.map(|(job, workspace, name)| (job, Left { workspace, name, since }));
        Unremoved { left: Mutex::new(left.collect()), notes, news: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Left>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was not known before.
    fn add(&self, job: &Job) -> bool {
        let left = Left { workspace: job.workspace, name: job.name.clone(), since: Instant::now() };
        self.lock().insert(job.id, left).is_none()
    }

    fn get(&self, job: JobId) -> Option<Left> {
        self.lock().get(&job).cloned()
    }

    async fn forget(&self, job: JobId) {
        self.lock().remove(&job);
        if let Err(failed) = self.with_notes(move |notes| notes.remove(job)).await {
            // The next server that starts finds nothing of this job, and removes its note.
            warn!(%job, error = %ErrorChain(&failed), "the note of a delete that is finished stays");
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
            |left: &Left| left.workspace == workspace && left.name.eq_ignore_ascii_case(name);
        self.lock().iter().filter(|(_, left)| is_it(left)).map(|(job, _)| *job).collect()
    }

    fn all(&self) -> Vec<JobId> {
        self.lock().keys().copied().collect()
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

/// Notes that this job is about to be deleted: from then on it is not forgotten, whatever happens to the request.
pub async fn begin(app: &App, job: &Job) {
    if !app.unremoved.add(job) {
        return;
    }
    let (id, workspace, name) = (job.id, job.workspace, job.name.clone());
    let noted = app.unremoved.with_notes(move |notes| notes.write(id, workspace, &name)).await;
    if let Err(failed) = noted {
        // On a full disk deletes are what helps.
        warn!(job = %id, error = %ErrorChain(&failed), "a delete cannot be noted: what it leaves stays if the server is killed");
    }
}

/// The job was not deleted.
pub async fn give_up(app: &App, job: JobId) {
    app.unremoved.forget(job).await;
}

/// Removes what a deleted job left. What cannot be removed now is removed later, also if its workspace must be measured
/// first: the delete is on disk, and its answer does not wait for that.
pub async fn finish(app: &App, job: &Job) {
    // Another delete of the same job, which was refused, may have given it up.
    begin(app, job).await;
    match app.blobs.is_measured(job.workspace) {
        true => finish_later(app, job.id).await,
        false => app.unremoved.news.notify_one(),
    }
}

async fn finish_later(app: &App, job: JobId) {
    if let Err(failed) = try_finish(app, job).await {
        warn!(%job, error = %ErrorChain(&failed), "what a deleted job left is removed later");
    }
}

async fn try_finish(app: &App, job: JobId) -> Result<(), ArtifactError> {
    let Some(left) = app.unremoved.get(job) else { return Ok(()) };
    // Before the turn, which jobs of other workspaces may wait for.
    app.blobs.measured(left.workspace).await?;
    let _turn = app.turns.of(job).await;
    if app.unremoved.get(job).is_none() {
        return Ok(());
    }
    if app.readers.look_up(|reader| reader.job_by_id(job))?.is_some() {
        // Its delete is under way, or was refused.
        if left.since.elapsed() > PATIENCE {
            app.unremoved.forget(job).await;
        }
        return Ok(());
    }
    let (logs, blobs, workspace) = (app.logs.clone(), app.blobs.clone(), left.workspace);
    let remove = move || blobs.removing(workspace, || logs.remove(job));
    let removed = tokio::task::spawn_blocking(remove).await;
    let removed = removed.map_err(|_| ArtifactError::Panicked)?.map_err(ArtifactError::Log);
    // One does not wait for the other.
    remove_blobs(app, workspace, &left.name).await?;
    removed?;
    app.unremoved.forget(job).await;
    Ok(())
}

/// Before a job of this name is submitted or deleted: nothing of one that was deleted may be taken for its own.
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

/// Removes the blobs that a job of this name left.
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

/// All blobs below the folder of a job that was deleted. If there is another job of this name by now, only the copies of
/// logs: they are made again from its own, and what else is there it has replaced, or will.
async fn remove_blobs(app: &App, workspace: WorkspaceId, job: &str) -> Result<(), ArtifactError> {
    let name = own_container(workspace, false);
    let Some(own) = app.storage.readers.look_up(|reader| reader.container(&name))? else {
        return Ok(());
    };
    // Last: what a job leaves that is submitted after this look is written after the order below.
    let namesake = app.readers.look_up(|reader| reader.job(&own.owner, job))?;
    let is_its = |view: JobView| view.job.workspace == workspace && *view.job.name == *job;
    let name = match namesake.is_some_and(is_its) {
        true => format!("{}/{LOG_COPIES}", folder_of(job)),
        false => folder_of(job),
    };
    let folder = Folder { container: own.id, name: name.into(), files: Vec::new(), is_all: true };
    say(app, StorageCommand::Publish { workspace, folders: vec![folder] }).await.map(drop)
}

/// Removes what was left, now and then, until dropped.
pub async fn run(app: Arc<App>) {
    let mut are_logs_known = false;
    loop {
        // Nothing goes by the word of rows that may be damaged.
        if app.storage.may_collect() {
            if !are_logs_known {
                are_logs_known = remove_logs_of_no_job(&app).await;
            }
            // Those of a workspace that is measured quickly do not wait for the others.
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

/// Logs whose job was deleted by a server that was killed before it removed them. False if they could not be looked at.
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
            info!(jobs, "logs of deleted jobs are removed");
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
