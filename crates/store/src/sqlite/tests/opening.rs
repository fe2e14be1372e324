//! New files, files that a crash left behind, and several processes that open a file at once.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

use muster_core::time::Wall;
use rusqlite::Connection;

use super::{Scratch, companion, fill, seen};
use crate::sqlite::schema::{self, APPLICATION_ID, MAIN, STEPS, Schema};
use crate::{Durability, Reader, Revision, SqliteReader, SqliteStore, Store};

const KNOWN: u32 = MAIN.known();

#[test]
fn a_new_file_is_ours_and_private() {
    let scratch = Scratch::new();
    let store = SqliteStore::open(scratch.path(), Durability::Disk).expect("the file opens");
    let pragma = |name: &str| -> String {
        let value: rusqlite::types::Value = store
            .connection
            .pragma_query_value(None, name, |row| row.get(0))
            .expect("rows can be read");
        format!("{value:?}")
    };
    assert_eq!(pragma("application_id"), format!("Integer({APPLICATION_ID})"));
    assert_eq!(pragma("user_version"), format!("Integer({KNOWN})"));
    assert_eq!(pragma("journal_mode"), "Text(\"wal\")");
    assert_eq!(pragma("synchronous"), "Integer(2)", "FULL");
    for suffix in ["", "-wal", "-shm"] {
        let metadata = fs::metadata(companion(&scratch.path(), suffix)).expect("the row exists");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{suffix}");
    }
}

#[test]
fn a_file_with_nothing_in_it_is_new() {
    let scratch = Scratch::new();
    fs::write(scratch.path(), "").expect("written");
    fill(&mut scratch.open(), 1);
    assert_eq!(scratch.open().revision().expect("rows can be read"), Revision(1));
}

/// Every state between "there is a file" and "it has its tables" in which a kill can leave a file.
#[test]
fn a_creation_that_was_cut_short_is_finished() {
    let scratch = Scratch::new();
    let connection = Connection::open(scratch.path()).expect("the file opens");
    connection.pragma_update(None, "journal_mode", "WAL").expect("a log");
    drop(connection);
    assert!(fs::metadata(scratch.path()).expect("the row exists").len() > 0, "a header, no tables");
    fill(&mut scratch.open(), 1);

    let scratch = Scratch::new();
    scratch.killed(|connection| {
        connection.execute_batch("BEGIN; CREATE TABLE half (a)").expect("not committed");
    });
    fill(&mut scratch.open(), 1);

    let scratch = Scratch::new();
    let path = scratch.path();
    scratch.killed(|connection| {
        let sql = format!(
            "BEGIN; {}; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {KNOWN}; COMMIT",
            STEPS.join(";")
        );
        connection.execute_batch(&sql).expect("in the log, not in the file");
    });
    assert_eq!(
        SqliteReader::open(&path).expect("the file opens").events(Revision(0), 9).expect("read"),
        []
    );
    fill(&mut scratch.open(), 1);
}

#[test]
fn a_log_that_a_kill_left_is_read() {
    let scratch = Scratch::filled(2);
    scratch.killed(|connection| {
        connection.execute_batch("UPDATE meta SET last_revision = 99").expect("done");
    });
    let mut reader = SqliteReader::open(scratch.path()).expect("the file opens");
    assert_eq!(reader.events(Revision(0), 9).expect("rows can be read").len(), 2);
    assert_eq!(scratch.open().revision().expect("rows can be read"), Revision(99));
}

#[test]
fn any_name_of_a_file_will_do() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a b.db", "what?mode=ro.db", "#1.db", "100%41.db", "größe.db", "file:x.db"] {
        let path = folder.path().join(name);
        let mut store = SqliteStore::open(&path, Durability::None).expect("the file opens");
        fill(&mut store, 1);
        drop(store);
        assert!(path.exists(), "{name}");
        let mut reader = SqliteReader::open(&path).expect("the file opens");
        assert_eq!(reader.events(Revision(0), 9).expect("rows can be read").len(), 1, "{name}");
        assert_eq!(
            SqliteStore::open(&path, Durability::None).expect("again").claim(1).expect("ok"),
            2
        );
    }
    let files = fs::read_dir(folder.path()).expect("a folder").count();
    assert!(files <= 6 * 3, "no other files were created");
}

#[test]
fn many_may_open_a_new_file_at_once() {
    for _ in 0..20 {
        let scratch = Scratch::new();
        let epochs: Vec<u64> = std::thread::scope(|scope| {
            let open = || scope.spawn(|| scratch.open().claim(1).expect("claimed"));
            let threads: Vec<_> = (0..6).map(|_| open()).collect();
            threads.into_iter().map(|thread| thread.join().expect("it opened")).collect()
        });
        let mut sorted = epochs.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [1, 2, 3, 4, 5, 6], "each epoch is issued once");
    }
}

#[test]
fn a_step_that_fails_leaves_the_file_as_it_was() {
    let scratch = Scratch::filled(1);
    let path = scratch.path();
    let mut connection = Connection::open(&path).expect("the file opens");
    let good = "CREATE TABLE second (a); INSERT INTO second VALUES (1)";
    let steps = [STEPS, &[good, "CREATE TABLE x (a); bad"]].concat();
    assert!(schema::migrate(&mut connection, &path, &Schema { steps: &steps, ..MAIN }).is_err());
    let version = |connection: &Connection| -> u32 {
        connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .expect("rows can be read")
    };
    let tables = |connection: &Connection, name: &str| -> u32 {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE name = ?1";
        connection.query_row(sql, [name], |row| row.get(0)).expect("rows can be read")
    };
    assert_eq!(version(&connection), KNOWN + 1, "the good step is kept");
    assert_eq!((tables(&connection, "second"), tables(&connection, "x")), (1, 0));
    // Once corrected, it continues from there and does nothing twice.
    let steps = [STEPS, &[good, "CREATE TABLE x (a)"]].concat();
    schema::migrate(&mut connection, &path, &Schema { steps: &steps, ..MAIN }).expect("done");
    schema::migrate(&mut connection, &path, &Schema { steps: &steps, ..MAIN })
        .expect("nothing to do");
    let rows: u32 = connection
        .query_row("SELECT count(*) FROM second", [], |row| row.get(0))
        .expect("rows can be read");
    assert_eq!((version(&connection), tables(&connection, "x"), rows), (KNOWN + 2, 1, 1));
}

/// POSIX drops all locks of a process on a file when the process closes any descriptor of it. If opening a reader did
/// that, another process could consider the file unused and remove its log.
#[test]
fn opening_again_does_not_drop_the_locks() {
    let scratch = Scratch::filled(1);
    let mut store = scratch.open();
    store.load().expect("rows can be loaded");
    let inode = fs::metadata(scratch.path()).expect("the row exists").ino();
    // The list is not read atomically, so a lock can be missing from it by chance, but not every time.
    let is_locked = || {
        (0..10).any(|_| {
            let all = fs::read_to_string("/proc/locks").expect("Linux has it");
            all.lines().any(|line| line.contains(&format!(":{inode} ")))
        })
    };
    assert!(is_locked(), "a connection in WAL mode holds a shared lock");
    drop(SqliteReader::open(scratch.path()).expect("the file opens"));
    drop(SqliteStore::open(scratch.path(), Durability::None).expect("the file opens"));
    assert!(is_locked());
    store.claim(5).expect("claimed");
    store.commit(&[seen(2)], Wall(2)).expect("the commit succeeds");
}

#[test]
fn readers_continue_when_the_writer_is_closed() {
    let scratch = Scratch::filled(3);
    let mut store = scratch.open();
    let mut reader = store.reader().expect("the file opens");
    store.claim(9).expect("claimed");
    store.commit(&[seen(4)], Wall(4)).expect("the commit succeeds");
    drop(store);
    assert_eq!(reader.events(Revision(0), 9).expect("rows can be read").len(), 4);
    let mut store = scratch.open();
    store.claim(10).expect("claimed");
    store.commit(&[seen(5)], Wall(5)).expect("the commit succeeds");
    assert_eq!(reader.events(Revision(0), 9).expect("rows can be read").len(), 5);
}

/// With a constant stream of readers, the log is still restarted.
#[test]
fn readers_do_not_make_the_log_grow() {
    const PAGES: u32 = 50;
    let scratch = Scratch::filled(50);
    let mut store = scratch.open();
    store.checkpoint_after(PAGES);
    store.claim(5).expect("claimed");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = || {
            let mut reader = SqliteReader::open(scratch.path()).expect("the file opens");
            while !is_over.load(Ordering::Acquire) {
                reader.events(Revision(0), 50).expect("rows can be read");
            }
        };
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        for id in 51..651 {
            store.commit(&[seen(id)], Wall(id)).expect("the commit succeeds");
        }
        is_over.store(true, Ordering::Release);
        readers.into_iter().for_each(|reader| reader.join().expect("it read"));
    });
    let pages = fs::metadata(companion(&scratch.path(), "-wal")).expect("a log").len() / 4_096;
    // Hundreds of commits of several pages each. An attempt may have found no moment without readers.
    assert!(pages < 10 * u64::from(PAGES), "{pages} pages");
}

#[test]
fn on_a_small_disk_the_log_stays_small() {
    const BYTES: u64 = 512 << 10;
    let scratch = Scratch::filled(1);
    let mut store = scratch.open();
    store.limit_log(BYTES);
    store.claim(5).expect("claimed");
    for id in 2..402 {
        store.commit(&[seen(id)], Wall(id)).expect("the commit succeeds");
        let log = fs::metadata(companion(&scratch.path(), "-wal")).expect("a log").len();
        // The commit that reaches the limit is complete in the log.
        assert!(log < BYTES + (128 << 10), "{log} bytes after {id}");
    }
}
