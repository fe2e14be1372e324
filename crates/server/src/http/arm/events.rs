//! The stream of a workspace's events. Each stream has a task that is woken after a commit and takes the new events from
//! the feed of the workspace, so a stream never holds up the writer or other streams, whatever its client does.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use muster_core::ids::WorkspaceId;
use muster_core::model::{Action, Caller, Scope, WorkspaceKey};
use muster_store::{Reader, Revision, StoreError};
use muster_wire::ArmError;
use muster_wire::event::{END, EndDocument, EndReason, Filter, MEDIA_TYPE};
use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Call, Failed, auth, workspace};
use crate::app::App;
use crate::feeds::{self, Feed, Next, PAGE, Page};
use crate::followers::{Follower, TooMany};

pub const LAST_EVENT_ID: &str = "last-event-id";
/// How many events wait for a client that reads slowly.
const QUEUE: usize = 64;
/// Commits within this time are read together.
const PAUSE: Duration = Duration::from_millis(20);

pub async fn follow(call: &Call, key: WorkspaceKey) -> Result<Response, Failed> {
    let since = match call.last_event.as_deref().or(call.query.get("since")) {
        Some(text) => Some(revision(text)?),
        None => None,
    };
    let app = &call.app;
    let follower = app.followers.admit(&call.caller.object_id).map_err(refusal)?;
    // Following is not a use that creates a workspace.
    let workspace = app.readers.look_up(|reader| reader.workspace(&key))?;
    let workspace = workspace.ok_or_else(|| workspace::no_such(&key))?;
    // Subscribed before the log is read, so that no commit is missed in between.
    let commits = app.live.commits();
    let of = key.clone();
    let read = app.readers.read(move |reader| {
        let (floor, last) = reader.event_range()?;
        let after = since.unwrap_or(last);
        if after < floor || after > last {
            return Ok(Err((floor, last)));
        }
        Ok(Ok((after, last, filter(reader, workspace.id, &of)?)))
    });
    let (after, last, filter) = match read.await? {
        Ok(start) => start,
        Err(range) => return Err(gone(since.unwrap_or_default(), range).into()),
    };
    let (sender, mut receiver) = mpsc::channel(QUEUE + 1);
    // The last event has a place of its own, however slowly the client reads.
    let ending = sender.clone().try_reserve_owned().expect("the queue is empty");
    let follow = Follow {
        app: Arc::clone(app),
        caller: call.caller.clone(),
        scope: Scope::workspace(&key),
        feed: app.feeds.join(workspace.id, last, filter),
        own_filter: None,
        after,
        sender,
        _follower: follower,
    };
    tokio::spawn(async move {
        let Err(stop) = follow.run(commits).await;
        if let Stop::Ended(end) = stop {
            finish(ending, &end);
        }
    });
    let pieces = stream::poll_fn(move |context| {
        let mut events = Vec::new();
        let received = receiver.poll_recv_many(context, &mut events, QUEUE + 1);
        received.map(|_| joined(&events).map(Ok::<_, Infallible>))
    });
    let headers = [(CONTENT_TYPE, MEDIA_TYPE), (CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// Everything that waits is sent together, because each piece costs a record of TLS. `None` ends the stream.
fn joined(events: &[Bytes]) -> Option<Bytes> {
    match events {
        [] => None,
        [event] => Some(event.clone()),
        more => Some(more.concat().into()),
    }
}

fn revision(text: &str) -> Result<Revision, ArmError> {
    let message =
        || format!("'{text}' is not a revision; give the id of the last event, or leave it out");
    text.parse().map(Revision).map_err(|_| ArmError::invalid_property("since", message()))
}

fn refusal(many: TooMany) -> ArmError {
    match many {
        TooMany::OfUser(most) => ArmError::too_many(format!(
            "this user follows {most} streams of events already, the most that one user may; close one of them"
        )),
        TooMany::OfAll(most) => ArmError::unavailable(format!(
            "{most} streams of events are open, the most that the server serves; try again later"
        )),
    }
}

/// A revision above the last one is from before a backup was restored.
fn gone(since: Revision, (floor, last): (Revision, Revision)) -> ArmError {
    let (since, floor, last) = (since.0, floor.0, last.0);
    ArmError::gone(
        "since",
        format!(
            "the event log has the events after revision {floor}, up to {last}, and those after {since} were requested; \
             read the current state, and follow from a revision between {floor} and {last}, or without one from now on"
        ),
    )
}

fn filter(
    reader: &mut dyn Reader,
    workspace: WorkspaceId,
    key: &WorkspaceKey,
) -> Result<Filter, StoreError> {
    let (mut clusters, mut after) = (Vec::new(), None);
    loop {
        let page = reader.clusters(key, after.as_deref(), PAGE)?;
        clusters.extend(page.items.into_iter().map(|view| view.cluster));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(Filter::new(workspace, clusters.iter())),
        }
    }
}

/// The last event tells the client how to go on. It is not sent to a client that has left.
fn finish(last: OwnedPermit<Bytes>, end: &EndDocument) {
    if let Ok(data) = serde_json::to_string(end) {
        last.send(format!("event: {END}\ndata: {data}\n\n").into());
    }
}

fn end(reason: EndReason, message: impl Into<String>) -> EndDocument {
    EndDocument { reason, message: message.into(), floor: None }
}

struct Follow {
    app: Arc<App>,
    caller: Caller,
    scope: Scope,
    feed: Arc<Feed>,
    /// Set while the feed no longer has the next events, so that they are read from the log.
    own_filter: Option<Filter>,
    after: Revision,
    sender: mpsc::Sender<Bytes>,
    _follower: Follower,
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // This fails when the server is gone.
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
}

/// Why a stream ends.
enum Stop {
    /// The client has closed it.
    Left,
    Ended(EndDocument),
}

impl From<EndDocument> for Stop {
    fn from(end: EndDocument) -> Stop {
        Stop::Ended(end)
    }
}

impl Follow {
    async fn run(mut self, mut commits: watch::Receiver<u64>) -> Result<Infallible, Stop> {
        let limits = self.app.followers.limits;
        let mut stopping = self.app.stopping.clone();
        let until = Instant::now() + limits.lifetime;
        let mut heartbeat_at = Instant::now() + limits.heartbeat;
        loop {
            let commit = *commits.borrow_and_update();
            // A role may have been removed in the meantime.
            if !auth::may(&self.app, &self.caller, Action::Read, &self.scope) {
                let message = "the caller may no longer read this workspace";
                return Err(end(EndReason::Forbidden, message).into());
            }
            let page = self.page(commit).await?;
            for event in page.events {
                self.send(event.text).await?;
                heartbeat_at = Instant::now() + limits.heartbeat;
            }
            if page.is_full {
                continue;
            }
            tokio::select! {
                // There is no other commit once the sender is gone, because the server has stopped.
                _ = commits.changed() => tokio::time::sleep(PAUSE).await,
                () = tokio::time::sleep_until(heartbeat_at) => {
                    // With its id, so that a client of a quiet workspace does not fall behind the log.
                    let event = format!("id: {}\n: heartbeat\n\n", self.after.0);
                    self.send(event.into()).await?;
                    heartbeat_at = Instant::now() + limits.heartbeat;
                }
                () = tokio::time::sleep_until(until) => {
                    return Err(end(EndReason::Resume, "follow again from the last event").into());
                }
                () = stopped(&mut stopping) => {
                    return Err(end(EndReason::Resume, "the server is stopping").into());
                }
                () = self.sender.closed() => return Err(Stop::Left),
            }
        }
    }

    /// The next events of the workspace.
    async fn page(&mut self, commit: u64) -> Result<Page, Stop> {
        match self.read(commit).await {
            Ok(page) => {
                self.after = page.last;
                Ok(page)
            }
            Err(StoreError::EventsPruned { floor, .. }) => {
                let message = "the next events were deleted; read the current state, and follow from the floor or later";
                let end = end(EndReason::Pruned, message);
                Err(EndDocument { floor: Some(floor), ..end }.into())
            }
            Err(failed) => {
                tracing::error!(error = %muster_core::ErrorChain(&failed), "cannot read the event log");
                let message = "the server cannot read its store; follow again from the last event";
                Err(end(EndReason::Resume, message).into())
            }
        }
    }

    async fn read(&mut self, commit: u64) -> Result<Page, StoreError> {
        let behind = match self.feed.after(&self.app.readers, self.after, commit).await? {
            Next::Page(page) => {
                self.own_filter = None;
                return Ok(page);
            }
            Next::Behind(filter) => filter,
        };
        let (after, filter) = (self.after, self.own_filter.take().unwrap_or(behind));
        let read = self.app.readers.read(move |reader| feeds::read_page(reader, after, filter));
        let (page, filter) = read.await?;
        self.own_filter = Some(filter);
        // The feed may have more.
        Ok(Page { is_full: true, ..page })
    }

    async fn send(&self, event: Bytes) -> Result<(), Stop> {
        match self.sender.send_timeout(event, self.app.followers.limits.patience).await {
            Ok(()) => Ok(()),
            Err(SendTimeoutError::Closed(_)) => Err(Stop::Left),
            Err(SendTimeoutError::Timeout(_)) => {
                let message = "events happened faster than the client read them; follow again from the last event";
                Err(end(EndReason::Slow, message).into())
            }
        }
    }
}

#[cfg(test)]
mod tests;
