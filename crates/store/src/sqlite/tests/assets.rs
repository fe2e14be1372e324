//! The upgrade of code assets, which had a table of their own.

use muster_core::ids::WorkspaceId;
use muster_core::model::{AssetKind, AssetSpec};
use muster_core::time::Wall;
use rusqlite::Connection;

use super::Scratch;
use crate::sqlite::schema::{self, MAIN, STEPS, Schema};
use crate::{Archived, Reader};

#[test]
fn code_of_an_older_file_is_an_asset() {
    let scratch = Scratch::new();
    let path = scratch.path();
    let mut connection = Connection::open(&path).expect("the file opens");
    schema::migrate(&mut connection, &path, &Schema { steps: &STEPS[..7], ..MAIN })
        .expect("an older file");
    let code = |version: &str, at: u64| {
        format!(
            r#"{{"workspace":7,"name":"Abc","version":"{version}","about":{{"uri":"https://h/\"c\"","hash":"66",
            "is_anonymous":true,"description":null,"tags":{{"a":"b"}},"properties":"{{\"hash_sha256\":\"66\"}}"}},
            "created_at":{at},"created_by":{{"object_id":"o","name":"Ada"}}}}"#
        )
    };
    for (version, at) in [("1", 6), ("12", 5)] {
        let values = (version, code(version, at));
        let sql = "INSERT INTO codes VALUES (7, 'abc', ?1, '66', ?2)";
        connection.execute(sql, values).expect("a row");
    }
    drop(connection);

    let mut reader = scratch.open().reader().expect("a reader");
    let found =
        reader.asset(WorkspaceId(7), AssetKind::Code, "ABC", "1").expect("rows can be read");
    let found = found.expect("the row exists");
    let about = AssetSpec {
        description: None,
        tags: [("a".to_owned(), "b".to_owned())].into_iter().collect(),
        properties: Some(r#"{"hash_sha256":"66"}"#.into()),
        is_anonymous: true,
        hash: Some("66".into()),
        body: r#"{"codeUri":"https://h/\"c\""}"#.into(),
        metadata: None,
    };
    assert_eq!((&*found.name, &found.about), ("Abc", &about));
    assert_eq!((found.created_at, found.changed_at, found.is_archived), (Wall(6), Wall(6), false));
    assert_eq!(&*found.created_by.name, "Ada");
    let hashed = reader.assets_with_hash(WorkspaceId(7), AssetKind::Code, "66");
    assert_eq!(hashed.expect("rows can be read").len(), 2);
    let name =
        reader.asset_container(WorkspaceId(7), AssetKind::Code, "abc").expect("rows can be read");
    let name = name.expect("the row exists");
    assert_eq!((name.container.versions, name.container.next_version()), (2, 13));
    assert_eq!(name.latest.map(|latest| latest.version), Some("1".into()), "the newest");
    let listed = reader.asset_containers(WorkspaceId(7), AssetKind::Code, Archived::Both, None, 9);
    assert_eq!(listed.expect("rows can be read").items, [], "the asset is anonymous");
}
