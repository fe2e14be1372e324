//! Checks a whole file for damage, while others read it too.

use std::fs::File;
use std::io::Read as _;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;

use super::{open, schema};
use crate::StoreError;

const PIECE_BYTES: usize = 1 << 20;

pub struct Checker {
    connection: Connection,
    path: PathBuf,
    is_interrupted: Arc<AtomicBool>,
}

impl Checker {
    /// A checker for the file that the server's writer uses.
    pub fn of_store(path: &Path) -> Result<Checker, StoreError> {
        Checker::open(path, &schema::MAIN)
    }

    /// A checker for the file with the rows of blobs.
    pub fn of_storage(path: &Path) -> Result<Checker, StoreError> {
        Checker::open(path, &schema::STORAGE)
    }

    fn open(path: &Path, schema: &schema::Schema<'_>) -> Result<Checker, StoreError> {
        let connection = open::reader(path, schema)?;
        Ok(Checker { connection, path: path.to_owned(), is_interrupted: Arc::default() })
    }

    /// Cancels a running check from another thread.
    pub fn interrupter(&self) -> impl Fn() + Send + use<> {
        let (handle, flag) = (self.connection.get_interrupt_handle(), self.is_interrupted.clone());
        move || {
            flag.store(true, Ordering::Relaxed);
            handle.interrupt();
        }
    }

    /// Takes a second or two for a gigabyte, and as long as the disk needs to read it.
    pub fn check(&self) -> Result<(), StoreError> {
        self.read_ahead();
        schema::check(&self.connection, &self.path)
    }

    /// Reads the file from front to back into the page cache. The check itself reads in the order of the trees, for
    /// which a disk needs ten times as long. A part that cannot be read is left to the check.
    fn read_ahead(&self) {
        let Ok(file) = File::open(&self.path) else { return };
        // The file stays open as long as the process runs: closing it would drop every lock on the file (see `open`).
        let file = ManuallyDrop::new(file);
        let mut piece = vec![0; PIECE_BYTES];
        while !self.is_interrupted.load(Ordering::Relaxed)
            && (&*file).read(&mut piece).is_ok_and(|got| got > 0)
        {}
    }
}
