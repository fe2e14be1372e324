//! A disk that is really full, or read-only: a small file system in memory, in a mount namespace of its own.
//!
//! Where user namespaces are not allowed, these tests are skipped; unit tests check the same with a limit in SQLite.

use std::path::Path;
use std::process::Command;

use muster_core::Change;
use muster_core::ids::PrincipalId;
use muster_core::model::Principal;
use muster_core::time::Wall;
use muster_store::{Durability, Revision, SqliteStore, Store, StoreError};

const DISK: &str = "MUSTER_SMALL_DISK";

#[test]
fn a_full_disk_is_survived() {
    on_own_disk("full::on_the_small_disk");
}

#[test]
fn a_read_only_file_system_is_distinguished_from_missing_permissions() {
    on_own_disk("full::on_the_read_only_disk");
}

/// Runs another test of this file on a disk of its own.
fn on_own_disk(test: &str) {
    let namespaces = Command::new("unshare").args(["-rm", "true"]).status();
    if !namespaces.is_ok_and(|status| status.success()) {
        return muster_testing::skip_or_fail("no user namespaces here");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("mount -t tmpfs -o size=1m none \"${DISK}\" && exec \"$@\"");
    let output = Command::new("unshare")
        .args(["-rm", "sh", "-c", &script, "sh"])
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", test, "--nocapture"])
        .env(DISK, folder.path())
        .output()
        .expect("it can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("survived"), "{said}");
}

/// The inner part. When it is run as an ordinary test, it does nothing.
#[test]
fn on_the_small_disk() {
    let Ok(disk) = std::env::var(DISK) else { return };
    let disk = Path::new(&disk);
    let (path, ballast) = (disk.join("muster.db"), disk.join("ballast"));
    std::fs::write(&ballast, vec![1; 300_000]).expect("there is space at first");
    let mut store = SqliteStore::open(&path, Durability::Disk).expect("the file opens");
    store.claim(1).expect("claimed");
    let mut batches = fill_up(&mut store, 0);
    assert!(batches > 3, "something fits");
    for _ in 0..3 {
        check(&mut store, batches);
        drop(store);
        // The content can still be opened and read when nothing more can be written.
        store = SqliteStore::open(&path, Durability::Disk).expect("the file opens");
        check(&mut store, batches);
        if store.claim(1).is_ok() {
            batches = fill_up(&mut store, batches);
        }
    }
    std::fs::remove_file(&ballast).expect("freed");
    store.claim(1).expect("claimed");
    let before = batches;
    batches = fill_up(&mut store, batches);
    assert!(batches > before, "commits succeed again");
    drop(store);
    check(&mut SqliteStore::open(&path, Durability::Disk).expect("the file opens"), batches);
    println!("survived with {batches} batches");
}

/// The inner part for a read-only disk.
#[test]
fn on_the_read_only_disk() {
    let Ok(disk) = std::env::var(DISK) else { return };
    let path = Path::new(&disk).join("muster.db");
    drop(SqliteStore::open(&path, Durability::Disk).expect("the file opens"));
    let remount = Command::new("mount").args(["-o", "remount,ro", &disk]).status();
    assert!(remount.expect("mount runs").success());
    let refused = SqliteStore::open(&path, Durability::Disk).map(|_| ());
    let Err(StoreError::ReadOnly { .. }) = &refused else { panic!("{refused:?}") };
    let absent = SqliteStore::open(path.with_file_name("other.db"), Durability::Disk).map(|_| ());
    assert!(matches!(absent, Err(StoreError::ReadOnly { .. })), "{absent:?}");
    println!("survived");
}

const CHANGES: u64 = 5;

/// Commits until nothing more fits, and returns the number of batches.
fn fill_up(store: &mut SqliteStore, mut batches: u64) -> u64 {
    loop {
        let seen = |place| Principal {
            id: PrincipalId(batches * CHANGES + place),
            object_id: format!("{batches} {place} {}", "x".repeat(700)).into(),
            name: "someone".into(),
        };
        let batch: Vec<Change> = (0..CHANGES).map(|n| Change::PrincipalSeen(seen(n))).collect();
        match store.commit(&batch, Wall(batches)) {
            Ok(_) => batches += 1,
            Err(StoreError::Full { .. }) => return batches,
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn check(store: &mut SqliteStore, batches: u64) {
    assert_eq!(store.revision().expect("rows can be read"), Revision(batches * CHANGES));
    assert_eq!(
        store.load().expect("rows can be loaded").principals.len() as u64,
        batches * CHANGES
    );
}
