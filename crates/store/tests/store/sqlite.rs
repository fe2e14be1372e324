//! SQLite passes the checks for every store.

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
        // Power failures are covered by the kill test; syncing would only cost time here.
        Box::new(SqliteStore::open(self.path(), Durability::None).expect("the file opens"))
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(SqliteReader::open(self.path()).expect("the file opens"))
    }
}

fn fresh() -> File {
    File(tempfile::tempdir().expect("a folder"))
}

muster_store::conformance!(fresh);
