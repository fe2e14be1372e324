//! The activity log when rows are tampered with, and files from before there were resource groups.

use muster_core::Change;
use muster_core::model::{Activity, ActivityOutcome, ActivityRequest, Caller, Operation, Scope};
use muster_core::time::Wall;
use rusqlite::Connection;

use super::Scratch;
use crate::sqlite::schema::{self, MAIN, STEPS, Schema};
use crate::{Reader, Store};

fn noted(number: u64) -> Change {
    Change::ActivityNoted(Box::new(Activity {
        at: Wall(number),
        by: Caller { object_id: "ada".into(), name: "Ada".into() },
        request: ActivityRequest {
            operation: "write".into(),
            resource: "/eastus".into(),
            scope: Scope::subscription("s"),
            correlation: "".into(),
        },
        outcome: ActivityOutcome::Done { before: None, after: None },
    }))
}

#[test]
fn a_changed_activity_log_is_detected() {
    let change = "UPDATE activity SET doc = replace(doc, 'eastus', 'westus') WHERE number = 3";
    let forge =
        "UPDATE activity SET doc = replace(doc, 'Ada', 'Bob'), digest = 'x' WHERE number = 3";
    let cases = [
        ("UPDATE activity SET at_us = at_us + 0", None),
        (change, Some(3)),
        (forge, Some(3)),
        ("DELETE FROM activity WHERE number = 4", Some(5)),
        ("DELETE FROM activity WHERE number = 1", None),
        ("UPDATE activity SET previous = 'y' WHERE number = 1", Some(1)),
    ];
    for (sql, broken_at) in cases {
        let scratch = Scratch::new();
        let mut store = scratch.open();
        store.claim(1).expect("claimed");
        let all: Vec<Change> = (1..=6).map(noted).collect();
        store.commit(&all, Wall(6)).expect("the claim is valid");
        Connection::open(scratch.path())
            .expect("the file opens")
            .execute(sql, ())
            .expect("it runs");
        let chain = store.reader().expect("a reader").verify_activity().expect("rows can be read");
        assert_eq!(chain.broken_at, broken_at, "{sql}");
    }
}

#[test]
fn a_file_from_before_there_were_groups_gets_them() {
    let scratch = Scratch::new();
    let path = scratch.path();
    let mut connection = Connection::open(&path).expect("the file opens");
    schema::migrate(&mut connection, &path, &Schema { steps: &STEPS[..2], ..MAIN })
        .expect("an older file");
    let workspace = r#"{"id":7,"key":{"subscription":"S","resource_group":"Rg","name":"W"},
        "location":"eastus","created_at":5,"created_by":1}"#;
    let operation = r#"{"id":9,"workspace":7,"kind":"PutCluster","status":"InProgress",
        "started_at":6,"ended_at":null}"#;
    connection
        .execute("INSERT INTO workspaces VALUES (7, 's', 'rg', 'w', ?1)", (workspace,))
        .expect("a row");
    connection.execute("INSERT INTO operations VALUES (9, NULL, ?1)", (operation,)).expect("a row");
    drop(connection);

    let mut store = scratch.open();
    let rows = store.load().expect("rows can be read");
    let [group] = rows.groups.as_slice() else { panic!("one group: {:?}", rows.groups) };
    assert_eq!((&*group.subscription, &*group.name, &*group.location), ("S", "Rg", "eastus"));
    assert_eq!(rows.workspaces[0].about, Default::default());
    let mut reader = store.reader().expect("a reader");
    let found: Operation = reader
        .operation(muster_core::ids::OperationId(9))
        .expect("rows can be read")
        .expect("the row exists");
    assert_eq!(found.scope, Scope::workspace(&rows.workspaces[0].key));
}
