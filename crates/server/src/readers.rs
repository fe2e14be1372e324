//! A few read connections, lent to handlers one call at a time.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use muster_store::{Reader, SqliteReader, StoreError};

/// Kept open between calls; more may be open while many read at once.
const KEPT_MAX: usize = 8;

#[derive(Clone)]
pub struct Readers {
    path: PathBuf,
    idle: Arc<Mutex<Vec<SqliteReader>>>,
}

impl Readers {
    pub fn new(path: PathBuf) -> Readers {
        Readers { path, idle: Arc::default() }
    }

    /// Looks one thing up by its key, where the caller is: it takes some microseconds and never waits for the
    /// writer, and two hops between threads would take longer. Lists go through [`Readers::read`].
    pub fn look_up<T>(
        &self,
        read: impl FnOnce(&mut dyn Reader) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut reader = self.take()?;
        let result = read(&mut reader);
        // A connection that failed is not trusted again.
        if result.is_ok() {
            self.put_back(reader);
        }
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

    fn take(&self) -> Result<SqliteReader, StoreError> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match kept {
            Some(reader) => Ok(reader),
            None => SqliteReader::open(&self.path),
        }
    }

    fn put_back(&self, reader: SqliteReader) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT_MAX {
            idle.push(reader);
        }
    }
}
