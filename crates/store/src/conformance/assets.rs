//! Versioned assets.

use muster_core::ids::WorkspaceId;
use muster_core::model::{Asset, AssetKind, AssetSpec, ContainerSpec};
use muster_core::time::Wall;
use muster_core::{AssetAction, AssetRequest, Change, Input, KnownAsset, Reply};

use super::stage::{home, someone};
use super::{Database, Stage};
use crate::{Archived, AssetOrder, AssetQuery, look_up};

fn say(stage: &mut Stage<'_>, kind: AssetKind, name: &str, action: AssetAction) -> Reply {
    let (workspace, name, by) = (home(), name.into(), someone());
    let known = KnownAsset::default();
    let request = AssetRequest { workspace, kind, name, action, by, known };
    let input = Input::ChangeAsset(Box::new(request));
    let input = look_up(stage.store.as_mut(), input).expect("rows can be read");
    stage.say(input).expect("the request is accepted")
}

fn put(stage: &mut Stage<'_>, kind: AssetKind, name: &str, version: &str, hash: &str) -> Asset {
    let wanted = AssetSpec {
        body: format!(r#"{{"of":"{} {version} ü"}}"#, name.to_ascii_lowercase()).into(),
        hash: Some(hash.into()),
        ..AssetSpec::default()
    };
    let action = AssetAction::Put { version: version.into(), wanted, is_archived: None };
    match say(stage, kind, name, action) {
        Reply::Asset { asset, .. } => *asset,
        other => panic!("{other:?}"),
    }
}

fn archive(stage: &mut Stage<'_>, asset: &Asset, is_archived: bool) {
    let action = AssetAction::Put {
        version: asset.version.clone(),
        wanted: asset.about.clone(),
        is_archived: Some(is_archived),
    };
    say(stage, asset.kind, &asset.name, action);
}

fn stage(database: &dyn Database) -> (Stage<'_>, WorkspaceId) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 1);
    let workspace =
        stage.reader.workspace(&home()).expect("rows can be read").expect("the row exists").id;
    (stage, workspace)
}

pub fn assets_read_back_and_are_never_changed(database: &dyn Database) {
    let (mut stage, workspace) = stage(database);
    let first = put(&mut stage, AssetKind::Environment, "One", "1", "h");
    put(&mut stage, AssetKind::Data, "one", "1", "h");
    let read = |stage: &mut Stage<'_>, kind, name: &str, version: &str| {
        stage.reader.asset(workspace, kind, name, version).expect("rows can be read")
    };
    assert_eq!(read(&mut stage, AssetKind::Environment, "ONE", "1"), Some(first.clone()));
    assert_eq!(read(&mut stage, AssetKind::Environment, "one", "2"), None);
    assert_eq!(read(&mut stage, AssetKind::Model, "one", "1"), None);
    let other = stage.reader.asset(WorkspaceId(7), AssetKind::Data, "one", "1");
    assert_eq!(other.expect("rows can be read"), None);
    // The current row is looked up before a change, so putting the same again changes nothing.
    assert_eq!(put(&mut stage, AssetKind::Environment, "one", "1", "h"), first);
    stage.pass_s(1);
    let rewritten = AssetSpec { description: Some("d".into()), ..first.about.clone() };
    let action = AssetAction::Put { version: "1".into(), wanted: rewritten, is_archived: None };
    say(&mut stage, AssetKind::Environment, "one", action);
    let second = read(&mut stage, AssetKind::Environment, "one", "1").expect("the row exists");
    assert_eq!(second.about.description.as_deref(), Some("d"));
    assert_eq!((second.created_at, &second.about.body), (first.created_at, &first.about.body));
    assert!(second.changed_at > first.changed_at);
}

pub fn assets_are_listed_by_when_they_were_made(database: &dyn Database) {
    let (mut stage, workspace) = stage(database);
    let versions = ["9", "10", "b", "a", "1"];
    let made = versions.map(|version| put(&mut stage, AssetKind::Model, "m", version, "h"));
    put(&mut stage, AssetKind::Model, "m2", "1", "h");
    // A version that is written again keeps its position.
    archive(&mut stage, &made[1], true);
    let list = |stage: &mut Stage<'_>, archived, order, size| {
        let query = AssetQuery { kind: AssetKind::Model, name: "M".into(), archived, order };
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = stage.reader.assets(workspace, &query, after.as_deref(), size);
            let page = page.expect("rows can be read");
            assert!(page.items.len() <= size);
            listed.extend(page.items.into_iter().map(|asset| asset.version.into_string()));
            after = page.next;
            if after.is_none() {
                return listed;
            }
        }
    };
    for size in [1, 2, 100] {
        let newest = list(&mut stage, Archived::No, AssetOrder::NewestFirst, size);
        assert_eq!(newest, ["1", "a", "b", "9"]);
        let oldest = list(&mut stage, Archived::Both, AssetOrder::OldestFirst, size);
        assert_eq!(oldest, versions);
        assert_eq!(list(&mut stage, Archived::Yes, AssetOrder::NewestFirst, size), ["10"]);
    }
    archive(&mut stage, &made[1], false);
    let newest = list(&mut stage, Archived::No, AssetOrder::NewestFirst, 2);
    assert_eq!(newest, ["1", "a", "b", "10", "9"]);
    let query = AssetQuery {
        kind: AssetKind::Model,
        name: "m".into(),
        archived: Archived::No,
        order: AssetOrder::NewestFirst,
    };
    assert!(
        stage.reader.assets(workspace, &query, Some("x"), 1).is_err(),
        "an invalid page token is refused"
    );
}

pub fn asset_names_have_a_latest_and_a_next_version(database: &dyn Database) {
    let (mut stage, workspace) = stage(database);
    let third = put(&mut stage, AssetKind::Data, "B", "3", "h");
    let second = put(&mut stage, AssetKind::Data, "b", "2", "h");
    put(&mut stage, AssetKind::Data, "a", "x", "h");
    let unnamed = AssetSpec { is_anonymous: true, body: "{}".into(), ..AssetSpec::default() };
    let action = AssetAction::Put { version: "1".into(), wanted: unnamed, is_archived: None };
    say(&mut stage, AssetKind::Data, "anonymous", action);
    let look = |stage: &mut Stage<'_>| {
        let found = stage
            .reader
            .asset_container(workspace, AssetKind::Data, "b")
            .expect("rows can be read");
        let found = found.expect("the row exists");
        (found.latest.map(|latest| latest.version), found.container.next_version())
    };
    assert_eq!(look(&mut stage), (Some("2".into()), 4), "the latest version is the newest");
    archive(&mut stage, &second, true);
    assert_eq!(look(&mut stage), (Some("3".into()), 4));
    archive(&mut stage, &third, true);
    assert_eq!(look(&mut stage), (None, 4));
    let list = |stage: &mut Stage<'_>, archived| {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let kind = AssetKind::Data;
            let page =
                stage.reader.asset_containers(workspace, kind, archived, after.as_deref(), 1);
            let page = page.expect("rows can be read");
            listed.extend(page.items.into_iter().map(|view| view.container.name.into_string()));
            after = page.next;
            if after.is_none() {
                return listed;
            }
        }
    };
    assert_eq!(list(&mut stage, Archived::No), ["a", "B"], "anonymous assets are not listed");
    let wanted = ContainerSpec { description: Some("d".into()), ..ContainerSpec::default() };
    let action = AssetAction::PutContainer { wanted, is_archived: Some(true) };
    say(&mut stage, AssetKind::Data, "A", action);
    assert_eq!(list(&mut stage, Archived::No), ["B"]);
    assert_eq!(list(&mut stage, Archived::Yes), ["a"]);
    assert_eq!(list(&mut stage, Archived::Both), ["a", "B"]);
    let found =
        stage.reader.asset_container(workspace, AssetKind::Data, "a").expect("rows can be read");
    let found = found.expect("the row exists").container;
    assert_eq!((found.about.description.as_deref(), found.versions), (Some("d"), 1));
}

pub fn assets_are_deleted_one_by_one_by_name_and_with_their_workspace(database: &dyn Database) {
    let (mut stage, workspace) = stage(database);
    for (name, version) in [("e", "1"), ("e", "2"), ("f", "1"), ("g", "1")] {
        put(&mut stage, AssetKind::Environment, name, version, "h");
    }
    let kind = AssetKind::Environment;
    let left = |stage: &mut Stage<'_>| {
        let names = stage.reader.asset_containers(workspace, kind, Archived::Both, None, 100);
        let names = names.expect("rows can be read").items;
        let with_hash =
            stage.reader.assets_with_hash(workspace, kind, "h").expect("rows can be read");
        let versions = names.iter().map(|view| view.container.versions).sum::<u32>();
        assert_eq!(versions as usize, with_hash.len(), "each name counts its versions");
        (names.len(), with_hash.len())
    };
    assert_eq!(left(&mut stage), (3, 4));
    let delete = |version: &str| AssetAction::Delete { version: version.into() };
    assert_eq!(say(&mut stage, kind, "E", delete("1")), Reply::Noted);
    assert_eq!(say(&mut stage, kind, "E", delete("1")), Reply::NothingToDelete);
    assert_eq!(left(&mut stage), (3, 3));
    assert_eq!(say(&mut stage, kind, "e", delete("2")), Reply::Noted);
    assert_eq!(left(&mut stage), (2, 2), "the name is deleted with its last version");
    assert_eq!(say(&mut stage, kind, "F", AssetAction::DeleteContainer), Reply::Noted);
    assert_eq!(left(&mut stage), (1, 1));
    stage.store.commit(&[Change::WorkspaceGone(workspace)], Wall(1)).expect("written");
    assert_eq!(left(&mut stage), (0, 0));
}

pub fn code_is_found_by_its_hash(database: &dyn Database) {
    let (mut stage, workspace) = stage(database);
    let first = put(&mut stage, AssetKind::Code, "one", "1", "h");
    let second = put(&mut stage, AssetKind::Code, "two", "1", "h");
    put(&mut stage, AssetKind::Code, "three", "1", "other");
    put(&mut stage, AssetKind::Data, "one", "1", "h");
    let find = |stage: &mut Stage<'_>, workspace, hash: &str| {
        stage.reader.assets_with_hash(workspace, AssetKind::Code, hash).expect("rows can be read")
    };
    assert_eq!(find(&mut stage, workspace, "h"), [first.clone(), second.clone()]);
    assert_eq!(find(&mut stage, workspace, "none"), []);
    assert_eq!(find(&mut stage, WorkspaceId(7), "h"), []);
    archive(&mut stage, &first, true);
    assert_eq!(find(&mut stage, workspace, "h"), [second]);
}

pub fn references_to_uploads_are_known(database: &dyn Database) {
    let (mut stage, workspace) = stage(database);
    let container = |digit: char| format!("code-{}", digit.to_string().repeat(32));
    let named = |stage: &mut Stage<'_>| -> Vec<String> {
        let found = stage.reader.named_uploads(workspace).expect("rows can be read");
        found.into_iter().map(|name| name.into_string()).collect()
    };
    assert!(named(&mut stage).is_empty());
    let of = |uri: String| AssetSpec {
        body: format!(r#"{{"codeUri":"{uri}"}}"#).into(),
        ..AssetSpec::default()
    };
    for (version, digit) in [("1", 'a'), ("2", 'b')] {
        let wanted = of(format!("https://localhost:1/muster/{}/src", container(digit)));
        let action = AssetAction::Put { version: version.into(), wanted, is_archived: None };
        say(&mut stage, AssetKind::Code, "c", action);
    }
    // The uploads of another workspace are not included.
    assert!(stage.reader.named_uploads(WorkspaceId(7)).expect("rows can be read").is_empty());
    assert_eq!(named(&mut stage), [container('a'), container('b')]);
    // A job that has not ended still references the upload of its version.
    let mut input = stage.submission(home(), "j", "cpu", 1);
    if let Input::SubmitJob(request) = &mut input {
        let mut spec = (*request.spec).clone();
        spec.command = format!("ls {}", container('a')).into();
        request.spec = std::sync::Arc::new(spec);
    }
    stage.say(input).expect("a job");
    say(&mut stage, AssetKind::Code, "c", AssetAction::Delete { version: "1".into() });
    say(&mut stage, AssetKind::Code, "c", AssetAction::Delete { version: "2".into() });
    assert_eq!(named(&mut stage), [container('a')]);
    let job = (home(), "j".to_owned());
    stage.say(Input::CancelJob { workspace: job.0, name: job.1, known: None }).expect("canceled");
    assert!(named(&mut stage).is_empty(), "it has ended");
}
