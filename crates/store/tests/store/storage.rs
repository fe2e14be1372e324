//! SQLite passes the checks for the rows of the blob storage.

use muster_store::conformance::StorageDatabase;
use muster_store::storage::{Storage, StorageReader};
use muster_store::{Durability, SqliteStorage, SqliteStorageReader};

struct File(tempfile::TempDir);

impl File {
    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("storage.db")
    }
}

impl StorageDatabase for File {
    fn storage(&self) -> Box<dyn Storage> {
        Box::new(SqliteStorage::open(&self.path(), Durability::None).expect("the file opens"))
    }

    fn reader(&self) -> Box<dyn StorageReader> {
        Box::new(SqliteStorageReader::open(&self.path()).expect("the file opens"))
    }
}

fn fresh() -> File {
    File(tempfile::tempdir().expect("a folder"))
}

muster_store::storage_conformance!(fresh);

#[test]
fn the_controllers_file_is_not_taken_for_it() {
    let file = fresh();
    drop(muster_store::SqliteStore::open(file.path(), Durability::None).expect("the file opens"));
    let refused = SqliteStorage::open(&file.path(), Durability::None).map(drop);
    assert!(matches!(refused, Err(muster_store::StoreError::NotOurs { .. })), "{refused:?}");
}
