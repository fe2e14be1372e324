//! The files that jobs leave, placed where Azure clients look for them: as blobs in the workspace's datastores.
//!
//! ```text
//! workspaceartifactstore  ExperimentRun/dcid.JOB/outputs/…      and logs/…: of the last attempt, also while it runs
//!                         ExperimentRun/dcid.JOB/user_logs/…    the job's log, once it has ended
//! workspaceblobstore      azureml/JOB/NAME/…                    a named output of a completed job (default place)
//! ```
//!
//! The bytes are already stored (`blobs.rs`). This module only creates names for them, all names of one upload in one
//! transaction. The members of a job share these folders; if several members have a file of the same name, the file of
//! the first member is shown.

pub mod removal;

use std::collections::BTreeMap;

use muster_core::ids::{Epoch, JobId, WorkspaceId};
use muster_core::model::{
    Job, JobOutput, LOGS_FOLDER, NAMED_OUTPUTS_FOLDER, OUTPUTS_FOLDER, SavedTree, TreeId,
    WorkspaceKey,
};
use muster_store::storage::{
    About, BlobPart, BlobRef, Container, ContainerId, Done, Folder, Guard, Match, Refusal,
    StorageCommand,
};
use muster_store::{JobView, StoreError};
use muster_trees::Tree;
use muster_wire::datastore::own_container;

use crate::app::App;
use crate::blobs::{BlobError, Held};
use crate::logs::LogKey;
use crate::room::Kind;
use crate::storage::Unavailable;
use crate::{clock, registered, retention};

/// The number of locks, which is also the number of jobs that can publish at the same time.
const TURNS: usize = 64;
/// Folders in a job's working folder. They are stored and shown however the job ends.
pub const KEPT_FOLDERS: [&str; 2] = [OUTPUTS_FOLDER, LOGS_FOLDER];
const RUNS: &str = "ExperimentRun/dcid.";
/// The folder for copies of logs, inside the folder of a job.
const LOG_COPIES: &str = "user_logs";

#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error(transparent)]
    Storage(#[from] Unavailable),
    #[error("the blob storage refused the request")]
    Refused(#[from] Refusal),
    #[error("the blob storage sent an unexpected answer")]
    Unexpected,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Blobs(#[from] BlobError),
    #[error("the log cannot be read")]
    Log(#[source] std::io::Error),
    #[error("the files of the job could not be read")]
    Panicked,
    #[error("the server is busy or stopping")]
    Busy,
    #[error("the output '{output}' could not be registered: {why}")]
    Unregistered { output: Box<str>, why: Box<str> },
    #[error("this attempt has ended")]
    Over,
}

/// Serializes publishing for each job, so that the last upload stored is also the last one shown.
pub struct JobLocks([tokio::sync::Mutex<()>; TURNS]);

impl Default for JobLocks {
    fn default() -> JobLocks {
        JobLocks(std::array::from_fn(|_| tokio::sync::Mutex::default()))
    }
}

impl JobLocks {
    async fn of(&self, job: JobId) -> tokio::sync::MutexGuard<'_, ()> {
        let place = usize::try_from(job.0 % TURNS as u64).expect("less than the number of locks");
        self.0[place].lock().await
    }
}

/// The files that a member of a live attempt has just uploaded.
pub struct Kept<'a> {
    pub job: JobId,
    pub epoch: Epoch,
    pub rank: usize,
    pub id: TreeId,
    pub tree: &'a Tree,
}

/// The folder in the workspace's artifact store that contains everything of one job.
pub fn folder_of(job: &str) -> String {
    format!("{RUNS}{job}")
}

/// The name under which clients find the log of a member.
pub fn log_name(rank: usize, members: usize) -> String {
    match members {
        1 => format!("{LOG_COPIES}/std_log.txt"),
        _ => format!("{LOG_COPIES}/std_log_process_{rank}.txt"),
    }
}

/// Creates names for the files that a job has left so far. Named outputs are published only when all members have ended
/// successfully: all at once, or not at all.
pub async fn publish(app: &App, kept: &Kept<'_>) -> Result<(), ArtifactError> {
    let _turn = app.turns.of(kept.job).await;
    // An attempt that was given up in the meantime must not overwrite what its successor shows.
    app.live.attempt(kept.epoch).ok_or(ArtifactError::Over)?;
    let id = kept.job;
    let read = app.readers.read(move |reader| {
        let Some(job) = reader.job_by_id(id)? else { return Ok(None) };
        let Some(spec) = reader.spec_of(&job)? else { return Ok(None) };
        Ok(Some((job, spec, reader.saved_trees(id)?)))
    });
    let Some((job, spec, saved)) = read.await? else { return Ok(()) };
    // A newer upload was stored first.
    let is_own = |saved: &&SavedTree| saved.rank as usize == kept.rank;
    if saved.iter().find(is_own).is_none_or(|saved| saved.tree != kept.id) {
        return Ok(());
    }
    // The job was submitted to an older version of the server.
    let Some(owner) = spec.workspace.as_deref() else { return Ok(()) };
    let is_final = |rank: u32| {
        let own = |saved: &SavedTree| saved.rank == rank && saved.epoch == kept.epoch;
        saved.iter().any(|saved| own(saved) && saved.is_final)
    };
    let is_over = (0..job.nodes).all(is_final);
    let others = others(app, &job, kept.rank, saved).await?;
    let mut members: BTreeMap<usize, &Tree> =
        others.iter().map(|(rank, tree)| (*rank, tree)).collect();
    members.insert(kept.rank, kept.tree);
    let mut containers =
        Containers { app, workspace: job.workspace, owner, known: BTreeMap::new() };
    let own = containers.id(&own_container(job.workspace, false)).await?;
    let mut folders = Vec::new();
    // The first member comes last, so its files win.
    let all_below = |top: &str| {
        let files = members.values().rev().flat_map(|tree| below(tree, top));
        files.collect::<BTreeMap<_, _>>().into_iter().collect()
    };
    for top in KEPT_FOLDERS {
        let name = format!("{}/{top}", folder_of(&job.name)).into();
        folders.push(Folder { container: own, name, files: all_below(top), is_all: true });
    }
    for (name, output) in spec.outputs.iter().filter(|_| is_over) {
        let container = containers.id(&output.to.container).await?;
        let files = all_below(&format!("{NAMED_OUTPUTS_FOLDER}/{name}"));
        // At the root of a datastore, the output lies next to files of other origin, which must be kept.
        let is_all = !output.kind.is_file() && !output.to.path.is_empty();
        let name = folder_of_output(output).into();
        folders.push(Folder { container, name, files, is_all });
    }
    submit(app, StorageCommand::Publish { workspace: job.workspace, folders }).await?;
    match is_over {
        true => registered::register(app, &job, &spec).await,
        false => Ok(()),
    }
}

/// The most recent uploads of the other members.
async fn others(
    app: &App,
    job: &Job,
    rank: usize,
    saved: Vec<SavedTree>,
) -> Result<Vec<(usize, Tree)>, ArtifactError> {
    let (blobs, workspace, nodes) = (app.blobs.clone(), job.workspace, job.nodes);
    let read = tokio::task::spawn_blocking(move || -> Result<_, BlobError> {
        let mut others = Vec::new();
        let is_other = |saved: &&SavedTree| saved.rank < nodes && saved.rank as usize != rank;
        for saved in saved.iter().filter(is_other) {
            let text = blobs.tree(workspace, &saved.tree)?;
            // A file list that is missing or cannot be parsed has nothing to show.
            let tree = text.and_then(|text| Tree::parse(&text).ok());
            others.extend(tree.map(|tree| (saved.rank as usize, tree)));
        }
        Ok(others)
    });
    Ok(read.await.map_err(|_| ArtifactError::Panicked)??)
}

/// The files of a folder, by their names in it.
fn below<'t>(tree: &'t Tree, top: &str) -> impl Iterator<Item = (Box<str>, BlobPart)> + use<'t> {
    let top = format!("{top}/");
    tree.files().iter().filter_map(move |file| {
        let name = file.path.strip_prefix(&top)?;
        Some((name.into(), BlobPart { digest: file.digest, bytes: file.bytes }))
    })
}

/// The folder of an output. An output that is a single file lies next to other files.
fn folder_of_output(output: &JobOutput) -> &str {
    match output.kind.is_file() {
        true => output.to.path.rsplit_once('/').map_or("", |(folder, _)| folder),
        false => &output.to.path,
    }
}

struct Containers<'a> {
    app: &'a App,
    workspace: WorkspaceId,
    owner: &'a WorkspaceKey,
    known: BTreeMap<String, ContainerId>,
}

impl Containers<'_> {
    /// Creates the container if it does not exist.
    async fn id(&mut self, name: &str) -> Result<ContainerId, ArtifactError> {
        if let Some(id) = self.known.get(name) {
            return Ok(*id);
        }
        let found = self.app.storage.readers.look_up(|reader| reader.container(name))?;
        let id = match found.filter(|found| found.workspace == self.workspace) {
            Some(found) => found.id,
            None => {
                let (workspace, owner) = (self.workspace, self.owner.clone());
                let command = StorageCommand::MakeContainer { name: name.into(), workspace, owner };
                match submit(self.app, command).await? {
                    Done::Container(made) => made.id,
                    Done::Blob { .. } | Done::Dropped(_) | Done::Nothing => {
                        return Err(ArtifactError::Unexpected);
                    }
                }
            }
        };
        self.known.insert(name.to_owned(), id);
        Ok(id)
    }
}

async fn submit(app: &App, command: StorageCommand) -> Result<Done, ArtifactError> {
    Ok(app.storage.submit(command).await??)
}

/// Publishes the log of a job that has ended as blobs. Requests for the contents of a job's folder call this first.
pub async fn show_logs(app: &App, container: &Container, asked: &str) -> Result<(), ArtifactError> {
    let Some(rest) = asked.strip_prefix(RUNS) else { return Ok(()) };
    if *container.name != own_container(container.workspace, false) {
        return Ok(());
    }
    let (owner, name) = (container.owner.clone(), rest.split('/').next().unwrap_or("").to_owned());
    let view = app.readers.read(move |reader| reader.job(&owner, &name)).await?;
    let Some(view) = view.filter(|view| view.job.phase().is_terminal()) else { return Ok(()) };
    // A copy of what was removed would be an empty log.
    if retention::has_no_logs(app, &view.job, clock::now().wall)? {
        return Ok(());
    }
    let Some(last) = view.attempts.last() else { return Ok(()) };
    for rank in 0..last.members.len() {
        let name = format!("{}/{}", folder_of(&view.job.name), log_name(rank, last.members.len()));
        let found = app.storage.readers.look_up(|reader| reader.blob(container.id, &name))?;
        if found.is_none() {
            show_log(app, container, &view, rank, name).await?;
        }
    }
    Ok(())
}

async fn show_log(
    app: &App,
    container: &Container,
    view: &JobView,
    rank: usize,
    name: String,
) -> Result<(), ArtifactError> {
    let Some(last) = view.attempts.last() else { return Ok(()) };
    let (blobs, logs) = (app.blobs.clone(), app.logs.clone());
    let workspace = container.workspace;
    let log = LogKey { job: view.job.id, epoch: last.epoch, rank };
    let copied = tokio::task::spawn_blocking(move || -> Result<Held, ArtifactError> {
        let mut incoming = blobs.begin(workspace, None, Kind::Upload)?;
        let mut at = 0;
        loop {
            let piece = logs.read(log, at).map_err(ArtifactError::Log)?;
            if piece.bytes.is_empty() {
                break;
            }
            incoming.write(&piece.bytes)?;
            at += piece.bytes.len() as u64;
        }
        let held = incoming.keep_as_found()?;
        blobs.sync_folders(workspace, [held.digest])?;
        Ok(held)
    });
    let held = copied.await.map_err(|_| ArtifactError::Panicked)??;
    let mut about = About::default();
    about.headers.content_type = Some("text/plain; charset=utf-8".into());
    let at = BlobRef { container: container.id, workspace, name: name.into() };
    let segment = BlobPart { digest: held.digest, bytes: held.bytes };
    let guard = Guard { if_none_match: Some(Match::Any), ..Guard::default() };
    match submit(app, StorageCommand::Put { at, segment, about, guard }).await {
        // Another request did the same at the same time.
        Ok(_) | Err(ArtifactError::Refused(Refusal::Exists)) => {}
        Err(failed) => return Err(failed),
    }
    // The job may have been deleted in the meantime, and its files removed.
    match app.readers.look_up(|reader| reader.job_by_id(log.job))? {
        Some(_) => Ok(()),
        None => removal::clear_leftovers(app, &container.owner, &view.job.name).await,
    }
}
