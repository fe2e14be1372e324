//! Saves what a job leaves: its checkpoint folder, `outputs/` and `logs/` whenever they have changed, and everything
//! when it ends.
//!
//! A checkpoint is saved as it was at one moment, or not at all. Files that others only read while they are written are
//! saved as far as they go. Only what the server lacks is sent.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_core::ErrorChain;
use muster_core::agent::{AttemptEnd, Signal};
use muster_core::ids::Epoch;
use muster_core::model::{BlobId, JobSpec, LOGS_FOLDER, NAMED_OUTPUTS_FOLDER, OUTPUTS_FOLDER};
use muster_trees::{
    BadTree, File, Folder, Found, Memory, Packed, Snapshot, SnapshotError, Tree, glance, snapshot,
    tree_of,
};
use reqwest::StatusCode;
use tokio::sync::mpsc;

use super::watched::{LOOK_EVERY, Taking, Watched};
use super::{Patience, is_in, note};
use crate::attempt::AttemptSignal;
use crate::client::{CallError, Client};
use crate::mlflow;

/// The folders that the owner of the job can read while it runs.
const SHOWN: [&str; 2] = [OUTPUTS_FOLDER, LOGS_FOLDER];
const FULL_PAUSE: Duration = Duration::from_secs(2);
/// The time that is left for saving when a job had to be killed. Its node is deleted soon after.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// The server may lose something between two requests, but not every time.
const ROUNDS_MAX: u32 = 4;
/// How many files may be rewritten faster than they are sent before the round is given up.
const UNSTEADY_MAX: usize = 16;
/// How often files are read again that still change after all processes have ended.
const ATTEMPTS_MAX: u32 = 3;

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Bad(#[from] BadTree),
    #[error("the server does not accept it")]
    Call(#[source] CallError),
    #[error(
        "the server's disk is full, so it could not be kept; free space on the server, then submit the job again"
    )]
    ServerFull,
    #[error("{path} changed while it was sent")]
    Changed { path: String },
    #[error("the server has lost {digest}")]
    Lost { digest: BlobId },
    #[error("there was no time left")]
    NoTime,
    #[error("cannot read the folder")]
    Panicked,
}

impl KeepError {
    fn of(error: CallError) -> KeepError {
        match error {
            CallError::Refused { status: StatusCode::INSUFFICIENT_STORAGE, .. } => {
                KeepError::ServerFull
            }
            other => KeepError::Call(other),
        }
    }
}

pub(crate) struct FolderSaver {
    client: Client,
    epoch: Epoch,
    folder: Arc<Folder>,
    checkpoint: Option<Box<str>>,
    /// The server waits for the end of every member, with or without files.
    has_outputs: bool,
    log: PathBuf,
    /// How long the end of a job waits for a server whose disk is full.
    full_waits: Duration,
    memory: Arc<Mutex<Memory>>,
    /// What the server has.
    last: Tree,
    /// Whether the last list may or may not have arrived.
    is_unsure: bool,
    /// The bytes of files that were sent so far.
    bytes_sent: u64,
    /// The notes that were already written to the log.
    said: BTreeSet<String>,
}

impl FolderSaver {
    pub(super) fn new(
        client: Client,
        epoch: Epoch,
        folder: Arc<Folder>,
        spec: &JobSpec,
        (log, full_waits): (PathBuf, Duration),
        last: Tree,
    ) -> FolderSaver {
        let (checkpoint, has_outputs) = (spec.checkpoint.clone(), !spec.outputs.is_empty());
        let (memory, said) = (Arc::default(), BTreeSet::new());
        let (is_unsure, bytes_sent) = (false, 0);
        FolderSaver {
            client,
            epoch,
            folder,
            checkpoint,
            has_outputs,
            log,
            full_waits,
            memory,
            last,
            is_unsure,
            bytes_sent,
            said,
        }
    }

    /// Saves each folder whenever it has changed, until dropped.
    pub(crate) async fn watch(&mut self) -> std::convert::Infallible {
        let mut all = Watched::all(&SHOWN, self.checkpoint.as_deref(), Instant::now());
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            for watched in &mut all {
                self.attend(watched).await;
            }
        }
    }

    async fn attend(&mut self, watched: &mut Watched) {
        if watched.rests(Instant::now()) {
            return;
        }
        let Ok(found) = self.look(&watched.path).await else { return };
        let Some(taking) = watched.see(found) else { return };
        let (began, sent_before) = (Instant::now(), self.bytes_sent);
        match self.keep(std::slice::from_ref(&watched.path), taking, None).await {
            Ok(found) => watched.is_kept(found),
            Err(KeepError::Snapshot(SnapshotError::Changed { .. }) | KeepError::Changed { .. }) => {
            }
            // The server has given up this attempt, so there is nothing to report.
            Err(KeepError::Call(CallError::Superseded)) => {}
            Err(error) => {
                self.say(format!("cannot save {}: {}", watched.path, ErrorChain(&error)));
            }
        }
        watched.rest(Instant::now(), began.elapsed(), self.bytes_sent - sent_before);
    }

    async fn look(&self, below: &str) -> io::Result<Vec<Found>> {
        let (folder, below) = (self.folder.clone(), below.to_owned());
        let listed = tokio::task::spawn_blocking(move || folder.list(&[&below]));
        Ok(listed.await.map_err(io::Error::other)??.files)
    }

    /// Saves everything that the job leaves after it has ended. If it had to be killed, there is not much time.
    pub(crate) async fn finish(
        &mut self,
        end: AttemptEnd,
        was_killed: bool,
    ) -> Result<(), KeepError> {
        if !was_killed {
            return self.keep_all(end).await;
        }
        let kept = tokio::time::timeout(AFTER_KILL, self.keep_all(end)).await;
        kept.unwrap_or(Err(KeepError::NoTime))
    }

    async fn keep_all(&mut self, end: AttemptEnd) -> Result<(), KeepError> {
        let always = [OUTPUTS_FOLDER, LOGS_FOLDER, NAMED_OUTPUTS_FOLDER].map(Box::from);
        let below: Vec<Box<str>> = always.into_iter().chain(self.checkpoint.clone()).collect();
        let began = Instant::now();
        let mut tries = 0;
        loop {
            match self.keep(&below, Taking::Whole, Some(end)).await {
                Ok(found) => {
                    let note = mlflow::note(found.iter().map(|file| &*file.path));
                    note.into_iter().for_each(|note| self.say(note));
                    return Ok(());
                }
                Err(KeepError::Call(CallError::Superseded)) => {
                    tracing::debug!(epoch = %self.epoch, "the server has given up this attempt");
                    return Ok(());
                }
                Err(
                    KeepError::Snapshot(SnapshotError::Changed { .. }) | KeepError::Changed { .. },
                ) if tries < ATTEMPTS_MAX => {
                    tries += 1;
                }
                Err(KeepError::ServerFull) if began.elapsed() < self.full_waits => {
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Saves what is below these paths, and for the rest what was saved before. Returns what it found.
    async fn keep(
        &mut self,
        below: &[Box<str>],
        taking: Taking,
        end: Option<AttemptEnd>,
    ) -> Result<Vec<Found>, KeepError> {
        let mut taken = self.take(below, taking).await?;
        let skipped = std::mem::take(&mut taken.skipped);
        // Files of a running job may exist for only a moment.
        for skipped in skipped.into_iter().filter(|_| taken.is_whole) {
            self.say(format!("{} {}, and is not saved", skipped.path, skipped.why));
        }
        let is_below = |path: &str| below.iter().any(|top| is_in(path, top));
        let others = self.last.files().iter().filter(|file| !is_below(&file.path));
        let others: Vec<File> = others.cloned().collect();
        // Files that are rewritten all the time are listed as they were before; there are few of them.
        let mut unsteady: BTreeSet<String> = BTreeSet::new();
        loop {
            let files = taken.tree.files().iter().filter(|file| !unsteady.contains(&*file.path));
            let before = self.last.files().iter().filter(|file| unsteady.contains(&*file.path));
            let tree = Tree::new(files.chain(before).chain(&others).cloned().collect())?;
            // What a job leaves at its end is shown to its owner, so it is sent even if the server has it all.
            let is_news = self.is_unsure || tree != self.last;
            if is_news || (end.is_some() && (self.has_outputs || !tree.is_empty())) {
                self.is_unsure = true;
                match self.send(&tree, &taken, end).await {
                    Ok(()) => {}
                    Err(KeepError::Changed { path })
                        if !taken.is_whole && unsteady.len() < UNSTEADY_MAX =>
                    {
                        unsteady.insert(path);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                (self.last, self.is_unsure) = (tree, false);
            }
            return Ok(taken.listing.files);
        }
    }

    async fn take(&self, below: &[Box<str>], taking: Taking) -> Result<Snapshot, KeepError> {
        let (folder, memory) = (self.folder.clone(), self.memory.clone());
        let below = below.to_vec();
        let taken = tokio::task::spawn_blocking(move || {
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            let below: Vec<&str> = below.iter().map(|path| &**path).collect();
            match taking {
                Taking::Whole => snapshot(&folder, &below, &mut memory),
                Taking::AsItIs => glance(&folder, &below, &mut memory),
            }
        });
        Ok(taken.await.map_err(|_| KeepError::Panicked)??)
    }

    async fn send(
        &mut self,
        tree: &Tree,
        taken: &Snapshot,
        end: Option<AttemptEnd>,
    ) -> Result<(), KeepError> {
        let text = tree.to_text();
        let id = tree_of(text.as_bytes());
        let mut patience = Patience::default();
        let mut rounds = 0;
        while rounds < ROUNDS_MAX {
            let missing = match self.client.put_tree(self.epoch, &id, text.clone(), end).await {
                Ok(missing) => missing,
                Err(error) => {
                    patience.forgive(error).await.map_err(KeepError::of)?;
                    continue;
                }
            };
            if missing.is_empty() {
                return Ok(());
            }
            for digest in missing {
                self.send_file(&digest, taken).await?;
            }
            rounds += 1;
        }
        Err(KeepError::Call(CallError::NotFound))
    }

    async fn send_file(&mut self, digest: &BlobId, taken: &Snapshot) -> Result<(), KeepError> {
        let mut files = taken.tree.files().iter().zip(&taken.listing.files);
        let Some((_, found)) = files.find(|(file, _)| file.digest == *digest) else {
            return Err(KeepError::Lost { digest: *digest });
        };
        let bytes = found.stamp.bytes;
        let changed = || KeepError::Changed { path: found.path.to_string() };
        let mut patience = Patience::default();
        loop {
            let Ok((file, stamp)) = self.folder.open_file(&found.path) else {
                return Err(changed());
            };
            // A file that has grown since then still begins with what was found.
            let may_do = stamp == found.stamp || (!taken.is_whole && stamp.bytes >= bytes);
            if !may_do {
                return Err(changed());
            }
            let packing = tokio::task::spawn_blocking(move || Packed::new(file, bytes));
            let Ok(packed) = packing.await.map_err(|_| KeepError::Panicked)? else {
                return Err(changed());
            };
            self.bytes_sent += packed.as_ref().map_or(bytes, |packed| packed.bytes);
            match self.client.put_file(self.epoch, digest, packed, bytes).await {
                Ok(()) => return Ok(()),
                // The file's contents have changed since it was read.
                Err(CallError::Refused { status: StatusCode::BAD_REQUEST, .. }) => {
                    return Err(changed());
                }
                Err(error) => patience.forgive(error).await.map_err(KeepError::of)?,
            }
        }
    }

    /// Writes a note to the job's log, once.
    pub(crate) fn say(&mut self, text: String) {
        if self.said.insert(text.clone()) {
            note(&self.log, &text);
        }
    }
}

/// Resolves when no time is left. A request to terminate is no reason to stop saving.
pub(crate) async fn killed(signals: &mut mpsc::UnboundedReceiver<AttemptSignal>) {
    loop {
        match signals.recv().await {
            Some(AttemptSignal::Signal(Signal::Kill)) => return,
            Some(AttemptSignal::Signal(Signal::Terminate) | AttemptSignal::Go) => {}
            // The sender is gone, so no signal can arrive any more.
            None => return std::future::pending().await,
        }
    }
}
