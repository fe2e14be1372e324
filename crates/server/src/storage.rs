//! The blob storage. Its rows have their own writer thread, separate from World's, and a few readers. The bytes are
//! files of [`Blobs`](crate::blobs::Blobs), which are on disk before a row references them.
//!
//! As with World's writer, the state on disk decides after a failed commit, and while the rows cannot be written, every
//! command is refused at once.

mod garbage;
mod refused;
mod uploads;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use muster_core::ErrorChain;
use muster_core::time::Wall;
use muster_store::storage::{
    Applied, NotApplied, Storage as StorageWriter, StorageCommand, StorageReader, StorageResult,
};
use muster_store::{Durability, Revision, SqliteStorage, SqliteStorageReader, StoreError};
use tokio::sync::oneshot;
use tracing::{error, info};

use crate::clock;
use crate::readers::Readers;
use crate::reserve::{OnReserve, ReserveFile};
pub use crate::writer::Unavailable;
use crate::writer::{BATCH_MAX, QUEUE_MAX, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};
pub use garbage::{GarbageError, Retention, gc, run as run_garbage_collector};
pub use refused::BlockUpload;
use refused::Refused;
pub use uploads::release;

type Reply = oneshot::Sender<Result<StorageResult, Unavailable>>;

enum Message {
    Submit { command: Box<StorageCommand>, reply: Reply },
    Stop,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Storage {
    sender: SyncSender<Message>,
    /// Whether the file has been checked for damage; before that, nothing is written.
    is_checked: Arc<AtomicBool>,
    on_reserve: OnReserve,
    /// Whether this store or World's may be damaged. Then it is not known what they reference, and no garbage is
    /// collected.
    holds_garbage_collection: Arc<AtomicBool>,
    /// Uploads for which there was no space.
    refused: Arc<Refused>,
    pub readers: Readers<dyn StorageReader>,
}

/// Opens the rows again, and tells whether they still have to be checked. The writer calls this at start and after
/// every failure.
type OpenStorage = Box<dyn FnMut() -> Result<(Box<dyn StorageWriter>, bool), StoreError> + Send>;

impl Storage {
    /// Opens the file and starts its writer.
    pub fn open(
        path: PathBuf,
        reserve: ReserveFile,
    ) -> Result<(Storage, JoinHandle<()>), StoreError> {
        let (own, used) = (path.clone(), reserve.used());
        let open = move || {
            reserve.use_if_needed();
            let (mut rows, is_check_left) = SqliteStorage::open_existing(&own, Durability::Disk)?;
            rows.limit_log(reserve.log_bytes_max());
            Ok((Box::new(rows) as Box<dyn StorageWriter>, is_check_left))
        };
        Storage::start(path, Box::new(open), used)
    }

    fn start(
        path: PathBuf,
        mut open: OpenStorage,
        on_reserve: OnReserve,
    ) -> Result<(Storage, JoinHandle<()>), StoreError> {
        let (mut rows, is_check_left) = open()?;
        let is_checked = Arc::new(AtomicBool::new(!is_check_left));
        let revision = rows.revision()?;
        let mut writer = Writer { open, rows, revision };
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("storage".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(|source| StoreError::Io { doing: "starting the storage's writer", source })?;
        let open = |path: &Path| Ok(Box::new(SqliteStorageReader::open(path)?) as Box<_>);
        let (holds_garbage_collection, readers) = (Arc::default(), Readers::new(path, open));
        let refused = Arc::default();
        Ok((
            Storage { sender, is_checked, on_reserve, holds_garbage_collection, refused, readers },
            thread,
        ))
    }

    pub fn waits_for_check(&self) -> bool {
        !self.is_checked.load(Ordering::Relaxed)
    }

    pub fn may_collect(&self) -> bool {
        !self.holds_garbage_collection.load(Ordering::Relaxed)
    }

    /// Holds back garbage collection until the stores are known to be intact.
    pub fn hold_garbage_collection(&self, are_held: bool) {
        self.holds_garbage_collection.store(are_held, Ordering::Relaxed);
    }

    /// Reports that the file has been checked and is intact, so that it may be written to.
    pub fn checked(&self) {
        self.is_checked.store(true, Ordering::Relaxed);
    }

    /// Waits until the command is on disk, or refused.
    pub async fn submit(&self, command: StorageCommand) -> Result<StorageResult, Unavailable> {
        if self.waits_for_check() {
            return Err(Unavailable::Unchecked);
        }
        if self.on_reserve.get() && !command.is_taken_on_reserve() {
            return Err(Unavailable::OnReserve);
        }
        let (reply, answer) = oneshot::channel();
        let message = Message::Submit { command: Box::new(command), reply };
        self.sender.try_send(message).map_err(|refused| match refused {
            TrySendError::Full(_) => Unavailable::Busy,
            TrySendError::Disconnected(_) => Unavailable::Stopping,
        })?;
        answer.await.unwrap_or(Err(Unavailable::Stopping))
    }

    /// Waits for reads in progress for a limited time: the last one to close the file checkpoints it.
    pub fn stop(&self) {
        self.readers.end();
        let _ = self.sender.send(Message::Stop);
    }
}

struct Writer {
    open: OpenStorage,
    rows: Box<dyn StorageWriter>,
    /// The last revision that is known to be on disk.
    revision: Revision,
}

/// Whether the writer continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Stop,
}

impl Writer {
    fn run(&mut self, receiver: &Receiver<Message>) {
        while let Ok(first) = receiver.recv() {
            let mut commands = Vec::new();
            let mut replies = Vec::new();
            let mut next = Next::GoOn;
            for message in [first].into_iter().chain(receiver.try_iter().take(BATCH_MAX - 1)) {
                match message {
                    Message::Submit { command, reply } => {
                        commands.push(*command);
                        replies.push(reply);
                    }
                    Message::Stop => next = Next::Stop,
                }
            }
            // A stop alone must not write anything, because the file may not have been checked yet.
            let is_known = commands.is_empty() || self.take(&commands, replies);
            if next == Next::GoOn && !is_known {
                next = self.recover(receiver);
            }
            if next == Next::Stop {
                return;
            }
        }
    }

    /// Commits one batch. Returns `false` if these rows must not be used any more.
    fn take(&mut self, commands: &[StorageCommand], replies: Vec<Reply>) -> bool {
        match self.rows.apply(commands, Wall(clock::unix_us())) {
            Ok(applied) => {
                self.revision = applied.revision;
                send_results(replies, applied.results);
                true
            }
            Err(not_applied) => {
                let failed = &not_applied.failed;
                error!(error = %ErrorChain(failed), "the blob storage cannot write its rows");
                self.commit_failed(replies, not_applied);
                false
            }
        }
    }

    /// A failed commit does not tell whether its commands are on disk, but the revision there does. Callers learn which
    /// it is.
    fn commit_failed(&mut self, replies: Vec<Reply>, not_applied: NotApplied) {
        let NotApplied { failed, at_commit } = not_applied;
        match (self.rows.revision(), at_commit) {
            // The transaction was given up before its commit.
            (_, None) => refuse_all(replies, Unavailable::because_of(&failed)),
            (Ok(there), _) if there == self.revision => {
                refuse_all(replies, Unavailable::because_of(&failed));
            }
            (Ok(there), Some(Applied { results, revision })) if there == revision => {
                send_results(replies, results);
            }
            _ => refuse_all(replies, Unavailable::Unconfirmed),
        }
    }

    /// Opens the rows again and writes to them, for as long as it takes. In the meantime, every command is refused at
    /// once, so that nothing is done later that its caller has given up on.
    fn recover(&mut self, receiver: &Receiver<Message>) -> Next {
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let failed = match self.reopen() {
                Ok(()) => {
                    info!("the blob storage can write its rows again");
                    return Next::GoOn;
                }
                Err(failed) => failed,
            };
            error!(error = %ErrorChain(&failed), "the blob storage cannot write its rows; trying again");
            let why = Unavailable::because_of(&failed);
            if refuse_for(pause, receiver, why) == Next::Stop {
                return Next::Stop;
            }
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    /// An empty batch shows whether the rows can be written; on a full disk, they can often be opened.
    fn reopen(&mut self) -> Result<(), StoreError> {
        let (mut rows, _) = (self.open)()?;
        let applied = rows.apply(&[], Wall(clock::unix_us())).map_err(|not| not.failed)?;
        (self.rows, self.revision) = (rows, applied.revision);
        Ok(())
    }
}

fn refuse_for(pause: Duration, receiver: &Receiver<Message>, why: Unavailable) -> Next {
    let until = Instant::now() + pause;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        match receiver.recv_timeout(left) {
            Ok(Message::Submit { reply, .. }) => drop(reply.send(Err(why))),
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return Next::Stop,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Next::GoOn
}

fn send_results(replies: Vec<Reply>, results: Vec<StorageResult>) {
    for (reply, result) in replies.into_iter().zip(results) {
        let _ = reply.send(Ok(result)); // The caller may no longer be waiting.
    }
}

fn refuse_all(replies: Vec<Reply>, why: Unavailable) {
    for reply in replies {
        let _ = reply.send(Err(why)); // The caller may no longer be waiting.
    }
}

#[cfg(test)]
mod tests;
