//! A file that is not ours is refused with a clear message, and is not changed by a single byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use rusqlite::Connection;

use super::{Scratch, companion, fill};
use crate::conformance::Chance;
use crate::sqlite::schema::{APPLICATION_ID, MAIN};
use crate::{Checker, Durability, SqliteReader, SqliteStorage, SqliteStore, Store, StoreError};

const KNOWN: u32 = MAIN.known();

/// All data in the folder. The shared memory and an empty log are not data: SQLite creates them for itself.
fn contents(scratch: &Scratch) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(scratch.0.path()).expect("a folder");
    let files = entries.map(|entry| {
        let entry = entry.expect("a file");
        let name = entry.file_name().into_string().expect("a name");
        (name, fs::read(entry.path()).expect("rows can be read"))
    });
    let is_data = |name: &str, bytes: &[u8]| match name.rsplit_once('-') {
        Some((_, "shm")) => false,
        Some((_, "wal")) => !bytes.is_empty(),
        Some(_) | None => true,
    };
    files.filter(|(name, bytes)| is_data(name, bytes)).collect()
}

#[track_caller]
fn assert_unchanged(scratch: &Scratch, before: &BTreeMap<String, Vec<u8>>) {
    let after = contents(scratch);
    let sizes = |files: &BTreeMap<String, Vec<u8>>| -> Vec<(String, usize)> {
        files.iter().map(|(name, bytes)| (name.clone(), bytes.len())).collect()
    };
    assert_eq!(sizes(&after), sizes(before));
    assert!(after == *before, "it was changed");
}

/// Both ways of opening fail, twice, and leave no trace.
#[track_caller]
fn refused(scratch: &Scratch, is_right: impl Fn(&StoreError) -> bool) {
    refused_to_writers(scratch, &is_right);
    let before = contents(scratch);
    let reader = SqliteReader::open(scratch.path());
    assert!(matches!(&reader, Err(why) if is_right(why)), "{reader:?}");
    assert_unchanged(scratch, &before);
    refused_to_writers(scratch, &is_right);
}

/// Readers do not check the whole file, because a writer has already done so.
#[track_caller]
fn refused_to_writers(scratch: &Scratch, is_right: impl Fn(&StoreError) -> bool) {
    let before = contents(scratch);
    let writer = SqliteStore::open(scratch.path(), Durability::Disk);
    assert!(matches!(&writer, Err(why) if is_right(why)), "{writer:?}");
    assert_unchanged(scratch, &before);
}

fn is_not_ours(why: &StoreError) -> bool {
    matches!(why, StoreError::NotOurs { .. })
}

fn is_damaged(why: &StoreError) -> bool {
    matches!(why, StoreError::Damaged { .. })
}

fn is_too_new(why: &StoreError) -> bool {
    matches!(why, StoreError::TooNew { found, known: KNOWN, .. } if *found == KNOWN + 1)
}

#[test]
fn garbage_is_refused() {
    let mut chance = Chance(1);
    for length in [1, 15, 16, 99, 100, 512, 4_096, 100_000] {
        let scratch = Scratch::new();
        let bytes: Vec<u8> = (0..length).map(|_| chance.below(256) as u8).collect();
        fs::write(scratch.path(), bytes).expect("written");
        refused(&scratch, is_not_ours);
        fs::write(scratch.path(), vec![0; length]).expect("written");
        refused(&scratch, is_not_ours);
    }
}

#[test]
fn a_path_that_is_not_a_file_is_refused() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path()).expect("a folder");
    let refused = SqliteStore::open(scratch.path(), Durability::Disk).map(|_| ());
    assert!(matches!(&refused, Err(why) if is_not_ours(why)), "{refused:?}");
    let scratch = Scratch::new();
    let _listener = std::os::unix::net::UnixListener::bind(scratch.path()).expect("a socket");
    let refused = SqliteStore::open(scratch.path(), Durability::Disk).map(|_| ());
    assert!(matches!(&refused, Err(why) if is_not_ours(why)), "{refused:?}");
}

#[test]
fn another_programs_database_is_refused() {
    for sql in [
        "CREATE TABLE theirs (a)",
        "PRAGMA journal_mode = WAL; CREATE TABLE theirs (a)",
        "PRAGMA application_id = 7",
        "PRAGMA user_version = 7",
        "PRAGMA application_id = -1; PRAGMA user_version = -1; CREATE TABLE theirs (a)",
    ] {
        let scratch = Scratch::new();
        let connection = Connection::open(scratch.path()).expect("the file opens");
        connection.execute_batch(sql).expect("done");
        drop(connection);
        refused(&scratch, is_not_ours);
        // The same, killed before it was moved from the log into the file.
        let scratch = Scratch::new();
        scratch.killed(|connection| connection.execute_batch(sql).expect("done"));
        refused(&scratch, is_not_ours);
    }
}

#[test]
fn a_newer_file_is_refused() {
    let newer = format!("PRAGMA user_version = {}; CREATE TABLE later (a)", KNOWN + 1);
    let scratch = Scratch::filled(3);
    let connection = Connection::open(scratch.path()).expect("the file opens");
    connection.execute_batch(&newer).expect("done");
    drop(connection);
    refused(&scratch, is_too_new);
    // The newer version was killed just after its migration, so only the log has it.
    let scratch = Scratch::filled(3);
    scratch.killed(|connection| connection.execute_batch(&newer).expect("done"));
    refused(&scratch, is_too_new);
}

#[test]
fn a_cut_off_file_is_refused() {
    let whole = fs::read(Scratch::filled(200).path()).expect("rows can be read");
    assert!(whole.len() > 20 * 4_096, "{}", whole.len());
    for length in [100, 511, 512, 4_095, 4_096, 4_097, 20_000, whole.len() - 4_096, whole.len() - 1]
    {
        let scratch = Scratch::new();
        fs::write(scratch.path(), &whole[..length]).expect("written");
        refused_to_writers(&scratch, |why| is_damaged(why) || is_not_ours(why));
    }
}

#[test]
fn an_emptied_file_with_a_log_is_refused() {
    let scratch = Scratch::filled(1);
    scratch.killed(|connection| connection.execute_batch("DELETE FROM principals").expect("done"));
    fs::write(scratch.path(), "").expect("emptied");
    refused(&scratch, is_damaged);
}

/// Overwrites one page after the other, as a failing disk would.
#[test]
fn a_page_that_went_bad_is_found() {
    let scratch = Scratch::filled(200);
    let whole = fs::read(scratch.path()).expect("rows can be read");
    let mut chance = Chance(2);
    for page in 0..whole.len() / 4_096 {
        let mut bytes = whole.clone();
        // The rest of the first page's header is what makes the file a database at all.
        let start = page * 4_096 + if page == 0 { 100 } else { 0 };
        for byte in &mut bytes[start..(page + 1) * 4_096] {
            *byte = chance.below(256) as u8;
        }
        let scratch = Scratch::new();
        fs::write(scratch.path(), bytes).expect("written");
        refused_to_writers(&scratch, is_damaged);
    }
}

#[test]
fn an_unreadable_record_is_damage() {
    let scratch = Scratch::new();
    let mut store = scratch.open();
    fill(&mut store, 2);
    let break_one = "UPDATE principals SET doc = '{\"id\":1}' WHERE id = 1";
    store.connection.execute_batch(break_one).expect("done");
    let loaded = store.load();
    assert!(matches!(&loaded, Err(why) if is_damaged(why)), "{loaded:?}");
}

#[test]
fn readers_wait_for_a_writer_to_make_or_migrate_the_file() {
    let scratch = Scratch::new();
    assert!(matches!(SqliteReader::open(scratch.path()), Err(StoreError::CannotOpen { .. })));
    assert!(!scratch.path().exists());
    fs::write(scratch.path(), "").expect("written");
    let too_old = |reader| matches!(reader, Err(StoreError::TooOld { found: 0, known: KNOWN, .. }));
    assert!(too_old(SqliteReader::open(scratch.path())));
    let connection = Connection::open(scratch.path()).expect("the file opens");
    connection.pragma_update(None, "application_id", APPLICATION_ID).expect("the claim is valid");
    drop(connection);
    assert!(too_old(SqliteReader::open(scratch.path())));
}

#[test]
fn an_unopenable_file_gives_a_clear_error() {
    let scratch = Scratch::new();
    let nowhere = scratch.0.path().join("no/such/folder/muster.db");
    let refused = SqliteStore::open(&nowhere, Durability::Disk).map(|_| ());
    assert!(matches!(refused, Err(StoreError::CannotOpen { .. })), "{refused:?}");
    assert!(!scratch.0.path().join("no").exists());
    let below_a_file = Scratch::filled(1).path().join("muster.db");
    let refused = SqliteStore::open(&below_a_file, Durability::Disk).map(|_| ());
    assert!(matches!(refused, Err(StoreError::CannotOpen { .. })), "{refused:?}");
}

#[test]
fn a_file_that_may_not_be_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::filled(1);
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o400)).expect("set");
    let may_write = fs::OpenOptions::new().write(true).open(scratch.path()).is_ok();
    let opened = SqliteStore::open(scratch.path(), Durability::Disk).map(|_| ());
    // Root may write every file.
    let is_right = matches!(opened, Err(StoreError::CannotOpen { .. })) != may_write;
    assert!(is_right, "{opened:?}");
    assert!(!companion(&scratch.path(), "-journal").exists());
}

#[test]
fn messages_say_what_and_what_next() {
    let path = std::path::PathBuf::from("/var/lib/muster/muster.db");
    let too_new = StoreError::TooNew { path: path.clone(), found: 9, known: 1 };
    assert_eq!(
        too_new.to_string(),
        "/var/lib/muster/muster.db was written by a newer version of muster (its format is 9, this \
         one knows up to 1); it was not changed: use the newer version, or a backup from before \
         the upgrade"
    );
    let full = StoreError::Full { doing: "committing", path };
    assert_eq!(
        full.to_string(),
        "committing: there is no space left for /var/lib/muster/muster.db; nothing was written: \
         free some space and try again"
    );
}

/// A large file opens at once; its damage is found by a later check, and until then nothing is written.
#[test]
fn a_large_file_is_checked_later() {
    let scratch = Scratch::filled(1);
    let connection = Connection::open(scratch.path()).expect("the file opens");
    connection
        .execute_batch(
            "CREATE TABLE filler (data); \
             INSERT INTO filler WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 40) \
             SELECT randomblob(1000000) FROM n",
        )
        .expect("it is large now");
    drop(connection);
    let open =
        || SqliteStore::open_existing(scratch.path(), Durability::None).expect("the file opens");
    let check = || Checker::of_store(&scratch.path()).expect("the file opens").check();
    let (mut store, is_left) = open();
    assert!(is_left);
    check().expect("it is whole");
    assert_eq!(store.last_claim().expect("rows can be read"), 1);
    drop(store);
    // The root page of a table that is not needed at start.
    let page: u64 = {
        let connection = Connection::open(scratch.path()).expect("the file opens");
        let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'ledger_by_end'";
        connection.query_row(sql, (), |row| row.get(0)).expect("the row exists")
    };
    // Killed, so that the log has something to move into the file.
    scratch.killed(|connection| connection.execute_batch("DELETE FROM principals").expect("done"));
    let file =
        std::fs::OpenOptions::new().write(true).open(scratch.path()).expect("the file opens");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 64], (page - 1) * 4096)
        .expect("written");
    drop(file);
    let before = contents(&scratch);
    let (store, is_left) = open();
    assert!(is_left);
    let found = check();
    assert!(matches!(found, Err(StoreError::Damaged { .. })), "{found:?}");
    drop(store);
    assert_unchanged(&scratch, &before);
    assert!(SqliteStore::open(scratch.path(), Durability::None).is_err());
}

#[test]
fn a_missing_file_that_must_exist_is_not_created() {
    let scratch = Scratch::new();
    let open = |path: PathBuf| SqliteStore::open_existing(path, Durability::None).map(|_| ());
    let is_missing = |why: &_| matches!(why, Err(StoreError::Missing { .. }));
    assert!(is_missing(&open(scratch.path())));
    assert!(!scratch.path().exists());
    fs::write(scratch.path(), "").expect("an empty file");
    assert!(is_missing(&open(scratch.path())));
    let storage = SqliteStorage::open_existing(&scratch.path(), Durability::None).map(|_| ());
    assert!(is_missing(&storage));
    assert_eq!(fs::read(scratch.path()).expect("the row exists"), b"");
}
