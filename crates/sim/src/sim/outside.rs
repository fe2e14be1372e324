//! What happens around the server: at the provider, and to all agents.

use muster_core::ids::JobId;
use muster_core::time::Span;
use muster_core::{EffectKind, ExpiredJobs, Input};
use muster_store::Reader as _;

use super::{RETENTION, SWEEP, SWEEP_OF_NOTHING, Sim};
use crate::agenda::{Arrival, Event, ProviderEvent};
use crate::agents::{BEAT, on_booted};
use crate::controller::Live;
use crate::failure::{Held, promise};
use crate::faults::Fault;
use crate::provider::Vm;

/// Less often than the server does, so that a long outage does not consist mostly of this.
const LOOK_AGAIN: Span = Span::seconds(5);

/// How many ended jobs are proposed for removal at once, as by the server.
const PROPOSED: usize = 8;

impl Sim {
    pub(super) fn on_provider(&mut self, event: ProviderEvent) -> Held {
        match event {
            ProviderEvent::Made { request } | ProviderEvent::Repeated { request } => {
                self.provider.on_made(&request, self.now, &mut self.agenda);
                // Strays are left to the search for orphans; they can outlive a node whose bill is still open.
                let machines = self.provider.vms().filter(|(_, vm)| !vm.is_stray);
                let machines = machines.map(|(_, vm)| vm.node);
                self.oracle.on_machine_made(machines)
            }
            ProviderEvent::Booted { node, made_at, journal } => {
                let (fleet, provider, mut site) = self.around();
                on_booted(fleet, provider, &mut site, &node, made_at, journal);
                Ok(())
            }
            ProviderEvent::Finished { node } => {
                self.on_call_finished(&node);
                Ok(())
            }
            ProviderEvent::Evicted { node, made_at, is_noticed } => {
                let removed = self.provider.remove_made_at(&node, made_at, self.now);
                let Some(vm) = removed else { return Ok(()) };
                self.power_off(Some(vm));
                if is_noticed {
                    self.faults.note(Fault::EvictionNoticed);
                    self.on_arrival(Arrival::Evicted { node });
                } else {
                    self.faults.note(Fault::EvictionUnnoticed);
                }
                Ok(())
            }
            ProviderEvent::Ended { node } => {
                self.tell_ended(node);
                Ok(())
            }
            ProviderEvent::Swept { node, made_at } => {
                let removed = self.provider.remove_made_at(&node, made_at, self.now);
                self.power_off(removed);
                Ok(())
            }
        }
    }

    /// As the server does: repeatedly while the node is known, because the first time can be too early.
    fn tell_ended(&mut self, node: Box<str>) {
        let is_known = |live: &mut Live| live.world().node_by_name(&node).is_some();
        let is_forgotten = self.controller.live().is_some_and(|live| !is_known(live));
        // A machine that has this name now is another one.
        if is_forgotten || self.provider.vm(&node).is_some() {
            return;
        }
        self.on_arrival(Arrival::Ended { node: node.clone() });
        let event = ProviderEvent::Ended { node };
        self.agenda.plan(self.now + LOOK_AGAIN, Event::Provider(event));
    }

    fn on_call_finished(&mut self, node: &str) {
        let epoch = self.controller.epoch();
        let rival = self.controller.rival.as_ref().map(|rival| rival.epoch);
        let is_live = |controller| controller == epoch || Some(controller) == rival;
        let finished = self.provider.on_finished(node, is_live, self.now, &mut self.agenda);
        let Some(finished) = finished else { return };
        self.power_off(finished.removed);
        if let (EffectKind::CreateNode(request), Ok(())) = (&finished.effect.kind, &finished.result)
        {
            self.oracle.on_create_done(request.node);
        }
        // The answer to a server that has died since is lost.
        let arrival = Arrival::EffectDone { effect: finished.effect.id, result: finished.result };
        if finished.controller == epoch {
            self.inbox.push(arrival);
        } else if Some(finished.controller) == rival {
            self.rival_inbox.push(arrival);
        }
    }

    /// The machine is off: its agent and everything that it ran end at once.
    pub(super) fn power_off(&mut self, vm: Option<Vm>) {
        if let Some(agent) = vm.and_then(|vm| vm.agent) {
            let (fleet, _, mut site) = self.around();
            fleet.power_off(agent, &mut site);
        }
    }

    /// While there are two servers, it is a matter of chance which of them a message reaches.
    pub(super) fn on_arrival(&mut self, arrival: Arrival) {
        if self.controller.rival.is_some() && self.rivalry.permille(500) {
            self.rival_inbox.push(arrival);
        } else {
            self.inbox.push(arrival);
        }
    }

    /// Every quiet agent renews its lease.
    pub(super) fn on_beat(&mut self) {
        self.agenda.plan(self.now + BEAT, Event::Beat);
        for sent in self.fleet.beat(self.now) {
            self.on_arrival(Arrival::Report(Box::new(sent)));
        }
    }

    /// The server proposes ended jobs for removal, a few at a time. It proposes young ones as well, because the core has
    /// to keep them.
    pub(super) fn on_retention(&mut self) -> Held {
        self.agenda.plan(self.now + RETENTION, Event::Retention);
        if self.controller.is_stalled(self.now) {
            return Ok(());
        }
        let Some(live) = self.controller.live() else { return Ok(()) };
        let mut after = JobId(0);
        loop {
            let page = live.reader.ended_jobs(after, PROPOSED)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.id;
            let jobs = page.iter().map(|job| job.id).collect();
            let proposed = Input::RemoveExpired(Box::new(ExpiredJobs { jobs, ..<_>::default() }));
            self.inbox.push(Arrival::Expired(Box::new(proposed)));
        }
    }

    /// The search for orphans, as the server runs it: lists, confirms that it is the only server, and deletes.
    pub(super) fn on_sweep(&mut self) -> Held {
        let has_found = self.remove_orphans()?;
        let pause = if has_found { SWEEP } else { SWEEP_OF_NOTHING };
        self.agenda.plan(self.now + pause, Event::OrphanSearch);
        Ok(())
    }

    /// Returns whether there was an orphan.
    fn remove_orphans(&mut self) -> Held<bool> {
        if self.controller.is_stalled(self.now) {
            return Ok(false);
        }
        let elapsed = self.controller.clock.elapsed(self.now);
        let Some(live) = self.controller.live() else { return Ok(false) };
        let listed = self.provider.list(self.now);
        let Some(world) = live.driven.world() else { return Ok(false) };
        let orphans = live.remove_orphans.orphans(
            &listed,
            |name| world.node_by_name(name).is_some(),
            elapsed,
        );
        for name in &orphans {
            let is_known = world.node_by_name(name).is_some();
            promise(!is_known, || format!("{name} is known, but was deleted as an orphan"))?;
            self.provider.remove_orphans(name, self.now, &mut self.agenda);
        }
        Ok(!orphans.is_empty())
    }
}
