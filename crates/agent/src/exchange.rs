//! The conversation with the server: one report after the other, each answered by what is desired.
//!
//! At most one report is under way. News from this side replace it; trouble spaces reports out, and
//! so does a server that answers at once without anything coming of it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::agent::{Desired, Report};
use muster_core::time::Elapsed;
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::client::{CallError, Client, SYNC_WAIT};
use crate::clock;

/// An answer that comes this much before its time was not a wait that ran out.
const EARLY: Duration = Duration::from_secs(1);

type Call = Pin<Box<dyn Future<Output = Result<Desired, CallError>> + Send>>;

pub(crate) struct Exchange {
    client: Client,
    /// Reports sent so far; their numbers start at 1.
    sequence: u64,
    in_flight: Option<InFlight>,
    not_before: Instant,
    failures: Backoff,
    /// What went wrong last, until something goes well: said once, not at every try.
    trouble: Option<&'static str>,
    pace: Backoff,
    /// The last report, if its answer came at once.
    answered_early: Option<Report>,
}

struct InFlight {
    report: Report,
    sent_at: Elapsed,
    began: Instant,
    call: Call,
}

pub(crate) struct Answer {
    pub(crate) desired: Desired,
    pub(crate) sequence: u64,
    pub(crate) sent_at: Elapsed,
}

impl Exchange {
    pub(crate) fn new(client: Client) -> Exchange {
        Exchange {
            client,
            sequence: 0,
            in_flight: None,
            not_before: Instant::now(),
            failures: Backoff::new(Duration::from_millis(100), Duration::from_secs(5)),
            trouble: None,
            pace: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
            answered_early: None,
        }
    }

    /// The next answer; tries for ever. May be dropped at any time: the next call goes on where it
    /// was.
    pub(crate) async fn answer(&mut self, report: &Report) -> Answer {
        loop {
            if self.in_flight.is_none() {
                sleep_until(self.not_before).await;
            }
            let in_flight = match &mut self.in_flight {
                Some(in_flight) => in_flight,
                None => {
                    self.sequence += 1;
                    let call = self.client.clone().sync(self.sequence, report.clone());
                    self.in_flight.insert(InFlight {
                        report: report.clone(),
                        sent_at: clock::now(),
                        began: Instant::now(),
                        call: Box::pin(call),
                    })
                }
            };
            let outcome = in_flight.call.as_mut().await;
            let in_flight = self.in_flight.take().expect("it was awaited just now");
            match outcome {
                Ok(desired) => return self.on_answer(in_flight, desired),
                Err(error) => self.on_failure(&error),
            }
        }
    }

    /// What the server would hear now has changed, perhaps: if so, it hears it at once.
    pub(crate) fn refresh(&mut self, report: &Report) {
        if self.in_flight.as_ref().is_some_and(|in_flight| in_flight.report != *report) {
            self.in_flight = None;
        }
        if self.answered_early.as_ref().is_some_and(|answered| answered != report) {
            self.answered_early = None;
            self.pace.reset();
            self.not_before = Instant::now();
        }
    }

    /// After an answer has been acted on: if it came at once and changed nothing, asking again at
    /// once would only turn in circles.
    pub(crate) fn settle(&mut self, report: &Report) {
        self.refresh(report);
        if self.answered_early.is_some() {
            self.not_before = Instant::now() + self.pace.grow();
        }
    }

    fn on_answer(&mut self, in_flight: InFlight, desired: Desired) -> Answer {
        if self.trouble.take().is_some() {
            tracing::info!("the server answers again");
        }
        self.failures.reset();
        self.not_before = Instant::now();
        let is_early = in_flight.began.elapsed() + EARLY < SYNC_WAIT;
        self.answered_early = is_early.then_some(in_flight.report);
        if !is_early {
            self.pace.reset();
        }
        Answer { desired, sequence: self.sequence, sent_at: in_flight.sent_at }
    }

    fn on_failure(&mut self, error: &CallError) {
        let trouble = match error {
            CallError::NotWanted { .. } => "the server does not want this node",
            CallError::Unreachable(_) => "the server is not reachable",
            CallError::Superseded
            | CallError::NotFound
            | CallError::Refused { .. }
            | CallError::Status { .. }
            | CallError::BadAnswer(_)
            | CallError::OtherReport { .. } => "the server does not answer as it should",
        };
        if self.trouble.replace(trouble) != Some(trouble) {
            let error = ErrorChain(error);
            tracing::warn!(%error, "{trouble}; trying again until the lease is over");
        }
        self.answered_early = None;
        self.not_before = Instant::now() + self.failures.grow();
    }
}
