//! Checks large stores for damage in the background, after the server has started.
//!
//! A small store is checked before anything else, in milliseconds. A large one takes seconds, or minutes on a slow
//! disk, and its server should answer at once. So it does, but until the check has passed, nothing is written: changes
//! are refused with 503 and `Retry-After`, reads are answered, known nodes keep their leases, no node is created or
//! deleted, and no garbage is collected. Only then is the store claimed. If it is damaged, the server stops, and every
//! byte that a row could reference is left as it was found.
//!
//! Whether the store was closed cleanly does not matter, because bytes on a disk can also go bad later.

use std::path::PathBuf;
use std::thread::JoinHandle;

use muster_core::ErrorChain;
use muster_store::{Checker, StoreError};
use tokio::sync::oneshot;
use tracing::{error, info};

use crate::state_dir::StateDir;
use crate::storage::Storage;
use crate::writer;

/// A store to check, and a callback for the case that it is intact.
pub struct Task {
    path: PathBuf,
    checker: Checker,
    done: Box<dyn FnOnce() + Send>,
}

pub struct Check {
    running: Option<Running>,
    found: oneshot::Receiver<StoreError>,
}

struct Running {
    interrupts: Vec<Box<dyn Fn() + Send>>,
    thread: JoinHandle<()>,
}

/// The stores that were too large to be checked before.
pub fn left(
    state_dir: &StateDir,
    writer: &writer::Handle,
    thread: &writer::Thread,
    storage: &Storage,
) -> Result<Vec<Task>, StoreError> {
    let mut tasks = Vec::new();
    if thread.waits_for_check {
        let (path, writer) = (state_dir.database(), writer.clone());
        let done = Box::new(move || writer.checked());
        tasks.push(Task { checker: Checker::of_store(&path)?, path, done });
    }
    if storage.waits_for_check() {
        let (path, storage) = (state_dir.storage(), storage.clone());
        let done = Box::new(move || storage.checked());
        tasks.push(Task { checker: Checker::of_storage(&path)?, path, done });
    }
    Ok(tasks)
}

impl Check {
    /// Starts the checks. When all have passed, the garbage of `storage` may be collected.
    pub fn start(tasks: Vec<Task>, storage: Storage) -> Check {
        let (sender, found) = oneshot::channel();
        if tasks.is_empty() {
            return Check { running: None, found };
        }
        let interrupts = tasks.iter().map(|task| Box::new(task.checker.interrupter()) as Box<_>);
        let interrupts = interrupts.collect();
        let thread = std::thread::spawn(move || {
            match tasks.into_iter().try_for_each(look) {
                Ok(()) => storage.hold_garbage_collection(false),
                // The receiver is closed once the server stops.
                Err(failed) => drop(sender.send(failed)),
            }
        });
        Check { running: Some(Running { interrupts, thread }), found }
    }

    /// Resolves if a store turns out to be damaged.
    pub async fn damage(&mut self) -> StoreError {
        match (&mut self.found).await {
            Ok(failed) => {
                error!(error = %ErrorChain(&failed), "a store is damaged; stopping");
                failed
            }
            Err(_) => std::future::pending().await,
        }
    }

    /// Stops the checks. The writer must be the last to close its file; only then is the write-ahead log merged into
    /// it.
    pub async fn end(self) {
        let Some(Running { interrupts, thread }) = self.running else { return };
        // Repeated until the thread ends, because the next check may begin just after the last was interrupted.
        let ending = tokio::task::spawn_blocking(move || {
            while !thread.is_finished() {
                interrupts.iter().for_each(|interrupt| interrupt());
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let _ = ending.await;
    }
}

fn look(task: Task) -> Result<(), StoreError> {
    task.checker.check()?;
    drop(task.checker);
    (task.done)();
    info!(store = %task.path.display(), "the store is intact; accepting changes");
    Ok(())
}
