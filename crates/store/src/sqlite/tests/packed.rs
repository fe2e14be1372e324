//! Entries of the event log and records of attempts from before they were packed.

use muster_core::Change;
use muster_core::time::Wall;
use rusqlite::Connection;

use super::{Scratch, seen};
use crate::sqlite::schema::{self, MAIN, STEPS, Schema};
use crate::{Reader, Revision, SqliteReader, Store};

#[test]
fn older_entries_are_read_as_they_are() {
    let scratch = Scratch::new();
    let path = scratch.path();
    let mut connection = Connection::open(&path).expect("a new file");
    schema::migrate(&mut connection, &path, &Schema { steps: &STEPS[..11], ..MAIN })
        .expect("the format before");
    let older = serde_json::to_string(&seen(1)).expect("text");
    let insert = "INSERT INTO events (revision, wall_us, change) VALUES (1, 5, ?1)";
    connection.execute(insert, [&older]).expect("an event");
    connection.execute("UPDATE meta SET last_revision = 1", ()).expect("its revision");
    drop(connection);

    let mut store = scratch.open();
    store.claim(1).expect("claimed");
    store.commit(&[seen(2)], Wall(6)).expect("the commit succeeds");
    let mut reader = SqliteReader::open(&path).expect("a reader");
    let events = reader.events(Revision(0), 10).expect("events");
    let changes: Vec<Change> =
        events.iter().map(|event| serde_json::from_str(&event.change).expect("a change")).collect();
    assert_eq!(changes, [seen(1), seen(2)]);
    assert_eq!(&*events[0].change, older);
    let stored = |what: &str| -> i64 {
        let sql = format!("SELECT {what} FROM events WHERE revision = 2");
        store.connection.query_row(&sql, (), |row| row.get(0)).expect("a size")
    };
    assert_eq!(stored("length(change)"), 0);
    assert!(stored("length(packed)") > 0);
}

#[test]
fn damage_in_a_packed_entry_is_reported() {
    let scratch = Scratch::filled(1);
    let store = scratch.open();
    store.connection.execute("UPDATE events SET packed = x'01ff'", ()).expect("damaged");
    let mut reader = SqliteReader::open(scratch.path()).expect("a reader");
    let why = reader.events(Revision(0), 10).expect_err("it cannot be read").to_string();
    assert!(why.contains("a packed record cannot be read"), "{why}");
}
