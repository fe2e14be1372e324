//! What the rows of the blob storage must do, wherever they are stored.

use muster_core::ids::WorkspaceId;
use muster_core::model::{AccountCredentials, BlobId, DatastoreSpec, ForeignAccount, WorkspaceKey};
use muster_core::time::Wall;
use muster_core::{Change, Input};

use super::stage::{home, someone};
use super::{Database, Stage};
use crate::storage::{
    About, AboutChange, BlobPart, BlobRef, BlockFrom, BlockRef, Container, ContainerId, Done,
    Folder, Guard, ListQuery, Listed, Match, Refusal, Span, Storage, StorageCommand, StorageReader,
    StorageResult, Stored, Tag,
};

const HERE: WorkspaceId = WorkspaceId(1);
const THERE: WorkspaceId = WorkspaceId(2);

/// A database that is empty at first.
pub trait StorageDatabase: Sync {
    fn storage(&self) -> Box<dyn Storage>;
    fn reader(&self) -> Box<dyn StorageReader>;
}

struct Scene {
    storage: Box<dyn Storage>,
    reader: Box<dyn StorageReader>,
    container: ContainerId,
    now: Wall,
}

impl Scene {
    fn new(database: &dyn StorageDatabase) -> Scene {
        let mut storage = database.storage();
        let container = make(&mut *storage, "here-1", HERE).expect("it is new").id;
        let reader = database.reader();
        Scene { storage, reader, container, now: Wall(1_000_000) }
    }

    fn say(&mut self, command: StorageCommand) -> StorageResult {
        self.now.0 += 1_000_000;
        let mut results =
            self.storage.apply(&[command], self.now).expect("the commands are applied").results;
        assert_eq!(results.len(), 1);
        results.remove(0)
    }

    fn at(&self, name: &str) -> BlobRef {
        BlobRef { container: self.container, workspace: HERE, name: name.into() }
    }

    fn put(&mut self, name: &str, content: &str, guard: Guard) -> Result<Tag, Refusal> {
        let (at, segment) = (self.at(name), file(content));
        match self.say(StorageCommand::Put { at, segment, about: about(content), guard })? {
            Done::Blob { tag, .. } => Ok(tag),
            other => panic!("{other:?} is not a blob"),
        }
    }

    fn stage(&mut self, name: &str, block: &str, content: &str) {
        let at = self.at(name);
        let staged =
            self.say(StorageCommand::Stage { at, block: block.into(), segment: file(content) });
        assert_eq!(staged, Ok(Done::Nothing));
    }

    fn commit(&mut self, name: &str, blocks: &[(&str, BlockFrom, &str)]) -> StorageResult {
        let part = |(id, from, content): &(&str, BlockFrom, &str)| {
            (BlockRef { id: (*id).into(), from: *from }, file(content))
        };
        let (at, blocks) = (self.at(name), blocks.iter().map(part).collect());
        self.say(StorageCommand::Commit {
            at,
            blocks,
            about: about("list"),
            guard: Guard::default(),
        })
    }

    fn files(&mut self, name: &str, span: Span) -> (u64, Vec<BlobPart>) {
        let found = self.reader.content(self.container, name, span).expect("rows can be read");
        let found = found.expect("the row exists");
        (found.starts, found.segments)
    }

    fn names(&mut self, query: &ListQuery) -> (Vec<String>, Option<Vec<u8>>) {
        let found = self.reader.list(self.container, query).expect("rows can be read");
        let name = |item: &Listed| match item {
            Listed::Blob(blob) => blob.name.to_string(),
            Listed::Prefix(prefix) => format!("[{prefix}]"),
        };
        (found.items.iter().map(name).collect(), found.next)
    }
}

fn make(
    storage: &mut dyn Storage,
    name: &str,
    workspace: WorkspaceId,
) -> Result<Container, Refusal> {
    let owner = WorkspaceKey::new("s", "g", &workspace.to_string());
    let command = StorageCommand::MakeContainer { name: name.into(), workspace, owner };
    match storage.apply(&[command], Wall(1)).expect("the commands are applied").results.remove(0)? {
        Done::Container(container) => Ok(container),
        other => panic!("{other:?} is not a container"),
    }
}

fn digest(content: &str) -> BlobId {
    BlobId::made_up(content)
}

fn file(content: &str) -> BlobPart {
    BlobPart { digest: digest(content), bytes: content.len() as u64 }
}

fn about(word: &str) -> About {
    let metadata = [(Box::from("word"), Box::from(word))].into();
    About { metadata, ..About::default() }
}

pub fn blobs_read_back_and_are_replaced(database: &dyn StorageDatabase) {
    let mut scene = Scene::new(database);
    let first = scene.put("a/../b", "one", Guard::default()).expect("new");
    let found = scene
        .reader
        .blob(scene.container, "a/../b")
        .expect("rows can be read")
        .expect("the row exists");
    assert_eq!((found.tag, found.bytes, &found.about), (first, 3, &about("one")));
    assert_eq!(
        scene.reader.blob(scene.container, "b").expect("rows can be read"),
        None,
        "names are compared byte by byte"
    );
    let second = scene.put("a/../b", "second", Guard::default()).expect("replaced");
    let change = AboutChange::Metadata([("k".into(), "v".into())].into());
    let at = scene.at("a/../b");
    let changed = scene.say(StorageCommand::Change { at, change, guard: Guard::default() });
    let Ok(Done::Blob { tag: third, .. }) = changed else { panic!("{changed:?}") };
    assert!(first < second && second < third);
    let again = scene
        .reader
        .blob(scene.container, "a/../b")
        .expect("rows can be read")
        .expect("the row exists");
    assert_eq!((again.made, again.bytes, again.about.metadata.len()), (found.made, 6, 1));
    assert_eq!(scene.files("a/../b", Span::ALL), (0, vec![file("second")]));
    let at = scene.at("a/../b");
    assert_eq!(
        scene.say(StorageCommand::Delete { at: at.clone(), guard: Guard::default() }),
        Ok(Done::Nothing)
    );
    assert_eq!(
        scene.say(StorageCommand::Delete { at, guard: Guard::default() }),
        Err(Refusal::NoBlob)
    );
}

pub fn conditions_are_decided_where_the_change_is(database: &dyn StorageDatabase) {
    let mut scene = Scene::new(database);
    let absent = Guard { if_none_match: Some(Match::Any), ..Guard::default() };
    let present = |tag| Guard { if_match: Some(tag), ..Guard::default() };
    assert_eq!(scene.put("x", "1", present(Match::Any)), Err(Refusal::Condition));
    let tag = scene.put("x", "1", absent.clone()).expect("there is no such blob yet");
    assert_eq!(scene.put("x", "2", absent), Err(Refusal::Exists));
    assert_eq!(scene.put("x", "2", present(Match::Foreign)), Err(Refusal::Condition));
    let later = scene.put("x", "2", present(Match::Tag(tag))).expect("the tag matches");
    assert_eq!(scene.put("x", "3", present(Match::Tag(tag))), Err(Refusal::Condition));
    let only_new = Guard { may_only_create: true, ..Guard::default() };
    assert_eq!(scene.put("x", "3", only_new.clone()), Err(Refusal::MayOnlyCreate));
    scene.put("y", "3", only_new).expect("it is new");
    let since = |seconds| Guard { if_unmodified_since_s: Some(seconds), ..Guard::default() };
    assert_eq!(scene.put("x", "4", since(1)), Err(Refusal::Condition));
    scene.put("x", "4", since(10_000)).expect("it has not changed since");
    let stale = present(Match::Tag(later));
    let at = scene.at("x");
    assert_eq!(scene.say(StorageCommand::Delete { at, guard: stale }), Err(Refusal::Condition));
    // Two commands in one transaction: the second sees the result of the first.
    let put = |content: &str| StorageCommand::Put {
        at: scene.at("z"),
        segment: file(content),
        about: About::default(),
        guard: Guard { if_none_match: Some(Match::Any), ..Guard::default() },
    };
    let both = [put("a"), put("b")];
    let results = scene.storage.apply(&both, Wall(9_000_000)).expect("written").results;
    assert!(results[0].is_ok() && results[1] == Err(Refusal::Exists), "{results:?}");
    assert_eq!(scene.files("z", Span::ALL).1, [file("a")]);
}

pub fn blocks_wait_and_are_put_together(database: &dyn StorageDatabase) {
    use BlockFrom::{Committed, Latest, Uncommitted};
    let mut scene = Scene::new(database);
    for (block, content) in [("YQ==", "aa"), ("Yg==", "bbb"), ("Yw==", "c")] {
        scene.stage("x", block, content);
    }
    assert_eq!(
        scene.reader.blob(scene.container, "x").expect("rows can be read"),
        None,
        "the blob does not exist yet"
    );
    let blocks = scene.reader.blocks(scene.container, "x").expect("rows can be read");
    assert_eq!((blocks.committed.len(), blocks.uncommitted.len()), (0, 3));
    scene
        .commit("x", &[("Yg==", Latest, "bbb"), ("YQ==", Uncommitted, "aa")])
        .expect("both blocks are staged");
    assert_eq!(scene.files("x", Span::ALL), (0, vec![file("bbb"), file("aa")]));
    let blocks = scene.reader.blocks(scene.container, "x").expect("rows can be read");
    assert_eq!(blocks.committed, [("Yg==".into(), 3), ("YQ==".into(), 2)]);
    assert_eq!(blocks.uncommitted, [], "blocks that are not on the list are dropped");
    // If a committed and a staged block have the same name, the staged one is the latest.
    scene.stage("x", "YQ==", "new");
    let both = [("YQ==", Committed, "aa"), ("YQ==", Latest, "new"), ("Yg==", Latest, "bbb")];
    scene.commit("x", &both).expect("all blocks exist");
    assert_eq!(scene.files("x", Span::ALL).1, [file("aa"), file("new"), file("bbb")]);
    scene.stage("x", "YQ==", "dropped");
    scene.put("x", "whole", Guard::default()).expect("replaced");
    let blocks = scene.reader.blocks(scene.container, "x").expect("rows can be read");
    assert_eq!((blocks.committed, blocks.uncommitted), (vec![], vec![]));
}

pub fn a_list_of_other_blocks_is_refused(database: &dyn StorageDatabase) {
    let mut scene = Scene::new(database);
    scene.stage("x", "YQ==", "aa");
    let missing =
        scene.commit("x", &[("YQ==", BlockFrom::Latest, "aa"), ("Yg==", BlockFrom::Latest, "b")]);
    assert_eq!(missing, Err(Refusal::NoBlock { id: "Yg==".into() }));
    scene.stage("x", "YQ==", "other");
    let stale = scene.commit("x", &[("YQ==", BlockFrom::Latest, "aa")]);
    assert_eq!(
        stale,
        Err(Refusal::NoBlock { id: "YQ==".into() }),
        "the block is a different file by now"
    );
    let not_yet = scene.commit("x", &[("YQ==", BlockFrom::Committed, "other")]);
    assert_eq!(not_yet, Err(Refusal::NoBlock { id: "YQ==".into() }));
    assert_eq!(
        scene.reader.blob(scene.container, "x").expect("rows can be read"),
        None,
        "nothing was written"
    );
    let wanted =
        [BlockFrom::Latest, BlockFrom::Committed].map(|from| BlockRef { id: "YQ==".into(), from });
    let found = scene.reader.find_blocks(scene.container, "x", &wanted).expect("rows can be read");
    assert_eq!(found, [Some(file("other")), None]);
}

pub fn lists_are_walks_along_the_names(database: &dyn StorageDatabase) {
    let mut scene = Scene::new(database);
    let mut names: Vec<String> =
        ["a", "b.txt", "b/1", "b/2", "b/c/1", "b0", "ü/1", "ü/2", "🦀"].map(String::from).into();
    // More names in one folder than are fetched at once.
    names.extend((0..300).map(|number| format!("many/{number:03}")));
    for name in &names {
        scene.put(name, "x", Guard::default()).expect("new");
    }
    names.sort();
    let query = |prefix: &str, delimiter: Option<&str>, limit| ListQuery {
        prefix: prefix.into(),
        delimiter: delimiter.map(Into::into),
        after: None,
        limit,
    };
    let folded: Vec<String> =
        ["a", "b.txt", "[b/]", "b0", "[many/]", "[ü/]", "🦀"].map(String::from).into();
    for (base, expected) in [
        (query("", None, 1), names.clone()),
        (query("", Some("/"), 1), folded),
        (query("b/", Some("/"), 1), ["b/1", "b/2", "[b/c/]"].map(String::from).into()),
        (query("b", None, 1), names.iter().filter(|name| name.starts_with('b')).cloned().collect()),
        (query("nothing", Some("/"), 1), vec![]),
    ] {
        for limit in [1, 2, 3, 128, 1_000] {
            let mut query = ListQuery { limit, ..base.clone() };
            let mut all = Vec::new();
            loop {
                let (page, next) = scene.names(&query);
                assert!(page.len() == limit || next.is_none());
                all.extend(page);
                match next {
                    Some(next) => query.after = Some(next),
                    None => break,
                }
            }
            assert_eq!(all, expected, "{base:?} by {limit}");
        }
    }
}

pub fn a_part_needs_only_its_files(database: &dyn StorageDatabase) {
    let mut scene = Scene::new(database);
    let contents = ["aaaa", "bb", "cccccc"];
    let ids = ["YQ==", "Yg==", "Yw=="];
    for (id, content) in ids.iter().zip(contents) {
        scene.stage("x", id, content);
    }
    let list: Vec<_> =
        ids.iter().zip(contents).map(|(id, content)| (*id, BlockFrom::Latest, content)).collect();
    scene.commit("x", &list).expect("the blocks are staged");
    for (from, to, starts, files) in [
        (0, Some(3), 0, 0..1),
        (3, Some(4), 0, 0..2),
        (4, Some(5), 4, 1..2),
        (5, None, 4, 1..3),
        (6, Some(6), 6, 2..3),
        (0, None, 0, 0..3),
    ] {
        let expected: Vec<_> = contents[files].iter().map(|content| file(content)).collect();
        assert_eq!(scene.files("x", Span { from, to }), (starts, expected), "{from}-{to:?}");
    }
}

pub fn unreferenced_files_are_listed_and_settled(database: &dyn StorageDatabase) {
    let mut scene = Scene::new(database);
    let named = |scene: &mut Scene, content: &str| {
        scene.reader.is_named(HERE, &digest(content)).expect("rows can be read")
    };
    let unreferenced = |scene: &mut Scene| {
        let found = scene.reader.unreferenced(Wall(u64::MAX), 100).expect("rows can be read");
        let words = ["one", "two", "kept", "refused", "block", "shared"];
        let known = |word: &&str| found.contains(&(HERE, digest(word)));
        words.into_iter().filter(known).collect::<Vec<_>>()
    };
    scene.put("x", "one", Guard::default()).expect("new");
    scene.put("y", "shared", Guard::default()).expect("new");
    scene.put("z", "shared", Guard::default()).expect("new");
    assert!(unreferenced(&mut scene).is_empty() && named(&mut scene, "one"));
    scene.put("x", "two", Guard::default()).expect("replaced");
    let absent = Guard { if_none_match: Some(Match::Any), ..Guard::default() };
    assert_eq!(scene.put("x", "refused", absent), Err(Refusal::Exists));
    scene.stage("x", "YQ==", "block");
    assert!(named(&mut scene, "block"), "a staged block counts as a reference");
    let later = scene.now;
    assert_eq!(scene.say(StorageCommand::ExpireStaged { before: later }), Ok(Done::Nothing));
    assert!(named(&mut scene, "block"), "the block is not that old");
    let later = Wall(later.0 + 1);
    assert_eq!(scene.say(StorageCommand::ExpireStaged { before: later }), Ok(Done::Nothing));
    let at = scene.at("y");
    scene.say(StorageCommand::Delete { at, guard: Guard::default() }).expect("the row exists");
    assert_eq!(unreferenced(&mut scene), ["one", "refused", "block", "shared"]);
    assert!(!named(&mut scene, "one") && !named(&mut scene, "block"));
    assert!(named(&mut scene, "shared"), "another blob references the file");
    let all = scene.reader.unreferenced(Wall(u64::MAX), 100).expect("rows can be read");
    let early = StorageCommand::Settle { files: all.clone(), before: Wall(1) };
    assert_eq!(scene.say(early), Ok(Done::Nothing));
    assert_eq!(unreferenced(&mut scene).len(), 4, "they were marked again since");
    let before = Wall(scene.now.0 + 1);
    assert_eq!(scene.say(StorageCommand::Settle { files: all, before }), Ok(Done::Nothing));
    assert!(unreferenced(&mut scene).is_empty());
}

pub fn blocks_of_a_refused_upload_are_dropped_and_what_is_stored_is_counted(
    database: &dyn StorageDatabase,
) {
    let mut scene = Scene::new(database);
    let stored = |scene: &mut Scene| {
        let Stored { blob_bytes, uncommitted_bytes } =
            scene.reader.stored(HERE).expect("rows can be read");
        (blob_bytes, uncommitted_bytes)
    };
    assert_eq!(stored(&mut scene), (0, 0));
    scene.put("whole", "three", Guard::default()).expect("new");
    scene.put("again", "three", Guard::default()).expect("the same bytes");
    scene.stage("large", "YQ==", "first");
    let staged = scene.now;
    scene.stage("large", "Yg==", "three");
    scene.stage("other", "YQ==", "kept");
    assert_eq!(stored(&mut scene), (5, 9), "the same bytes count once");
    let at = scene.at("large");
    let Ok(Done::Dropped(mut dropped)) = scene.say(StorageCommand::DropStaged { at: at.clone() })
    else {
        panic!("this must not be refused");
    };
    dropped.sort_by_key(|(_, at)| *at);
    let (files, times): (Vec<_>, Vec<_>) = dropped.into_iter().unzip();
    assert_eq!(files, [digest("first"), digest("three")]);
    assert_eq!(times[0], staged);
    assert_eq!(stored(&mut scene), (5, 4), "the blocks of another upload are kept");
    assert!(!scene.reader.is_named(HERE, &digest("first")).expect("rows can be read"));
    assert!(
        scene.reader.is_named(HERE, &digest("three")).expect("rows can be read"),
        "a blob references the file"
    );
    assert_eq!(scene.say(StorageCommand::DropStaged { at }), Ok(Done::Dropped(Vec::new())));
}

pub fn a_container_is_its_workspaces_own(database: &dyn StorageDatabase) {
    let mut scene = Scene::new(database);
    let again = make(&mut *scene.storage, "here-1", HERE)
        .expect("the container belongs to the same workspace");
    assert_eq!(again.id, scene.container);
    assert_eq!(make(&mut *scene.storage, "here-1", THERE), Err(Refusal::ContainerTaken));
    make(&mut *scene.storage, "there-1", THERE).expect("new");
    scene.put("x", "one", Guard::default()).expect("new");
    scene.stage("y", "YQ==", "block");
    assert_eq!(scene.reader.containers().expect("rows can be read").len(), 2);
    assert_eq!(scene.say(StorageCommand::ForgetWorkspace(HERE)), Ok(Done::Nothing));
    let left: Vec<_> = scene
        .reader
        .containers()
        .expect("rows can be read")
        .into_iter()
        .map(|it| it.name)
        .collect();
    assert_eq!(left, ["there-1".into()]);
    assert_eq!(scene.put("x", "late", Guard::default()), Err(Refusal::NoContainer));
    let found = scene.reader.unreferenced(Wall(u64::MAX), 100).expect("rows can be read");
    let mut expected = ["one", "block", "late"].map(|word| (HERE, digest(word)));
    expected.sort();
    let mut found = found;
    found.sort();
    assert_eq!(found, expected);
}

pub fn tags_are_never_used_again(database: &dyn StorageDatabase) {
    let mut scene = Scene::new(database);
    let first = scene.put("x", "one", Guard::default()).expect("new");
    // The clock is set back, and the database is opened again.
    scene.now = Wall(0);
    let second = scene.put("x", "two", Guard::default()).expect("replaced");
    scene.storage = database.storage();
    scene.now = Wall(0);
    let third = scene.put("x", "three", Guard::default()).expect("replaced");
    assert!(first < second && second < third, "{first:?} {second:?} {third:?}");
}

pub fn every_batch_has_a_revision(database: &dyn StorageDatabase) {
    let mut scene = Scene::new(database);
    let mut last = scene.storage.revision().expect("rows can be read");
    let at = scene.at("x");
    let stage = StorageCommand::Stage { at: at.clone(), block: "b".into(), segment: file("one") };
    let refused = StorageCommand::Delete { at, guard: Guard::default() };
    for commands in [vec![stage], vec![refused], vec![]] {
        let applied = scene.storage.apply(&commands, Wall(0)).expect("the commands are applied");
        assert!(applied.revision > last, "{commands:?}");
        last = applied.revision;
        assert_eq!(scene.storage.revision().expect("rows can be read"), last);
        assert_eq!(database.storage().revision().expect("rows can be read"), last);
    }
}

pub fn datastores_read_back_and_are_deleted_with_their_workspace(database: &dyn Database) {
    let mut stage = Stage::new(database);
    stage.put_cluster("cpu", 0, 1);
    let spec = DatastoreSpec {
        account: Some(ForeignAccount {
            name: "acc".into(),
            endpoint: None,
            protocol: Some("https".into()),
            opened_by: AccountCredentials::AccountKey,
            secret: Some("sealed".into()),
        }),
        container: "ccc".into(),
        ..DatastoreSpec::default()
    };
    let put = |spec: &DatastoreSpec| Input::PutDatastore {
        workspace: home(),
        name: "Mine".into(),
        wanted: Box::new(spec.clone()),
        by: someone(),
    };
    stage.say(put(&spec)).expect("a datastore");
    let workspace =
        stage.reader.workspace(&home()).expect("rows can be read").expect("the row exists").id;
    let first = stage
        .reader
        .datastore(workspace, "MINE")
        .expect("rows can be read")
        .expect("the row exists");
    assert_eq!((&*first.name, &first.about), ("Mine", &spec));
    let other = DatastoreSpec { container: "ddd".into(), ..DatastoreSpec::default() };
    stage.say(put(&other)).expect("replaced");
    let second = stage
        .reader
        .datastore(workspace, "mine")
        .expect("rows can be read")
        .expect("the row exists");
    assert_eq!((second.created_at, &second.about), (first.created_at, &other));
    assert_eq!(stage.reader.datastores(workspace).expect("rows can be read"), [second]);
    assert_eq!(stage.reader.datastores(WorkspaceId(7)).expect("rows can be read"), []);
    let delete = Input::DeleteDatastore { workspace: home(), name: "MINE".into() };
    stage.say(delete).expect("gone");
    assert_eq!(stage.reader.datastore(workspace, "mine").expect("rows can be read"), None);
    stage.say(put(&spec)).expect("a datastore");
    stage.store.commit(&[Change::WorkspaceGone(workspace)], Wall(1)).expect("written");
    assert_eq!(stage.reader.datastores(workspace).expect("rows can be read"), []);
}

/// The files that a job leaves appear together, replace the previous ones, and change nothing else.
pub fn a_folder_is_published_whole_or_not_at_all(database: &dyn StorageDatabase) {
    let mut scene = Scene::new(database);
    for name in ["out/old", "out/a", "out", "out0", "other/x"] {
        scene.put(name, name, Guard::default()).expect("it is new");
    }
    let folder = |container, name: &str, files: &[&str], is_all| Folder {
        container,
        name: name.into(),
        files: files.iter().map(|name| ((*name).into(), file(name))).collect(),
        is_all,
    };
    let here = scene.container;
    let nowhere = ContainerId(here.0 + 1_000);
    let half = vec![folder(here, "out", &["a"], true), folder(nowhere, "x", &["y"], false)];
    let refused = scene.say(StorageCommand::Publish { workspace: HERE, folders: half });
    assert_eq!(refused, Err(Refusal::NoContainer));
    let all = ListQuery { limit: 100, ..ListQuery::default() };
    let before = ["other/x", "out", "out/a", "out/old", "out0"].map(str::to_owned);
    assert_eq!(scene.names(&all).0, before, "nothing was changed");

    let whole = vec![
        folder(here, "out", &["a", "deep/b"], true),
        folder(here, "other", &["y"], false),
        folder(here, "", &["top"], false),
    ];
    assert_eq!(
        scene.say(StorageCommand::Publish { workspace: HERE, folders: whole }),
        Ok(Done::Nothing)
    );
    let after = ["other/x", "other/y", "out", "out/a", "out/deep/b", "out0", "top"];
    assert_eq!(scene.names(&all).0, after.map(str::to_owned));
    assert_eq!(scene.files("out/a", Span::ALL), (0, vec![file("a")]), "it was replaced");
    for gone in ["out/old", "out/a"] {
        assert!(!scene.reader.is_named(HERE, &digest(gone)).expect("rows can be read"), "{gone}");
    }
    let unreferenced =
        scene.reader.unreferenced(Wall(u64::MAX >> 1), 10).expect("rows can be read");
    assert_eq!(unreferenced.len(), 2, "the files of both are unreferenced");

    // A file that does not change keeps its tag, so that readers can continue.
    let names = ["out/a", "out/deep/b"];
    let [a, b] = names.map(|name| scene.reader.blob(here, name).expect("rows can be read"));
    let mut again = folder(here, "out", &["a", "deep/b"], true);
    again.files[1].1 = file("other");
    let again = StorageCommand::Publish { workspace: HERE, folders: vec![again] };
    assert_eq!(scene.say(again), Ok(Done::Nothing));
    let [same, other] = names.map(|name| scene.reader.blob(here, name).expect("rows can be read"));
    assert_eq!(same, a);
    assert_ne!(other.expect("the row exists").tag, b.expect("the row exists").tag);
}

pub fn the_time_of_the_last_write_to_a_container_is_known(database: &dyn StorageDatabase) {
    let mut scene = Scene::new(database);
    let touched = |scene: &mut Scene| {
        let container = scene.container;
        scene.reader.touched(container).expect("rows can be read")
    };
    let made = touched(&mut scene).expect("the row exists");
    scene.put("a", "x", Guard::default()).expect("put");
    let filled = touched(&mut scene).expect("the row exists");
    assert!(filled > made);
    scene.stage("b", "AAAA", "y");
    assert!(touched(&mut scene).expect("the row exists") > filled, "a staged block counts, too");
    let id = scene.container;
    scene.say(StorageCommand::DeleteContainer { id }).expect("it is deleted");
    assert_eq!(touched(&mut scene), None);
}
