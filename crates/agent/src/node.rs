//! The agent's loop: feeds `core`'s machine with events and carries out what it decides.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use muster_core::agent::{
    Action, Assignment, AttemptPhase, Machine, REPORTED_LOGS_BYTES_MAX, Record, Report, RunFacts,
    SyncAnswer,
};
use muster_core::ids::Epoch;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::attempt::{self, AttemptSignal, Context, Event, Known};
use crate::client::Specs;
use crate::exchange::{Exchange, ReceivedReply};
use crate::home::remove_tree;
use crate::journal::Journal;
use crate::{AgentError, clock, notice};

/// Timers are checked at least this often: ours stop while the host sleeps, but the lease does not.
const TICK_MAX: Duration = Duration::from_secs(1);
/// And no more often than this, even if the machine has something to do that does not get done, such as ending while a
/// killed job does not die.
const TICK_MIN: Duration = Duration::from_millis(10);

pub(crate) struct Node {
    machine: Machine,
    journal: Journal,
    context: Arc<Context>,
    exchange: Exchange,
    /// The specifications and facts that came with replies, for attempts that have not started.
    specs: Specs,
    facts: BTreeMap<Epoch, RunFacts>,
    /// Whether the server takes logs with reports.
    takes_logs: bool,
    /// Short logs of attempts that have ended, which are sent with the reports.
    short_logs: BTreeMap<Epoch, String>,
    attempts: JoinSet<()>,
    /// The channel to each attempt.
    signals: BTreeMap<Epoch, mpsc::UnboundedSender<AttemptSignal>>,
    /// Attempts whose log the server does not have completely yet. Their end is not reported before.
    logs_due: BTreeSet<Epoch>,
    events: mpsc::UnboundedReceiver<Event>,
    events_from_attempts: mpsc::UnboundedSender<Event>,
    /// The host asked this agent to shut down.
    is_leaving: bool,
    /// The machine has decided that this node has ended.
    is_over: bool,
}

enum News {
    ReceivedReply(ReceivedReply),
    Event(Event),
    Time,
    Leave,
    AttemptDone(Result<(), tokio::task::JoinError>),
}

impl Node {
    pub(crate) fn new(machine: Machine, journal: Journal, context: Context) -> Node {
        let (events_from_attempts, events) = mpsc::unbounded_channel();
        Node {
            machine,
            journal,
            exchange: Exchange::new(context.client.clone(), Arc::clone(&context.meter)),
            context: Arc::new(context),
            specs: Specs::new(),
            facts: BTreeMap::new(),
            takes_logs: false,
            short_logs: BTreeMap::new(),
            attempts: JoinSet::new(),
            signals: BTreeMap::new(),
            logs_due: BTreeSet::new(),
            events,
            events_from_attempts,
            is_leaving: false,
            is_over: false,
        }
    }

    /// Continues with the logs of what an earlier agent ran and could not report any more.
    pub(crate) fn resume_logs(&mut self) {
        for attempt in self.machine.report().attempts {
            let epoch = attempt.epoch;
            if !self.context.home.job_log(epoch).exists() {
                continue;
            }
            self.send_log(epoch);
        }
    }

    /// Sends the short logs that no report will contain any more.
    fn send_logs_alone(&mut self) {
        for epoch in std::mem::take(&mut self.short_logs).into_keys() {
            self.send_log(epoch);
        }
    }

    /// Sends the rest of the log of an attempt that has ended.
    fn send_log(&mut self, epoch: Epoch) {
        self.logs_due.insert(epoch);
        let (context, events) = (self.context.clone(), self.events_from_attempts.clone());
        self.attempts.spawn(async move { attempt::finish_log(&context, epoch, events).await });
    }

    pub(crate) async fn live(mut self) -> Result<(), AgentError> {
        let mut terminate = signal(SignalKind::terminate()).map_err(AgentError::Signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(AgentError::Signals)?;
        loop {
            let actions = self.machine.on_tick(clock::now());
            self.carry_out(actions)?;
            if self.is_over && self.logs_due.is_empty() {
                return Ok(());
            }
            let (report, logs) = self.report();
            self.exchange.refresh(&report);
            let tick = self.until_tick();
            let news = tokio::select! {
                // A node that is leaving sends no more reports: "stopped" would make it look free for the next job.
                answer = self.exchange.answer(&report, &logs), if !self.is_leaving => News::ReceivedReply(answer),
                Some(event) = self.events.recv() => News::Event(event),
                Some(done) = self.attempts.join_next() => News::AttemptDone(done),
                () = tokio::time::sleep(tick) => News::Time,
                _ = terminate.recv() => News::Leave,
                _ = interrupt.recv() => News::Leave,
            };
            self.take_in(news)?;
        }
    }

    fn take_in(&mut self, news: News) -> Result<(), AgentError> {
        match news {
            News::ReceivedReply(ReceivedReply { wanted, sequence, sent_at }) => {
                let SyncAnswer { desired, specs, facts, takes_logs, refused_logs, .. } = wanted;
                self.specs.extend(specs);
                self.facts.extend(facts);
                self.takes_logs = takes_logs;
                for epoch in refused_logs {
                    if self.short_logs.remove(&epoch).is_some() {
                        self.send_log(epoch);
                    }
                }
                let actions = self.machine.on_desired(&desired, sequence, sent_at, clock::now());
                self.carry_out(actions)?;
                let (report, _) = self.report();
                self.facts.retain(|epoch, _| report.is_waiting(*epoch));
                if report.waiting.is_empty() {
                    self.specs.clear();
                }
                self.exchange.settle(&report);
                Ok(())
            }
            News::Event(event) => self.on_event(event),
            News::Leave => self.leave(),
            News::Time | News::AttemptDone(Ok(())) => Ok(()),
            // The end of this attempt would never be reported. The server notices the lost agent and handles the rest.
            News::AttemptDone(Err(source)) => Err(AgentError::AttemptPanicked { source }),
        }
    }

    fn on_event(&mut self, event: Event) -> Result<(), AgentError> {
        let now = clock::now();
        let actions = match event {
            Event::Prepared { epoch } => self.machine.on_prepared(epoch),
            Event::Started { epoch, timeout } => {
                self.logs_due.insert(epoch);
                self.machine.on_started(epoch, timeout, now)
            }
            Event::Ending { epoch } => {
                self.machine.on_ending(epoch);
                Vec::new()
            }
            Event::Exited { epoch, exit, spans } => {
                self.signals.remove(&epoch);
                self.machine.on_measured(epoch, spans);
                self.machine.on_exited(epoch, exit, now)
            }
            Event::LogDone { epoch, short } => {
                self.logs_due.remove(&epoch);
                match short {
                    // There are no more reports.
                    Some(_) if self.is_leaving || self.is_over => self.send_log(epoch),
                    short => self.short_logs.extend(short.map(|text| (epoch, text))),
                }
                Vec::new()
            }
        };
        self.carry_out(actions)
    }

    /// Stops everything as if the controller had dismissed the node.
    fn leave(&mut self) -> Result<(), AgentError> {
        if self.is_leaving {
            return Ok(());
        }
        tracing::info!("asked to leave");
        self.is_leaving = true;
        self.send_logs_alone();
        let actions = self.machine.on_leave(clock::now());
        self.carry_out(actions)
    }

    /// Carries out the actions in order: a journal entry is durable before anything after it happens.
    fn carry_out(&mut self, actions: Vec<Action>) -> Result<(), AgentError> {
        for action in actions {
            match action {
                Action::Journal(record) => self.write_down(&record)?,
                Action::Start(assignment) => self.start(assignment),
                Action::Go(epoch) => self.tell(epoch, AttemptSignal::Go),
                Action::Notice { epoch, within } => {
                    let work = self.context.home.work(epoch);
                    // The signal that follows conveys the same, except for how long.
                    if let Err(error) = notice::write(&work, within, SystemTime::now()) {
                        tracing::warn!(%epoch, %error, "cannot write the eviction notice");
                    }
                }
                Action::Signal { epoch, signal } => self.tell(epoch, AttemptSignal::Signal(signal)),
                // The loop compares each report with the last one, so this needs no action.
                Action::Report => {}
                Action::End => {
                    self.is_over = true;
                    self.send_logs_alone();
                }
            }
        }
        Ok(())
    }

    fn tell(&self, epoch: Epoch, what: AttemptSignal) {
        if let Some(attempt) = self.signals.get(&epoch) {
            // This fails only if the attempt has just ended.
            let _ = attempt.send(what);
        }
    }

    fn write_down(&mut self, record: &Record) -> Result<(), AgentError> {
        self.journal.append(record)?;
        if let Record::Forgotten(epoch) = record {
            self.short_logs.remove(epoch);
            self.tidy_up(*epoch);
            let report = self.machine.report();
            if report.attempts.is_empty() {
                self.journal.compact(report.floor);
            }
        }
        Ok(())
    }

    fn start(&mut self, assignment: Assignment) {
        let (signals, from_us) = mpsc::unbounded_channel();
        self.signals.insert(assignment.epoch, signals);
        let (context, events) = (self.context.clone(), self.events_from_attempts.clone());
        let known = Known {
            spec: self.specs.get(&assignment.spec.to_string()).cloned(),
            facts: self.facts.remove(&assignment.epoch),
            takes_logs: self.takes_logs,
        };
        let run = async move { attempt::run(&context, assignment, known, from_us, events).await };
        self.attempts.spawn(run);
    }

    /// Removes what is left here, once the server has both the ending and the log.
    fn tidy_up(&self, epoch: Epoch) {
        let home = &self.context.home;
        let (own, inputs, log) = (home.own(epoch), home.inputs(epoch), home.job_log(epoch));
        self.context.removals.start(move || {
            let removed = remove_tree(&own).and_then(|()| remove_tree(&inputs));
            let removed = removed.and_then(|()| match std::fs::remove_file(&log) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                result => result,
            });
            if let Err(error) = removed {
                tracing::warn!(%epoch, %error, "cannot remove what a job left");
            }
        });
    }

    /// Returns what to report, and the logs that go with it: an ending only together with its log, or once the server has
    /// that.
    fn report(&self) -> (Report, BTreeMap<Epoch, String>) {
        let mut report = self.machine.report();
        let mut logs = BTreeMap::new();
        let mut bytes = 0;
        for attempt in &mut report.attempts {
            if !matches!(attempt.phase, AttemptPhase::Ended(_)) {
                continue;
            }
            let log = self.short_logs.get(&attempt.epoch);
            bytes += log.map_or(0, String::len);
            if self.logs_due.contains(&attempt.epoch) || bytes > REPORTED_LOGS_BYTES_MAX {
                (attempt.phase, attempt.held) = (AttemptPhase::Running, None);
            } else {
                logs.extend(log.map(|text| (attempt.epoch, text.clone())));
            }
        }
        (report, logs)
    }

    fn until_tick(&self) -> Duration {
        let left = self.machine.next_tick() - clock::now();
        Duration::from_micros(left.0).clamp(TICK_MIN, TICK_MAX)
    }
}
