//! SQLite does what every store must.

use muster_store::conformance::Database;
use muster_store::{Durability, Reader, SqliteReader, SqliteStore, Store};

struct File(tempfile::TempDir);

impl File {
    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("muster.db")
    }
}

impl Database for File {
    fn store(&self) -> Box<dyn Store> {
        // What is on disk after a loss of power is the kill test's to find out; here it only costs time.
        Box::new(SqliteStore::open(self.path(), Durability::None).expect("it opens"))
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(SqliteReader::open(self.path()).expect("it opens"))
    }
}

fn fresh() -> File {
    File(tempfile::tempdir().expect("a folder"))
}

muster_store::conformance!(fresh);
