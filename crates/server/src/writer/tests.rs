use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use futures_util::FutureExt as _;
use muster_core::agent::Report;
use muster_core::ids::{Epoch, JobId};
use muster_core::model::{AssetKind, Caller, Job, WorkspaceKey};
use muster_core::time::{Span, Wall};
use muster_core::{Change, ClusterPatch, EffectKind, KnownAsset, KnownJob, Reply, WorldRows};
use muster_store::{Durability, EventRetention, Revision, SqliteStore};

use super::lanes::Lane;
use super::*;

/// A writer that was replaced and changed nothing also committed nothing, so it did not notice that it had been
/// replaced: it used to go on renewing the leases of nodes whose jobs the next one gave to others. The simulator shows
/// the effect (`Bug::FencedAnswer`).
#[tokio::test]
async fn a_writer_that_was_replaced_does_not_even_renew_a_lease() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("muster.db");
    let open_path = path.clone();
    let open_store: OpenStore = Box::new(move || {
        let store = SqliteStore::open(&open_path, Durability::None)?;
        Ok((Box::new(store) as Box<dyn Store>, false))
    });
    let catalogue = Arc::new(Catalogue::builtin());
    let (effects, _wishes) = mpsc::unbounded_channel();
    let live = Arc::new(Live::new(1, Duration::from_secs(40)));
    let (writer, thread) =
        start(open_store, Settings::default(), catalogue, live, effects, OnReserve::default())
            .unwrap();
    let report = || Input::Report {
        node: "node".into(),
        report: Report {
            boot_id: "boot".into(),
            address: "here".into(),
            floor: Epoch(0),
            attempts: Vec::new(),
            waiting: Vec::new(),
        },
    };
    assert!(writer.submit(report()).await.is_ok());
    let mut next = SqliteStore::open(&path, Durability::None).unwrap();
    next.claim(clock::unix_us() / 1_000 + 1_000).unwrap();
    assert_eq!(writer.submit(report()).await, Err(Unavailable::Unconfirmed));
    let ended = thread.join().ok().unwrap();
    assert!(matches!(ended, Err(StoreError::Fenced { .. })));
}

/// A disk that can be full, and a commit that fails although it is on disk.
#[derive(Debug, Clone, Default)]
struct Disk {
    is_full: Arc<AtomicBool>,
    hides_a_commit: Arc<AtomicBool>,
    /// How often the store was asked to commit.
    commits: Arc<AtomicU64>,
    /// Whether nothing can be read about the last commit.
    hides_revisions: Arc<AtomicBool>,
    /// Whether jobs cannot be looked up.
    is_unreadable: Arc<AtomicBool>,
    /// Whether none of the rows can be read.
    has_no_rows: Arc<AtomicBool>,
    on_reserve: OnReserve,
}

struct OnDisk {
    inner: SqliteStore,
    disk: Disk,
}

impl OnDisk {
    fn check(&self) -> Result<(), StoreError> {
        let full = StoreError::Full { doing: "writing", path: "the store".into() };
        if self.disk.is_full.load(Relaxed) { Err(full) } else { Ok(()) }
    }

    fn check_read(is_broken: &AtomicBool) -> Result<(), StoreError> {
        match is_broken.load(Relaxed) {
            true => Err(StoreError::Io { doing: "reading", source: std::io::Error::other("?") }),
            false => Ok(()),
        }
    }
}

impl Store for OnDisk {
    fn claim(&mut self, unix_ms: u64) -> Result<u64, StoreError> {
        self.check()?;
        self.inner.claim(unix_ms)
    }

    fn load(&mut self) -> Result<WorldRows, StoreError> {
        OnDisk::check_read(&self.disk.has_no_rows)?;
        self.inner.load()
    }

    fn commit(&mut self, changes: &[Change], wall: Wall) -> Result<Revision, StoreError> {
        self.disk.commits.fetch_add(1, Relaxed);
        if changes.is_empty() {
            return self.inner.commit(changes, wall);
        }
        self.check()?;
        let revision = self.inner.commit(changes, wall)?;
        match self.disk.hides_a_commit.swap(false, Relaxed) {
            true => Err(StoreError::Io { doing: "fsync", source: std::io::Error::other("?") }),
            false => Ok(revision),
        }
    }

    fn limit_events(&mut self, kept: EventRetention) {
        self.inner.limit_events(kept);
    }

    fn limit_activity(&mut self, age: Span) {
        self.inner.limit_activity(age);
    }

    fn find_job(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<Option<KnownJob>, StoreError> {
        OnDisk::check_read(&self.disk.is_unreadable)?;
        self.inner.find_job(workspace, name)
    }

    fn ended_job(&mut self, job: JobId) -> Result<Option<Job>, StoreError> {
        self.inner.ended_job(job)
    }

    fn numbered_jobs(
        &mut self,
        workspace: &WorkspaceKey,
        name: &str,
    ) -> Result<std::collections::BTreeSet<u32>, StoreError> {
        self.inner.numbered_jobs(workspace, name)
    }

    fn find_asset(
        &mut self,
        workspace: &WorkspaceKey,
        kind: AssetKind,
        name: &str,
        version: Option<&str>,
    ) -> Result<KnownAsset, StoreError> {
        self.inner.find_asset(workspace, kind, name, version)
    }

    fn revision(&mut self) -> Result<Revision, StoreError> {
        OnDisk::check_read(&self.disk.hides_revisions)?;
        self.inner.revision()
    }

    fn last_claim(&mut self) -> Result<u64, StoreError> {
        self.inner.last_claim()
    }

    fn check_claim(&mut self, epoch: u64) -> Result<(), StoreError> {
        self.inner.check_claim(epoch)
    }
}

struct Running {
    writer: Handle,
    thread: Thread,
    disk: Disk,
    effect_queue: mpsc::UnboundedReceiver<Effect>,
    _folder: tempfile::TempDir,
}

fn workspace() -> WorkspaceKey {
    WorkspaceKey::new("s", "g", "w")
}

fn someone() -> Caller {
    Caller { object_id: "o".into(), name: "n".into() }
}

fn put_cluster(name: &str, nodes_min: u32) -> Input {
    put_cluster_by(someone(), name, nodes_min)
}

fn put_cluster_by(by: Caller, name: &str, nodes_min: u32) -> Input {
    let wanted = ClusterPatch { nodes_min: Some(nodes_min), ..ClusterPatch::default() };
    let wanted = Box::new(ClusterPatch { nodes_max: Some(2), ..wanted });
    Input::PutCluster { workspace: workspace(), name: name.into(), wanted, by }
}

fn report(node: &str) -> Input {
    let report = Report {
        boot_id: "boot".into(),
        address: "here".into(),
        floor: Epoch(0),
        attempts: Vec::new(),
        waiting: Vec::new(),
    };
    Input::Report { node: node.into(), report }
}

fn running() -> Running {
    running_in(tempfile::tempdir().unwrap(), false)
}

fn running_in(folder: tempfile::TempDir, is_check_left: bool) -> Running {
    let (path, disk) = (folder.path().join("muster.db"), Disk::default());
    let its = disk.clone();
    let open_store: OpenStore = Box::new(move || {
        let inner = SqliteStore::open(&path, Durability::None)?;
        Ok((Box::new(OnDisk { inner, disk: its.clone() }) as Box<dyn Store>, is_check_left))
    });
    let (effects, effect_queue) = mpsc::unbounded_channel();
    let live = Arc::new(Live::new(1, Duration::from_secs(40)));
    let catalogue = Arc::new(Catalogue::builtin());
    let started =
        start(open_store, Settings::default(), catalogue, live, effects, disk.on_reserve.clone());
    let (writer, thread) = started.unwrap();
    Running { writer, thread, disk, effect_queue, _folder: folder }
}

/// A server with a workspace and a cluster with one node, which has joined.
async fn with_a_node() -> (Running, String) {
    let mut running = running();
    let workspace = Input::workspace(workspace(), "eastus", someone());
    assert!(running.writer.submit(workspace).await.unwrap().is_ok());
    assert!(running.writer.submit(put_cluster("pool", 1)).await.unwrap().is_ok());
    let action = running.effect_queue.recv().await.unwrap();
    let EffectKind::CreateNode(order) = action.kind else { panic!("{action:?}") };
    let done = Input::EffectDone { effect: action.id, result: Ok(()) };
    assert!(running.writer.submit(done).await.unwrap().is_ok());
    let node = order.name.to_string();
    assert!(running.writer.submit(report(&node)).await.unwrap().is_ok());
    (running, node)
}

#[tokio::test]
async fn on_a_full_disk_changes_are_refused_at_once_and_never_carried_out() {
    let (Running { writer, thread, disk, _folder: _kept, .. }, node) = with_a_node().await;
    disk.is_full.store(true, Relaxed);
    for number in 0..20 {
        let began = Instant::now();
        let refused = writer.submit(put_cluster(&format!("late{number}"), 0)).await;
        assert_eq!(refused, Err(Unavailable::Full), "{number}");
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
    // Known nodes keep their leases; new ones have to try again.
    let renewed = writer.submit(report(&node)).await;
    let Ok(Ok(Reply::Desired(desired))) = renewed else { panic!("{renewed:?}") };
    assert!(!desired.end);
    assert_eq!(writer.submit(report("unknown")).await.map(|_| ()), Err(Unavailable::Full));
    assert!(writer.is_there().await.is_ok(), "questions are answered");

    disk.is_full.store(false, Relaxed);
    let mut tried = 0;
    while writer.submit(put_cluster("later", 0)).await.is_err() {
        tried += 1;
        assert!(tried < 300, "it continues when there is space");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let computes = writer.ask(Lane::Server, |world| world.clusters().len()).await.unwrap();
    assert_eq!(computes, 2, "refused changes were not carried out later");
    let renewed = writer.submit(report(&node)).await;
    assert!(matches!(renewed, Ok(Ok(Reply::Desired(desired))) if !desired.end));
    writer.stop();
    assert!(thread.join().ok().unwrap().is_ok());
}

/// Each poll of each idle node used to be a step and a commit.
#[tokio::test]
async fn reports_with_nothing_new_renew_leases_and_commit_nothing() {
    let (Running { writer, thread, disk, _folder: _kept, .. }, node) = with_a_node().await;
    let renewed = async || {
        let renewals = |world: &World| {
            let nodes = world.nodes().map(|node| world.last_renewal(node.id));
            nodes.collect::<Vec<_>>()
        };
        writer.ask(Lane::Server, renewals).await.unwrap()
    };
    let (commits, mut before) = (disk.commits.load(Relaxed), renewed().await);
    for _ in 0..20 {
        let answer = writer.submit(report(&node)).await;
        assert!(matches!(answer, Ok(Ok(Reply::Desired(desired))) if !desired.end));
        let after = renewed().await;
        assert!(after > before, "the lease is renewed");
        before = after;
    }
    assert_eq!(disk.commits.load(Relaxed), commits);
    // A report of another boot is no renewal.
    let Input::Report { node, report } = report(&node) else { unreachable!() };
    let report = Report { boot_id: "another".into(), ..report };
    assert!(writer.submit(Input::Report { node, report }).await.unwrap().is_ok());
    assert!(disk.commits.load(Relaxed) > commits);
    writer.stop();
    assert!(thread.join().ok().unwrap().is_ok());
}

#[tokio::test]
async fn a_stop_works_while_the_disk_is_full() {
    let Running { writer, thread, disk, _folder: _kept, .. } = with_a_node().await.0;
    disk.is_full.store(true, Relaxed);
    assert_eq!(writer.submit(put_cluster("late", 0)).await.map(|_| ()), Err(Unavailable::Full));
    writer.stop();
    tokio::task::spawn_blocking(move || thread.join().ok().unwrap()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_change_that_is_on_disk_after_all_is_acknowledged() {
    let Running { writer, thread, disk, _folder: _kept, .. } = with_a_node().await.0;
    disk.hides_a_commit.store(true, Relaxed);
    assert!(writer.submit(put_cluster("there", 0)).await.unwrap().is_ok());
    let mut seen = writer.ask(Lane::Server, |world| world.clusters().len()).await;
    while seen.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        seen = writer.ask(Lane::Server, |world| world.clusters().len()).await;
    }
    assert_eq!(seen, Ok(2));
    writer.stop();
    assert!(thread.join().ok().unwrap().is_ok());
}

#[tokio::test]
async fn a_change_that_may_be_on_disk_is_unconfirmed() {
    let Running { writer, thread, disk, _folder: _kept, .. } = with_a_node().await.0;
    disk.hides_a_commit.store(true, Relaxed);
    disk.hides_revisions.store(true, Relaxed);
    assert_eq!(writer.submit(put_cluster("there", 0)).await, Err(Unavailable::Unconfirmed));
    disk.hides_revisions.store(false, Relaxed);
    writer.stop();
    assert!(thread.join().ok().unwrap().is_ok());
}

/// A large store is checked after the server is up; until then it is only read.
#[tokio::test]
async fn a_store_that_was_not_checked_is_not_written_to() {
    let (Running { writer, thread, _folder: folder, .. }, node) = with_a_node().await;
    writer.stop();
    assert!(thread.join().ok().unwrap().is_ok());
    let path = folder.path().join("muster.db");
    let state = || {
        let mut store = SqliteStore::open(&path, Durability::None).unwrap();
        (store.last_claim().unwrap(), store.revision().unwrap())
    };
    let before = state();

    let Running { writer, thread, mut effect_queue, _folder: folder, .. } =
        running_in(folder, true);
    assert!(thread.waits_for_check);
    assert_eq!(writer.submit(put_cluster("early", 1)).await, Err(Unavailable::Unchecked));
    assert_eq!(
        writer.submit(Input::Tick).await,
        Err(Unavailable::Unchecked),
        "nothing is collected"
    );
    let renewed = writer.submit(report(&node)).await;
    let Ok(Ok(Reply::Desired(desired))) = renewed else { panic!("{renewed:?}") };
    assert!(!desired.end, "a known node keeps its lease");
    assert_eq!(writer.submit(report("unknown")).await, Err(Unavailable::Unchecked));
    assert_eq!(
        writer.ask(Lane::Server, |world| world.clusters().len()).await,
        Ok(1),
        "World can be read"
    );
    assert_eq!(state(), before, "the store is not even claimed");
    assert!(effect_queue.try_recv().is_err(), "there are no effects");

    writer.checked();
    assert!(writer.submit(put_cluster("later", 1)).await.unwrap().is_ok());
    assert!(matches!(effect_queue.recv().await.unwrap().kind, EffectKind::CreateNode(_)));
    assert!(state().0 > before.0 && state().1 > before.1);
    assert_eq!(writer.ask(Lane::Server, |world| world.clusters().len()).await, Ok(2));
    writer.stop();
    assert!(thread.join().ok().unwrap().is_ok());

    // A store that turns out to be damaged is left as it is.
    let before = state();
    let Running { writer, thread, _folder: _kept, .. } = running_in(folder, true);
    writer.stop();
    assert!(thread.join().ok().unwrap().is_ok());
    assert_eq!(state(), before);
}

/// All requests used to be in one queue: behind hundreds of requests of one user, another's came last.
#[tokio::test]
async fn a_busy_caller_does_not_keep_others_waiting() {
    let Running { writer, thread, _folder: _kept, .. } = running();
    assert!(
        writer.submit(Input::workspace(workspace(), "eastus", someone())).await.unwrap().is_ok()
    );
    // The writer is busy with this until all requests have arrived.
    let (resume, busy) = std::sync::mpsc::channel::<()>();
    let (entered, is_busy) = oneshot::channel();
    let asking = writer.clone();
    let question = move |_: &World| entered.send(()).is_ok() && busy.recv().is_ok();
    let held = tokio::spawn(async move { asking.ask(Lane::Server, question).await });
    is_busy.await.unwrap();
    let mut answers = Vec::new();
    let mut submit = |object_id: &str, name: String| {
        let by = Caller { object_id: object_id.into(), name: object_id.into() };
        let mut saying = Box::pin(writer.submit(put_cluster_by(by, &name, 0)));
        assert!(saying.as_mut().now_or_never().is_none(), "the request waits from here on");
        answers.push(saying);
    };
    for number in 0..400 {
        submit("noisy", format!("noisy{number}"));
    }
    submit("quiet", "quiet".to_owned());
    resume.send(()).unwrap();
    assert_eq!(held.await.unwrap(), Ok(true));
    for answer in answers {
        assert!(answer.await.unwrap().is_ok());
    }
    let made = |world: &World| -> Vec<String> {
        let mut made: Vec<_> = world.clusters().map(|made| (made.id, made.name.folded())).collect();
        made.sort_unstable();
        made.into_iter().map(|(_, name)| name).collect()
    };
    let made = writer.ask(Lane::Server, made).await.unwrap();
    let noisy: Vec<_> = made.iter().filter(|name| *name != "quiet").cloned().collect();
    assert_eq!(noisy, (0..400).map(|number| format!("noisy{number}")).collect::<Vec<_>>());
    let before = made.iter().position(|name| name == "quiet").unwrap();
    assert!(before <= 1, "{before} requests of the other user were done first");
    writer.stop();
    assert!(thread.join().ok().unwrap().is_ok());
}

#[tokio::test]
async fn on_the_reserve_only_requests_that_end_things_are_accepted() {
    let (running, node) = with_a_node().await;
    running.disk.on_reserve.set(true);
    assert_eq!(running.writer.submit(put_cluster("more", 0)).await, Err(Unavailable::OnReserve));
    assert!(running.writer.submit(report(&node)).await.unwrap().is_ok());
    let delete = Input::DeleteCluster { workspace: workspace(), name: "pool".into() };
    assert!(running.writer.submit(delete).await.unwrap().is_ok());
    running.disk.on_reserve.set(false);
    assert!(running.writer.submit(put_cluster("more", 0)).await.unwrap().is_ok());
}

/// The rest of the batch used to be dropped, and its callers were told that the server was stopping.
#[tokio::test]
async fn an_input_that_cannot_be_looked_up_is_refused_and_the_rest_of_its_batch_is_done() {
    let Running { writer, thread, disk, mut effect_queue, _folder: _kept } = running();
    assert!(
        writer.submit(Input::workspace(workspace(), "eastus", someone())).await.unwrap().is_ok()
    );
    disk.is_unreadable.store(true, Relaxed);
    // The writer is busy with this until all requests have arrived.
    let (resume, busy) = std::sync::mpsc::channel::<()>();
    let (entered, is_busy) = oneshot::channel();
    let asking = writer.clone();
    let question = move |_: &World| entered.send(()).is_ok() && busy.recv().is_ok();
    let held = tokio::spawn(async move { asking.ask(Lane::Server, question).await });
    is_busy.await.unwrap();
    let cancel = || Input::CancelJob { workspace: workspace(), name: "j".into(), known: None };
    let mut inputs = [put_cluster("one", 0), cancel(), put_cluster("two", 1), cancel()].into_iter();
    let mut answers: Vec<_> = inputs.by_ref().map(|input| Box::pin(writer.submit(input))).collect();
    for answer in &mut answers {
        assert!(answer.as_mut().now_or_never().is_none(), "the request waits from here on");
    }
    let mut question = Box::pin(writer.ask(Lane::Anonymous, |world| world.clusters().len()));
    assert!(question.as_mut().now_or_never().is_none());
    resume.send(()).unwrap();
    assert_eq!(held.await.unwrap(), Ok(true));
    let answers = futures_util::future::join_all(answers).await;
    let are_done = answers.iter().map(|it| it.as_ref().map(Result::is_ok).map_err(|why| *why));
    let unreadable = Err(Unavailable::Unreadable);
    assert_eq!(are_done.collect::<Vec<_>>(), [Ok(true), unreadable, Ok(true), unreadable]);
    assert!(question.await.is_ok(), "a question is answered as well");
    // The effect arrives when it is queued, and again when the store is opened again.
    let first = effect_queue.recv().await.unwrap();
    assert!(matches!(first.kind, EffectKind::CreateNode(_)));
    assert_eq!(effect_queue.recv().await.unwrap().id, first.id);
    disk.is_unreadable.store(false, Relaxed);
    let refused = writer.submit(cancel()).await.unwrap().unwrap_err();
    assert_eq!(refused.kind, muster_core::RefusalKind::NotFound);
    writer.stop();
    assert!(thread.join().ok().unwrap().is_ok());
}

/// The question used to be dropped, and its caller was told that the server was stopping.
#[tokio::test]
async fn a_question_is_refused_if_no_rows_can_be_read() {
    let Running { writer, thread, disk, _folder: _kept, .. } = running();
    assert!(
        writer.submit(Input::workspace(workspace(), "eastus", someone())).await.unwrap().is_ok()
    );
    disk.has_no_rows.store(true, Relaxed);
    disk.is_full.store(true, Relaxed);
    assert_eq!(writer.submit(put_cluster("late", 0)).await, Err(Unavailable::Full));
    let asked = writer.ask(Lane::Anonymous, |world| world.clusters().len()).await;
    assert_eq!(asked, Err(Unavailable::Unreadable));
    disk.has_no_rows.store(false, Relaxed);
    disk.is_full.store(false, Relaxed);
    writer.stop();
    assert!(thread.join().ok().unwrap().is_ok());
}
