//! The agent's loop: feeds `core`'s machine with events and carries out what it decides.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use muster_core::agent::{Action, Assignment, AttemptPhase, Machine, Record, Report, SyncAnswer};
use muster_core::ids::Epoch;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::attempt::{self, AttemptSignal, Context, Event};
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
    /// The specifications that came with the last reply.
    specs: Specs,
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
            self.logs_due.insert(epoch);
            let (context, events) = (self.context.clone(), self.events_from_attempts.clone());
            self.attempts.spawn(async move { attempt::finish_log(&context, epoch, events).await });
        }
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
            let report = self.report();
            self.exchange.refresh(&report);
            let tick = self.until_tick();
            let news = tokio::select! {
                // A node that is leaving sends no more reports: "stopped" would make it look free for the next job.
                answer = self.exchange.answer(&report), if !self.is_leaving => News::ReceivedReply(answer),
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
                let SyncAnswer { desired, specs, .. } = wanted;
                self.specs = specs;
                let actions = self.machine.on_desired(&desired, sequence, sent_at, clock::now());
                self.carry_out(actions)?;
                self.exchange.settle(&self.report());
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
            Event::LogDone { epoch } => {
                self.logs_due.remove(&epoch);
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
                Action::End => self.is_over = true,
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
        let spec = self.specs.get(&assignment.spec.to_string()).cloned();
        let run = async move { attempt::run(&context, assignment, spec, from_us, events).await };
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

    /// Returns what to report: an ending only once the server has its log.
    fn report(&self) -> Report {
        let mut report = self.machine.report();
        for attempt in &mut report.attempts {
            let is_over = matches!(attempt.phase, AttemptPhase::Ended(_));
            if is_over && self.logs_due.contains(&attempt.epoch) {
                attempt.phase = AttemptPhase::Running;
            }
        }
        report
    }

    fn until_tick(&self) -> Duration {
        let left = self.machine.next_tick() - clock::now();
        Duration::from_micros(left.0).clamp(TICK_MIN, TICK_MAX)
    }
}
