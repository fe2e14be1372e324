//! What an agent runs: it is fetched, prepared, and then a process that takes its time and reacts to signals in its own
//! way. Everything that a task will do is drawn from its own name, so it does not depend on anything that happens
//! elsewhere.

use muster_core::SaveRequest;
use muster_core::agent::{Action, Assignment, Signal};
use muster_core::ids::Epoch;
use muster_core::model::{Exit, JobSpec, TreeId};
use muster_core::time::Span;

use crate::agenda::{AgentEvent, Arrival, Due, Event};
use crate::agents::{Agent, AgentStatus, Site};
use crate::chance::Chance;
use crate::clock::{Moment, minutes};
use crate::failure::{Broken, Held};
use crate::faults::Fault;
use crate::network::{ARRIVAL_GRID, Direction};
use crate::workload::{Command, End};

const FETCH_AGAIN: Span = Span::seconds(5);
/// Longer than any simulation.
const FOR_EVER: Span = Span::seconds(400 * 86_400);
/// How far from a job's end a user cancels it, at most.
const RACE: Span = Span::milliseconds(2_500);

pub(crate) struct Task {
    order: Assignment,
    spec: Option<JobSpec>,
    is_running: bool,
    nature: Nature,
    /// The number of the current plan. A new plan replaces the old one.
    plan: u32,
    due_at: Moment,
}

/// How it behaves.
#[derive(Debug, Clone, Copy)]
struct Nature {
    preparation: Span,
    /// How it reacts to SIGTERM, while it is prepared and while it runs: it ends after this time, or ignores it.
    gives_up: Option<Span>,
    heeds: Option<Span>,
    /// How long it takes to kill the process.
    dies: Span,
    /// A user cancels it at about this time before its end.
    raced: Option<Span>,
    /// The interval at which it writes a checkpoint, which its node saves.
    keeps: Option<Span>,
}

impl Nature {
    fn draw(seed: u64, order: &Assignment) -> Nature {
        let Assignment { job_name, attempt, rank, .. } = order;
        let mut chance = Chance::of(seed, &format!("task {job_name} {attempt} {rank}"));
        let preparation = chance.span(Span::milliseconds(100), Span::seconds(25));
        let soon = chance.span(Span::milliseconds(10), Span::seconds(4));
        Nature {
            preparation,
            gives_up: chance.permille(600).then_some(soon),
            heeds: chance.permille(800).then_some(soon),
            dies: chance.span(Span::milliseconds(1), Span::milliseconds(500)),
            raced: chance.permille(20).then(|| chance.span(Span::ZERO, Span(2 * RACE.0))),
            keeps: chance.permille(300).then(|| chance.span(Span::seconds(5), minutes(60))),
        }
    }
}

impl Task {
    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    pub(crate) fn rank(&self) -> u32 {
        self.order.rank
    }

    pub(crate) fn is_planned(&self, plan: u32) -> bool {
        self.plan == plan
    }

    /// How long it runs and what happens then, if it is not disturbed. When a multi-node job fails, one member does so
    /// first and the others would continue.
    fn course(&self) -> Result<(Span, Due), Exit> {
        let text = self.spec.as_ref().map_or("", |spec| &spec.command);
        let rank = u64::from(self.order.rank);
        let exit = |code| Due::Exit(Exit::Code(code));
        let Ok(Command { seconds, end }) = text.parse() else {
            return Err(Exit::NotStarted { message: "no such program".into() });
        };
        match end {
            End::Exit(0) => Ok((Span::seconds(seconds + 3 * rank), exit(0))),
            End::Exit(code) if rank == 0 => Ok((Span::seconds(seconds), exit(code))),
            End::Exit(_) => Ok((Span::seconds(seconds + 120), exit(0))),
            End::Poison if rank == 0 => Ok((Span::seconds(seconds), Due::Poison)),
            End::Hang | End::Poison => Ok((FOR_EVER, exit(0))),
            End::Broken => Err(Exit::NotStarted { message: "no such program".into() }),
        }
    }
}

impl Agent {
    pub(super) fn start(&mut self, order: Assignment, site: &mut Site<'_>) -> Held {
        let epoch = order.epoch;
        let nature = Nature::draw(site.seed, &order);
        let task = Task { order, spec: None, is_running: false, nature, plan: 0, due_at: site.now };
        if self.tasks.insert(epoch, task).is_some() {
            return Err(Broken(format!("an agent started {epoch} twice")));
        }
        self.plan_task(epoch, Span::milliseconds(20), Due::Fetch, site);
        Ok(())
    }

    fn plan_task(&mut self, epoch: Epoch, after: Span, due: Due, site: &mut Site<'_>) {
        let Some(task) = self.tasks.get_mut(&epoch) else { return };
        task.plan += 1;
        task.due_at = site.now + after;
        let event = AgentEvent::Task { epoch, plan: task.plan, due };
        site.agenda.plan(task.due_at, Event::Agent(self.id, event));
    }

    /// The next event of a task, unless another one was planned for it.
    pub(super) fn on_task(
        &mut self,
        epoch: Epoch,
        plan: u32,
        due: Due,
        site: &mut Site<'_>,
    ) -> Held<Vec<Action>> {
        let Some(task) = self.tasks.get_mut(&epoch).filter(|task| task.plan == plan) else {
            return Ok(Vec::new());
        };
        match due {
            Due::Fetch => {
                if site.network.is_connected(self.id, site.now) {
                    let is_forgotten = site.oracle.processes.is_forgotten(epoch);
                    let hash = &task.order.spec;
                    task.spec = site.controller.fetch_spec(hash, is_forgotten, site.now)?;
                }
                let (after, next) = match task.spec {
                    Some(_) => (task.nature.preparation, Due::Ready),
                    None => (FETCH_AGAIN, Due::Fetch),
                };
                self.plan_task(epoch, after, next, site);
                Ok(Vec::new())
            }
            Due::Ready if task.order.go => self.run(epoch, site),
            Due::Ready => {
                site.oracle.processes.ready(epoch, task.order.rank);
                Ok(self.machine.on_prepared(epoch))
            }
            Due::Go => self.run(epoch, site),
            Due::Exit(exit) => {
                if task.is_running {
                    site.oracle.processes.exited(epoch, task.order.rank, &exit);
                }
                self.tasks.remove(&epoch);
                Ok(self.machine.on_exited(epoch, exit, self.clock(site.now)))
            }
            Due::Poison => {
                site.network.faults.note(Fault::PoisonRan);
                self.status = AgentStatus::Died { back_after: None };
                Ok(Vec::new())
            }
        }
    }

    /// All members are ready: it starts right away.
    pub(super) fn go(&mut self, epoch: Epoch, site: &mut Site<'_>) {
        self.plan_task(epoch, Span::milliseconds(1), Due::Go, site);
    }

    fn run(&mut self, epoch: Epoch, site: &mut Site<'_>) -> Held<Vec<Action>> {
        let now = self.clock(site.now);
        let Some(task) = self.tasks.get_mut(&epoch) else { return Ok(Vec::new()) };
        match task.course() {
            Err(exit) => {
                self.tasks.remove(&epoch);
                Ok(self.machine.on_exited(epoch, exit, now))
            }
            Ok((after, due)) => {
                task.is_running = true;
                let timeout = task.spec.as_ref().and_then(|spec| spec.timeout);
                site.oracle.on_process_started(&task.order)?;
                if after == FOR_EVER {
                    site.network.faults.note(Fault::JobHung);
                } else if let Some(raced) = task.nature.raced.filter(|_| task.order.rank == 0) {
                    let at = Moment((site.now + after + raced).0.saturating_sub(RACE.0));
                    let job = task.order.job_name.clone();
                    site.agenda.plan(at.max(site.now), Event::Race { job });
                }
                self.plan_keep(epoch, site);
                self.plan_task(epoch, after, due, site);
                Ok(self.machine.on_started(epoch, timeout, now))
            }
        }
    }

    fn plan_keep(&self, epoch: Epoch, site: &mut Site<'_>) {
        if let Some(every) = self.tasks.get(&epoch).and_then(|task| task.nature.keeps) {
            let event = Event::Agent(self.id, AgentEvent::Keep { epoch });
            site.agenda.plan(site.now + every, event);
        }
    }

    /// The checkpoint of a running task is sent to the server.
    pub(super) fn keep(&mut self, epoch: Epoch, site: &mut Site<'_>) {
        let Some(task) = self.tasks.get(&epoch).filter(|task| task.is_running) else { return };
        let tree = TreeId::made_up(&format!("{epoch} {} {}", task.order.rank, site.now.0));
        let node = self.node().to_owned();
        let request = SaveRequest { node, epoch, tree, files: 1, bytes: 1, is_final: false };
        for at in site.network.carry(Direction::Report, self.id, true, site.now) {
            let Some(at) = at else { continue };
            let arrival = Arrival::Kept(Box::new(request.clone()));
            site.agenda.plan(at.on_grid(ARRIVAL_GRID), Event::Arrival(arrival));
        }
        self.plan_keep(epoch, site);
    }

    pub(super) fn signal(&mut self, epoch: Epoch, signal: Signal, site: &mut Site<'_>) {
        let Some(task) = self.tasks.get(&epoch) else { return };
        let nature = task.nature;
        let reaction = match (signal, task.is_running) {
            (Signal::Terminate, true) => nature.heeds.map(|after| (after, Exit::Signal(15))),
            (Signal::Terminate, false) => nature.gives_up.map(|after| (after, Exit::Stopped)),
            (Signal::Kill, _) => Some((nature.dies, Exit::Signal(9))),
        };
        // It may be about to end by itself, in which case that comes first.
        if let Some((after, exit)) = reaction
            && (!task.is_running || site.now + after < task.due_at)
        {
            self.plan_task(epoch, after, Due::Exit(exit), site);
        }
    }
}
