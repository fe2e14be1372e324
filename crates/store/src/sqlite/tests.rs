//! Checks that are specific to the file. What every store must do is in `conformance`.

mod assets;
mod effort;
mod full;
mod governance;
mod names;
mod opening;
mod packed;
mod refusals;

use std::path::{Path, PathBuf};

use muster_core::Change;
use muster_core::ids::PrincipalId;
use muster_core::model::Principal;
use muster_core::time::Wall;
use rusqlite::Connection;
use tempfile::TempDir;

use super::{Durability, SqliteStore};
use crate::Store;

struct Scratch(TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("muster.db")
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(self.path(), Durability::None).expect("the file opens")
    }

    /// A store with some content, closed properly.
    fn filled(commits: u64) -> Scratch {
        let scratch = Scratch::new();
        fill(&mut scratch.open(), commits);
        scratch
    }

    /// A file and its log as a killed process leaves them: the changes of `connection` are only in the log.
    fn killed(&self, change: impl FnOnce(&Connection)) {
        let work = Scratch::new();
        if self.path().exists() {
            std::fs::copy(self.path(), work.path()).expect("copied");
        }
        let connection = Connection::open(work.path()).expect("the file opens");
        connection.pragma_update(None, "journal_mode", "WAL").expect("a log");
        connection.pragma_update(None, "wal_autocheckpoint", 0).expect("a log that grows");
        change(&connection);
        for suffix in ["", "-wal"] {
            let from = companion(&work.path(), suffix);
            std::fs::copy(from, companion(&self.path(), suffix)).expect("copied");
        }
    }
}

fn companion(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn seen(id: u64) -> Change {
    let object_id = format!("object {id} {}", "x".repeat(500)).into();
    Change::PrincipalSeen(Principal { id: PrincipalId(id), object_id, name: "someone".into() })
}

fn fill(store: &mut SqliteStore, commits: u64) {
    store.claim(1).expect("claimed");
    for id in 1..=commits {
        store.commit(&[seen(id)], Wall(id)).expect("the commit succeeds");
    }
}
