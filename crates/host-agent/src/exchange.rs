//! The exchange with the server: one report after the other, each answered with what is wanted.
//!
//! At most one report is in flight, and news from this side replaces it. The server replies when there is a new list,
//! or after a while. After errors, reports are spaced out but never stop.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use muster_core::ErrorChain;
use muster_providers::joined::protocol::{HostReport, SyncAnswer};
use reqwest::StatusCode;
use tokio::time::{Instant, sleep_until};

use crate::client::{CallError, Card, Client};

const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The interval between reports that are answered at once with nothing new.
const PACE: Duration = Duration::from_secs(1);

type Call = Pin<Box<dyn Future<Output = Result<SyncAnswer, CallError>> + Send>>;

pub(crate) struct Exchange {
    client: Client,
    card: Card,
    /// Distinguishes this run's reports from those of an earlier one.
    generation: u64,
    /// Reports sent so far. Their numbers start at 1.
    sequence: u64,
    in_flight: Option<InFlight>,
    not_before: Instant,
    pause: Duration,
    /// Whether the current problem has been logged, so that it is logged once and not at every attempt.
    is_in_trouble: bool,
}

struct InFlight {
    report: HostReport,
    began: Instant,
    call: Call,
}

/// The server does not know this host.
#[derive(Debug)]
pub(crate) struct UnknownHost;

impl Exchange {
    pub fn new(client: Client, card: Card, generation: u64) -> Exchange {
        Exchange {
            client,
            card,
            generation,
            sequence: 0,
            in_flight: None,
            not_before: Instant::now(),
            pause: PAUSE_FIRST,
            is_in_trouble: false,
        }
    }

    /// Returns the next reply, and retries until there is one. May be dropped at any time: the next call continues
    /// where it was, unless there is news.
    pub async fn answer(&mut self, report: &HostReport) -> Result<SyncAnswer, UnknownHost> {
        if self.in_flight.as_ref().is_some_and(|in_flight| in_flight.report != *report) {
            self.in_flight = None;
        }
        loop {
            if self.in_flight.is_none() {
                sleep_until(self.not_before).await;
            }
            let in_flight = match &mut self.in_flight {
                Some(in_flight) => in_flight,
                None => {
                    self.sequence += 1;
                    let (client, card) = (self.client.clone(), self.card.clone());
                    let call = client.sync(card, (self.generation, self.sequence), report.clone());
                    let (report, began) = (report.clone(), Instant::now());
                    self.in_flight.insert(InFlight { report, began, call: Box::pin(call) })
                }
            };
            let outcome = in_flight.call.as_mut().await;
            let in_flight = self.in_flight.take().expect("it was awaited just now");
            match outcome {
                Ok(answer) => {
                    self.on_answer(&in_flight, &answer);
                    return Ok(answer);
                }
                Err(CallError::Refused { status: StatusCode::UNAUTHORIZED, .. }) => {
                    return Err(UnknownHost);
                }
                Err(error) => self.on_failure(&error),
            }
        }
    }

    fn on_answer(&mut self, in_flight: &InFlight, answer: &SyncAnswer) {
        if std::mem::take(&mut self.is_in_trouble) {
            tracing::info!("the server responds again");
        }
        self.pause = PAUSE_FIRST;
        let is_old = in_flight.report.following == Some(answer.stamp);
        let is_early = in_flight.began.elapsed() < PACE;
        self.not_before = Instant::now() + if is_old && is_early { PACE } else { Duration::ZERO };
    }

    fn on_failure(&mut self, error: &CallError) {
        if !std::mem::replace(&mut self.is_in_trouble, true) {
            let error = ErrorChain(error);
            tracing::warn!(%error, "no response from the server; retrying, and nodes continue until their leases expire");
        }
        self.not_before = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}
