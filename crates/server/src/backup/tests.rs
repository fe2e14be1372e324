use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use muster_store::{Durability, SqliteStore, Store as _};

use super::*;
use crate::first_start;

/// A state directory as far as files go.
fn site() -> (tempfile::TempDir, StateDir) {
    let folder = tempfile::tempdir().unwrap();
    let state_dir = StateDir::new(&folder.path().join("state"));
    fs::create_dir(state_dir.root()).unwrap();
    first_start::prepare(&state_dir).unwrap();
    let blob = blob_path(WorkspaceId(1), &blob_of(b"bytes"));
    for (path, text) in [
        ("keys/token.key", "a key"),
        ("keys/.token.key.new", "half a key"),
        ("pki/ca.pem", "a certificate"),
        ("logs/j1/a1.0.log", "a log"),
        ("clock", "17"),
        ("nodes/n1/secret", "of a node"),
        ("blobs/incoming/1", "half a blob"),
        (blob.as_str(), "bytes"),
    ] {
        let path = state_dir.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    (folder, state_dir)
}

fn names(folder: &Path) -> Vec<String> {
    let below = files_below(folder, Path::new("")).unwrap();
    below.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

#[test]
fn what_is_restored_is_what_was_there_and_counts_from_far_beyond() {
    let (folder, state_dir) = site();
    let claimed = {
        let mut store = SqliteStore::open(state_dir.database(), Durability::None).unwrap();
        store.claim(1_000).unwrap()
    };
    let to = folder.path().join("backup");
    let manifest = make(&state_dir, &to, "1.2.3", &mut |_| {}).unwrap();
    assert_eq!((manifest.muster_version.as_str(), manifest.lost.len()), ("1.2.3", 0));
    assert_eq!(manifest.files, names(&to.join(STATE)).len() as u64);

    let new = folder.path().join("new");
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    restore(&to, &new, now, &mut |_| {}).unwrap();
    let blob = blob_path(WorkspaceId(1), &blob_of(b"bytes"));
    let wanted = [
        blob.as_str(),
        "clock",
        "keys/token.key",
        "logs/j1/a1.0.log",
        "muster.db",
        "pki/ca.pem",
        "storage.db",
    ];
    assert_eq!(names(&new), wanted, "and nothing else");
    let mode = |path: &str| fs::metadata(new.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["", "keys", "keys/token.key", "muster.db"].map(mode), [0o700, 0o700, 0o600, 0o600]);

    let mut store = SqliteStore::open(new.join(STORE), Durability::None).unwrap();
    let year_ms = 365 * 24 * 60 * 60 * 1_000;
    assert!(store.last_claim().unwrap() >= 1_000_000_000 + year_ms);
    // Restored once more, a moment later: never the same numbers again.
    let again = folder.path().join("again");
    restore(&to, &again, now + Duration::from_secs(1), &mut |_| {}).unwrap();
    let mut other = SqliteStore::open(again.join(STORE), Durability::None).unwrap();
    assert!(other.last_claim().unwrap() > store.claim(claimed).unwrap());
}

#[test]
fn what_cannot_be_made_leaves_nothing() {
    let (folder, state_dir) = site();
    let (to, partial) = (folder.path().join("backup"), folder.path().join(".backup.partial"));
    fs::create_dir(&partial).unwrap();
    let leftover = make(&state_dir, &to, "", &mut |_| {}).unwrap_err();
    assert!(matches!(leftover, BackupError::Leftover { .. }), "{leftover}");
    fs::remove_dir(&partial).unwrap();

    // A damaged database is not taken along.
    let store = fs::read(state_dir.storage()).unwrap();
    fs::write(state_dir.storage(), &store[..store.len() / 2]).unwrap();
    assert!(make(&state_dir, &to, "", &mut |_| {}).is_err());
    assert!(!to.exists() && !partial.exists());
    fs::write(state_dir.storage(), store).unwrap();

    fs::create_dir(&to).unwrap();
    make(&state_dir, &to, "", &mut |_| {}).expect("an empty folder will do");
    let filled = make(&state_dir, &to, "", &mut |_| {}).unwrap_err();
    assert!(matches!(filled, BackupError::Filled { .. }), "{filled}");
}

/// On another file system blobs are copied, and looked at on the way.
#[test]
fn a_blob_that_is_not_what_its_name_says_is_not_copied() {
    let (folder, state_dir) = site();
    let digest = blob_of(b"bytes").to_string();
    let path = PathBuf::from(blob_path(WorkspaceId(1), &blob_of(b"bytes")));
    let to = folder.path().join("copy");
    let entry = copy(state_dir.root(), &to, &path, &mut |_| {}).unwrap();
    assert_eq!((entry.digest.to_string(), entry.bytes), (digest, 5));
    let again = link(state_dir.root(), &to, &path, &mut |_| {});
    assert!(again.is_err(), "it is there already, and nothing is written over");
    fs::write(state_dir.root().join(&path), "other").unwrap();
    let backup = folder.path().join("backup");
    make(&state_dir, &backup, "", &mut |_| {}).expect("a link is not read");
    let found = check(&backup, &mut |_| {}).unwrap_err();
    assert!(matches!(found, BackupError::Damaged { .. }), "{found}");
}
