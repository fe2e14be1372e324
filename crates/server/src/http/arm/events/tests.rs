use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::BodyDataStream;
use axum::http::StatusCode;
use futures_util::StreamExt as _;
use muster_core::{Input, WorkspacePatch};
use muster_wire::event::{EventDocument, EventKind, Received, StreamReader};
use muster_wire::job::Dialect;
use muster_wire::{Request, Route};

use super::*;
use crate::Limits;
use crate::followers::{FollowerLimits, Followers};
use crate::run::in_test::InTest;
use crate::state_dir::StateDir;
use crate::tokens::OWNER_KEY_FILE;

const WITHIN: Duration = Duration::from_secs(20);

fn key(name: &str) -> WorkspaceKey {
    WorkspaceKey::new("s", "g", name)
}

struct Bench {
    server: InTest,
    app: Arc<App>,
}

impl Bench {
    async fn open(limits: FollowerLimits) -> Bench {
        let server = InTest::open(Limits::default()).await;
        let mut app = server.app();
        Arc::get_mut(&mut app).expect("not shared yet").followers = Followers::new(limits);
        Bench { server, app }
    }

    fn owner(&self) -> Caller {
        let file = StateDir::new(self.server.folder()).keys().join(OWNER_KEY_FILE);
        let key = std::fs::read_to_string(file).expect("the owner's key");
        let directory = self.app.live.directory();
        let owner = self.app.keyring.authenticate_key(key.trim(), &directory).expect("the owner");
        Caller { object_id: owner.id.into(), name: owner.name.into() }
    }

    /// Two entries of the log: the workspace, and the first time also its user.
    async fn make(&self, name: &str) {
        let input = Input::workspace(key(name), "eastus", self.owner());
        self.app.writer.submit(input).await.expect("written").expect("accepted");
    }

    async fn tag(&self, name: &str, times: usize) {
        for time in 0..times {
            let tags = BTreeMap::from([("time".to_owned(), time.to_string())]);
            let wanted = Box::new(WorkspacePatch { tags: Some(tags), ..Default::default() });
            let input = Input::PutWorkspace { key: key(name), wanted, by: self.owner() };
            self.app.writer.submit(input).await.expect("written").expect("accepted");
        }
    }

    fn last(&self) -> u64 {
        self.app.readers.look_up(|reader| reader.event_range()).expect("rows").1.0
    }

    async fn try_follow(
        &self,
        caller: Caller,
        name: &str,
        since: Option<u64>,
        last_event: Option<u64>,
    ) -> Result<Stream, ArmError> {
        let path = Route::Events(key(name)).path().expect("a path");
        let query = since.map(|since| format!("since={since}"));
        let request = Request::parse(&path, query.as_deref()).expect("a request");
        let call = Call {
            app: Arc::clone(&self.app),
            caller,
            query: request.query,
            body: axum::body::Bytes::new(),
            dialect: Dialect::of(""),
            activity_request: None,
            is_recorded: <_>::default(),
            run: None,
            last_event: last_event.map(|id| id.to_string().into()),
        };
        let response = follow(&call, key(name)).await.map_err(|Failed(error)| error)?;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], muster_wire::event::MEDIA_TYPE);
        let body = response.into_body().into_data_stream();
        Ok(Stream { body, reader: StreamReader::default(), found: Vec::new() })
    }

    async fn follow(&self, name: &str, since: Option<u64>) -> Stream {
        self.try_follow(self.owner(), name, since, None).await.expect("a stream")
    }
}

struct Stream {
    body: BodyDataStream,
    reader: StreamReader,
    found: Vec<Received>,
}

impl Stream {
    /// The next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Received> {
        while self.found.is_empty() {
            let piece = tokio::time::timeout(WITHIN, self.body.next()).await.expect("in time")?;
            self.found = self.reader.take(&piece.expect("a piece")).expect("an event stream");
        }
        Some(self.found.remove(0))
    }

    async fn event(&mut self) -> EventDocument {
        match self.next().await {
            Some(Received::Happened(document)) => document,
            other => panic!("{other:?}"),
        }
    }

    async fn end(&mut self) -> EndDocument {
        loop {
            match self.next().await {
                Some(Received::Ended(end)) => {
                    assert_eq!(self.next().await, None, "nothing follows the last event");
                    return end;
                }
                Some(Received::Happened(_)) => {}
                None => panic!("the stream ended without a last event"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_sees_its_own_workspace_and_resumes_where_it_stopped() {
    let bench = Bench::open(FollowerLimits::default()).await;
    bench.make("mine").await;
    let mut stream = bench.follow("mine", None).await;
    bench.make("other").await;
    bench.tag("mine", 2).await;
    let first = stream.event().await;
    assert_eq!(
        (first.kind, &*first.name, &*first.status),
        (EventKind::Workspace, "mine", "Succeeded")
    );
    assert!(stream.reader.last_id >= Some(first.revision), "both may have come in one piece");
    let second = stream.event().await;
    assert!(second.revision > first.revision);
    drop(stream);
    // Both ways to resume give exactly what came after.
    bench.tag("mine", 1).await;
    let owner = bench.owner();
    let mut again = bench.follow("mine", Some(first.revision)).await;
    assert_eq!(again.event().await, second);
    let third = again.event().await;
    let resumed = bench.try_follow(owner, "mine", Some(0), Some(second.revision)).await;
    assert_eq!(resumed.expect("the header counts").event().await, third);
    drop(bench.server);
}

/// Every follower used to read the log after each commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_a_workspace_read_the_log_once_for_all_of_them() {
    const FOLLOWERS: usize = 20;
    let bench = Bench::open(FollowerLimits::default()).await;
    bench.make("mine").await;
    let mut streams = Vec::new();
    for _ in 0..FOLLOWERS {
        streams.push(bench.follow("mine", None).await);
    }
    let before = bench.last();
    let commits = 10;
    bench.tag("mine", commits).await;
    // A later one gets the same, from before it began to follow.
    streams.push(bench.follow("mine", Some(before)).await);
    for stream in &mut streams {
        let mut seen = before;
        for _ in 0..commits {
            let event = stream.event().await;
            assert!(event.revision > seen);
            seen = event.revision;
        }
        assert_eq!(seen, bench.last());
    }
    let workspace = bench.app.readers.look_up(|reader| reader.workspace(&key("mine")));
    let id = workspace.expect("rows").expect("it exists").id;
    let filter = Filter::new(id, [].into_iter());
    let feed = bench.app.feeds.join(id, Revision(0), filter);
    let reads = feed.reads().await;
    // One at the beginning, and at most one for each commit.
    assert!(reads <= commits + 1, "{reads} reads for {commits} commits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revision_that_the_log_does_not_have_is_gone() {
    let bench = Bench::open(FollowerLimits::default()).await;
    bench.make("mine").await;
    // The server of these tests keeps 100 entries.
    bench.tag("mine", 150).await;
    let (owner, last) = (bench.owner(), bench.last());
    let gone = bench.try_follow(owner.clone(), "mine", Some(1), None).await.err().expect("gone");
    assert_eq!(gone.status, 410);
    let floor = (last - 100).to_string();
    assert!(gone.to_string().contains(&floor), "{gone} names the floor {floor}");
    let ahead = bench.try_follow(owner, "mine", Some(last + 1), None).await.err().expect("gone");
    assert_eq!(ahead.status, 410, "it is from before a backup was restored");
    bench.follow("mine", Some(last - 100)).await.event().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_without_the_right_sees_nothing() {
    let bench = Bench::open(FollowerLimits::default()).await;
    bench.make("mine").await;
    let stranger = Caller { object_id: "5742".into(), name: "Stranger".into() };
    let mut stream = bench.try_follow(stranger, "mine", Some(0), None).await.expect("a stream");
    let Some(Received::Ended(end)) = stream.next().await else { panic!("an event was sent") };
    assert_eq!(end.reason, EndReason::Forbidden);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_are_limited_and_make_room_when_they_leave() {
    let limits = FollowerLimits { per_user: 1, ..FollowerLimits::default() };
    let bench = Bench::open(limits).await;
    bench.make("mine").await;
    let stream = bench.follow("mine", None).await;
    let refused = bench.try_follow(bench.owner(), "mine", None, None).await.err().expect("refused");
    assert_eq!(refused.status, 429);
    assert!(refused.to_string().contains("1 streams"), "{refused}");
    drop(stream);
    let room = async {
        while bench.try_follow(bench.owner(), "mine", None, None).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WITHIN, room).await.expect("the place is free again");
    let bench = Bench::open(FollowerLimits { all: 0, ..limits }).await;
    let refused = bench.try_follow(bench.owner(), "mine", None, None).await.err().expect("refused");
    assert_eq!(refused.status, 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_dropped_and_told_to_resume_while_the_writer_goes_on() {
    let patience = Duration::from_millis(100);
    let bench = Bench::open(FollowerLimits { patience, ..FollowerLimits::default() }).await;
    bench.make("mine").await;
    let mut stream = bench.follow("mine", None).await;
    // It reads nothing meanwhile, and the writer does not wait for it.
    bench.tag("mine", 90).await;
    tokio::time::sleep(patience * 5).await;
    let end = stream.end().await;
    assert_eq!(end.reason, EndReason::Slow);
    let seen = stream.reader.last_id.expect("some events were sent");
    assert!(seen < bench.last());
    let next = bench.follow("mine", Some(seen)).await.event().await;
    assert!(next.revision > seen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_move_the_position_and_a_long_stream_is_renewed() {
    let limits = FollowerLimits {
        heartbeat: Duration::from_millis(20),
        lifetime: Duration::from_millis(600),
        ..FollowerLimits::default()
    };
    let bench = Bench::open(limits).await;
    bench.make("mine").await;
    let mut stream = bench.follow("mine", None).await;
    bench.make("other").await;
    assert_eq!(stream.end().await.reason, EndReason::Resume);
    assert_eq!(stream.reader.last_id, Some(bench.last()), "past the events of other workspaces");
}
