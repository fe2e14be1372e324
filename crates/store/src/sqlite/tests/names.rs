//! The step that brings rows and events to the words of docs/glossary.md.

use rusqlite::Connection;

use super::Scratch;
use crate::sqlite::schema::{self, MAIN, STEPS, Schema};

/// Values that look like the renamed keys must survive.
#[test]
fn renamed_keys_keep_their_values() {
    let scratch = Scratch::new();
    let path = scratch.path();
    let mut connection = Connection::open(&path).expect("a new file");
    schema::migrate(&mut connection, &path, &Schema { steps: &STEPS[..9], ..MAIN })
        .expect("the format before");
    let tags = r#"{"face":"deed","EstateChanged":"fate"}"#;
    let asset = format!(r#"{{"about":{{"face":"{{\"display_name\":\"Mine\"}}","tags":{tags}}}}}"#);
    let outbox = r#"{"kind":{"DeleteNode":{"node":18446744073709551615,"fate":{"why":"Lost"}}}}"#;
    let events = [
        format!(r#"{{"AssetChanged":{asset}}}"#),
        format!(r#"{{"JobFaceChanged":{{"job":1,"face":{{"tags":{tags}}}}}}}"#),
        r#"{"EstateChanged":{"GroupGone":"lab"}}"#.to_owned(),
        format!(r#"{{"WorkspaceChanged":{{"tags":{tags}}}}}"#),
    ];
    let asset_row = "INSERT INTO assets (workspace, kind, folded, version, archived, doc)
        VALUES (1, 'Component', 'x', '1', 0, ?1)";
    connection.execute(asset_row, [&asset]).expect("an asset");
    connection.execute("INSERT INTO outbox (doc) VALUES (?1)", [outbox]).expect("an effect");
    for event in &events {
        let insert = "INSERT INTO events (wall_us, change) VALUES (0, ?1)";
        connection.execute(insert, [event]).expect("an event");
    }
    schema::migrate(&mut connection, &path, &MAIN).expect("today's format");

    let texts = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).expect("a query");
        let rows = statement.query_map((), |row| row.get(0)).expect("rows");
        rows.map(|row| row.expect("a text")).collect()
    };
    let display_name = "SELECT (doc ->> '$.about.metadata') ->> '$.display_name' FROM assets";
    assert_eq!(texts(display_name), ["Mine"]);
    assert_eq!(texts("SELECT doc -> '$.about.tags' FROM assets"), [tags]);
    assert_eq!(texts("SELECT doc ->> '$.kind.DeleteNode.failure.why' FROM outbox"), ["Lost"]);
    assert!(texts("SELECT doc FROM outbox")[0].contains("18446744073709551615"));
    let changes = texts("SELECT change FROM events ORDER BY revision");
    assert!(changes[0].contains(r#""metadata":"{\"display_name\""#), "{}", changes[0]);
    assert_eq!(
        changes[1],
        format!(r#"{{"JobMetadataChanged":{{"job":1,"metadata":{{"tags":{tags}}}}}}}"#)
    );
    assert_eq!(changes[2], r#"{"GovernanceChanged":{"GroupGone":"lab"}}"#);
    assert_eq!(changes[3], events[3]);
}
