//! The stream of a workspace's events. Each stream has a task that is woken after a commit and reads the event log with
//! a reader of its own, so a stream never holds up the writer, whatever its client does.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use muster_core::Change;
use muster_core::ids::WorkspaceId;
use muster_core::model::{Action, Caller, Scope, WorkspaceKey};
use muster_core::time::Wall;
use muster_store::{Reader, Revision, StoreError};
use muster_wire::ArmError;
use muster_wire::event::{END, EndDocument, EndReason, EventDocument, Filter};
use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Call, Failed, auth, workspace};
use crate::app::App;
use crate::followers::{Follower, TooMany};

pub const LAST_EVENT_ID: &str = "last-event-id";
/// How many events wait for a client that reads slowly.
const QUEUE: usize = 64;
/// How many entries of the log are read at once.
const PAGE: usize = 512;
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
        Ok(Ok((after, filter(reader, workspace.id, &of)?)))
    });
    let (after, filter) = match read.await? {
        Ok(start) => start,
        Err(range) => return Err(gone(since.unwrap_or_default(), range).into()),
    };
    let (sender, mut receiver) = mpsc::channel(QUEUE + 1);
    // The last event has a place of its own, however slowly the client reads.
    let last = sender.clone().try_reserve_owned().expect("the queue is empty");
    let follow = Follow {
        app: Arc::clone(app),
        caller: call.caller.clone(),
        scope: Scope::workspace(&key),
        filter,
        after,
        sender,
        _follower: follower,
    };
    tokio::spawn(async move {
        let Err(stop) = follow.run(commits).await;
        if let Stop::Ended(end) = stop {
            finish(last, &end);
        }
    });
    let events = stream::poll_fn(move |context| {
        receiver.poll_recv(context).map(|event| event.map(Ok::<_, Infallible>))
    });
    Ok(Sse::new(events).into_response())
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
fn finish(last: OwnedPermit<Event>, end: &EndDocument) {
    if let Ok(event) = Event::default().event(END).json_data(end) {
        last.send(event);
    }
}

fn end(reason: EndReason, message: impl Into<String>) -> EndDocument {
    EndDocument { reason, message: message.into(), floor: None }
}

struct Follow {
    app: Arc<App>,
    caller: Caller,
    scope: Scope,
    filter: Filter,
    after: Revision,
    sender: mpsc::Sender<Event>,
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
            commits.mark_unchanged();
            // A role may have been removed in the meantime.
            if !auth::may(&self.app, &self.caller, Action::Read, &self.scope) {
                let message = "the caller may no longer read this workspace";
                return Err(end(EndReason::Forbidden, message).into());
            }
            let (documents, read) = self.page().await?;
            for document in documents {
                let event = Event::default().event(document.kind.as_str());
                let event = event.id(document.revision.to_string()).json_data(&document);
                self.send(event.expect("documents are plain data")).await?;
                heartbeat_at = Instant::now() + limits.heartbeat;
            }
            if read == PAGE {
                continue;
            }
            tokio::select! {
                // There is no other commit once the sender is gone, because the server has stopped.
                _ = commits.changed() => tokio::time::sleep(PAUSE).await,
                () = tokio::time::sleep_until(heartbeat_at) => {
                    // With its id, so that a client of a quiet workspace does not fall behind the log.
                    let event = Event::default().id(self.after.0.to_string()).comment("heartbeat");
                    self.send(event).await?;
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

    /// The next events of the workspace, and how many entries of the log were read for them.
    async fn page(&mut self) -> Result<(Vec<EventDocument>, usize), Stop> {
        let (after, mut filter) = (self.after, self.filter.clone());
        let read = self.app.readers.read(move |reader| {
            let entries = reader.events(after, PAGE)?;
            let mut documents = Vec::new();
            for entry in &entries {
                let Ok(change) = serde_json::from_str::<Change>(&entry.change) else {
                    tracing::error!(
                        revision = entry.revision.0,
                        "cannot read an entry of the event log"
                    );
                    continue;
                };
                let (revision, wall) = (entry.revision.0, Wall(entry.wall_us));
                let found = filter.document(revision, wall, &change, |id| reader.job_by_id(id))?;
                documents.extend(found);
            }
            let last = entries.last().map_or(after, |entry| entry.revision);
            Ok((documents, entries.len(), last, filter))
        });
        match read.await {
            Ok((documents, read, last, filter)) => {
                (self.after, self.filter) = (last, filter);
                Ok((documents, read))
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

    async fn send(&self, event: Event) -> Result<(), Stop> {
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
