//! A few read connections, lent to handlers one call at a time.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_store::{Reader, SqliteReader, StoreError};

/// Kept open between calls; more may be open while many read at once.
const KEPT_MAX: usize = 8;
/// For reads that are under way when the server ends.
const END_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct Readers {
    path: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    came_back: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<SqliteReader>,
    lent: usize,
    has_ended: bool,
}

impl Readers {
    pub fn new(path: PathBuf) -> Readers {
        Readers { path, shared: Arc::default() }
    }

    /// Closes those that nobody uses, and waits for the others, but not for ever. Whoever reads later opens one of his own.
    pub fn end(&self) {
        let mut state = self.shared.lock();
        state.has_ended = true;
        state.idle.clear();
        let are_out = |state: &mut State| state.lent > 0;
        let _ = self.shared.came_back.wait_timeout_while(state, END_PATIENCE, are_out);
    }

    /// Looks one thing up by its key, where the caller is: it takes some microseconds and never waits for the
    /// writer, and two hops between threads would take longer. Lists go through [`Readers::read`].
    pub fn look_up<T>(
        &self,
        read: impl FnOnce(&mut dyn Reader) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut lent = self.shared.lend();
        let mut reader = match lent.kept.take() {
            Some(reader) => reader,
            None => SqliteReader::open(&self.path)?,
        };
        let result = read(&mut reader);
        // A connection that failed is not trusted again.
        lent.kept = result.is_ok().then_some(reader);
        result
    }

    /// Runs a read off the async threads, on a snapshot of what is committed.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = self.clone();
        match tokio::task::spawn_blocking(move || readers.look_up(read)).await {
            Ok(result) => result,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lend(&self) -> Lent<'_> {
        let mut state = self.lock();
        state.lent += 1;
        Lent { shared: self, kept: state.idle.pop() }
    }
}

/// Given back when dropped, even by who panics.
struct Lent<'s> {
    shared: &'s Shared,
    kept: Option<SqliteReader>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if !state.has_ended && state.idle.len() < KEPT_MAX {
            state.idle.extend(self.kept.take());
        }
        // Closed before it is said to be back.
        self.kept = None;
        state.lent -= 1;
        self.shared.came_back.notify_all();
    }
}
