//! The agent's loop: feeds `core`'s machine with what happens and carries out what it decides.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use muster_core::agent::{Action, Assignment, AttemptPhase, Machine, Record, Report};
use muster_core::ids::Epoch;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::attempt::{self, AttemptSignal, Context, Event};
use crate::client::{Specs, SyncReply};
use crate::exchange::{Exchange, ReceivedReply};
use crate::home::remove_tree;
use crate::journal::Journal;
use crate::{AgentError, clock, notice};

/// Timers are looked at no less often: ours stand still while the machine sleeps, the lease does
/// not.
const TICK_MAX: Duration = Duration::from_secs(1);
/// And no more often, even if the machine has something to do that does not get done, such as to
/// end while a killed job does not die.
const TICK_MIN: Duration = Duration::from_millis(10);

pub(crate) struct Node {
    machine: Machine,
    journal: Journal,
    context: Arc<Context>,
    exchange: Exchange,
    /// What came with the last answer.
    specs: Specs,
    attempts: JoinSet<()>,
    /// How each attempt is told something.
    told: BTreeMap<Epoch, mpsc::UnboundedSender<AttemptSignal>>,
    /// Attempts whose log the server has not all of yet. Their end is not told before.
    logs_due: BTreeSet<Epoch>,
    events: mpsc::UnboundedReceiver<Event>,
    events_from_attempts: mpsc::UnboundedSender<Event>,
    /// We were asked to leave by whoever runs this machine.
    is_leaving: bool,
    /// The machine has decided that this node is over.
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
            told: BTreeMap::new(),
            logs_due: BTreeSet::new(),
            events,
            events_from_attempts,
            is_leaving: false,
            is_over: false,
        }
    }

    /// Takes up the logs of what an earlier agent ran and could not report any more.
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
                // A node that leaves says nothing more: "stopped" would make it look free for the
                // next job.
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
                let SyncReply { desired, specs } = wanted;
                self.specs = specs;
                let actions = self.machine.on_desired(&desired, sequence, sent_at, clock::now());
                self.carry_out(actions)?;
                self.exchange.settle(&self.report());
                Ok(())
            }
            News::Event(event) => self.on_event(event),
            News::Leave => self.leave(),
            News::Time | News::AttemptDone(Ok(())) => Ok(()),
            // Nobody would ever hear of its end. Whoever misses us will see to the rest.
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
                self.told.remove(&epoch);
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

    /// In order: what is journalled outlives us before anything after it happens.
    fn carry_out(&mut self, actions: Vec<Action>) -> Result<(), AgentError> {
        for action in actions {
            match action {
                Action::Journal(record) => self.write_down(&record)?,
                Action::Start(assignment) => self.start(assignment),
                Action::Go(epoch) => self.tell(epoch, AttemptSignal::Go),
                Action::Notice { epoch, within } => {
                    let work = self.context.home.work(epoch);
                    // The signal that follows says as much, if not for how long.
                    if let Err(error) = notice::write(&work, within, SystemTime::now()) {
                        tracing::warn!(%epoch, %error, "cannot leave word of an eviction");
                    }
                }
                Action::Signal { epoch, signal } => self.tell(epoch, AttemptSignal::Signal(signal)),
                // The loop compares what it would say with what it said last; no order is needed.
                Action::Report => {}
                Action::End => self.is_over = true,
            }
        }
        Ok(())
    }

    fn tell(&self, epoch: Epoch, what: AttemptSignal) {
        if let Some(attempt) = self.told.get(&epoch) {
            // Fails only if it has just ended.
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
        let (told, from_us) = mpsc::unbounded_channel();
        self.told.insert(assignment.epoch, told);
        let (context, events) = (self.context.clone(), self.events_from_attempts.clone());
        let spec = self.specs.get(&assignment.spec.to_string()).cloned();
        let run = async move { attempt::run(&context, assignment, spec, from_us, events).await };
        self.attempts.spawn(run);
    }

    /// The server has the ending and the log: nobody needs what is left here.
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

    /// What the server hears: an ending only when it has the log that goes with it.
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
