//! The loop of virtual time.
//!
//! Within one instant: first everything that happens outside the controller, in the order of the agenda; then
//! the controller takes in what has arrived, in batches; then the audits. As every latency is above zero,
//! what a batch causes comes back at a later instant: so it does not matter how inputs are batched.

mod serve;

use muster_core::time::Span;
use tempfile::TempDir;

use crate::agenda::{Agenda, Arrival, Event, ProviderEvent};
use crate::agents::{Fleet, Site, on_booted};
use crate::clients::Clients;
use crate::clock::{DAY, Moment, minutes};
use crate::controller::Controller;
use crate::failure::{Broken, Held};
use crate::faults::Killer;
use crate::network::Network;
use crate::oracle::Oracle;
use crate::provider::Provider;
use crate::{Failure, Scenario, Summary, summary, workload};

const CHECKPOINT: Span = minutes(10);
/// Every so many checkpoints World is compared with the rows: every three hours.
const CHECKPOINTS_PER_AUDIT: u32 = 18;
/// And every so many each job that was ever acknowledged is looked up: once a day, as that takes longer.
const CHECKPOINTS_PER_ROLL_CALL: u32 = 144;
/// Longer than any backlog of the workload takes: its longest job runs for eight hours.
const HEALING_MAX: Span = Span::seconds(3 * 86_400);
const TEAR_DOWN_MAX: Span = minutes(60);

pub(crate) struct Sim {
    pub(crate) scenario: Scenario,
    pub(crate) now: Moment,
    agenda: Agenda,
    inbox: Vec<Arrival>,
    pub(crate) controller: Controller,
    killer: Killer,
    pub(crate) network: Network,
    pub(crate) provider: Provider,
    fleet: Fleet,
    pub(crate) clients: Clients,
    pub(crate) oracle: Oracle,
    stage: Stage,
    checkpoints: u32,
    is_checkpoint: bool,
    /// Where the store is; gone with the simulation.
    _folder: TempDir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Users and faults.
    Busy,
    /// Neither: what is there must come to rest.
    Healing {
        until: Moment,
    },
    /// Every cluster is deleted: nothing may remain.
    TearingDown {
        until: Moment,
    },
    Done,
}

pub(crate) fn run(scenario: &Scenario) -> Result<Summary, Failure> {
    let fail = |broken: &Broken, at, recent| Failure::new(scenario, broken, at, recent);
    let mut sim =
        Sim::new(scenario).map_err(|broken| fail(&broken, Moment::default(), Vec::new()))?;
    let ended = sim.run().and_then(|()| summary::of(&mut sim));
    ended.map_err(|broken| fail(&broken, sim.now, sim.oracle.recent()))
}

impl Sim {
    fn new(scenario: &Scenario) -> Held<Sim> {
        let Scenario { seed, days, batch, faults } = *scenario;
        let (days, batch) = (days.max(1), batch.clamp(1, crate::BATCH_MAX));
        let folder = tempfile::tempdir()
            .map_err(|error| Broken(format!("no temporary folder for the store: {error}")))?;
        let mut sim = Sim {
            scenario: Scenario { seed, days, batch, faults },
            now: Moment::default(),
            agenda: Agenda::default(),
            inbox: Vec::new(),
            controller: Controller::new(folder.path().join("muster.db")),
            killer: Killer::new(seed, faults),
            network: Network::new(seed, faults),
            provider: Provider::new(seed),
            fleet: Fleet::default(),
            clients: Clients::new(seed),
            oracle: Oracle::default(),
            stage: Stage::Busy,
            checkpoints: 0,
            is_checkpoint: false,
            _folder: folder,
        };
        sim.agenda.plan(Moment::default(), Event::Restart);
        sim.agenda.plan(Moment::default() + CHECKPOINT, Event::Checkpoint);
        sim.plan_weather();
        sim.clients.take_on(workload::plan(seed, days), &mut sim.agenda);
        Ok(sim)
    }

    fn run(&mut self) -> Held {
        while self.stage != Stage::Done {
            let event = self.agenda.next_at();
            let wake = self.controller.wake_at();
            let next = event.into_iter().chain(wake).min();
            let next = next.ok_or_else(|| Broken("nothing will ever happen again".to_owned()))?;
            self.now = self.now.max(next);
            while let Some(event) = self.agenda.pop(self.now) {
                self.on(event)?;
            }
            self.serve()?;
            if std::mem::take(&mut self.is_checkpoint) {
                self.on_checkpoint()?;
            }
        }
        Ok(())
    }

    fn on(&mut self, event: Event) -> Held {
        match event {
            Event::Restart => self.restart(),
            Event::Provider(event) => self.on_provider(&event),
            Event::Weather => {
                self.network.spoil(&self.fleet.ids(), self.now);
                self.plan_weather();
                Ok(())
            }
            Event::Agent(id, event) => {
                let (fleet, provider, mut site) = self.around();
                fleet.on(id, event, &mut site, provider)
            }
            Event::Client(id, event) => {
                self.clients.on(id, event, self.now, &mut self.agenda, &mut self.oracle)
            }
            Event::Arrival(arrival) => {
                self.inbox.push(arrival);
                Ok(())
            }
            Event::Checkpoint => {
                self.agenda.plan(self.now + CHECKPOINT, Event::Checkpoint);
                self.is_checkpoint = true;
                Ok(())
            }
        }
    }

    fn around(&mut self) -> (&mut Fleet, &mut Provider, Site<'_>) {
        let site = Site {
            seed: self.scenario.seed,
            now: self.now,
            agenda: &mut self.agenda,
            network: &mut self.network,
            controller: &mut self.controller,
            oracle: &mut self.oracle,
        };
        (&mut self.fleet, &mut self.provider, site)
    }

    fn plan_weather(&mut self) {
        if let Some(pause) = self.network.next_weather() {
            self.agenda.plan(self.now + pause, Event::Weather);
        }
    }

    fn on_provider(&mut self, event: &ProviderEvent) -> Held {
        match event {
            ProviderEvent::Made { node } => {
                self.provider.on_made(node, self.now, &mut self.agenda);
                let machines = self.provider.vms().map(|(_, vm)| vm.node);
                self.oracle.on_machine_made(machines)?;
            }
            ProviderEvent::Booted { .. } => {
                let (fleet, provider, mut site) = self.around();
                on_booted(fleet, provider, &mut site, event);
            }
            ProviderEvent::Finished { node } => {
                let finished = self.provider.on_finished(node, self.now, &mut self.agenda);
                if let Some(agent) = finished.removed.and_then(|vm| vm.agent) {
                    self.fleet.power_off(agent, &mut self.oracle);
                }
                // The answer to a controller that has died since reaches nobody.
                if finished.controller == self.controller.epoch() {
                    let (effect, result) = (finished.effect, finished.result);
                    self.inbox.push(Arrival::EffectDone { effect, result });
                }
            }
        }
        Ok(())
    }

    fn on_checkpoint(&mut self) -> Held {
        self.checkpoints += 1;
        self.check_leaks()?;
        if self.checkpoints.is_multiple_of(CHECKPOINTS_PER_AUDIT) {
            self.controller.check_books(self.now)?;
        }
        if self.checkpoints.is_multiple_of(CHECKPOINTS_PER_ROLL_CALL) {
            self.check_acknowledged()?;
        }
        let end = Moment(DAY.0 * u64::from(self.scenario.days));
        self.stage = match self.stage {
            Stage::Busy if self.now >= end => {
                self.killer.calm_down();
                self.network.calm_down();
                self.clients.take_on(workload::heal(self.now + Span(1)), &mut self.agenda);
                Stage::Healing { until: self.now + HEALING_MAX }
            }
            Stage::Healing { until } => match self.unrest() {
                None => {
                    let wishes = workload::tear_down(self.now + Span(1));
                    self.clients.take_on(wishes, &mut self.agenda);
                    Stage::TearingDown { until: self.now + TEAR_DOWN_MAX }
                }
                Some(unrest) if self.now > until => {
                    return Err(Broken(format!("it does not come to rest: {unrest}")));
                }
                Some(_) => self.stage,
            },
            Stage::TearingDown { until } => match self.remains() {
                None => Stage::Done,
                Some(remains) if self.now > until => {
                    return Err(Broken(format!("something remains: {remains}")));
                }
                Some(_) => self.stage,
            },
            Stage::Busy | Stage::Done => self.stage,
        };
        Ok(())
    }
}
