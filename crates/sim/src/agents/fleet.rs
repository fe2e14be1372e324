//! All agents, by the boot of their machine.

use std::collections::BTreeMap;

use muster_core::agent::{Desired, Record};
use muster_core::time::Span;

use super::{Agent, AgentStatus, JournalFault, Site};
use crate::agenda::{Agenda, AgentEvent, AgentId, Answered, Event, ProviderEvent, SentReport};
use crate::chance::Chance;
use crate::clock::Moment;
use crate::failure::Held;
use crate::provider::Provider;

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

    /// The agents that run something.
    pub(crate) fn busy_ids(&self) -> Vec<AgentId> {
        let busy = self.agents.iter().filter(|(_, agent)| !agent.tasks.is_empty());
        busy.map(|(id, _)| *id).collect()
    }

    pub(crate) fn node_of(&self, id: AgentId) -> Option<&str> {
        self.agents.get(&id).map(|agent| &*agent.node)
    }

    fn boot(&mut self, node: &str, journal: Vec<Record>, site: &mut Site<'_>) -> AgentId {
        self.booted += 1;
        let id = AgentId(self.booted);
        self.agents.insert(id, Agent::boot(id, node, journal, site));
        id
    }

    /// Ends the agent and everything that it ran at once, and returns the journal on its disk.
    pub(crate) fn power_off(&mut self, id: AgentId, site: &mut Site<'_>) -> Vec<Record> {
        site.network.forget(id);
        let Some(agent) = self.agents.remove(&id) else { return Vec::new() };
        for (epoch, task) in &agent.tasks {
            if task.is_running() {
                site.oracle.processes.ended(*epoch, task.rank());
            }
        }
        agent.journal
    }

    /// What every quiet agent would report now.
    pub(crate) fn beat(&mut self, now: Moment) -> Vec<SentReport> {
        let quiet = self.agents.values_mut().filter(|agent| agent.is_quiet);
        quiet.map(|agent| agent.next_report(now, true)).collect()
    }

    /// The answer to a beat.
    pub(crate) fn on_beat_answered(
        &mut self,
        answered: &Answered,
        id: AgentId,
        site: &mut Site<'_>,
    ) -> Held {
        match self.agents.get_mut(&id) {
            Some(agent) => agent.on_answered(answered, site),
            None => Ok(()),
        }
    }

    /// There is a problem: these agents are not quiet any more, and report within `most`.
    pub(crate) fn disturb(
        &mut self,
        ids: &[AgentId],
        chance: &mut Chance,
        most: Span,
        now: Moment,
        agenda: &mut Agenda,
    ) {
        for id in ids {
            let after = chance.span(Span::milliseconds(100), most);
            if let Some(agent) = self.agents.get_mut(id)
                && agent.pause.is_none()
            {
                agent.plan_beat(after, now, agenda);
            }
        }
    }

    /// Ends the long poll of an agent if there is news for it, and returns whether there was.
    pub(crate) fn poke(
        &self,
        id: AgentId,
        desired: &Desired,
        now: Moment,
        agenda: &mut Agenda,
    ) -> bool {
        let has_news = self.agents.get(&id).is_some_and(|agent| agent.has_news_in(desired));
        if has_news {
            let at = now + Span::milliseconds(1);
            agenda.plan(at, Event::Agent(id, AgentEvent::Poke));
        }
        has_news
    }

    /// Lets the next write to an agent's journal fail in this way.
    pub(crate) fn journal_fault(&mut self, id: AgentId, journal_fault: JournalFault) -> bool {
        match self.agents.get_mut(&id) {
            Some(agent) if agent.journal_fault.is_none() => {
                agent.journal_fault = Some(journal_fault);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Pauses the agent until then, alone or with its whole machine.
    pub(crate) fn pause(
        &mut self,
        id: AgentId,
        is_whole: bool,
        until: Moment,
        site: &mut Site<'_>,
    ) {
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.begin_pause(is_whole, until, site);
        }
    }

    pub(crate) fn on(
        &mut self,
        id: AgentId,
        event: AgentEvent,
        site: &mut Site<'_>,
        provider: &mut Provider,
    ) -> Held {
        // Messages to an agent that no longer exists, and events that it planned, have no effect.
        let Some(agent) = self.agents.get_mut(&id) else { return Ok(()) };
        agent.on(event, site)?;
        match agent.status {
            AgentStatus::Lives => {}
            AgentStatus::Over => self.restart(id, None, site, provider),
            AgentStatus::Died { back_after } => self.restart(id, back_after, site, provider),
        }
        Ok(())
    }

    /// The agent has ended. If its machine still exists, another agent starts on it after a while.
    pub(crate) fn restart(
        &mut self,
        id: AgentId,
        after: Option<Span>,
        site: &mut Site<'_>,
        provider: &mut Provider,
    ) {
        let Some(node) = self.node_of(id).map(Box::<str>::from) else { return };
        let journal = self.power_off(id, site);
        let Some(vm) = provider.vm_mut(&node) else { return };
        vm.agent = None;
        if let Some(after) = after {
            let event = ProviderEvent::Booted { node, made_at: vm.made_at, journal };
            site.agenda.plan(site.now + after, Event::Provider(event));
        }
    }
}

/// The machine has booted, unless it was deleted in the meantime.
pub(crate) fn on_booted(
    fleet: &mut Fleet,
    provider: &mut Provider,
    site: &mut Site<'_>,
    node: &str,
    made_at: Moment,
    journal: Vec<Record>,
) {
    if let Some(vm) = provider.vm_mut(node)
        && vm.made_at == made_at
        && vm.agent.is_none()
    {
        vm.agent = Some(fleet.boot(node, journal, site));
    }
}
