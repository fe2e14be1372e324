//! Agents: the real machine of a node, with a made-up clock, network and processes around it.
//!
//! An agent with something to tell reports every 10 s until it is answered; one that runs something quietly
//! every 20 s, a third of its lease, so that two lost heartbeats do not matter; one that has nothing to do
//! every 30 s, as it has nothing to lose. Rare enough for ten days of ten nodes to be cheap. Long polls are
//! not modelled: an order waits for the next heartbeat.

use std::collections::BTreeMap;

use muster_core::agent::{Action, Habits, Machine, Report};
use muster_core::ids::Epoch;
use muster_core::time::{Elapsed, Span};

use crate::agenda::{
    Agenda, AgentEvent, AgentId, Answered, Arrival, Event, ProviderEvent, SentReport,
};
use crate::chance::Chance;
use crate::clock::Moment;
use crate::controller::Controller;
use crate::failure::{Held, promise};
use crate::network::{ARRIVAL_GRID, Direction, Network};
use crate::oracle::Oracle;
use crate::provider::Provider;
use crate::tasks::Task;

const HEARTBEAT_IDLE: Span = Span::seconds(30);
const HEARTBEAT_QUIET: Span = Span::seconds(20);
const HEARTBEAT_BUSY: Span = Span::seconds(10);

/// What an agent finds around itself.
pub(crate) struct Site<'s> {
    pub(crate) seed: u64,
    pub(crate) now: Moment,
    pub(crate) agenda: &'s mut Agenda,
    pub(crate) network: &'s mut Network,
    pub(crate) controller: &'s mut Controller,
    pub(crate) oracle: &'s mut Oracle,
}

pub(crate) struct Agent {
    pub(super) id: AgentId,
    node: Box<str>,
    pub(super) machine: Machine,
    /// How far this node's clock is ahead of virtual time: no two nodes agree.
    clock_offset: u64,
    /// The number of the last report.
    sent: u64,
    /// The newest report that was answered.
    answered: u64,
    /// What was said last, and in which report it was said first.
    said: Option<(Report, u64)>,
    tick_at: Option<Moment>,
    pub(super) tasks: BTreeMap<Epoch, Task>,
    is_over: bool,
}

impl Agent {
    /// The agent of a machine that came up just now.
    fn boot(id: AgentId, node: &str, site: &mut Site<'_>) -> Agent {
        let boot_id = format!("boot-{}", id.0);
        let mut chance = Chance::of(site.seed, &boot_id);
        let clock_offset = chance.below(Span::seconds(30 * 86_400).0);
        let address = format!("10.0.{}.{}", id.0 / 250 % 250, id.0 % 250);
        let clock = Elapsed(site.now.0 + clock_offset);
        let first = site.now + chance.span(Span(1), Span::seconds(2));
        site.agenda.plan(first, Event::Agent(id, AgentEvent::Heartbeat));
        let mut agent = Agent {
            id,
            node: node.into(),
            machine: Machine::new(&boot_id, &address, Habits::default(), clock),
            clock_offset,
            sent: 0,
            answered: 0,
            said: None,
            tick_at: None,
            tasks: BTreeMap::new(),
            is_over: false,
        };
        agent.plan_tick(site);
        agent
    }

    pub(super) fn clock(&self, now: Moment) -> Elapsed {
        Elapsed(now.0 + self.clock_offset)
    }

    fn on(&mut self, event: AgentEvent, site: &mut Site<'_>) -> Held {
        let now = self.clock(site.now);
        let actions = match event {
            AgentEvent::Heartbeat => {
                self.beat(site);
                Vec::new()
            }
            AgentEvent::Tick => {
                self.tick_at = None;
                self.machine.on_tick(now)
            }
            AgentEvent::Answered(answered) => {
                let Answered { sequence, sent_at, desired } = *answered;
                self.answered = self.answered.max(sequence);
                self.machine.on_desired(&desired, sequence, sent_at, now)
            }
            AgentEvent::Task { epoch, plan, due } => self.on_task(epoch, plan, due, site)?,
        };
        self.carry_out(actions, site)?;
        if !self.is_over && self.machine.next_tick() <= now {
            let actions = self.machine.on_tick(now);
            self.carry_out(actions, site)?;
        }
        self.plan_tick(site);
        Ok(())
    }

    fn carry_out(&mut self, actions: Vec<Action>, site: &mut Site<'_>) -> Held {
        for action in actions {
            match action {
                // The agent itself is never restarted here, so nobody reads the journal.
                Action::Journal(_) => {}
                Action::Start(order) => self.start(order, site)?,
                Action::Signal { epoch, signal } => self.signal(epoch, signal, site),
                Action::Report => self.report(site),
                Action::End => {
                    promise(self.tasks.is_empty(), || {
                        format!("{} ended itself while something ran on it", self.node)
                    })?;
                    self.is_over = true;
                }
            }
        }
        Ok(())
    }

    fn beat(&mut self, site: &mut Site<'_>) {
        let is_quiet = self.answered == self.sent && !self.has_news();
        self.report(site);
        let pause = match (is_quiet, self.tasks.is_empty()) {
            (true, true) => HEARTBEAT_IDLE,
            (true, false) => HEARTBEAT_QUIET,
            (false, _) => HEARTBEAT_BUSY,
        };
        site.agenda.plan(site.now + pause, Event::Agent(self.id, AgentEvent::Heartbeat));
    }

    /// Whether the last thing that was said may not have been heard.
    fn has_news(&self) -> bool {
        self.said.as_ref().is_none_or(|(_, since)| *since > self.answered)
    }

    fn report(&mut self, site: &mut Site<'_>) {
        let report = self.machine.report();
        self.sent += 1;
        if self.said.as_ref().is_none_or(|(said, _)| *said != report) {
            self.said = Some((report.clone(), self.sent));
        }
        let sent = SentReport {
            agent: self.id,
            node: self.node.clone(),
            report,
            sequence: self.sent,
            sent_at: self.clock(site.now),
            is_news: self.has_news(),
        };
        let received = site.network.carry(Direction::Report, self.id, sent.is_news, site.now);
        for at in received.into_iter().flatten() {
            let arrival = Arrival::Report(Box::new(sent.clone()));
            site.agenda.plan(at.on_grid(ARRIVAL_GRID), Event::Arrival(arrival));
        }
    }

    /// Plans the machine's next tick. One that was planned for an earlier time finds nothing to do and plans
    /// again: cheaper than planning anew whenever a lease is renewed.
    fn plan_tick(&mut self, site: &mut Site<'_>) {
        let at = Moment(self.machine.next_tick().0.saturating_sub(self.clock_offset));
        if at > site.now && self.tick_at.is_none_or(|planned| planned > at) {
            self.tick_at = Some(at);
            site.agenda.plan(at, Event::Agent(self.id, AgentEvent::Tick));
        }
    }
}

/// All agents that run.
#[derive(Default)]
pub(crate) struct Fleet {
    agents: BTreeMap<AgentId, Agent>,
    booted: u64,
}

impl Fleet {
    pub(crate) fn ids(&self) -> Vec<AgentId> {
        self.agents.keys().copied().collect()
    }

    pub(crate) fn boot(&mut self, node: &str, site: &mut Site<'_>) -> AgentId {
        self.booted += 1;
        let id = AgentId(self.booted);
        self.agents.insert(id, Agent::boot(id, node, site));
        id
    }

    /// The machine is off: its agent and all that it ran are gone at once.
    pub(crate) fn power_off(&mut self, id: AgentId, oracle: &mut Oracle) {
        let Some(agent) = self.agents.remove(&id) else { return };
        for (epoch, task) in &agent.tasks {
            if task.is_running() {
                oracle.processes.ended(*epoch, task.rank());
            }
        }
    }

    pub(crate) fn on(
        &mut self,
        id: AgentId,
        event: AgentEvent,
        site: &mut Site<'_>,
        provider: &mut Provider,
    ) -> Held {
        // Whatever was on its way to an agent that is gone, or was planned by it, comes to nothing.
        let Some(agent) = self.agents.get_mut(&id) else { return Ok(()) };
        agent.on(event, site)?;
        if agent.is_over {
            if let Some(vm) = provider.vm_mut(&agent.node) {
                vm.agent = None;
            }
            self.agents.remove(&id);
        }
        Ok(())
    }
}

/// The machine has booted, unless it was deleted meanwhile.
pub(crate) fn on_booted(
    fleet: &mut Fleet,
    provider: &mut Provider,
    site: &mut Site<'_>,
    event: &ProviderEvent,
) {
    let ProviderEvent::Booted { node, made_at } = event else { return };
    if let Some(vm) = provider.vm_mut(node)
        && vm.made_at == *made_at
    {
        vm.agent = Some(fleet.boot(node, site));
    }
}
