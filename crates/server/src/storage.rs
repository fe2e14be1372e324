//! The blob storage: its rows have a writer thread of their own, apart from World's, and a few readers. The bytes are
//! files of [`Blobs`](crate::blobs::Blobs): they are on disk before a row names them.

mod sweep;
mod uploads;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::time::Wall;
use muster_store::storage::{Order, Outcome, Storage as _, StorageReader};
use muster_store::{Durability, SqliteStorage, SqliteStorageReader, StoreError};
use tokio::sync::oneshot;
use tracing::error;

use crate::clock;
use crate::readers::Readers;
pub use sweep::{Retention, gc, run as run_sweeper};
pub use uploads::let_go;

/// Orders that may wait; beyond it clients are told to come back.
const QUEUE_MAX: usize = 4_096;
/// Orders that share one commit.
const BATCH_MAX: usize = 256;
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error(
        "the server has {QUEUE_MAX} requests waiting, the most it takes; try again in a moment"
    )]
    Busy,
    #[error("the server's disk is full; free some of it, then try again")]
    Full,
    #[error("the change could not be confirmed on disk; look at what is there, then try again")]
    Unconfirmed,
    #[error("the server is stopping; try again when it is back")]
    Stopping,
}

enum Message {
    Say { order: Box<Order>, reply: oneshot::Sender<Result<Outcome, Unavailable>> },
    Stop,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Storage {
    sender: SyncSender<Message>,
    pub readers: Readers<dyn StorageReader>,
}

impl Storage {
    /// Opens the file, or makes it, and starts its writer.
    pub fn open(path: PathBuf) -> Result<(Storage, JoinHandle<()>), StoreError> {
        let store = SqliteStorage::open(&path, Durability::Disk)?;
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let own = path.clone();
        let thread = std::thread::Builder::new()
            .name("storage".to_owned())
            .spawn(move || write(&own, store, &receiver))
            .map_err(|source| StoreError::Io { doing: "starting the storage's writer", source })?;
        let open = |path: &Path| Ok(Box::new(SqliteStorageReader::open(path)?) as Box<_>);
        Ok((Storage { sender, readers: Readers::new(path, open) }, thread))
    }

    /// Waits until it is on disk, or refused.
    pub async fn say(&self, order: Order) -> Result<Outcome, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let message = Message::Say { order: Box::new(order), reply };
        self.sender.try_send(message).map_err(|refused| match refused {
            TrySendError::Full(_) => Unavailable::Busy,
            TrySendError::Disconnected(_) => Unavailable::Stopping,
        })?;
        answer.await.unwrap_or(Err(Unavailable::Stopping))
    }

    /// Waits for reads that are under way, but not for ever: the last to close the file leaves it at peace.
    pub fn stop(&self) {
        self.readers.end();
        let _ = self.sender.send(Message::Stop);
    }
}

fn write(path: &Path, store: SqliteStorage, receiver: &Receiver<Message>) {
    let mut store = Some(store);
    while let Ok(first) = receiver.recv() {
        let mut orders = Vec::new();
        let mut replies = Vec::new();
        let mut is_stopping = false;
        for message in [first].into_iter().chain(receiver.try_iter().take(BATCH_MAX - 1)) {
            match message {
                Message::Say { order, reply } => {
                    orders.push(*order);
                    replies.push(reply);
                }
                Message::Stop => is_stopping = true,
            }
        }
        let outcome = match &mut store {
            Some(open) => open.apply(&orders, Wall(clock::unix_us())),
            None => Err(StoreError::NotClaimed),
        };
        match outcome {
            Ok(outcomes) => {
                for (reply, outcome) in replies.into_iter().zip(outcomes) {
                    let _ = reply.send(Ok(outcome)); // Whoever asked may have gone away.
                }
            }
            Err(failed) => {
                error!(error = %ErrorChain(&failed), "the blob storage could not write its rows");
                let why = match failed {
                    StoreError::Full { .. } => Unavailable::Full,
                    _ => Unavailable::Unconfirmed,
                };
                replies.into_iter().for_each(|reply| drop(reply.send(Err(why))));
                // What is on disk is unknown: nothing is built on it before it is read again.
                drop(store.take());
                store = reopen(path);
            }
        }
        if is_stopping {
            return;
        }
    }
}

fn reopen(path: &Path) -> Option<SqliteStorage> {
    match SqliteStorage::open(path, Durability::Disk) {
        Ok(store) => Some(store),
        Err(failed) => {
            error!(error = %ErrorChain(&failed), "the blob storage cannot be opened; trying again");
            std::thread::sleep(REOPEN_PAUSE);
            None
        }
    }
}
