//! The controller takes in what has arrived: batches, commits, answers, and death in between.

use std::collections::VecDeque;

use muster_core::time::Span;
use muster_core::{Answer, Change, Input, Output, Reply, World};

use super::Sim;
use crate::agenda::{AgentEvent, Answered, Arrival, ClientEvent, Event};
use crate::clients;
use crate::failure::{Broken, Held, promise};
use crate::faults::Fault;
use crate::network::Direction;

/// How often the controller may want to step again at the same instant: decisions must not go round.
const TICKS_PER_INSTANT_MAX: u32 = 2;
/// World as a whole is checked after every step that changed it, and after one of so many that did not.
const STEPS_PER_CHECK: u64 = 256;
const CLIENT_LATENCY: Span = Span::milliseconds(50);

impl Sim {
    pub(super) fn restart(&mut self) -> Held {
        let effects = self.controller.start(self.now)?;
        let epoch = self.controller.epoch();
        for effect in &effects {
            self.provider.carry_out(effect, epoch, self.now, &mut self.agenda);
        }
        self.check_acknowledged()?;
        // Whatever became due while nobody was there.
        self.inbox.push(Arrival::Tick);
        Ok(())
    }

    pub(super) fn serve(&mut self) -> Held {
        let mut ticks = 0;
        loop {
            let mut inbox = VecDeque::from(std::mem::take(&mut self.inbox));
            let is_awake = self.controller.wake_at().is_some_and(|at| at <= self.now);
            if inbox.is_empty() && is_awake {
                ticks += 1;
                promise(ticks <= TICKS_PER_INSTANT_MAX, || {
                    "the controller wakes for ever at one instant".to_owned()
                })?;
                inbox.push_back(Arrival::Tick);
            }
            if inbox.is_empty() {
                return Ok(());
            }
            // What reaches a dead controller is lost: whoever sent it gets no answer.
            while self.controller.is_up() && !inbox.is_empty() {
                let (batch, is_struck) = self.next_batch(&mut inbox);
                self.run_batch(batch, is_struck)?;
            }
        }
    }

    /// The next inputs to share a step, and whether the controller is to die at them. Where it dies is fixed
    /// by the input alone: what came before is flushed, so batching makes no difference.
    fn next_batch(&mut self, inbox: &mut VecDeque<Arrival>) -> (Vec<Arrival>, bool) {
        let mut batch = Vec::new();
        while batch.len() < self.scenario.batch {
            let Some(arrival) = inbox.front() else { break };
            let is_candidate = is_likely_to_change(arrival);
            let is_struck = is_candidate && self.killer.is_due();
            if is_struck && !batch.is_empty() {
                break;
            }
            if is_candidate {
                self.killer.pass();
            }
            batch.extend(inbox.pop_front());
            if is_struck {
                return (batch, true);
            }
        }
        (batch, false)
    }

    fn run_batch(&mut self, batch: Vec<Arrival>, is_struck: bool) -> Held {
        let mut inputs = Vec::with_capacity(batch.len());
        for arrival in &batch {
            let input = self.input(arrival);
            let live = self.controller.live().ok_or_else(|| Broken("it is down".to_owned()))?;
            inputs.push(live.look_up(input)?);
        }
        let before = self.controller.live().filter(|_| is_struck).map(|live| live.world.clone());
        let output = self.controller.step(&inputs, self.now)?;
        promise(output.answers.len() == batch.len(), || "an input has no answer".to_owned())?;
        if let Some(before) = before
            && !output.changes.is_empty()
        {
            return self.kill(output, before);
        }
        self.commit(&output)?;
        self.send_out(batch, output);
        Ok(())
    }

    fn input(&self, arrival: &Arrival) -> Input {
        match arrival {
            Arrival::Request(wish) => clients::input(self.clients.act(*wish)),
            Arrival::Report(sent) => {
                Input::Report { node: sent.node.to_string(), report: sent.report.clone() }
            }
            Arrival::EffectDone { effect, result } => {
                Input::EffectDone { effect: *effect, result: result.clone() }
            }
            Arrival::Tick => Input::Tick,
        }
    }

    fn commit(&mut self, output: &Output) -> Held {
        let is_checked = self.controller.steps.is_multiple_of(STEPS_PER_CHECK);
        let Some(live) = self.controller.live() else { return Ok(()) };
        if !output.changes.is_empty() {
            let revision = live.commit(output)?;
            self.oracle.on_committed(&output.changes, output.wall, revision)?;
        }
        if is_checked || !output.changes.is_empty() {
            live.check(self.now)?;
        }
        Ok(())
    }

    /// The process dies at this step, before or after its commit; either way nobody is told.
    fn kill(&mut self, output: Output, before: World) -> Held {
        let death = self.killer.strike();
        self.network.faults.note(death.fault);
        let expected = if death.fault == Fault::KilledAfterCommit {
            self.commit(&output)?;
            self.controller.live().map_or(before, |live| live.world.clone())
        } else {
            before
        };
        self.controller.die(output.changes, expected, self.now);
        self.provider.forget_waiting_calls();
        self.agenda.plan(self.now + death.down, Event::Restart);
        Ok(())
    }

    /// It is on disk: now the world may know.
    fn send_out(&mut self, batch: Vec<Arrival>, output: Output) {
        let epoch = self.controller.epoch();
        for change in &output.changes {
            if let Change::EffectQueued(effect) = change {
                self.provider.carry_out(effect, epoch, self.now, &mut self.agenda);
            }
        }
        for (arrival, answer) in batch.into_iter().zip(output.answers) {
            self.answer(arrival, answer);
        }
    }

    fn answer(&mut self, arrival: Arrival, answer: Answer) {
        match arrival {
            Arrival::Request(wish) => {
                let at = self.now + CLIENT_LATENCY;
                let event = ClientEvent::Answered(Box::new(answer));
                self.agenda.plan(at, Event::Client(wish, event));
            }
            Arrival::Report(sent) => {
                let Ok(Reply::Desired(desired)) = answer else { return };
                let is_held = |epoch| sent.report.attempts.iter().any(|held| held.epoch == epoch);
                let is_new = desired.orders.iter().any(|order| !is_held(order.epoch));
                let is_news = sent.is_news || is_new;
                let carried = self.network.carry(Direction::Answer, sent.agent, is_news, self.now);
                for at in carried.into_iter().flatten() {
                    let answered = Answered {
                        sequence: sent.sequence,
                        sent_at: sent.sent_at,
                        desired: (*desired).clone(),
                    };
                    let event = AgentEvent::Answered(Box::new(answered));
                    self.agenda.plan(at, Event::Agent(sent.agent, event));
                }
            }
            Arrival::EffectDone { .. } | Arrival::Tick => {}
        }
    }
}

/// Whether an input is one of those that usually change something.
fn is_likely_to_change(arrival: &Arrival) -> bool {
    match arrival {
        Arrival::Report(sent) => sent.is_news,
        Arrival::Request(_) | Arrival::EffectDone { .. } | Arrival::Tick => true,
    }
}
