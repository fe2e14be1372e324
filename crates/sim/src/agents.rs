//! Agents: the real state machine of a node, with a simulated clock, network, disk and processes around it.
//!
//! An agent with news reports at once, and then every 10 s until it is answered. An agent whose last report was
//! answered is *quiet*: like the real one, it holds a long poll, which returns when the server has news for it. Quiet
//! agents are not simulated one by one: a single event (`Event::Beat`) renews all their leases just in time, with the
//! very same reports and answers. A heartbeat that is left out could only have repeated the last one. An agent with any
//! problem (its network is bad, it is paused, the server is down) is not quiet.

mod fleet;
mod pause;

use std::collections::BTreeMap;

use muster_core::agent::{Action, Desired, Machine, Record, Report, Timing};
use muster_core::ids::Epoch;
use muster_core::time::{Elapsed, Span};

pub(crate) use self::fleet::{Fleet, on_booted};
use self::pause::Pause;
use crate::agenda::{Agenda, AgentEvent, AgentId, Answered, Arrival, Event, Sender, SentReport};
use crate::chance::Chance;
use crate::clock::{Moment, NodeClock};
use crate::controller::Controller;
use crate::failure::{Held, promise};
use crate::faults::Fault;
use crate::network::{ARRIVAL_GRID, Direction, Network};
use crate::oracle::Oracle;
use crate::tasks::Task;

/// The interval of reports of an agent that is not quiet.
const HEARTBEAT: Span = Span::seconds(10);
/// The interval of the common report of all quiet agents. An agent stops its jobs 15 s before its lease of 60 s ends.
pub(crate) const BEAT: Span = Span::seconds(40);
/// How old a report may be whose answer makes an agent quiet: its lease must last beyond the next beat.
const FRESH: Span = Span::seconds(4);
/// How soon an agent reports what it did because of an answer.
const SOON: Span = Span::seconds(1);
/// Parts per million: one per cent.
const DRIFT_MAX: u32 = 10_000;

/// The environment of an agent.
pub(crate) struct Site<'s> {
    pub(crate) seed: u64,
    pub(crate) now: Moment,
    pub(crate) agenda: &'s mut Agenda,
    pub(crate) network: &'s mut Network,
    pub(crate) controller: &'s mut Controller,
    pub(crate) oracle: &'s mut Oracle,
}

/// What happens at the next write to an agent's journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalFault {
    /// It dies, and the record is not on disk.
    Torn,
    /// It dies right after.
    Kept,
    /// It cannot write, and gives up.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentStatus {
    Lives,
    /// It ended itself.
    Over,
    /// It died with everything that it ran, and may come back.
    Died {
        back_after: Option<Span>,
    },
}

pub(crate) struct Agent {
    pub(super) id: AgentId,
    node: Box<str>,
    pub(super) machine: Machine,
    clock: NodeClock,
    /// The number of the last report.
    sent: u64,
    /// The newest report that was answered.
    answered: u64,
    /// The last report, and the number of the first report with the same content.
    said: Option<(Report, u64)>,
    /// The highest floor that was ever reported: no epoch up to it may be started any more.
    floor_said: Epoch,
    tick_at: Option<Moment>,
    /// The number of the current heartbeat. A new one replaces the old one.
    beat: u32,
    is_quiet: bool,
    pub(super) tasks: BTreeMap<Epoch, Task>,
    /// The records on disk that were not compacted since.
    journal: Vec<Record>,
    journal_fault: Option<JournalFault>,
    pause: Option<Pause>,
    pub(super) status: AgentStatus,
}

impl Agent {
    /// The agent of a machine that has just booted, with the journal that an earlier one left on its disk.
    fn boot(id: AgentId, node: &str, journal: Vec<Record>, site: &mut Site<'_>) -> Agent {
        let boot_id = format!("boot-{}", id.0);
        let mut chance = Chance::of(site.seed, &boot_id);
        let offset = chance.below(Span::seconds(30 * 86_400).0);
        let first = chance.span(Span(1), Span::seconds(2));
        let drift = i64::from(chance.number(0, 2 * DRIFT_MAX)) - i64::from(DRIFT_MAX);
        let drift = if site.network.is_faulty() { drift } else { 0 };
        if drift.unsigned_abs() > u64::from(DRIFT_MAX) / 2 {
            site.network.faults.note(Fault::ClockDrifted);
        }
        let address = format!("10.0.{}.{}", id.0 / 250 % 250, id.0 % 250);
        let clock = NodeClock { offset, drift };
        let machine = Machine::new(&boot_id, &address, Timing::default(), clock.at(site.now));
        let mut agent = Agent {
            id,
            node: node.into(),
            machine: machine.recover(&journal),
            clock,
            sent: 0,
            answered: 0,
            said: None,
            floor_said: Epoch(0),
            tick_at: None,
            beat: 0,
            is_quiet: false,
            tasks: BTreeMap::new(),
            journal,
            journal_fault: None,
            pause: None,
            status: AgentStatus::Lives,
        };
        agent.plan_beat(first, site.now, site.agenda);
        agent.plan_tick(site);
        agent
    }

    pub(super) fn clock(&self, now: Moment) -> Elapsed {
        self.clock.at(now)
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    fn on(&mut self, event: AgentEvent, site: &mut Site<'_>) -> Held {
        let Some(event) = self.unless_paused(event, site)? else { return Ok(()) };
        let now = self.clock(site.now);
        let actions = match event {
            AgentEvent::Heartbeat { plan } => {
                if plan == self.beat {
                    self.report(site);
                }
                Vec::new()
            }
            AgentEvent::Poke => {
                self.report(site);
                Vec::new()
            }
            AgentEvent::Tick => {
                self.tick_at = None;
                self.machine.on_tick(now)
            }
            AgentEvent::Answered(answered) => return self.on_answered(&answered, site),
            AgentEvent::Task { epoch, plan, due } => self.on_task(epoch, plan, due, site)?,
            AgentEvent::Keep { epoch } => {
                self.keep(epoch, site);
                Vec::new()
            }
            AgentEvent::Resume => return self.resume(site),
        };
        self.follow_up(actions, site)
    }

    fn follow_up(&mut self, actions: Vec<Action>, site: &mut Site<'_>) -> Held {
        self.carry_out(actions, site)?;
        if self.status == AgentStatus::Lives && self.machine.next_tick() <= self.clock(site.now) {
            let actions = self.machine.on_tick(self.clock(site.now));
            self.carry_out(actions, site)?;
        }
        self.plan_tick(site);
        Ok(())
    }

    pub(super) fn on_answered(&mut self, answered: &Answered, site: &mut Site<'_>) -> Held {
        let Answered { sequence, sent_at, desired } = answered;
        let now = self.clock(site.now);
        self.answered = self.answered.max(*sequence);
        let sent = self.sent;
        let actions = self.machine.on_desired(desired, *sequence, *sent_at, now);
        let brings_nothing = actions.is_empty();
        self.follow_up(actions, site)?;
        let is_heard = self.answered == sent && !self.has_news();
        let is_fresh = now - *sent_at <= FRESH && !site.network.is_troubled(self.id, site.now);
        if self.sent == sent && is_heard && is_fresh {
            if brings_nothing {
                self.is_quiet = true;
                self.beat += 1;
            } else {
                self.plan_beat(SOON, site.now, site.agenda);
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, actions: Vec<Action>, site: &mut Site<'_>) -> Held {
        for action in actions {
            match action {
                Action::Journal(record) => {
                    if !self.write_down(record, site) {
                        return Ok(());
                    }
                }
                Action::Start(assignment) => {
                    let said = self.said.as_ref().map(|(report, _)| report);
                    let was_waiting = said.is_some_and(|said| said.is_waiting(assignment.epoch));
                    promise(assignment.epoch > self.floor_said || was_waiting, || {
                        format!(
                            "{} starts {}, although it reported that it never would",
                            self.node, assignment.epoch
                        )
                    })?;
                    self.start(assignment, site)?;
                }
                Action::Go(epoch) => self.go(epoch, site),
                // The task reacts to the signal that follows, or does not.
                Action::Notice { .. } => {}
                Action::Signal { epoch, signal } => self.signal(epoch, signal, site),
                Action::Report => self.report(site),
                Action::End => {
                    promise(self.tasks.is_empty(), || {
                        format!("{} ended itself while something ran on it", self.node)
                    })?;
                    self.status = AgentStatus::Over;
                }
            }
        }
        Ok(())
    }

    /// Writes a record, and returns whether the agent is still alive afterwards.
    fn write_down(&mut self, record: Record, site: &mut Site<'_>) -> bool {
        let Some(journal_fault) = self.journal_fault.take() else {
            self.append(record);
            return true;
        };
        let (fault, back_after) = match journal_fault {
            JournalFault::Torn => (Fault::JournalTorn, Some(Span::seconds(5))),
            JournalFault::Kept => (Fault::JournalKept, Some(Span::seconds(5))),
            JournalFault::Full => (Fault::AgentDiskFull, None),
        };
        if journal_fault == JournalFault::Kept {
            self.append(record);
        }
        site.network.faults.note(fault);
        self.status = AgentStatus::Died { back_after };
        false
    }

    fn append(&mut self, record: Record) {
        let is_forgotten = matches!(record, Record::Forgotten(_));
        self.journal.push(record);
        if is_forgotten {
            let report = self.machine.report();
            if report.attempts.is_empty() {
                self.journal = vec![Record::Floor(report.floor)];
            }
        }
    }

    /// Whether the last report may not have arrived.
    fn has_news(&self) -> bool {
        self.said.as_ref().is_none_or(|(_, since)| *since > self.answered)
    }

    /// Reports everything, and again until it is answered.
    fn report(&mut self, site: &mut Site<'_>) {
        let sent = self.next_report(site.now, false);
        let from = sent.from;
        let received = site.network.carry(Direction::Report, self.id, from.is_news, site.now);
        for at in received.into_iter().flatten() {
            let arrival = Arrival::Report(Box::new(sent.clone()));
            site.agenda.plan(at.on_grid(ARRIVAL_GRID), Event::Arrival(arrival));
        }
        self.plan_beat(HEARTBEAT, site.now, site.agenda);
    }

    fn next_report(&mut self, now: Moment, is_beat: bool) -> SentReport {
        let report = self.machine.report();
        self.sent += 1;
        self.floor_said = self.floor_said.max(report.floor);
        if self.said.as_ref().is_none_or(|(said, _)| *said != report) {
            self.said = Some((report.clone(), self.sent));
        }
        let from = Sender {
            agent: self.id,
            sequence: self.sent,
            sent_at: self.clock(now),
            is_news: self.has_news(),
            is_beat,
        };
        SentReport { from, node: self.node.clone(), report }
    }

    /// From now on it reports by itself.
    fn plan_beat(&mut self, after: Span, now: Moment, agenda: &mut Agenda) {
        self.is_quiet = false;
        self.beat += 1;
        let event = AgentEvent::Heartbeat { plan: self.beat };
        agenda.plan(now + after, Event::Agent(self.id, event));
    }

    /// Plans the machine's next tick. A tick that was planned for an earlier time finds nothing to do and plans the
    /// next one, which is cheaper than planning again whenever a lease is renewed.
    fn plan_tick(&mut self, site: &mut Site<'_>) {
        if self.status != AgentStatus::Lives {
            return;
        }
        let at = self.clock.when(self.machine.next_tick());
        if at > site.now && self.tick_at.is_none_or(|planned| planned > at) {
            self.tick_at = Some(at);
            site.agenda.plan(at, Event::Agent(self.id, AgentEvent::Tick));
        }
    }

    /// Whether the desired state differs from what it does, so that its long poll returns.
    fn has_news_in(&self, desired: &Desired) -> bool {
        desired.is_news_to(&self.machine.report())
    }
}
