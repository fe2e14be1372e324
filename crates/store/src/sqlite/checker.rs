//! Reads a file through for damage, while others read it too.

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
    /// Of the file that the controller writes.
    pub fn of_store(path: &Path) -> Result<Checker, StoreError> {
        Checker::open(path, &schema::MAIN)
    }

    /// Of the file that has the rows of blobs.
    pub fn of_storage(path: &Path) -> Result<Checker, StoreError> {
        Checker::open(path, &schema::STORAGE)
    }

    fn open(path: &Path, schema: &schema::Schema<'_>) -> Result<Checker, StoreError> {
        let connection = open::reader(path, schema)?;
        Ok(Checker { connection, path: path.to_owned(), is_interrupted: Arc::default() })
    }

    /// Ends the check, from another thread, if it is under way.
    pub fn interrupter(&self) -> impl Fn() + Send + use<> {
        let (handle, flag) = (self.connection.get_interrupt_handle(), self.is_interrupted.clone());
        move || {
            flag.store(true, Ordering::Relaxed);
            handle.interrupt();
        }
    }

    /// A second or two for a gigabyte, and as long as the disk takes to read it.
    pub fn check(&self) -> Result<(), StoreError> {
        self.read_ahead();
        schema::check(&self.connection, &self.path)
    }

    /// From front to back, into the system's memory. The check reads in the order of the trees, for which a disk takes ten
    /// times as long. What cannot be read is left to the check.
    fn read_ahead(&self) {
        let Ok(file) = File::open(&self.path) else { return };
        // It stays open for as long as the process is there: closing it would drop every lock on the file (see `open`).
        let file = ManuallyDrop::new(file);
        let mut piece = vec![0; PIECE_BYTES];
        while !self.is_interrupted.load(Ordering::Relaxed)
            && (&*file).read(&mut piece).is_ok_and(|got| got > 0)
        {}
    }
}
