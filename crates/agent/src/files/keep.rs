//! What a job leaves: its checkpoint folder whenever that has changed, everything when it ends.
//!
//! The server has all of one moment or none of it. Only what it misses is sent.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_core::ErrorChain;
use muster_core::agent::Signal;
use muster_core::ids::Epoch;
use muster_core::model::{BlobId, LOGS_FOLDER, NAMED_OUTPUTS_FOLDER, OUTPUTS_FOLDER};
use muster_trees::{
    BadTree, Folder, Found, Memory, Snapshot, SnapshotError, Tree, snapshot, tree_of,
};
use reqwest::StatusCode;
use tokio::sync::mpsc;

use super::{Patience, note};
use crate::attempt::Told;
use crate::client::{CallError, Client, End};

/// How often a checkpoint folder is looked at, and that keeping it takes no more than a part of the time.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const KEEP_PART: u32 = 4;
/// A folder is kept when two looks find it the same; one that is never at rest as it is, after so many.
const RESTLESS_MAX: u32 = 3;
/// How long an end waits for a server whose disk is full.
const FULL_PATIENCE: Duration = Duration::from_secs(60);
const FULL_PAUSE: Duration = Duration::from_secs(2);
/// What is left for keeping when a job had to be killed. The node goes soon after.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// The server may have let go of something between two questions, but not for ever.
const ROUNDS_MAX: u32 = 4;
/// What is still not at rest when all processes are gone.
const TRIES_MAX: u32 = 3;

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Bad(#[from] BadTree),
    #[error("the server does not take it")]
    Call(#[source] CallError),
    #[error("{path} changed on its way")]
    Changed { path: String },
    #[error("the server has lost {digest}")]
    Lost { digest: BlobId },
    #[error("there was no time left")]
    NoTime,
    #[error("looking through the folder failed")]
    Panicked,
}

pub(crate) struct Keeper {
    client: Client,
    epoch: Epoch,
    folder: Arc<Folder>,
    checkpoint: Option<Box<str>>,
    log: PathBuf,
    memory: Arc<Mutex<Memory>>,
    /// What the server has.
    last: Tree,
    /// What the log was told before.
    said: BTreeSet<String>,
}

impl Keeper {
    pub(super) fn new(
        client: Client,
        epoch: Epoch,
        folder: Arc<Folder>,
        checkpoint: Option<Box<str>>,
        log: PathBuf,
        last: Tree,
    ) -> Keeper {
        let (memory, said) = (Arc::default(), BTreeSet::new());
        Keeper { client, epoch, folder, checkpoint, log, memory, last, said }
    }

    /// Keeps the checkpoint folder whenever it has changed, until dropped.
    pub(crate) async fn watch(&mut self) -> std::convert::Infallible {
        let Some(checkpoint) = self.checkpoint.clone() else { return std::future::pending().await };
        let mut kept = self.look(&checkpoint).await.unwrap_or_default();
        let mut before = Vec::new();
        let (mut restless, mut pause) = (0, LOOK_EVERY);
        loop {
            tokio::time::sleep(pause).await;
            pause = LOOK_EVERY;
            let Ok(now) = self.look(&checkpoint).await else { continue };
            if now == kept {
                continue;
            }
            if now != before && restless < RESTLESS_MAX {
                (before, restless) = (now, restless + 1);
                continue;
            }
            let began = Instant::now();
            match self.keep(std::slice::from_ref(&checkpoint), None).await {
                Ok(found) => kept = found,
                Err(KeepError::Snapshot(SnapshotError::Changed { .. })) => {}
                Err(error) => self.say(format!("cannot keep {checkpoint}: {}", ErrorChain(&error))),
            }
            restless = 0;
            pause = LOOK_EVERY.max(began.elapsed() * KEEP_PART);
        }
    }

    async fn look(&self, below: &str) -> io::Result<Vec<Found>> {
        let (folder, below) = (self.folder.clone(), below.to_owned());
        let listed = tokio::task::spawn_blocking(move || folder.list(&[&below]));
        Ok(listed.await.map_err(io::Error::other)??.files)
    }

    /// Keeps everything that the job leaves. It has ended; if it had to be killed, there is not much time.
    pub(crate) async fn finish(&mut self, end: End, was_killed: bool) -> Result<(), KeepError> {
        if !was_killed {
            return self.keep_all(end).await;
        }
        let kept = tokio::time::timeout(AFTER_KILL, self.keep_all(end)).await;
        kept.unwrap_or(Err(KeepError::NoTime))
    }

    async fn keep_all(&mut self, end: End) -> Result<(), KeepError> {
        let always = [OUTPUTS_FOLDER, LOGS_FOLDER, NAMED_OUTPUTS_FOLDER].map(Box::from);
        let below: Vec<Box<str>> = always.into_iter().chain(self.checkpoint.clone()).collect();
        let began = Instant::now();
        let mut tries = 0;
        loop {
            match self.keep(&below, Some(end)).await {
                Ok(_) => return Ok(()),
                Err(KeepError::Call(CallError::Superseded)) => {
                    tracing::debug!(epoch = %self.epoch, "the server wants nothing more of this");
                    return Ok(());
                }
                Err(
                    KeepError::Snapshot(SnapshotError::Changed { .. }) | KeepError::Changed { .. },
                ) if tries < TRIES_MAX => {
                    tries += 1;
                }
                Err(KeepError::Call(CallError::Refused { status, .. }))
                    if status == StatusCode::INSUFFICIENT_STORAGE
                        && began.elapsed() < FULL_PATIENCE =>
                {
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Keeps what is below these paths, and of the rest what was kept before. Returns what it found.
    async fn keep(
        &mut self,
        below: &[Box<str>],
        end: Option<End>,
    ) -> Result<Vec<Found>, KeepError> {
        let taken = self.take(below).await?;
        for skipped in &taken.skipped {
            self.say(format!("{} {}, and is not kept", skipped.path, skipped.why));
        }
        let is_below = |path: &str| below.iter().any(|top| is_in(path, top));
        let others = self.last.files().iter().filter(|file| !is_below(&file.path));
        let tree = Tree::new(taken.tree.files().iter().chain(others).cloned().collect())?;
        // What it leaves at its end is shown to its owner: the server has to be told even of what it has.
        if tree != self.last || (end.is_some() && !tree.is_empty()) {
            self.send(&tree, &taken, end).await?;
            self.last = tree;
        }
        Ok(taken.listing.files)
    }

    async fn take(&self, below: &[Box<str>]) -> Result<Snapshot, KeepError> {
        let (folder, memory) = (self.folder.clone(), self.memory.clone());
        let below = below.to_vec();
        let taken = tokio::task::spawn_blocking(move || {
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            let below: Vec<&str> = below.iter().map(|path| &**path).collect();
            snapshot(&folder, &below, &mut memory)
        });
        Ok(taken.await.map_err(|_| KeepError::Panicked)??)
    }

    async fn send(&self, tree: &Tree, taken: &Snapshot, end: Option<End>) -> Result<(), KeepError> {
        let text = tree.to_text();
        let id = tree_of(text.as_bytes());
        let mut patience = Patience::default();
        let mut rounds = 0;
        while rounds < ROUNDS_MAX {
            let missing = match self.client.put_tree(self.epoch, &id, text.clone(), end).await {
                Ok(missing) => missing,
                Err(error) => {
                    patience.forgive(error).await.map_err(KeepError::Call)?;
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

    async fn send_file(&self, digest: &BlobId, taken: &Snapshot) -> Result<(), KeepError> {
        let mut files = taken.tree.files().iter().zip(&taken.listing.files);
        let Some((_, found)) = files.find(|(file, _)| file.digest == *digest) else {
            return Err(KeepError::Lost { digest: *digest });
        };
        let changed = || KeepError::Changed { path: found.path.to_string() };
        let mut patience = Patience::default();
        loop {
            let Ok((file, stamp)) = self.folder.open_file(&found.path) else {
                return Err(changed());
            };
            if stamp != found.stamp {
                return Err(changed());
            }
            match self.client.put_file(self.epoch, digest, file, stamp.bytes).await {
                Ok(()) => return Ok(()),
                // Its bytes are not what they were when it was looked at.
                Err(CallError::Refused { status: StatusCode::BAD_REQUEST, .. }) => {
                    return Err(changed());
                }
                Err(error) => patience.forgive(error).await.map_err(KeepError::Call)?,
            }
        }
    }

    /// Tells the job's owner, once.
    pub(crate) fn say(&mut self, text: String) {
        if self.said.insert(text.clone()) {
            note(&self.log, &text);
        }
    }
}

/// Whether a path is this one, or in the folder that this one is.
fn is_in(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Resolves when there is no more time. Being asked to end is no reason to stop keeping.
pub(crate) async fn killed(told: &mut mpsc::UnboundedReceiver<Told>) {
    loop {
        match told.recv().await {
            Some(Told::Signal(Signal::Kill)) => return,
            Some(Told::Signal(Signal::Terminate) | Told::Go) => {}
            // Nobody is left to say it.
            None => return std::future::pending().await,
        }
    }
}
