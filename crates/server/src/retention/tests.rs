use std::sync::Arc;

use muster_core::model::{AssetKind, AssetSpec, Caller, JobSpec, JobState, SpecHash, WorkspaceKey};
use muster_core::retention::JobRetention;
use muster_core::time::Span;
use muster_core::{AssetAction, AssetRequest, ClusterPatch, JobRequest, KnownAsset};

use super::*;
use crate::Limits;
use crate::run::in_test::InTest;

const AT_ONCE: Option<Span> = Some(Span::ZERO);

struct Scene {
    server: InTest,
    app: Arc<App>,
}

fn home() -> WorkspaceKey {
    WorkspaceKey::new("s", "g", "w")
}

fn someone() -> Caller {
    Caller { object_id: "0b8e".into(), name: "Some One".into() }
}

/// A server with a cluster without nodes, on which jobs wait until they are canceled.
async fn scene(kept: JobRetention) -> Scene {
    let server = InTest::open_with(Limits::default(), |config| config.kept.jobs = kept).await;
    let scene = Scene { app: server.app(), server };
    let wanted = ClusterPatch { nodes_max: Some(0), ..ClusterPatch::default() };
    let (workspace, name) = (home(), "cpu".to_owned());
    let wanted = Box::new(wanted);
    scene.say(Input::workspace(home(), "eastus", someone())).await;
    scene.say(Input::PutCluster { workspace, name, wanted, by: someone() }).await;
    scene
}

impl Scene {
    async fn say(&self, input: Input) -> Reply {
        let answer = self.app.writer.submit(input).await.expect("the write succeeds");
        answer.expect("the input is accepted")
    }

    async fn submit(&self, name: &str) -> JobId {
        let request = JobRequest {
            workspace: home(),
            name: name.to_owned(),
            spec: Arc::new(JobSpec::new("cpu", "true")),
            spec_hash: SpecHash::made_up("a job"),
            by: someone(),
            is_archived: None,
            existing: None,
            numbered: <_>::default(),
        };
        match self.say(Input::SubmitJob(Box::new(request))).await {
            Reply::JobAccepted { job, .. } => job.id,
            other => panic!("{other:?}"),
        }
    }

    /// A job that has ended and left a log.
    async fn end(&self, name: &str) -> JobId {
        let id = self.submit(name).await;
        let (workspace, name) = (home(), name.to_owned());
        self.say(Input::CancelJob { workspace, name, known: None }).await;
        let folder = self.server.folder().join("logs").join(id.to_string());
        std::fs::create_dir_all(&folder).expect("our own folder");
        std::fs::write(folder.join("a1.0.log"), "said").expect("our own folder");
        id
    }

    /// A model made of the files of a job.
    async fn register(&self, job: &str) {
        let body =
            format!(r#"{{"modelUri":"azureml://jobs/{job}/outputs/artifacts/paths/model"}}"#);
        let wanted = AssetSpec { body: body.into(), ..AssetSpec::default() };
        let version = "1".into();
        self.say(Input::ChangeAsset(Box::new(AssetRequest {
            workspace: home(),
            kind: AssetKind::Model,
            name: "m".into(),
            action: AssetAction::Put { version, wanted, is_archived: None },
            by: someone(),
            known: KnownAsset::default(),
        })))
        .await;
    }

    fn exists(&self, job: JobId) -> bool {
        let found = self.app.readers.look_up(|reader| reader.job_by_id(job));
        found.expect("the read succeeds").is_some()
    }

    fn has_log(&self, job: JobId) -> bool {
        self.server.folder().join("logs").join(job.to_string()).exists()
    }

    async fn round(&self) -> Round {
        let mut done = Round::default();
        round(&self.app, &mut done).await.expect("the round succeeds");
        done
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_jobs_are_removed_and_what_is_live_or_referenced_is_kept() {
    let scene = scene(JobRetention { jobs: AT_ONCE, logs: None }).await;
    let mut ended = Vec::new();
    for number in 0..20 {
        ended.push(scene.end(&format!("ended-{number}")).await);
    }
    let model = scene.end("Model").await;
    scene.register("model").await;
    let waiting = scene.submit("waiting").await;
    assert_eq!(scene.round().await, Round { jobs: 20, logs: 0 });
    assert!(ended.iter().all(|job| !scene.exists(*job) && !scene.has_log(*job)));
    assert!(scene.exists(model) && scene.has_log(model) && scene.exists(waiting));
    assert_eq!(scene.round().await, Round::default(), "there is nothing left to remove");
    let records = std::fs::read_dir(scene.server.folder().join("logs")).expect("our own folder");
    assert_eq!(records.count(), 1, "the record of no removal is left");
    // Its name is free again.
    let again = scene.submit("ended-0").await;
    assert!(!ended.contains(&again));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn young_jobs_are_kept() {
    let kept = JobRetention { jobs: Some(Span::seconds(3_600)), logs: Some(Span::seconds(60)) };
    let scene = scene(kept).await;
    let job = scene.end("young").await;
    assert_eq!(scene.round().await, Round::default());
    assert!(scene.exists(job) && scene.has_log(job));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_can_go_before_their_job() {
    let scene = scene(JobRetention { jobs: None, logs: AT_ONCE }).await;
    let (job, waiting) = (scene.end("ended").await, scene.submit("waiting").await);
    assert_eq!(scene.round().await, Round { jobs: 0, logs: 1 });
    assert!(scene.exists(job) && !scene.has_log(job) && scene.exists(waiting));
    assert_eq!(scene.round().await, Round::default());
    let found = scene.app.readers.look_up(|reader| reader.job_by_id(job));
    let found = found.expect("the read succeeds").expect("it is kept");
    assert!(has_no_logs(&scene.app, &found, clock::now().wall).expect("the read succeeds"));
}

/// The server was killed at each step of a removal; `app` is the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_in_between_leaves_nothing_behind() {
    let mut scene = scene(JobRetention { jobs: AT_ONCE, logs: None }).await;
    let (noted, gone) = (scene.end("noted").await, scene.end("gone").await);
    let job = |scene: &Scene, id| {
        let found = scene.app.readers.look_up(|reader| reader.job_by_id(id));
        found.expect("the read succeeds").expect("it exists")
    };
    // One was only noted; the other is deleted, but not its log.
    for id in [noted, gone] {
        removal::begin(&scene.app, &job(&scene, id)).await;
    }
    let proposed = ExpiredJobs { jobs: vec![gone], known: Vec::new() };
    let answer = scene.say(Input::RemoveExpired(Box::new(proposed))).await;
    assert_eq!(answer, Reply::Removed(vec![gone]));
    scene.app = scene.server.app();
    let cleaner = tokio::spawn(removal::run(scene.app.clone()));
    assert_eq!(scene.round().await, Round { jobs: 1, logs: 0 });
    let waited = async {
        while scene.has_log(gone) || scene.has_log(noted) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waited).await.expect("their logs are removed");
    assert!(!scene.exists(noted) && !scene.exists(gone));
    cleaner.abort();
}

#[test]
fn a_step_has_few_jobs_and_few_children() {
    let plan = |tasks: u32| {
        let indices = format!("1-{tasks}").parse().expect("indices");
        muster_core::model::JobKind::Array(Box::new(muster_core::model::ArrayPlan {
            indices,
            concurrency: None,
            timeout: None,
        }))
    };
    let job =
        |tasks: Option<u32>| Job { kind: tasks.map_or_else(Default::default, plan), ..ended() };
    let sizes = |jobs: Vec<Job>| steps(jobs).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(sizes((0..20).map(|_| job(None)).collect()), [8, 8, 4]);
    assert_eq!(sizes(vec![job(Some(400)), job(Some(400)), job(Some(400)), job(None)]), [2, 2]);
    assert_eq!(sizes(vec![job(None), job(Some(50_000)), job(None)]), [1, 1, 1]);
    assert_eq!(sizes(Vec::new()), [0; 0]);
}

fn ended() -> Job {
    Job {
        id: JobId(1),
        workspace: WorkspaceId(1),
        cluster: muster_core::ids::ClusterId(1),
        name: "j".into(),
        kind: Default::default(),
        parent: None,
        principal: muster_core::ids::PrincipalId(1),
        nodes: 1,
        share: None,
        priority: Default::default(),
        spec: SpecHash::made_up("a job"),
        submitted_at: Wall(1),
        attempts: 0,
        losses: 0,
        on_eviction: Default::default(),
        is_returned: false,
        environment: None,
        state: JobState::Completed { at: Wall(2) },
    }
}
