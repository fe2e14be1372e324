//! Learning of changes from the server's stream of events, with polling where there is no stream: an older server, or
//! one with too many followers. It prints nothing and never fails, because the caller reads the state itself.

use std::time::Duration;

use muster_core::model::WorkspaceKey;
use muster_wire::Route;
use muster_wire::event::{EventDocument, Received, StreamReader};
use reqwest::{Response, header};
use tokio::time::Instant;

use super::Client;

/// A stream ends earlier by itself.
const LASTS_AT_MOST: Duration = Duration::from_secs(3_600);
/// The server gives a sign of life every 15 seconds.
const SILENT_AT_MOST: Duration = Duration::from_secs(45);
/// The time until a stream that was refused is requested again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// In a busy workspace, events within this time are taken together.
const GAP: Duration = Duration::from_millis(200);

/// What happens in a workspace.
pub struct Changes<'a> {
    client: &'a Client,
    workspace: WorkspaceKey,
    stream: Option<(Response, StreamReader)>,
    /// The last event of the previous stream.
    last_id: Option<u64>,
    again_at: Instant,
    /// When the last change was reported to the caller.
    reported_at: Option<Instant>,
}

impl Client {
    /// Events from now on: open this first, and then read the state, so that no change is missed in between.
    pub async fn changes(&self, workspace: WorkspaceKey) -> Changes<'_> {
        let mut changes = Changes {
            client: self,
            workspace,
            stream: None,
            last_id: None,
            again_at: Instant::now(),
            reported_at: None,
        };
        changes.open().await;
        changes
    }
}

impl Changes<'_> {
    /// Returns true once something of interest may have happened, and false if nothing has after `at_most`. Without a
    /// stream, it is not known, so it returns true after `polling`.
    pub async fn wait(
        &mut self,
        is_of_interest: impl Fn(&EventDocument) -> bool,
        at_most: Duration,
        polling: Duration,
    ) -> bool {
        let until = Instant::now() + at_most;
        loop {
            if self.stream.is_none() {
                if Instant::now() < self.again_at {
                    tokio::time::sleep(polling.min(at_most)).await;
                    return true;
                }
                self.open().await;
                // Changes since the previous stream may have been missed.
                return true;
            }
            match tokio::time::timeout_at(until, self.next()).await {
                Err(_) => return false,
                Ok(found) if found.iter().any(&is_of_interest) => break,
                Ok(_) => {}
            }
        }
        if let Some(reported_at) = self.reported_at {
            let together = async {
                while self.stream.is_some() {
                    self.next().await;
                }
            };
            let _ = tokio::time::timeout_at(reported_at + GAP, together).await;
        }
        self.reported_at = Some(Instant::now());
        true
    }

    /// The next events. It can be cancelled without losing any. A stream that ends or breaks is closed.
    async fn next(&mut self) -> Vec<EventDocument> {
        let Some((response, reader)) = &mut self.stream else { return Vec::new() };
        let piece = tokio::time::timeout(SILENT_AT_MOST, response.chunk()).await;
        let Ok(Ok(Some(piece))) = piece else {
            self.close();
            return Vec::new();
        };
        let Some(received) = reader.take(&piece) else {
            self.close();
            return Vec::new();
        };
        let mut found = Vec::new();
        for event in received {
            match event {
                Received::Happened(document) => found.push(document),
                Received::Ended(_) => self.close(),
            }
        }
        found
    }

    fn close(&mut self) {
        if let Some((_, reader)) = self.stream.take() {
            self.last_id = reader.last_id.or(self.last_id);
        }
    }

    async fn open(&mut self) {
        self.again_at = Instant::now() + AGAIN_AFTER;
        let since = self.last_id.take().map(|id| id.to_string());
        let query: Vec<_> = since.iter().map(|id| ("since", id.as_str())).collect();
        let url = self.client.url(&Route::Events(self.workspace.clone()), &query);
        let token = self.client.token.borrow().clone();
        let request = self.client.http.get(url).header(header::AUTHORIZATION, token);
        let answer = request.timeout(LASTS_AT_MOST).send().await;
        self.stream = answer
            .ok()
            .filter(|answer| answer.status().is_success())
            .map(|answer| (answer, StreamReader::default()));
    }
}
