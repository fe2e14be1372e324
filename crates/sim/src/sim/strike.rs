//! Carries out the faults that are due.

use muster_core::Input;
use muster_core::ids::NodeId;
use muster_core::model::{NodePhase, Tier};
use muster_core::time::Span;

use super::Sim;
use crate::agenda::{AgentId, Arrival, Event, Mended, ProviderEvent};
use crate::agents::JournalFault;
use crate::clock::{ControllerClock, HOUR, Moment, minutes};
use crate::failure::Held;
use crate::faults::Fault;
use crate::mischief::Mischief;
use crate::network::{Direction, Network};
use crate::store::CommitFault;
use crate::workload;

/// A backup is useless before there is anything in it.
const FIRST_BACKUP: Moment = Moment(HOUR.0);
const AN_HOUR: i64 = 3_600_000_000;

impl Sim {
    pub(super) fn strike(&mut self, kind: Mischief) -> Held {
        // It may have been planned before the faults ended.
        if self.mischiefs.chance(kind).is_none() {
            return Ok(());
        }
        if !self.try_strike(kind)? {
            self.mischiefs.plan_again(kind, self.now, &mut self.agenda);
            return Ok(());
        }
        // A backup is restored later; then comes the next backup.
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

    /// Returns whether there was a victim.
    fn try_strike(&mut self, kind: Mischief) -> Held<bool> {
        let is_done = match kind {
            Mischief::Kill => self.strike_controller(kind, |sim, _| sim.killer.arm()),
            Mischief::PauseController => self.strike_controller(kind, |sim, pause| {
                sim.stall(pause, Fault::ControllerPaused);
            }),
            Mischief::SlowDisk => self.strike_controller(kind, |sim, pause| {
                sim.stall(Span(pause.0 / 30), Fault::SlowDisk);
            }),
            Mischief::LoseCommit => self.strike_controller(kind, |sim, _| {
                sim.fail_commit(CommitFault::Lost, Fault::CommitLost);
            }),
            Mischief::KeepCommit => self.strike_controller(kind, |sim, _| {
                sim.fail_commit(CommitFault::Kept, Fault::CommitKept);
            }),
            Mischief::TearCommit => self.strike_controller(kind, |sim, pause| {
                let part = usize::try_from(pause.0 % 1_000).unwrap_or(0);
                sim.fail_commit(CommitFault::Torn(part), Fault::CommitTorn);
            }),
            Mischief::FillDisk => self.strike_controller(kind, |sim, pause| {
                sim.controller.disk_full_until = sim.now + pause;
                sim.fail_commit(CommitFault::Full, Fault::DiskFull);
            }),
            Mischief::TakeOver => self.is_controller_well() && self.replace_controller()?,
            Mischief::Backup => {
                self.is_controller_well() && self.now >= FIRST_BACKUP && self.back_up()?
            }
            Mischief::Restore => {
                let down = self.span(kind, Span::seconds(10), minutes(10));
                // Epochs come from the clock: if it was set back, nothing can be promised.
                self.is_controller_well()
                    && self.controller.clock.is_ahead(self.now)
                    && self.restore_backup(down)?
            }
            Mischief::ClockForward => self.strike_clock(kind, Fault::ClockForward, |clock, _| {
                clock.set_wrong(AN_HOUR);
            }),
            Mischief::ClockBack => self.strike_clock(kind, Fault::ClockBack, |clock, _| {
                clock.set_wrong(-AN_HOUR);
            }),
            Mischief::FreezeClock => {
                self.strike_clock(kind, Fault::ClockFrozen, ControllerClock::freeze)
            }
            Mischief::BadPatch => {
                self.strike_network(kind, Fault::BadPatch, |network, agent, until| {
                    network.spoil(agent, until);
                })
            }
            Mischief::CutReports => {
                self.strike_network(kind, Fault::PartitionOfReports, |network, agent, until| {
                    network.cut(agent, Direction::Report, until);
                })
            }
            Mischief::CutAnswers => {
                self.strike_network(kind, Fault::PartitionOfAnswers, |network, agent, until| {
                    network.cut(agent, Direction::Reply, until);
                })
            }
            Mischief::CutBothWays => {
                self.strike_network(kind, Fault::PartitionBothWays, Network::cut_both_ways)
            }
            Mischief::CutAll => self.cut_all(kind),
            Mischief::LatePatch => self.late_patch(kind),
            Mischief::Swizzle => self.swizzle(kind),
            Mischief::PauseAgent => self.pause(kind, false, Fault::AgentPaused),
            Mischief::PauseMachine => self.pause(kind, true, Fault::MachinePaused),
            Mischief::RestartAgent => self.restart_agent(kind, Span::ZERO, Fault::AgentRestarted),
            Mischief::RebootNode => {
                self.restart_agent(kind, Span::seconds(20), Fault::NodeRebooted)
            }
            // These are counted when they take effect.
            Mischief::TearJournal => self.journal_fault(kind, JournalFault::Torn),
            Mischief::KillAtJournal => self.journal_fault(kind, JournalFault::Kept),
            Mischief::FillAgentDisk => self.journal_fault(kind, JournalFault::Full),
            Mischief::NoCapacity => {
                let until = self.now + self.span(kind, minutes(10), minutes(150));
                self.provider.run_out(until);
                true
            }
            Mischief::ProviderErrors => {
                let until = self.now + self.span(kind, minutes(10), minutes(150));
                self.provider.be_unwell(until);
                true
            }
            Mischief::Vanish => self.vanish(kind, Fault::MachineVanished).is_some(),
            Mischief::EndNode => self.end_node(kind),
            Mischief::Storm => self.storm(kind),
            Mischief::Rehearse => self.rehearse(kind),
        };
        Ok(is_done)
    }

    /// Only one thing at a time is wrong with the server, so that causes and effects are clear.
    fn is_controller_well(&mut self) -> bool {
        !self.controller.is_stalled(self.now)
            && !self.killer.is_armed()
            && self.controller.rival.is_none()
            && self.controller.live().is_some_and(|live| !live.is_about_to_fail())
    }

    fn strike_controller(&mut self, kind: Mischief, how: impl FnOnce(&mut Sim, Span)) -> bool {
        let pause = self.span(kind, Span::seconds(10), minutes(10));
        let is_well = self.is_controller_well();
        if is_well {
            how(self, pause);
        }
        is_well
    }

    fn stall(&mut self, pause: Span, fault: Fault) {
        self.faults.note(fault);
        self.controller.stalled_until = self.now + pause;
        self.agenda.plan(self.now + pause, Event::Mended(Mended::Stall));
        self.disturb(&self.fleet.ids());
    }

    fn fail_commit(&mut self, how: CommitFault, fault: Fault) {
        self.faults.note(fault);
        if let Some(live) = self.controller.live() {
            live.fail_next(how);
        }
    }

    fn strike_clock(
        &mut self,
        kind: Mischief,
        fault: Fault,
        how: impl FnOnce(&mut ControllerClock, Moment),
    ) -> bool {
        let wrong = self.span(kind, minutes(5), minutes(120));
        // While a restored backup waits for its server, its promise depends on a correct clock.
        if !self.controller.clock.is_right() || self.now < self.restored_at {
            return false;
        }
        how(&mut self.controller.clock, self.now);
        self.faults.note(fault);
        self.agenda.plan(self.now + wrong, Event::Mended(Mended::Clock));
        true
    }

    /// One of these, drawn from the stream of this kind.
    fn pick<T: Copy>(&mut self, kind: Mischief, all: &[T]) -> Option<T> {
        let chance = self.mischiefs.chance(kind)?;
        if all.is_empty() { None } else { Some(all[chance.index(all.len())]) }
    }

    /// Agents that run something are preferred as victims.
    fn pick_agent(&mut self, kind: Mischief) -> Option<AgentId> {
        let busy = self.fleet.busy_ids();
        let ids = if busy.is_empty() { self.fleet.ids() } else { busy };
        self.pick(kind, &ids)
    }

    /// Disconnects these agents in both directions.
    pub(super) fn cut(&mut self, agents: &[AgentId], until: Moment) {
        for agent in agents {
            self.network.cut_both_ways(*agent, until);
        }
        self.disturb(agents);
    }

    fn disturb(&mut self, agents: &[AgentId]) {
        let (now, agenda) = (self.now, &mut self.agenda);
        self.fleet.disturb(agents, &mut self.disturbances, Span::seconds(20), now, agenda);
    }

    /// Sometimes the network of an agent is late just when there is news for it, and a user whose job does not start
    /// becomes impatient.
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

    fn strike_network(
        &mut self,
        kind: Mischief,
        fault: Fault,
        how: impl FnOnce(&mut Network, AgentId, Moment),
    ) -> bool {
        let Some(agent) = self.pick_agent(kind) else { return false };
        let until = self.now + self.span(kind, Span::seconds(20), Span::seconds(300));
        how(&mut self.network, agent, until);
        self.disturb(&[agent]);
        self.faults.note(fault);
        true
    }

    fn late_patch(&mut self, kind: Mischief) -> bool {
        let Some(agent) = self.pick_agent(kind) else { return false };
        let late = self.span(kind, Span::seconds(20), Span::seconds(300));
        self.network.slow_down(agent, self.now + late);
        // Often it becomes worse before it becomes better.
        let from = self.now + self.span(kind, Span(1), late);
        let until = from + self.span(kind, Span(1), Span::seconds(200));
        self.agenda.plan(from, Event::Cut(agent, Some(Direction::Report), until));
        self.disturb(&[agent]);
        self.faults.note(Fault::LatePatch);
        true
    }

    fn cut_all(&mut self, kind: Mischief) -> bool {
        let ids = self.fleet.ids();
        let until = self.now + self.span(kind, Span::seconds(20), Span::seconds(300));
        if ids.is_empty() {
            return false;
        }
        self.cut(&ids, until);
        self.faults.note(Fault::PartitionOfAll);
        true
    }

    /// Each agent is disconnected at its own time and reconnected at another, in two different orders.
    fn swizzle(&mut self, kind: Mischief) -> bool {
        let ids = self.fleet.ids();
        if ids.len() < 2 {
            return false;
        }
        for id in ids {
            let from = self.now + self.span(kind, Span(1), Span::seconds(120));
            let until = from + self.span(kind, Span::seconds(10), Span::seconds(180));
            self.agenda.plan(from, Event::Cut(id, None, until));
        }
        self.faults.note(Fault::SwizzleClog);
        true
    }

    fn pause(&mut self, kind: Mischief, is_whole: bool, fault: Fault) -> bool {
        let Some(agent) = self.pick_agent(kind) else { return false };
        let until = self.now + self.span(kind, Span::seconds(80), minutes(15));
        let (fleet, _, mut site) = self.around();
        fleet.pause(agent, is_whole, until, &mut site);
        self.faults.note(fault);
        true
    }

    fn restart_agent(&mut self, kind: Mischief, least: Span, fault: Fault) -> bool {
        let Some(agent) = self.pick_agent(kind) else { return false };
        let after = Span(least.0 + self.span(kind, Span::seconds(1), Span::seconds(30)).0);
        let (fleet, provider, mut site) = self.around();
        fleet.restart(agent, Some(after), &mut site, provider);
        self.faults.note(fault);
        true
    }

    fn journal_fault(&mut self, kind: Mischief, journal_fault: JournalFault) -> bool {
        let agent = self.pick_agent(kind);
        agent.is_some_and(|agent| self.fleet.journal_fault(agent, journal_fault))
    }

    /// Returns the name of the node whose machine vanished.
    fn vanish(&mut self, kind: Mischief, fault: Fault) -> Option<Box<str>> {
        let mut names: Vec<Box<str>> = self.provider.vms().map(|(name, _)| name.into()).collect();
        let places: Vec<usize> = (0..names.len()).collect();
        let name = names.swap_remove(self.pick(kind, &places)?);
        let removed = self.provider.remove(&name, self.now);
        self.power_off(removed);
        self.faults.note(fault);
        Some(name)
    }

    fn end_node(&mut self, kind: Mischief) -> bool {
        let Some(node) = self.vanish(kind, Fault::NodeEnded) else { return false };
        let seen = self.now + self.span(kind, Span(1), Span::seconds(2));
        self.agenda.plan(seen, Event::Provider(ProviderEvent::Ended { node }));
        true
    }

    /// A user rehearses an eviction on a low-priority node that runs something.
    fn rehearse(&mut self, kind: Mischief) -> bool {
        let Some(live) = self.controller.live() else { return false };
        let world = live.world();
        let busy = world
            .nodes()
            .filter(|node| node.tier == Tier::LowPriority && node.phase() == NodePhase::Leased);
        let busy: Vec<NodeId> = busy.map(|node| node.id).collect();
        let Some(id) = self.pick(kind, &busy) else { return false };
        let Some(live) = self.controller.live() else { return false };
        let Some(node) = live.world().node(id) else { return false };
        let cluster = live.world().cluster(node.cluster).expect("a node's cluster outlives it");
        let workspace = workload::workspaces().find(|key| {
            live.world().workspace(key).is_some_and(|found| found.id == cluster.workspace)
        });
        let Some(workspace) = workspace else { return false };
        let (cluster, node) = (cluster.name.to_string(), node.name.to_string());
        self.on_arrival(Arrival::Rehearsed(Box::new(Input::EvictNode {
            workspace,
            cluster,
            node,
        })));
        self.faults.note(Fault::EvictionRehearsed);
        true
    }

    /// Every low-priority machine is evicted within half a minute, including those that are booting.
    fn storm(&mut self, kind: Mischief) -> bool {
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
        true
    }
}
