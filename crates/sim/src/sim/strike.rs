//! Mischief, carried out.

use muster_core::model::Tier;
use muster_core::time::Span;

use super::Sim;
use crate::agenda::{AgentId, Event, Mended, ProviderEvent};
use crate::agents::Doom;
use crate::clock::{HOUR, Moment, minutes};
use crate::failure::Held;
use crate::faults::Fault;
use crate::mischief::Mischief;
use crate::network::Direction;
use crate::store::CommitFault;

/// A backup is of no use before there is anything in it.
const FIRST_BACKUP: Moment = Moment(HOUR.0);
const AN_HOUR: i64 = 3_600_000_000;

impl Sim {
    pub(super) fn strike(&mut self, kind: Mischief) -> Held {
        // One that was planned before everything calmed down.
        if self.mischiefs.chance(kind).is_none() {
            return Ok(());
        }
        if !self.try_strike(kind)? {
            self.mischiefs.plan_again(kind, self.now, &mut self.agenda);
            return Ok(());
        }
        // What is backed up is restored later; then comes the next backup.
        let next = match kind {
            Mischief::Backup => Mischief::Restore,
            Mischief::Restore => Mischief::Backup,
            other => other,
        };
        self.mischiefs.plan_next(next, self.now, &mut self.agenda);
        Ok(())
    }

    /// A length of time from the stream of this kind.
    fn span(&mut self, kind: Mischief, least: Span, most: Span) -> Span {
        self.mischiefs.chance(kind).map_or(least, |chance| chance.span(least, most))
    }

    /// Whether there was anything to hurt.
    fn try_strike(&mut self, kind: Mischief) -> Held<bool> {
        match kind {
            Mischief::Kill
            | Mischief::TakeOver
            | Mischief::Backup
            | Mischief::Restore
            | Mischief::PauseController
            | Mischief::SlowDisk
            | Mischief::LoseCommit
            | Mischief::KeepCommit
            | Mischief::FillDisk => {
                let is_well = !self.controller.is_stalled(self.now)
                    && !self.killer.is_armed()
                    && self.controller.rival.is_none()
                    && self.controller.live().is_some_and(|live| !live.is_about_to_fail());
                if is_well { self.strike_controller(kind) } else { Ok(false) }
            }
            Mischief::ClockForward | Mischief::ClockBack | Mischief::FreezeClock => {
                Ok(self.strike_clock(kind))
            }
            Mischief::BadPatch
            | Mischief::LatePatch
            | Mischief::CutBothWays
            | Mischief::CutReports
            | Mischief::CutAnswers
            | Mischief::CutAll
            | Mischief::Swizzle => Ok(self.strike_network(kind)),
            Mischief::PauseAgent
            | Mischief::PauseMachine
            | Mischief::RestartAgent
            | Mischief::TearJournal
            | Mischief::KillAtJournal
            | Mischief::FillAgentDisk
            | Mischief::RebootNode => Ok(self.strike_agent(kind)),
            Mischief::NoCapacity
            | Mischief::ProviderErrors
            | Mischief::Vanish
            | Mischief::Storm => Ok(self.strike_provider(kind)),
        }
    }

    fn strike_controller(&mut self, kind: Mischief) -> Held<bool> {
        let pause = self.span(kind, Span::seconds(10), minutes(10));
        match kind {
            Mischief::Kill => self.killer.arm(),
            Mischief::TakeOver => self.replace_controller()?,
            Mischief::Backup if self.now < FIRST_BACKUP => return Ok(false),
            Mischief::Backup => self.back_up()?,
            // Epochs come from the clock: under one that was set back, nobody can promise anything.
            Mischief::Restore if !self.controller.clock.is_ahead(self.now) => return Ok(false),
            Mischief::Restore if self.backup.is_none() => return Ok(false),
            Mischief::Restore => self.restore_backup(pause)?,
            Mischief::PauseController => self.stall(pause, Fault::ControllerPaused),
            Mischief::SlowDisk => self.stall(Span(pause.0 / 30), Fault::SlowDisk),
            Mischief::LoseCommit => self.fail_commit(CommitFault::Lost, Fault::CommitLost),
            Mischief::KeepCommit => self.fail_commit(CommitFault::Kept, Fault::CommitKept),
            Mischief::FillDisk => {
                self.controller.disk_full_until = self.now + pause;
                self.fail_commit(CommitFault::Full, Fault::DiskFull);
            }
            _ => unreachable!("not about the controller"),
        }
        Ok(true)
    }

    fn stall(&mut self, pause: Span, fault: Fault) {
        self.faults.note(fault);
        self.controller.stalled_until = self.now + pause;
        self.agenda.plan(self.now + pause, Event::Mended(Mended::Stall));
        let ids = self.fleet.ids();
        let (now, agenda) = (self.now, &mut self.agenda);
        self.fleet.disturb(&ids, &mut self.disturbances, Span::seconds(10), now, agenda);
    }

    fn fail_commit(&mut self, how: CommitFault, fault: Fault) {
        self.faults.note(fault);
        if let Some(live) = self.controller.live() {
            live.fail_next(how);
        }
    }

    fn strike_clock(&mut self, kind: Mischief) -> bool {
        if !self.controller.clock.is_right() {
            return false;
        }
        let fault = match kind {
            Mischief::ClockForward => {
                self.controller.clock.set_wrong(AN_HOUR);
                Fault::ClockForward
            }
            Mischief::ClockBack => {
                self.controller.clock.set_wrong(-AN_HOUR);
                Fault::ClockBack
            }
            _ => {
                self.controller.clock.freeze(self.now);
                Fault::ClockFrozen
            }
        };
        self.faults.note(fault);
        let wrong = self.span(kind, minutes(5), minutes(120));
        self.agenda.plan(self.now + wrong, Event::Mended(Mended::Clock));
        true
    }

    /// One of these, drawn from the stream of this kind.
    fn pick<T: Copy>(&mut self, kind: Mischief, all: &[T]) -> Option<T> {
        let chance = self.mischiefs.chance(kind)?;
        if all.is_empty() { None } else { Some(all[chance.index(all.len())]) }
    }

    /// Agents that run something are the better victims.
    fn pick_agent(&mut self, kind: Mischief) -> Option<AgentId> {
        let busy = self.fleet.busy_ids();
        let ids = if busy.is_empty() { self.fleet.ids() } else { busy };
        self.pick(kind, &ids)
    }

    /// These agents are cut off both ways.
    pub(super) fn cut(&mut self, agents: &[AgentId], until: Moment) {
        for agent in agents {
            self.network.cut(*agent, Direction::Report, until);
            self.network.cut(*agent, Direction::Answer, until);
        }
        self.disturb(agents);
    }

    fn disturb(&mut self, agents: &[AgentId]) {
        let (now, agenda) = (self.now, &mut self.agenda);
        self.fleet.disturb(agents, &mut self.disturbances, Span::seconds(20), now, agenda);
    }

    /// At times the network of an agent is late just when there is news for it; and someone whose job does not
    /// start gets impatient.
    pub(super) fn slow_down(&mut self, poked: Vec<(AgentId, Option<Box<str>>)>) {
        for (agent, job) in poked {
            let Some(chance) = self.mischiefs.chance(Mischief::LatePatch) else { return };
            if !chance.permille(20) {
                continue;
            }
            let until = self.now + chance.span(Span::seconds(20), Span::seconds(200));
            let canceled = self.now + chance.span(Span::seconds(1), Span::seconds(60));
            self.network.slow_down(agent, until);
            self.faults.note(Fault::LatePatch);
            if let Some(job) = job {
                self.agenda.plan(canceled, Event::Race { job });
            }
        }
    }

    fn strike_network(&mut self, kind: Mischief) -> bool {
        let Some(agent) = self.pick_agent(kind) else { return false };
        let until = self.now + self.span(kind, Span::seconds(20), Span::seconds(300));
        let fault = match kind {
            Mischief::BadPatch => {
                self.network.spoil(agent, until);
                Fault::BadPatch
            }
            Mischief::LatePatch => {
                self.network.slow_down(agent, until);
                // Often it gets worse before it gets better.
                let from = self.now + self.span(kind, Span(1), until - self.now);
                let until = from + self.span(kind, Span(1), Span::seconds(200));
                self.agenda.plan(from, Event::Cut(agent, Some(Direction::Report), until));
                Fault::LatePatch
            }
            Mischief::CutBothWays => {
                self.cut(&[agent], until);
                Fault::PartitionBothWays
            }
            Mischief::CutReports => {
                self.network.cut(agent, Direction::Report, until);
                Fault::PartitionOfReports
            }
            Mischief::CutAnswers => {
                self.network.cut(agent, Direction::Answer, until);
                Fault::PartitionOfAnswers
            }
            Mischief::CutAll => {
                self.cut(&self.fleet.ids(), until);
                Fault::PartitionOfAll
            }
            _ => {
                let ids = self.fleet.ids();
                if ids.len() < 2 {
                    return false;
                }
                // Each is cut off at a time of its own and comes back at another: in two orders.
                for id in ids {
                    let from = self.now + self.span(kind, Span(1), Span::seconds(120));
                    let until = from + self.span(kind, Span::seconds(10), Span::seconds(180));
                    self.agenda.plan(from, Event::Cut(id, None, until));
                }
                Fault::SwizzleClog
            }
        };
        self.disturb(&[agent]);
        self.faults.note(fault);
        true
    }

    fn strike_agent(&mut self, kind: Mischief) -> bool {
        let Some(agent) = self.pick_agent(kind) else { return false };
        let long = self.span(kind, Span::seconds(80), minutes(15));
        let short = self.span(kind, Span::seconds(1), Span::seconds(90));
        let (fleet, provider, mut site) = self.around();
        let until = site.now + long;
        let fault = match kind {
            Mischief::PauseAgent => {
                fleet.pause(agent, false, until, &mut site);
                Fault::AgentPaused
            }
            Mischief::PauseMachine => {
                fleet.pause(agent, true, until, &mut site);
                Fault::MachinePaused
            }
            Mischief::RestartAgent => {
                fleet.restart(agent, Some(Span(short.0 / 9)), &mut site, provider);
                Fault::AgentRestarted
            }
            Mischief::RebootNode => {
                let after = Span(short.0 + Span::seconds(20).0);
                fleet.restart(agent, Some(after), &mut site, provider);
                Fault::NodeRebooted
            }
            // These are counted when they come to something.
            Mischief::TearJournal => return fleet.doom(agent, Doom::Torn),
            Mischief::KillAtJournal => return fleet.doom(agent, Doom::Kept),
            _ => return fleet.doom(agent, Doom::Full),
        };
        self.faults.note(fault);
        true
    }

    fn strike_provider(&mut self, kind: Mischief) -> bool {
        let while_ = self.span(kind, minutes(10), minutes(150));
        match kind {
            Mischief::NoCapacity => self.provider.run_out(self.now + while_),
            Mischief::ProviderErrors => self.provider.be_unwell(self.now + while_),
            Mischief::Vanish => {
                let names: Vec<Box<str>> =
                    self.provider.vms().map(|(name, _)| name.into()).collect();
                let places: Vec<usize> = (0..names.len()).collect();
                let Some(place) = self.pick(kind, &places) else { return false };
                let removed = self.provider.remove(&names[place], self.now);
                self.power_off(removed);
                self.faults.note(Fault::MachineVanished);
            }
            _ => {
                let spot = self.provider.vms().filter(|(_, vm)| vm.tier == Tier::LowPriority);
                let spot: Vec<(Box<str>, Moment)> =
                    spot.map(|(name, vm)| (name.into(), vm.made_at)).collect();
                if spot.is_empty() {
                    return false;
                }
                for (node, made_at) in spot {
                    let at = self.now + self.span(kind, Span(1), Span::seconds(30));
                    let is_noticed = self.span(kind, Span(0), Span(2)).0 > 0;
                    let event = ProviderEvent::Evicted { node, made_at, is_noticed };
                    self.agenda.plan(at, Event::Provider(event));
                }
                self.faults.note(Fault::PreemptionStorm);
            }
        }
        true
    }
}
