//! The loop of virtual time.
//!
//! Within one instant, everything outside the server happens first, in the order of the agenda; then the server
//! processes what has arrived, in batches; then come the audits. Because every latency is above zero, the consequences
//! of a batch arrive at a later instant, so it does not matter how inputs are batched.

mod outside;
mod recover;
mod serve;
mod strike;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use muster_core::ids::{JobId, NodeId};
use muster_core::time::Span;
use tempfile::TempDir;

use crate::agenda::{Agenda, Arrival, Event, Mended};
use crate::agents::{BEAT, Fleet, Site};
use crate::chance::{Chance, Stream};
use crate::clients::Clients;
use crate::clock::{DAY, Moment, minutes};
use crate::controller::Controller;
use crate::failpoints::Killer;
use crate::failure::{Broken, Held};
use crate::faults::{Fault, FaultCounts};
use crate::hosts;
use crate::mischief::Mischiefs;
use crate::network::Network;
use crate::oracle::Oracle;
use crate::provider::Provider;
use crate::{Failure, Scenario, Summary, summary, workload};

const CHECKPOINT: Span = minutes(10);
/// After this many checkpoints World is compared with the rows: every three hours.
const CHECKPOINTS_PER_AUDIT: u32 = 18;
/// After this many, every acknowledged job is looked up: every other day, because that takes longer.
const CHECKPOINTS_PER_ROLL_CALL: u32 = 288;
/// As often as the server searches for orphans; less often while there are none, which finds the same.
const SWEEP: Span = minutes(1);
const SWEEP_OF_NOTHING: Span = minutes(5);
/// How often the server looks for jobs that have been kept for long enough.
const RETENTION: Span = minutes(6 * 60);
/// Longer than any backlog of the workload takes: its longest job runs for eight hours.
const HEALING_MAX: Span = Span::seconds(3 * 86_400);
/// A late orphan is found within minutes.
const TEAR_DOWN_MAX: Span = minutes(90);

pub(crate) struct Sim {
    pub(crate) scenario: Scenario,
    pub(crate) now: Moment,
    agenda: Agenda,
    inbox: Vec<Arrival>,
    /// What reaches a server that was replaced.
    rival_inbox: Vec<Arrival>,
    pub(crate) controller: Controller,
    killer: Killer,
    mischiefs: Mischiefs,
    pub(crate) network: Network,
    pub(crate) provider: Provider,
    fleet: Fleet,
    pub(crate) clients: Clients,
    pub(crate) oracle: Oracle,
    /// Nodes that may get news at the end of this instant.
    news: BTreeSet<NodeId>,
    /// Jobs whose attempts may have been decided in this instant.
    decided: BTreeSet<JobId>,
    /// What the oracle knew when the last backup was made.
    backup: Option<Box<Oracle>>,
    /// When the store was last replaced with a backup.
    pub(crate) restored_at: Moment,
    /// When agents are disturbed, and which of two servers a message reaches.
    disturbances: Chance,
    rivalry: Chance,
    faults: FaultCounts,
    stage: Stage,
    /// Machines that the server does not know, and since when.
    pub(crate) strangers: BTreeMap<(Box<str>, Moment), Moment>,
    checkpoints: u32,
    is_checkpoint: bool,
    /// The folder of the store, deleted with the simulation.
    _folder: TempDir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Users and faults are active.
    Busy,
    /// Neither is active: the system must come to rest.
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

/// In memory if possible, because the files are needed only for a short time.
fn scratch() -> Held<TempDir> {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.or_else(|_| tempfile::tempdir());
    folder.map_err(|error| Broken(format!("no temporary folder for the store: {error}")))
}

impl Sim {
    fn new(scenario: &Scenario) -> Held<Sim> {
        let Scenario { seed, days, batch, faults } = *scenario;
        let (days, batch) = (days.max(1), batch.clamp(1, crate::BATCH_MAX));
        let folder = scratch()?;
        let mut sim = Sim {
            scenario: Scenario { seed, days, batch, faults },
            now: Moment::default(),
            agenda: Agenda::default(),
            inbox: Vec::new(),
            rival_inbox: Vec::new(),
            controller: Controller::new(folder.path().join("muster.db"), hosts::is_strict(seed)),
            killer: Killer::new(seed),
            mischiefs: Mischiefs::new(seed, faults),
            network: Network::new(seed, faults),
            provider: Provider::new(seed, faults),
            fleet: Fleet::default(),
            clients: Clients::new(seed),
            oracle: Oracle::default(),
            news: BTreeSet::new(),
            decided: BTreeSet::new(),
            backup: None,
            restored_at: Moment::default(),
            disturbances: Chance::new(seed, Stream::Weather),
            rivalry: Chance::new(seed, Stream::Rivals),
            faults: FaultCounts::default(),
            stage: Stage::Busy,
            strangers: BTreeMap::new(),
            checkpoints: 0,
            is_checkpoint: false,
            _folder: folder,
        };
        let start = Moment::default();
        sim.agenda.plan(start, Event::Restart);
        sim.agenda.plan(start + CHECKPOINT, Event::Checkpoint);
        sim.agenda.plan(start + BEAT, Event::Beat);
        sim.agenda.plan(start + SWEEP_OF_NOTHING, Event::OrphanSearch);
        sim.agenda.plan(start + RETENTION, Event::Retention);
        sim.mischiefs.begin(&mut sim.agenda);
        sim.clients.take_on(workload::plan(seed, days, faults), &mut sim.agenda);
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
            self.serve_rival()?;
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
            Event::Mended(Mended::Clock) => {
                self.controller.clock.mend();
                Ok(())
            }
            // Waiting input is processed at this instant.
            Event::Mended(Mended::Stall) => Ok(()),
            Event::Provider(event) => self.on_provider(event),
            Event::Mischief(mischief) => self.strike(mischief),
            Event::Cut(agent, None, until) => {
                self.cut(&[agent], until);
                Ok(())
            }
            Event::Cut(agent, Some(direction), until) => {
                self.network.cut(agent, direction, until);
                Ok(())
            }
            Event::Agent(id, event) => {
                let (fleet, provider, mut site) = self.around();
                fleet.on(id, event, &mut site, provider)
            }
            Event::Client(id, event) => {
                self.clients.on(id, event, self.now, &mut self.agenda, &mut self.oracle)
            }
            Event::Race { job } => {
                if self.stage == Stage::Busy && self.scenario.faults {
                    self.faults.note(Fault::CancelRaced);
                    self.clients.race(&job, self.now, &mut self.agenda);
                }
                Ok(())
            }
            Event::Arrival(arrival) => {
                self.on_arrival(arrival);
                Ok(())
            }
            Event::Beat => {
                self.on_beat();
                Ok(())
            }
            Event::OrphanSearch => self.on_sweep(),
            Event::Retention => self.on_retention(),
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

    /// All faults so far.
    pub(crate) fn fault_counts(&self) -> FaultCounts {
        let mut counts = self.faults.clone();
        counts.add(&self.network.faults);
        counts.add(&self.provider.faults);
        for _ in 0..self.oracle.processes.zombies {
            counts.note(Fault::ZombieRan);
        }
        counts
    }

    /// From now on everything works.
    fn calm_down(&mut self) {
        self.killer.calm_down();
        self.mischiefs.calm_down();
        self.network.calm_down();
        self.provider.calm_down();
        self.controller.clock.mend();
        self.controller.disk_full_until = self.now;
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
                self.calm_down();
                self.clients.take_on(workload::heal(self.now + Span(1)), &mut self.agenda);
                Stage::Healing { until: self.now + HEALING_MAX }
            }
            Stage::Healing { until } => match self.unrest() {
                None => {
                    let user_requests = workload::tear_down(self.now + Span(1));
                    self.clients.take_on(user_requests, &mut self.agenda);
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
