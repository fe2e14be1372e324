//! A few read connections to a store, lent to handlers one call at a time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_store::{Reader, StoreError};

/// The reader of World.
pub type WorldReader = dyn Reader;

/// How many connections are kept open between calls; more may be open during many concurrent reads.
const KEPT_MAX: usize = 8;
/// How long a stop waits for reads in progress.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Cheap to clone.
pub struct Readers<R: ?Sized = WorldReader> {
    shared: Arc<Shared<R>>,
}

type Open<R> = fn(&Path) -> Result<Box<R>, StoreError>;

struct Shared<R: ?Sized> {
    path: PathBuf,
    open: Open<R>,
    state: Mutex<State<R>>,
    came_back: Condvar,
}

struct State<R: ?Sized> {
    idle: Vec<Box<R>>,
    lent: usize,
    has_ended: bool,
}

impl<R: ?Sized> Clone for Readers<R> {
    fn clone(&self) -> Readers<R> {
        Readers { shared: self.shared.clone() }
    }
}

impl<R: ?Sized + Send + 'static> Readers<R> {
    pub fn new(path: PathBuf, open: Open<R>) -> Readers<R> {
        let state = State { idle: Vec::new(), lent: 0, has_ended: false };
        let (state, came_back) = (Mutex::new(state), Condvar::new());
        Readers { shared: Arc::new(Shared { path, open, state, came_back }) }
    }

    /// Closes idle connections, and waits for the others for a limited time. A later read opens its own.
    pub fn end(&self) {
        let mut state = self.shared.lock();
        state.has_ended = true;
        state.idle.clear();
        let are_out = |state: &mut State<R>| state.lent > 0;
        let _ = self.shared.came_back.wait_timeout_while(state, END_PATIENCE, are_out);
    }

    /// Looks up one thing by its key on the calling thread: that takes microseconds and never waits for the writer, and
    /// switching threads twice would take longer. Lists use [`Readers::read`].
    pub fn look_up<T>(
        &self,
        read: impl FnOnce(&mut R) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut lent = self.shared.lend();
        let mut reader = match lent.kept.take() {
            Some(reader) => reader,
            None => (self.shared.open)(&self.shared.path)?,
        };
        let result = read(&mut *reader);
        // A connection that failed is not used again.
        lent.kept = result.is_ok().then_some(reader);
        result
    }

    /// Runs a read outside the async threads, on a snapshot of the committed state.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut R) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = self.clone();
        match tokio::task::spawn_blocking(move || readers.look_up(read)).await {
            Ok(result) => result,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}

impl<R: ?Sized> Shared<R> {
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lend(&self) -> Lent<'_, R> {
        let mut state = self.lock();
        state.lent += 1;
        Lent { shared: self, kept: state.idle.pop() }
    }
}

/// Returned when dropped, even by a panic.
struct Lent<'s, R: ?Sized> {
    shared: &'s Shared<R>,
    kept: Option<Box<R>>,
}

impl<R: ?Sized> Drop for Lent<'_, R> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if !state.has_ended && state.idle.len() < KEPT_MAX {
            state.idle.extend(self.kept.take());
        }
        // The connection is closed before it counts as returned.
        self.kept = None;
        state.lent -= 1;
        self.shared.came_back.notify_all();
    }
}
