//! Moves the write-ahead log into the file, and restarts the log.
//!
//! SQLite's own checkpoints never wait for readers, so with a constant stream of readers the log is never restarted and
//! grows without bound. This one waits briefly for the readers that are active: those that start in the meantime do not
//! need the log any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::Connection;

use super::open::BUSY_TIMEOUT;

/// 16 MiB. A larger value makes the pauses rarer and longer, and opening after a crash slower.
const PAGES: u32 = 4_000;
/// A lower bound, however small the disk: each checkpoint costs a sync of the file.
const PAGES_MIN: u32 = 64;
/// The size of a page in the log, including its header.
const FRAME_BYTES: u64 = 4_096 + 24;

/// Readers take milliseconds. A slower one is not waited for; the log then grows until the next attempt.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Checkpoints {
    /// The number of pages in the log after the last commit.
    pages: Arc<AtomicU32>,
    every: u32,
    due: u32,
}

impl Checkpoints {
    /// From here on, SQLite leaves the log alone until the last connection is closed.
    pub(super) fn watch(connection: &mut Connection) -> rusqlite::Result<Checkpoints> {
        let pages = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&pages);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(u32::try_from(pages).unwrap_or(u32::MAX), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Checkpoints { pages, every: PAGES, due: PAGES })
    }

    pub(super) fn set_pages(&mut self, pages: u32) {
        (self.every, self.due) = (pages, pages);
    }

    /// Restarts the log when it has about this many bytes, if that is sooner than usual.
    pub(super) fn limit_bytes(&mut self, bytes: u64) {
        let pages = u32::try_from(bytes / FRAME_BYTES).unwrap_or(u32::MAX);
        self.set_pages(pages.clamp(PAGES_MIN, PAGES));
    }

    /// What was committed is safe in the log, so an error here only postpones the checkpoint to the next attempt.
    pub(super) fn after_commit(&mut self, connection: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.every {
            self.due = self.every; // The log was restarted.
        }
        if pages < self.due {
            return;
        }
        self.due = pages.saturating_add(self.every);
        let _ = connection.busy_timeout(PATIENCE);
        let _ = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
        let _ = connection.busy_timeout(BUSY_TIMEOUT);
    }
}
