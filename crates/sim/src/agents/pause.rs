//! Agents that are paused for longer than their lease and then continue as if nothing had happened. They are zombies
//! until they check the clock.

use super::{Agent, AgentStatus, SOON};
use crate::agenda::{AgentEvent, Due, Event};
use crate::agents::Site;
use crate::clock::Moment;
use crate::failure::Held;

pub(super) struct Pause {
    until: Moment,
    /// Whether its tasks are paused as well.
    is_whole: bool,
    /// What happened during the pause and will be noticed later.
    waiting: Vec<AgentEvent>,
}

impl Agent {
    pub(super) fn begin_pause(&mut self, is_whole: bool, until: Moment, site: &mut Site<'_>) {
        if self.pause.is_some() {
            return;
        }
        self.is_quiet = false;
        self.beat += 1;
        self.pause = Some(Pause { until, is_whole, waiting: Vec::new() });
        // The pause is longer than the lease, so its tasks may be given to another node before they are stopped here.
        for (epoch, task) in &self.tasks {
            site.oracle.processes.excuse(*epoch, task.rank());
        }
        site.agenda.plan(until, Event::Agent(self.id, AgentEvent::Resume));
    }

    /// Returns the event, unless the agent is paused: then it is kept for later.
    pub(super) fn unless_paused(
        &mut self,
        event: AgentEvent,
        site: &mut Site<'_>,
    ) -> Held<Option<AgentEvent>> {
        let Some(pause) = &mut self.pause else { return Ok(Some(event)) };
        if matches!(event, AgentEvent::Resume) && site.now >= pause.until {
            return Ok(Some(event));
        }
        // The process ends anyway; its agent will notice later.
        if let AgentEvent::Task { epoch, plan, due: Due::Exit(exit) } = &event
            && !pause.is_whole
            && let Some(task) = self.tasks.get(epoch)
            && task.is_running()
            && task.is_planned(*plan)
        {
            site.oracle.processes.exited(*epoch, task.rank(), exit);
        }
        pause.waiting.push(event);
        Ok(None)
    }

    /// It checks the clock first, as the real agent does in every iteration of its loop.
    pub(super) fn resume(&mut self, site: &mut Site<'_>) -> Held {
        let Some(pause) = self.pause.take() else { return Ok(()) };
        self.tick_at = None;
        let actions = self.machine.on_tick(self.clock(site.now));
        self.follow_up(actions, site)?;
        for event in pause.waiting {
            if self.status != AgentStatus::Lives {
                return Ok(());
            }
            self.on(event, site)?;
        }
        if self.status == AgentStatus::Lives {
            self.plan_beat(SOON, site.now, site.agenda);
        }
        Ok(())
    }
}
