//! The exchange with the server: one report after the other, each answered with the desired state.
//!
//! One report waits for its reply. If something changes on this side, a new report replaces it; the server then replies
//! to the older one at once, without a reader, which frees its connection. The news that a job is starting can wait a
//! moment, in case more follows. The news that a job has ended cannot wait, because the next one needs its place.
//! While a node works on a batch of short tasks, the end of one of them can wait as well, because the next one has its
//! place already. Reports are spaced out after errors, and when a server replies at once without any effect.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::agent::{AttemptPhase, AttemptReport, EpochRange, Report, SyncAnswer};
use muster_core::ids::Epoch;
use muster_core::time::Elapsed;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::client::{CallError, Client, SYNC_WAIT};
use crate::clock;
use crate::meter::Meter;

/// How long news that can wait is held back.
const HELD_BACK: Duration = Duration::from_millis(25);
/// The same for the ends of tasks whose places are taken by the next ones of their batches.
const BATCHED: Duration = Duration::from_millis(100);
/// A reply that comes this much early did not result from a timeout.
const EARLY: Duration = Duration::from_secs(1);

/// The most replaced reports. Requests beyond this number are aborted if the server does not reply to them.
const REPLACED_MAX: usize = 4;

type Call = Pin<Box<dyn Future<Output = Result<SyncAnswer, CallError>> + Send>>;

pub(crate) struct Exchange {
    client: Client,
    meter: Arc<Meter>,
    /// Reports sent so far. Their numbers start at 1.
    sequence: u64,
    in_flight: Option<InFlight>,
    replaced: JoinSet<()>,
    /// When the report in flight is replaced, if there is news that can wait.
    replace_at: Option<Instant>,
    not_before: Instant,
    failures: Backoff,
    /// The last problem, until something succeeds, so that it is logged once and not at every attempt.
    trouble: Option<&'static str>,
    pace: Backoff,
    /// The last report, if its reply came at once.
    answered_early: Option<Report>,
    /// The last report that was answered, and when it was sent.
    answered: Option<(Report, Instant)>,
}

struct InFlight {
    report: Report,
    sent_at: Elapsed,
    began: Instant,
    call: Call,
}

pub(crate) struct ReceivedReply {
    pub(crate) wanted: SyncAnswer,
    pub(crate) sequence: u64,
    pub(crate) sent_at: Elapsed,
}

impl Exchange {
    pub(crate) fn new(client: Client, meter: Arc<Meter>) -> Exchange {
        Exchange {
            client,
            meter,
            sequence: 0,
            in_flight: None,
            replaced: JoinSet::new(),
            replace_at: None,
            not_before: Instant::now(),
            failures: Backoff::new(Duration::from_millis(100), Duration::from_secs(5)),
            trouble: None,
            pace: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
            answered_early: None,
            answered: None,
        }
    }

    /// Returns the next reply, and retries until there is one. May be dropped at any time: the next call continues
    /// where it was.
    pub(crate) async fn answer(
        &mut self,
        report: &Report,
        logs: &BTreeMap<Epoch, String>,
    ) -> ReceivedReply {
        loop {
            if self.in_flight.is_none() {
                sleep_until(self.not_before).await;
            }
            let in_flight = match &mut self.in_flight {
                Some(in_flight) => in_flight,
                None => {
                    self.sequence += 1;
                    self.replace_at = None;
                    let call = self.client.clone();
                    let call =
                        call.sync(self.sequence, report.clone(), self.meter.take(), logs.clone());
                    self.in_flight.insert(InFlight {
                        report: report.clone(),
                        sent_at: clock::now(),
                        began: Instant::now(),
                        call: Box::pin(call),
                    })
                }
            };
            let held_back = self.replace_at;
            let outcome = tokio::select! {
                outcome = in_flight.call.as_mut() => outcome,
                () = sleep_until(held_back.unwrap_or(in_flight.began)), if held_back.is_some() => {
                    self.replace();
                    continue;
                }
            };
            let in_flight = self.in_flight.take().expect("it was awaited just now");
            match outcome {
                Ok(wanted) => return self.on_answer(in_flight, wanted),
                Err(error) => self.on_failure(&error),
            }
        }
    }

    /// Sends a new report if its content has changed.
    pub(crate) fn refresh(&mut self, report: &Report) {
        if let Some(in_flight) = &self.in_flight
            && in_flight.report != *report
        {
            match can_wait(&in_flight.report, report) {
                Some(time) => {
                    self.replace_at.get_or_insert_with(|| Instant::now() + time);
                }
                None => self.replace(),
            }
        }
        if self.in_flight.is_none()
            && let Some((answered, _)) = &self.answered
            && can_wait(answered, report).is_none()
        {
            self.answered = None;
            self.not_before = Instant::now();
        }
        if self.answered_early.as_ref().is_some_and(|answered| answered != report) {
            self.answered_early = None;
            self.pace.reset();
            self.not_before = Instant::now();
        }
    }

    fn replace(&mut self) {
        let Some(replaced) = self.in_flight.take() else { return };
        while self.replaced.try_join_next().is_some() {}
        if self.replaced.len() >= REPLACED_MAX {
            self.replaced.abort_all();
        }
        self.replaced.spawn(async { drop(replaced.call.await) });
    }

    /// To be called after a reply has been handled. If it came at once and changed nothing, requesting again at once
    /// would only loop.
    pub(crate) fn settle(&mut self, report: &Report) {
        self.refresh(report);
        if self.answered_early.is_some() {
            self.not_before = Instant::now() + self.pace.grow();
        } else if let Some((_, sent_at)) = &self.answered
            && is_in_batch(report)
        {
            // The server has nothing to say about these before they are finished.
            self.not_before = *sent_at + BATCHED;
        }
    }

    fn on_answer(&mut self, in_flight: InFlight, wanted: SyncAnswer) -> ReceivedReply {
        if self.trouble.take().is_some() {
            tracing::info!("the server responds again");
        }
        self.failures.reset();
        self.not_before = Instant::now();
        let is_early = in_flight.began.elapsed() + EARLY < SYNC_WAIT;
        self.answered = Some((in_flight.report.clone(), in_flight.began));
        self.answered_early = is_early.then_some(in_flight.report);
        if !is_early {
            self.pace.reset();
        }
        ReceivedReply { wanted, sequence: self.sequence, sent_at: in_flight.sent_at }
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
            | CallError::OtherReport { .. } => "the server sends invalid responses",
        };
        if self.trouble.replace(trouble) != Some(trouble) {
            let error = ErrorChain(error);
            tracing::warn!(%error, "{trouble}; retrying until the lease expires");
        }
        self.answered_early = None;
        self.answered = None;
        self.not_before = Instant::now() + self.failures.grow();
    }
}

/// How long the news in this report can wait, if they can: that jobs are starting, and that tasks have ended whose places
/// are taken by the next ones of their batches.
fn can_wait(said: &Report, report: &Report) -> Option<Duration> {
    let mut time = HELD_BACK;
    for attempt in &report.attempts {
        match attempt.phase {
            _ if said.attempts.contains(attempt) => {}
            AttemptPhase::Preparing | AttemptPhase::Running => {}
            AttemptPhase::Ended(_) if has_successor(report, attempt) => time = BATCHED,
            AttemptPhase::Ended(_) | AttemptPhase::Ready | AttemptPhase::Evicting => return None,
        }
    }
    // It returns tasks, which others may be waiting for.
    let is_returned = |range: &EpochRange| {
        let last = range.last;
        !report.is_waiting(last) && report.attempt(last).is_none()
    };
    (!said.waiting.iter().any(is_returned)).then_some(time)
}

/// Whether the next task of a batch has the place of one that has ended.
fn has_successor(report: &Report, attempt: &AttemptReport) -> bool {
    let next = Epoch(attempt.epoch.0 + 1);
    attempt.held.is_some() && report.attempt(next).is_some()
}

/// Whether each place of the node where something runs is one of a batch with more to do.
fn is_in_batch(report: &Report) -> bool {
    let mut live = report
        .attempts
        .iter()
        .filter(|attempt| !matches!(attempt.phase, AttemptPhase::Ended(_)))
        .peekable();
    live.peek().is_some() && live.all(|attempt| report.is_waiting(Epoch(attempt.epoch.0 + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::model::Exit;

    fn report(phases: &[AttemptPhase]) -> Report {
        let attempts =
            (1..).zip(phases).map(|(epoch, phase)| AttemptReport::new(Epoch(epoch), phase.clone()));
        let attempts = attempts.collect();
        Report {
            boot_id: "boot".into(),
            address: "here".into(),
            floor: Epoch(9),
            attempts,
            waiting: Vec::new(),
        }
    }

    #[test]
    fn urgent_news_is_sent_at_once() {
        use AttemptPhase::{Ended, Evicting, Preparing, Ready, Running};
        let over = Ended(Exit::Code(0));
        let said = report(&[Preparing, over.clone()]);
        for phase in [Preparing, Running] {
            let report = report(&[phase.clone(), over.clone()]);
            assert_eq!(can_wait(&said, &report), Some(HELD_BACK), "{phase:?}");
        }
        assert!(can_wait(&said, &report(&[Preparing])).is_some(), "forgotten");
        for phase in [Ready, Evicting, over.clone(), Ended(Exit::Code(1))] {
            let report = report(&[phase.clone(), over.clone()]);
            assert_eq!(can_wait(&said, &report), None, "{phase:?}");
        }
        assert_eq!(can_wait(&said, &report(&[Preparing, Ended(Exit::Code(1))])), None);
    }

    #[test]
    fn the_end_of_a_task_waits_if_the_next_one_has_its_place() {
        use AttemptPhase::{Ended, Running};
        let said = Report {
            waiting: vec![EpochRange { first: Epoch(2), last: Epoch(4) }],
            ..report(&[Running])
        };
        let over = || Ended(Exit::Code(0));
        let mut next = report(&[over(), Running]);
        next.attempts[0].held = Some(muster_core::time::Span(5));
        next.waiting = vec![EpochRange { first: Epoch(3), last: Epoch(4) }];
        assert_eq!(can_wait(&said, &next), Some(BATCHED));
        assert!(is_in_batch(&next));
        // The last one leaves its place to the server.
        let mut last = report(&[over(), over(), over(), over()]);
        last.attempts.iter_mut().for_each(|it| it.held = Some(muster_core::time::Span(5)));
        assert_eq!(can_wait(&said, &last), None);
        assert!(!is_in_batch(&last));
        let returned = Report { waiting: Vec::new(), ..next };
        assert_eq!(can_wait(&said, &returned), None);
    }
}
