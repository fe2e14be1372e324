//! What an agent runs: fetched, prepared, then a process that takes its time and reacts to signals in its
//! own way. Everything that a task will do is drawn from its own name, so it does not depend on anything
//! that happens elsewhere.

use muster_core::agent::{Action, Order, Signal};
use muster_core::ids::Epoch;
use muster_core::model::{Exit, JobSpec};
use muster_core::time::Span;

use crate::agenda::{AgentEvent, Due, Event};
use crate::agents::{Agent, Site};
use crate::chance::Chance;
use crate::clock::Moment;
use crate::failure::{Broken, Held};
use crate::workload::Command;

const FETCH_AGAIN: Span = Span::seconds(5);

pub(crate) struct Task {
    order: Order,
    spec: Option<JobSpec>,
    is_running: bool,
    nature: Nature,
    /// Which plan is in force, and for when: a new one makes the old one void.
    plan: u32,
    due_at: Moment,
}

/// How it behaves.
#[derive(Debug, Clone, Copy)]
struct Nature {
    preparation: Span,
    /// What a polite request to stop leads to, while it is prepared and while it runs: an end after this
    /// time, or nothing.
    gives_up: Option<Span>,
    heeds: Option<Span>,
    /// How long the system takes to end a process that cannot refuse.
    dies: Span,
}

impl Nature {
    fn draw(seed: u64, order: &Order) -> Nature {
        let Order { job_name, attempt, rank, .. } = order;
        let mut chance = Chance::of(seed, &format!("task {job_name} {attempt} {rank}"));
        let preparation = chance.span(Span::milliseconds(100), Span::seconds(25));
        let soon = chance.span(Span::milliseconds(10), Span::seconds(4));
        Nature {
            preparation,
            gives_up: chance.permille(600).then_some(soon),
            heeds: chance.permille(800).then_some(soon),
            dies: chance.span(Span::milliseconds(1), Span::milliseconds(500)),
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

    /// How long it runs and how it ends, if left alone. When a gang fails, one member does so first and the
    /// others would go on.
    fn course(&self) -> Result<(Span, i32), Exit> {
        let text = self.spec.as_ref().map_or("", |spec| &spec.command);
        let command: Result<Command, _> = text.parse();
        let rank = u64::from(self.order.rank);
        match command {
            Ok(Command { seconds, exit: Some(0) }) => Ok((Span::seconds(seconds + 3 * rank), 0)),
            Ok(Command { seconds, exit: Some(code) }) if rank == 0 => {
                Ok((Span::seconds(seconds), code))
            }
            Ok(Command { seconds, exit: Some(_) }) => Ok((Span::seconds(seconds + 120), 0)),
            Ok(Command { exit: None, .. }) | Err(_) => {
                Err(Exit::NotStarted { message: "no such program".into() })
            }
        }
    }
}

impl Agent {
    pub(super) fn start(&mut self, order: Order, site: &mut Site<'_>) -> Held {
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

    /// The next thing happens to a task, unless other plans were made for it.
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
                task.spec = site.controller.fetch_spec(&task.order.spec)?;
                let (after, next) = match task.spec {
                    Some(_) => (task.nature.preparation, Due::Ready),
                    None => (FETCH_AGAIN, Due::Fetch),
                };
                self.plan_task(epoch, after, next, site);
                Ok(Vec::new())
            }
            Due::Ready => self.run(epoch, site),
            Due::Exit(exit) => {
                if task.is_running {
                    site.oracle.processes.exited(epoch, task.order.rank, &exit);
                }
                self.tasks.remove(&epoch);
                Ok(self.machine.on_exited(epoch, exit, self.clock(site.now)))
            }
        }
    }

    fn run(&mut self, epoch: Epoch, site: &mut Site<'_>) -> Held<Vec<Action>> {
        let now = self.clock(site.now);
        let Some(task) = self.tasks.get_mut(&epoch) else { return Ok(Vec::new()) };
        match task.course() {
            Err(exit) => {
                self.tasks.remove(&epoch);
                Ok(self.machine.on_exited(epoch, exit, now))
            }
            Ok((after, code)) => {
                task.is_running = true;
                let timeout = task.spec.as_ref().and_then(|spec| spec.timeout);
                site.oracle.on_process_started(&task.order)?;
                self.plan_task(epoch, after, Due::Exit(Exit::Code(code)), site);
                Ok(self.machine.on_started(epoch, timeout, now))
            }
        }
    }

    pub(super) fn signal(&mut self, epoch: Epoch, signal: Signal, site: &mut Site<'_>) {
        let Some(task) = self.tasks.get(&epoch) else { return };
        let nature = task.nature;
        let reaction = match (signal, task.is_running) {
            (Signal::Terminate, true) => nature.heeds.map(|after| (after, Exit::Signal(15))),
            (Signal::Terminate, false) => nature.gives_up.map(|after| (after, Exit::Stopped)),
            (Signal::Kill, _) => Some((nature.dies, Exit::Signal(9))),
        };
        // It may be about to end by itself: then that comes first.
        if let Some((after, exit)) = reaction
            && (!task.is_running || site.now + after < task.due_at)
        {
            self.plan_task(epoch, after, Due::Exit(exit), site);
        }
    }
}
