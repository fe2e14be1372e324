use muster_core::model::{BlobId, Caller, JobSpec, SpecHash};
use muster_core::{ClusterPatch, Input, JobRequest};
use muster_store::storage::{About, BlobPart, BlobRef, Done, Guard, ListQuery, Listed};

use super::*;
use crate::Limits;
use crate::run::in_test::InTest;

struct Scene {
    server: InTest,
    app: Arc<App>,
    /// A job that waits for a node.
    job: Job,
}

fn home() -> WorkspaceKey {
    WorkspaceKey::new("s", "g", "w")
}

/// A server with a workspace and a job "here" in it.
async fn scene() -> Scene {
    let limits = Limits { storage_bytes: Some(1 << 30), ..Limits::default() };
    let server = InTest::open(limits).await;
    let app = server.app();
    let by = || Caller { object_id: "0b8e".into(), name: "Some One".into() };
    let wanted = ClusterPatch { nodes_max: Some(1), ..ClusterPatch::default() };
    let (workspace, name) = (home(), "cpu".to_owned());
    let request = JobRequest {
        workspace: home(),
        name: "here".to_owned(),
        spec: Arc::new(JobSpec::new("cpu", "true")),
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
    let view =
        app.readers.look_up(|reader| reader.job(&home(), "here")).expect("the read succeeds");
    Scene { server, app, job: view.expect("the job exists").job }
}

impl Scene {
    /// A job whose rows have been deleted.
    fn deleted(&self, name: &str) -> Job {
        Job { id: JobId(self.job.id.0 + 1_000), name: name.into(), ..self.job.clone() }
    }

    async fn put(&self, blobs: &[&str]) {
        let (workspace, name) = (self.job.workspace, own_container(self.job.workspace, false));
        let make = StorageCommand::MakeContainer { name: name.into(), workspace, owner: home() };
        let made = submit(&self.app, make).await.expect("a container");
        let Done::Container(container) = made else { panic!("{made:?}") };
        for name in blobs {
            let at = BlobRef { container: container.id, workspace, name: (*name).into() };
            let segment = BlobPart { digest: BlobId([1; 32]), bytes: 5 };
            let (about, guard) = (About::default(), Guard::default());
            submit(&self.app, StorageCommand::Put { at, segment, about, guard })
                .await
                .expect("a blob");
        }
    }

    fn blobs(&self) -> Vec<String> {
        let name = own_container(self.job.workspace, false);
        let listed = self.app.storage.readers.look_up(|reader| {
            let own = reader.container(&name)?.expect("the container exists");
            reader.list(own.id, &ListQuery { limit: 10, ..ListQuery::default() })
        });
        let name = |item: Listed| match item {
            Listed::Blob(blob) => blob.name.to_string(),
            Listed::Prefix(prefix) => prefix.to_string(),
        };
        listed.expect("the read succeeds").items.into_iter().map(name).collect()
    }
}

const GONE: &str = "ExperimentRun/dcid.gone/outputs/x";
const OTHERS: &str = "ExperimentRun/dcid.never-was/outputs/x";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_deleted_job_are_removed_although_the_server_was_killed() {
    let mut scene = scene().await;
    scene.put(&[GONE, OTHERS]).await;
    let gone = scene.deleted("gone");
    begin(&scene.app, &gone).await;
    scene.app = scene.server.app();
    clear_name(&scene.app, &home(), "Gone").await.expect("the removal succeeds");
    // Blobs that no job left are not touched.
    assert_eq!(scene.blobs(), [OTHERS]);
    assert!(scene.server.app().unremoved.is_empty(), "no record is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_that_was_refused_is_not_noted() {
    let scene = scene().await;
    begin(&scene.app, &scene.job).await;
    assert_eq!(scene.server.app().unremoved.all(), [scene.job.id]);
    give_up(&scene.app, scene.job.id).await;
    assert!(scene.server.app().unremoved.is_empty());
}

/// Measuring a workspace takes longer the more files it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_is_answered_before_its_workspace_is_measured() {
    let scene = scene().await;
    scene.put(&[GONE]).await;
    let measuring = scene.app.blobs.hold_measuring(scene.job.workspace).await;
    let gone = scene.deleted("gone");
    let task = tokio::spawn(run(scene.app.clone()));
    let answered = finish(&scene.app, &gone);
    tokio::time::timeout(Duration::from_secs(5), answered).await.expect("the delete does not wait");
    assert_eq!(scene.blobs(), [GONE]);
    drop(measuring);
    // The task is notified at once and does not wait for its pause.
    let removed = async {
        while !scene.app.unremoved.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PAUSE / 3, removed).await.expect("the task removes the blobs");
    scene.put(&[GONE]).await;
    finish(&scene.app, &gone).await;
    assert_eq!(
        scene.blobs(),
        [""; 0],
        "once the workspace is measured, leftovers are removed at once"
    );
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_new_job_of_the_same_name_are_kept() {
    let scene = scene().await;
    let [output, log] = ["outputs/x", "user_logs/std_log.txt"]
        .map(|name| format!("{}/{name}", folder_of(&scene.job.name)));
    scene.put(&[&output, &log]).await;
    scene.app.blobs.measured(scene.job.workspace).await.expect("measuring succeeds");
    finish(&scene.app, &scene.deleted("here")).await;
    // The copy of a log may come from the deleted job; it is created again when a client asks for it.
    assert_eq!(scene.blobs(), [output]);
    assert!(scene.app.unremoved.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measuring_one_workspace_does_not_delay_another() {
    let scene = scene().await;
    let slow = scene.deleted("slow");
    let (id, workspace) = (JobId(slow.id.0 + 1), WorkspaceId(slow.workspace.0 + 1));
    let quick = Job { id, workspace, ..scene.deleted("quick") };
    let measuring = scene.app.blobs.hold_measuring(slow.workspace).await;
    // The slow one comes first.
    for job in [&slow, &quick] {
        begin(&scene.app, job).await;
    }
    let task = tokio::spawn(run(scene.app.clone()));
    let removed = async {
        while scene.app.unremoved.get(quick.id).is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PAUSE / 3, removed).await.expect("the quick one does not wait");
    assert_eq!(scene.app.unremoved.all(), [slow.id]);
    drop(measuring);
    task.abort();
}

/// A server was killed after a delete that it could not record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_jobs_without_a_row_are_removed_at_start() {
    let scene = scene().await;
    let logs = scene.server.folder().join("logs");
    let [gone, kept] =
        [scene.deleted("gone").id, scene.job.id].map(|job| logs.join(job.to_string()));
    for folder in [&gone, &kept] {
        std::fs::create_dir_all(folder).expect("the folder can be created");
        std::fs::write(folder.join("1.0.log"), "text").expect("the file can be written");
    }
    let task = tokio::spawn(run(scene.app.clone()));
    let removed = async {
        while gone.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PAUSE / 3, removed).await.expect("the folder is found");
    assert!(kept.join("1.0.log").exists(), "the log of an existing job is kept");
    task.abort();
}
