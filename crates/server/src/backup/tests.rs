use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use muster_store::{Durability, SqliteStore, Store as _};

use muster_core::ids::WorkspaceId;

use super::damage::blob_path;
use super::*;
use crate::first_start;

/// Creates a state directory with all kinds of files.
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
    below.files.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

#[test]
fn what_is_restored_is_what_was_there_and_counts_from_far_beyond() {
    let (folder, state_dir) = site();
    let claimed = {
        let mut store = SqliteStore::open(state_dir.database(), Durability::None).unwrap();
        store.claim(1_000).unwrap()
    };
    let to = folder.path().join("backup");
    let manifest = make(&state_dir, &to, "1.2.3", Verify::Usual, &mut |_| {}).unwrap();
    assert_eq!((manifest.muster_version.as_str(), manifest.lost.len()), ("1.2.3", 0));
    assert_eq!(manifest.files, names(&to.join(STATE)).len() as u64);

    let new = folder.path().join("new");
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    restore(&to, &new, now, OnDamage::Refuse, &mut |_| {}).unwrap();
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
    assert_eq!(names(&new), wanted, "nothing else is restored");
    let mode = |path: &str| fs::metadata(new.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["", "keys", "keys/token.key", "muster.db"].map(mode), [0o700, 0o700, 0o600, 0o600]);

    let mut store = SqliteStore::open(new.join(DATABASE), Durability::None).unwrap();
    let year_ms = 365 * 24 * 60 * 60 * 1_000;
    assert!(store.last_claim().unwrap() >= 1_000_000_000 + year_ms);
    // A backup that is restored again a moment later never gets the same numbers.
    let again = folder.path().join("again");
    restore(&to, &again, now + Duration::from_secs(1), OnDamage::Refuse, &mut |_| {}).unwrap();
    let mut other = SqliteStore::open(again.join(DATABASE), Durability::None).unwrap();
    assert!(other.last_claim().unwrap() > store.claim(claimed).unwrap());
}

#[test]
fn what_cannot_be_made_leaves_nothing() {
    let (folder, state_dir) = site();
    let (to, partial) = (folder.path().join("backup"), folder.path().join(".backup.partial"));
    fs::create_dir(&partial).unwrap();
    let leftover = make(&state_dir, &to, "", Verify::Usual, &mut |_| {}).unwrap_err();
    assert!(matches!(leftover, BackupError::Leftover { .. }), "{leftover}");
    fs::remove_dir(&partial).unwrap();

    // A damaged database is not backed up.
    let store = fs::read(state_dir.storage()).unwrap();
    fs::write(state_dir.storage(), &store[..store.len() / 2]).unwrap();
    assert!(make(&state_dir, &to, "", Verify::Usual, &mut |_| {}).is_err());
    assert!(!to.exists() && !partial.exists());
    fs::write(state_dir.storage(), store).unwrap();

    fs::create_dir(&to).unwrap();
    make(&state_dir, &to, "", Verify::Usual, &mut |_| {}).expect("an empty folder is accepted");
    let filled = make(&state_dir, &to, "", Verify::Usual, &mut |_| {}).unwrap_err();
    assert!(matches!(filled, BackupError::Filled { .. }), "{filled}");
}

fn rotten(state_dir: &StateDir, path: &str) {
    fs::write(state_dir.root().join(path), "other").unwrap();
}

/// On another file system, blobs are copied, and verified in the process.
#[test]
fn a_blob_that_is_not_what_its_name_says_is_left_out_when_it_is_copied() {
    let (folder, state_dir) = site();
    let digest = blob_of(b"bytes");
    let path = PathBuf::from(blob_path(WorkspaceId(1), &digest));
    let to = folder.path().join("copy");
    let entry = copy(state_dir.root(), &to, &path, &mut |_| {}).unwrap();
    assert_eq!((entry.digest, entry.bytes), (digest, 5));
    let again = take_blob(state_dir.root(), &to, &path, digest, &mut |_| {});
    assert!(again.is_err(), "an existing file is never overwritten");

    // This behaves like another file system: a hard link cannot be created.
    rotten(&state_dir, path.to_str().unwrap());
    let state = folder.path().join("other");
    fs::create_dir(&state).unwrap();
    let mut files = Files::new(state_dir.root(), &state);
    let why = copy(state_dir.root(), &state, &path, &mut |_| {})
        .and_then(|found| restore::same(&state, &found, &entry))
        .unwrap_err();
    files.leave_out(&path, why).unwrap();
    assert!(files.damage.has(path.to_str().unwrap()) && !state.join(&path).exists());
}

#[test]
fn a_rotten_blob_is_left_out_and_the_rest_is_restored() {
    let (folder, state_dir) = site();
    let path = blob_path(WorkspaceId(1), &blob_of(b"bytes"));
    rotten(&state_dir, &path);
    let to = folder.path().join("verified");
    let manifest = make(&state_dir, &to, "", Verify::Everything, &mut |_| {}).unwrap();
    let [damaged] = &manifest.damaged[..] else { panic!("{manifest:?}") };
    assert_eq!((damaged.path.as_str(), manifest.lost.len()), (path.as_str(), 0));
    assert!(!to.join(STATE).join(&path).exists());
    check(&to, OnDamage::Refuse, &mut |_| {}).expect("the files in it are intact");

    // A hard link is not read unless that is requested, so the damage is found by the restore.
    let linked = folder.path().join("linked");
    let manifest = make(&state_dir, &linked, "", Verify::Usual, &mut |_| {}).unwrap();
    assert_eq!(manifest.damaged, []);
    let refused = check(&linked, OnDamage::Refuse, &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("--skip-damaged"), "{refused}");
    let checked = check(&linked, OnDamage::Skip, &mut |_| {}).unwrap();
    assert_eq!(checked.skipped.len(), 1);
    let new = folder.path().join("new");
    let restored =
        restore(&linked, &new, SystemTime::UNIX_EPOCH, OnDamage::Skip, &mut |_| {}).unwrap();
    assert_eq!(restored.skipped[0].path, path);
    assert!(!new.join(&path).exists() && new.join("keys/token.key").exists());
}

/// Only files that the rest can work without may be skipped.
#[test]
fn a_damaged_key_or_database_is_never_skipped() {
    for name in ["keys/token.key", DATABASE] {
        let (folder, state_dir) = site();
        let to = folder.path().join("backup");
        make(&state_dir, &to, "", Verify::Usual, &mut |_| {}).unwrap();
        fs::write(to.join(STATE).join(name), "other").unwrap();
        let new = folder.path().join("new");
        let refused = restore(&to, &new, SystemTime::UNIX_EPOCH, OnDamage::Skip, &mut |_| {});
        let refused = refused.unwrap_err();
        assert!(matches!(refused, BackupError::Damaged { .. }), "{refused}");
        assert!(!new.exists());
    }
}

/// The owner has put links into the state directory, to a configuration elsewhere and to a larger disk.
#[test]
fn links_are_followed_and_restored_as_what_they_lead_to() {
    let (folder, state_dir) = site();
    let (root, elsewhere) = (state_dir.root(), folder.path().join("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    let link = |name: &str, to: &Path| std::os::unix::fs::symlink(to, root.join(name)).unwrap();
    fs::write(elsewhere.join("config"), "listen = \"127.0.0.1:0\"").unwrap();
    link("muster.toml", &elsewhere.join("config"));
    let blob = blob_path(WorkspaceId(1), &blob_of(b"bytes"));
    let [moved, key] = ["blobs", "keys/token.key"].map(|name| {
        let to = elsewhere.join(Path::new(name).file_name().unwrap());
        fs::rename(root.join(name), &to).unwrap();
        link(name, &to);
        to
    });
    fs::rename(elsewhere.join("blobs").join(&blob["blobs/".len()..]), elsewhere.join("b")).unwrap();
    link(&blob, &elsewhere.join("b"));
    link("logs/nowhere", Path::new("/nowhere"));
    link("logs/round", &root.join("logs"));

    let to = folder.path().join("backup");
    let manifest = make(&state_dir, &to, "", Verify::Everything, &mut |_| {}).unwrap();
    let links: BTreeSet<&str> = manifest.links.iter().map(|link| link.path.as_str()).collect();
    assert_eq!(links, BTreeSet::from([&*blob, "blobs", "keys/token.key", "muster.toml"]));
    let dead: Vec<&str> = manifest.damaged.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(dead, ["logs/nowhere", "logs/round"]);

    let new = folder.path().join("new");
    restore(&to, &new, SystemTime::UNIX_EPOCH, OnDamage::Refuse, &mut |_| {}).unwrap();
    for (path, from) in [
        ("muster.toml", elsewhere.join("config")),
        ("keys/token.key", key),
        (&blob, moved.with_file_name("b")),
    ] {
        assert!(fs::symlink_metadata(new.join(path)).unwrap().is_file(), "{path}");
        assert_eq!(fs::read(new.join(path)).unwrap(), fs::read(from).unwrap(), "{path}");
    }

    // A backup contains no links itself, so another process must have put this one there.
    let (keys, away) = (to.join("state/keys"), folder.path().join("away"));
    fs::rename(&keys, &away).unwrap();
    std::os::unix::fs::symlink(&away, &keys).unwrap();
    let other = folder.path().join("other");
    let refused = restore(&to, &other, SystemTime::UNIX_EPOCH, OnDamage::Refuse, &mut |_| {});
    assert!(refused.unwrap_err().to_string().contains("keys/"), "the link is not followed");
    fs::remove_file(&keys).unwrap();
    fs::rename(&away, &keys).unwrap();

    // A backup without a key is useless, so a missing key is an error.
    fs::remove_file(elsewhere.join("token.key")).unwrap();
    let refused = make(&state_dir, &folder.path().join("no"), "", Verify::Usual, &mut |_| {});
    let refused = refused.unwrap_err();
    assert!(matches!(refused, BackupError::Unfit { .. }), "{refused}");
}

/// A job is deleted after its log was found and before it is copied.
#[test]
fn logs_that_go_while_a_backup_is_made_are_not_in_it() {
    let (folder, state_dir) = site();
    let logs = state_dir.logs();
    for job in ["j2", "j3"] {
        fs::create_dir(logs.join(job)).unwrap();
        fs::write(logs.join(job).join("a1.0.log"), job).unwrap();
    }
    let to = folder.path().join("backup");
    let mut are_files = false;
    let manifest = make(&state_dir, &to, "", Verify::Everything, &mut |step| {
        are_files |= step == Step::Files;
        if are_files && to.with_file_name(".backup.partial/state/logs/j1").exists() {
            fs::remove_dir_all(logs.join("j2")).ok();
        }
    })
    .unwrap();
    assert_eq!((&manifest.damaged[..], &manifest.lost[..]), (&[][..], &[][..]));
    let kept = |job: &str| to.join("state/logs").join(job).join("a1.0.log").exists();
    assert_eq!(["j1", "j2", "j3"].map(kept), [true, false, true]);
    let new = folder.path().join("new");
    restore(&to, &new, SystemTime::UNIX_EPOCH, OnDamage::Refuse, &mut |_| {}).unwrap();
}

/// A sparse file of one gigabyte used to take a gigabyte on the disk of the backup, and again after the restore.
#[test]
fn holes_stay_holes_in_a_backup_and_when_it_is_restored() {
    use std::os::unix::fs::FileExt as _;
    const BYTES: u64 = 64 << 20;
    let (folder, state_dir) = site();
    let digest = {
        let mut hasher = muster_trees::Hasher::default();
        hasher.add_hole(BYTES / 2);
        hasher.add(b"data");
        hasher.add_hole(BYTES / 2 - 4);
        hasher.finish()
    };
    let paths = [blob_path(WorkspaceId(1), &digest), "logs/j1/a2.0.log".to_owned()];
    for path in &paths {
        let path = state_dir.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::create_new(path).unwrap();
        file.write_all_at(b"data", BYTES / 2).unwrap();
        file.set_len(BYTES).unwrap();
    }
    let (to, new) = (folder.path().join("backup"), folder.path().join("new"));
    let mut told = 0;
    let mut tell = |step| {
        if let Step::Bytes(bytes) = step {
            told += bytes;
        }
    };
    let manifest = make(&state_dir, &to, "", Verify::Everything, &mut tell).unwrap();
    assert_eq!((manifest.damaged.len(), manifest.lost.len()), (0, 0));
    restore(&to, &new, SystemTime::UNIX_EPOCH, OnDamage::Refuse, &mut |_| {}).unwrap();
    // The bytes are copied or linked, and then read again.
    assert!(told >= 4 * BYTES, "{told} bytes were reported");
    for root in [&to.join(STATE), &new] {
        for path in &paths {
            let file = File::open(root.join(path)).unwrap();
            let about = file.metadata().unwrap();
            assert_eq!(about.len(), BYTES);
            assert!(about.blocks() * 512 < 1 << 20, "{path} takes {} blocks", about.blocks());
            let mut data = [0; 4];
            file.read_exact_at(&mut data, BYTES / 2).unwrap();
            assert_eq!(&data, b"data");
        }
    }
}

/// Everything used to be copied before the kernel refused the rename; a new ext4 file system also looked non-empty,
/// because of lost+found.
#[test]
fn a_mount_point_is_refused_before_anything_is_copied() {
    let (folder, state_dir) = site();
    let mounted = Path::new("/proc");
    let refused =
        make(&state_dir, mounted, "", Verify::Usual, &mut |_| panic!("nothing may start"));
    let refused = refused.unwrap_err();
    assert!(matches!(refused, BackupError::MountPoint { .. }), "{refused}");
    assert!(refused.to_string().contains("such as /proc/muster"), "{refused}");
    let to = folder.path().join("backup");
    make(&state_dir, &to, "", Verify::Usual, &mut |_| {}).unwrap();
    let now = SystemTime::UNIX_EPOCH;
    let refused =
        restore(&to, mounted, now, OnDamage::Refuse, &mut |_| panic!("nothing may start"));
    assert!(matches!(refused.unwrap_err(), BackupError::MountPoint { .. }));
}

/// A server works without it, so a damaged one does not prevent a backup.
#[test]
fn the_history_of_computes_is_copied_if_it_can_be_read() {
    let (folder, state_dir) = site();
    drop(muster_store::SqliteSeries::open(&state_dir.series(), Durability::None).unwrap());
    let to = folder.path().join("backup");
    let manifest = make(&state_dir, &to, "1.2.3", Verify::Everything, &mut |_| {}).unwrap();
    assert!(manifest.damaged.is_empty() && names(&to.join(STATE)).contains(&SERIES.to_owned()));
    let new = folder.path().join("new");
    restore(&to, &new, SystemTime::UNIX_EPOCH, OnDamage::Refuse, &mut |_| {}).unwrap();
    muster_store::SqliteSeries::open(&new.join(SERIES), Durability::None).unwrap();

    // A backup whose copy is damaged can be restored without it.
    fs::write(to.join(STATE).join(SERIES), "damaged").unwrap();
    let again = folder.path().join("again");
    let refused = restore(&to, &again, SystemTime::UNIX_EPOCH, OnDamage::Refuse, &mut |_| {});
    assert!(matches!(refused, Err(BackupError::Skippable { .. })), "{refused:?}");
    restore(&to, &again, SystemTime::UNIX_EPOCH, OnDamage::Skip, &mut |_| {}).unwrap();
    assert!(!again.join(SERIES).exists());

    fs::write(state_dir.series(), "no database").unwrap();
    let to = folder.path().join("other");
    let manifest = make(&state_dir, &to, "1.2.3", Verify::Usual, &mut |_| {}).unwrap();
    assert_eq!(manifest.damaged.len(), 1);
    assert!(!names(&to.join(STATE)).contains(&SERIES.to_owned()));
}
