//! Moving the write-ahead log into the file, and starting it over.
//!
//! SQLite's own way never waits for readers, so where some reader is always under way the log is never
//! started over and grows without bound. Ours waits for those that are at it, a moment at most: readers that
//! come meanwhile do not need the log any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::Connection;

use super::open::BUSY_TIMEOUT;

/// 16 MiB. More makes the pauses rarer and longer, and opening after a crash slower.
const PAGES: u32 = 4_000;
/// However small the disk: each time costs a sync of the file.
const PAGES_MIN: u32 = 64;
/// Of the log: a page and its header.
const FRAME_BYTES: u64 = 4_096 + 24;

/// Readers take milliseconds. One that takes longer is not waited for: the log then grows until the next try.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Checkpoints {
    /// In the log after the last commit.
    pages: Arc<AtomicU32>,
    every: u32,
    due: u32,
}

impl Checkpoints {
    /// From here on SQLite leaves the log alone until the last connection is closed.
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

    /// Starts the log over when it has about so many bytes, where that is sooner than usual.
    pub(super) fn limit_bytes(&mut self, bytes: u64) {
        let pages = u32::try_from(bytes / FRAME_BYTES).unwrap_or(u32::MAX);
        self.set_pages(pages.clamp(PAGES_MIN, PAGES));
    }

    /// What was committed is safe in the log, so whatever goes wrong here only postpones the next try.
    pub(super) fn after_commit(&mut self, connection: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.every {
            self.due = self.every; // It was started over.
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
