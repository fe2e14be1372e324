use std::path::Path;

use muster_core::model::{Caller, JobSpec, SpecHash, TreeId, WorkspaceKey};
use muster_core::{ClusterPatch, Input, JobRequest};
use muster_store::storage::{About, BlobPart, BlobRef, Done, Guard};
use muster_store::{Reader, SqliteReader};
use muster_trees::{TREE_BYTES_MAX, Tree, blob_of, tree_of};

use super::*;
use crate::Limits;
use crate::app::App;
use crate::room::Kind;
use crate::run::in_test::InTest;
use crate::storage::BlockUpload;

fn collector(app: &App) -> Collector {
    let (storage, blobs) = (app.storage.clone(), app.blobs.clone());
    let (readers, retention) = (app.readers.clone(), app.retention);
    Collector { storage, blobs, readers, retention }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_between_two_rounds_makes_the_next_one_examine_everything() {
    let server = InTest::open(Limits::default()).await;
    let mut collector = collector(&server.app());
    let mut wanted = ReferencedBytes::default();
    assert!(!collector.drop_refused(&mut wanted).await, "nothing failed");
    // The lists of jobs can no longer be read.
    let open = |path: &Path| Ok(Box::new(SqliteReader::open(path)?) as Box<dyn Reader>);
    collector.readers = Readers::new("/nowhere".into(), open);
    assert!(collector.drop_refused(&mut wanted).await);
    assert!(is_next_whole(false, &Ok(Removed::default()), true));
}

#[test]
fn a_round_that_failed_or_could_not_start_is_repeated() {
    let next = |is_whole, collected| is_next_whole(is_whole, &collected, false);
    for is_whole in [true, false] {
        assert!(!next(is_whole, Ok(Removed::default())));
        assert!(next(is_whole, Err(GarbageError::Panicked)));
        assert_eq!(next(is_whole, Err(GarbageError::BackUp)), is_whole);
    }
}

fn home() -> WorkspaceKey {
    WorkspaceKey::new("s", "g", "w")
}

/// Submits a job that brings these files.
async fn submit_with_code(app: &App, code: TreeId) -> WorkspaceId {
    let by = || Caller { object_id: "0b8e".into(), name: "Some One".into() };
    let wanted = ClusterPatch { nodes_max: Some(1), ..ClusterPatch::default() };
    let (workspace, name) = (home(), "cpu".to_owned());
    let spec = JobSpec { code: Some(code), ..JobSpec::new("cpu", "true") };
    let request = JobRequest {
        workspace: home(),
        name: "job".to_owned(),
        spec: Arc::new(spec),
        spec_hash: SpecHash::made_up("a job"),
        by: by(),
        is_archived: None,
        existing: None,
        numbered: <_>::default(),
    };
    for input in [
        Input::workspace(home(), "eastus", by()),
        Input::PutCluster { workspace, name, wanted: Box::new(wanted), by: by() },
        Input::SubmitJob(Box::new(request)),
    ] {
        app.writer.submit(input).await.expect("the write succeeds").expect("the input is accepted");
    }
    let found = app.readers.look_up(|reader| reader.workspace(&home())).expect("the read succeeds");
    found.expect("the workspace exists").id
}

/// A block is stored once, together with all other files that have the same bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_refused_upload_are_kept_if_something_else_references_them() {
    let server = InTest::open(Limits::default()).await;
    let app = server.app();
    let code = muster_trees::File {
        path: "code.py".into(),
        is_executable: false,
        bytes: 4,
        digest: blob_of(b"code"),
    };
    let text = Tree::new(vec![code]).expect("the list is valid").to_text();
    let tree = tree_of(text.as_bytes());
    let workspace = submit_with_code(&app, tree).await;
    let keep = |content: &[u8]| {
        let mut incoming = app.blobs.begin(workspace, None, Kind::Upload).expect("there is room");
        incoming.write(content).expect("there is room");
        incoming.keep_as_found().expect("the file is stored").digest
    };
    let [alone, blob, code] = [&b"alone"[..], b"blob", b"code"].map(keep);
    let listed = app.blobs.list(workspace, &tree, text.as_bytes(), TREE_BYTES_MAX, Kind::Upload);
    assert_eq!(listed.expect("the list is valid").missing, []);

    let make = StorageCommand::MakeContainer { name: "own".into(), workspace, owner: home() };
    let made = app.storage.submit(make).await.expect("the write succeeds");
    let Ok(Done::Container(container)) = made else { panic!("{made:?}") };
    let at = |name: &str| BlobRef { container: container.id, workspace, name: name.into() };
    let segment = |digest| BlobPart { digest, bytes: 4 };
    let (about, guard) = (About::default(), Guard::default());
    let put = StorageCommand::Put { at: at("other"), segment: segment(blob), about, guard };
    assert!(app.storage.submit(put).await.expect("the write succeeds").is_ok());
    // Only files from before their blocks were staged are deleted, and the time of a file is as exact as the clock
    // ticks.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let upload = BlockUpload::begin(&app.storage, at("large"));
    for (block, digest) in [("YQ==", alone), ("Yg==", blob), ("Yw==", code)] {
        let stage = StorageCommand::Stage {
            at: at("large"),
            block: block.into(),
            segment: segment(digest),
        };
        assert!(app.storage.submit(stage).await.expect("the write succeeds").is_ok());
    }
    upload.refuse();
    drop(upload);
    app.storage.refused.news().await;
    assert!(!collector(&app).drop_refused(&mut ReferencedBytes::default()).await, "nothing failed");
    let is_there =
        |digest| app.blobs.open(workspace, &digest).expect("the file can be opened").is_some();
    assert_eq!([alone, blob, code].map(is_there), [false, true, true]);
}
