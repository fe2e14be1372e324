//! The server processes what has arrived: batches, commits, answers, and death in between.

use std::collections::VecDeque;

use muster_core::agent::Report;
use muster_core::time::Span;
use muster_core::{Change, Input, InputResult, Reply, desired_for};
use muster_store::controller::{Batch, Pending, Released};

use super::Sim;
use crate::agenda::{AgentEvent, Answered, Arrival, ClientEvent, Event, RequestId, Sender};
use crate::clients;
use crate::controller::{Commit, End};
use crate::failpoints::has_new_assignment;
use crate::failure::{Broken, Held, promise};
use crate::faults::Fault;
use crate::network::Direction;

/// How often the server may step again at the same instant: decisions must not loop.
const TICKS_PER_INSTANT_MAX: u32 = 2;
const CLIENT_LATENCY: Span = Span::milliseconds(50);

/// Where the answer to an input has to be sent.
pub(super) enum Origin {
    Client {
        user_request: RequestId,
        was_known: bool,
    },
    Agent(Sender),
    /// A node that saves files.
    SavingNode,
    /// The answer is not needed.
    Internal,
}

/// Whether the result of a step may become visible.
pub(super) enum Visibility {
    Yes(Released<Origin>),
    /// The commit failed.
    No(End),
}

impl Sim {
    pub(super) fn serve(&mut self) -> Held {
        if self.controller.is_stalled(self.now) {
            return Ok(());
        }
        let mut ticks = 0;
        loop {
            let mut inbox = VecDeque::from(std::mem::take(&mut self.inbox));
            let is_awake = self.controller.wake_at().is_some_and(|at| at <= self.now);
            if inbox.is_empty() && is_awake {
                ticks += 1;
                promise(ticks <= TICKS_PER_INSTANT_MAX, || {
                    "the server wakes for ever at one instant".to_owned()
                })?;
                inbox.push_back(Arrival::Tick);
            }
            if inbox.is_empty() {
                self.poke();
                return Ok(());
            }
            if !self.controller.is_up() {
                return self.renew_held(inbox);
            }
            // What reaches a dead server is lost: the sender gets no answer.
            while self.controller.is_up() && !inbox.is_empty() {
                let length = inbox.len().min(self.batch_max());
                let batch: Vec<Arrival> = inbox.drain(..length).collect();
                self.run_batch(batch)?;
            }
        }
    }

    /// The server is down, or its disk is full. In the latter case the nodes that it knows keep their leases;
    /// everything else is lost.
    fn renew_held(&mut self, inbox: VecDeque<Arrival>) -> Held {
        for arrival in inbox {
            let Arrival::Report(sent) = arrival else { continue };
            if let Some(reply) = self.controller.renew(&sent.node, &sent.report, self.now)? {
                self.answer_agent(sent.from, &sent.report, false, Ok(reply))?;
            }
        }
        Ok(())
    }

    /// If a fault is imminent, inputs are processed one at a time: which of them it hits must not depend on how inputs
    /// are batched.
    fn batch_max(&mut self) -> usize {
        let is_failing = self.controller.live().is_some_and(|live| live.is_about_to_fail());
        if is_failing || self.killer.is_armed() { 1 } else { self.scenario.batch }
    }

    fn run_batch(&mut self, arrivals: Vec<Arrival>) -> Held {
        let mut batch = Batch::default();
        let now = self.controller.clock.now(self.now);
        for arrival in arrivals {
            let (origin, input) = self.unpack(arrival);
            let live = self.controller.live().ok_or_else(|| Broken("it is down".to_owned()))?;
            live.admit(&mut batch, input, origin, now)?;
        }
        let pending = self.controller.step(batch, self.now)?;
        let (inputs, output) = (pending.inputs(), pending.output());
        promise(output.answers.len() == inputs.len(), || "an input has no answer".to_owned())?;
        let first = inputs.first();
        if let Some(death) = first.and_then(|input| self.killer.strike(input, output)) {
            return self.kill(pending, death);
        }
        match self.commit(pending)? {
            Visibility::Yes(released) => self.send_out(released),
            Visibility::No(end) => self.start_again(end),
        }
    }

    fn unpack(&self, arrival: Arrival) -> (Origin, Input) {
        match arrival {
            Arrival::Request(user_request) => {
                let act = self.clients.act(user_request);
                let was_known = self.oracle.job_of(act).is_some();
                (Origin::Client { user_request, was_known }, clients::input(act))
            }
            Arrival::Report(sent) => {
                let input = Input::Report { node: sent.node.into(), report: sent.report };
                (Origin::Agent(sent.from), input)
            }
            Arrival::EffectDone { effect, result } => {
                (Origin::Internal, Input::EffectDone { effect, result })
            }
            Arrival::Evicted { node } => {
                (Origin::Internal, Input::NodeEvicted { node: node.into() })
            }
            Arrival::Ended { node } => (Origin::Internal, Input::NodeEnded { node: node.into() }),
            Arrival::Kept(request) => (Origin::SavingNode, Input::SaveTree(request)),
            Arrival::Measured(input) | Arrival::Rehearsed(input) | Arrival::Expired(input) => {
                (Origin::Internal, *input)
            }
            Arrival::Tick => (Origin::Internal, Input::Tick),
        }
    }

    /// Writes the result of the step to disk.
    pub(super) fn commit(&mut self, pending: Pending<Origin>) -> Held<Visibility> {
        let now = self.controller.clock.now(self.now);
        let Some(live) = self.controller.live() else {
            return Err(Broken("it is down".to_owned()));
        };
        let (changes, wall) = (&pending.output().changes, pending.output().wall);
        if !changes.is_empty() {
            live.check_touched(changes, now)?;
        }
        match live.commit(pending)? {
            Commit::Done(released) => {
                let Released { changes, revision, .. } = &released;
                if !changes.is_empty() {
                    self.check_unbilled(changes)?;
                    self.oracle.on_committed(changes, wall, Some(*revision))?;
                }
                Ok(Visibility::Yes(released))
            }
            Commit::Failed { is_kept, end } => {
                self.check_unbilled(&end.changes)?;
                if is_kept {
                    self.oracle.on_committed(&end.changes, wall, None)?;
                }
                Ok(Visibility::No(end))
            }
        }
    }

    /// It is on disk, so answers and effects may be sent.
    fn send_out(&mut self, released: Released<Origin>) -> Held {
        let epoch = self.controller.epoch();
        for effect in released.effects() {
            self.provider.carry_out(effect, epoch, self.now, &mut self.agenda);
        }
        self.note_news(&released.changes);
        self.answer_all(released.answers)
    }

    /// There may be news for these nodes. They are notified once, when the instant is over, however inputs were
    /// batched.
    fn note_news(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::NodeChanged { node, .. } => {
                    self.news.insert(node.id);
                }
                Change::JobChanged { job, .. } | Change::ChildCreated { job, .. } => {
                    let members = job.attempt().into_iter().flat_map(|attempt| &attempt.members);
                    self.news.extend(members.map(|member| member.node));
                }
                Change::MemberChanged(change) => {
                    self.news.insert(change.member.node);
                    self.decided.insert(change.job);
                }
                Change::PrincipalSeen(_)
                | Change::WorkspaceChanged(_)
                | Change::WorkspaceGone(_)
                | Change::GovernanceChanged(_)
                | Change::HostsChanged(_)
                | Change::DeploymentChanged(_)
                | Change::JobMetadataChanged { .. }
                | Change::JobGone { .. }
                | Change::DeploymentGone { .. }
                | Change::DatastoreChanged(_)
                | Change::AssetChanged(_)
                | Change::AssetGone { .. }
                | Change::AssetContainerChanged(_)
                | Change::AssetContainerGone { .. }
                | Change::DatastoreGone { .. }
                | Change::ActivityNoted(_)
                | Change::ClusterChanged { .. }
                | Change::JobSubmitted { .. }
                | Change::AttemptEnded(_)
                | Change::TreeSaved(_)
                | Change::LedgerPosted(_)
                | Change::AccountChanged(_)
                | Change::QuotaChanged(_)
                | Change::AccessChanged(_)
                | Change::OperationChanged(_)
                | Change::EffectQueued(_)
                | Change::EffectSettled { .. } => {}
            }
        }
    }

    /// Ends the long polls of agents for which there is news.
    fn poke(&mut self) {
        let mut news = std::mem::take(&mut self.news);
        let decided = std::mem::take(&mut self.decided);
        let Some(live) = self.controller.live() else { return };
        // Once an attempt has a verdict, every member has to know.
        for attempt in decided.iter().filter_map(|job| live.world().job(*job)?.attempt()) {
            if attempt.verdict.is_some() {
                news.extend(attempt.members.iter().map(|member| member.node));
            }
        }
        let mut poked = Vec::new();
        for id in news {
            let Some(node) = live.world().node(id) else { continue };
            let agent = self.provider.vm(&node.name).and_then(|vm| vm.agent);
            if let Some(agent) = agent {
                let desired = desired_for(live.world(), id);
                if self.fleet.poke(agent, &desired, self.now, &mut self.agenda) {
                    let job = desired
                        .assignments
                        .into_iter()
                        .next()
                        .map(|assignment| assignment.job_name);
                    poked.push((agent, job));
                }
            }
        }
        self.slow_down(poked);
    }

    pub(super) fn answer_all(&mut self, answers: Vec<(Origin, Input, InputResult)>) -> Held {
        for (origin, input, answer) in answers {
            match origin {
                Origin::Client { user_request, was_known } => {
                    if self.network.carry_to_client() {
                        let at = self.now + CLIENT_LATENCY;
                        let answer = Box::new(answer);
                        let event = ClientEvent::Answered { answer, was_known };
                        self.agenda.plan(at, Event::Client(user_request, event));
                    }
                }
                Origin::Agent(sender) => {
                    let is_new = has_new_assignment(&input, &answer);
                    let Input::Report { report, .. } = &input else { continue };
                    self.answer_agent(sender, report, is_new, answer)?;
                }
                // Without faults this is very rare: the job's end has to arrive just before its files.
                Origin::SavingNode if answer.is_err() && self.scenario.faults => {
                    self.faults.note(Fault::TreeRefused);
                }
                Origin::SavingNode | Origin::Internal => {}
            }
        }
        Ok(())
    }

    fn answer_agent(
        &mut self,
        to: Sender,
        said: &Report,
        is_new: bool,
        answer: InputResult,
    ) -> Held {
        let Ok(Reply::Desired(desired)) = answer else { return Ok(()) };
        let brings_nothing =
            desired.assignments.len() == said.attempts.len() && !desired.is_news_to(said);
        let Sender { agent, sequence, sent_at, is_news, is_beat } = to;
        let answered = Answered { sequence, sent_at, desired: *desired };
        // A mere renewal of a quiet agent has no other effect, so it need not be sent.
        if is_beat && !is_new && brings_nothing {
            let (fleet, _, mut site) = self.around();
            return fleet.on_beat_answered(&answered, agent, &mut site);
        }
        let carried = self.network.carry(Direction::Reply, agent, is_news || is_new, self.now);
        for at in carried.into_iter().flatten() {
            let Answered { sequence, sent_at, ref desired } = answered;
            let answered = Answered { sequence, sent_at, desired: desired.clone() };
            let event = AgentEvent::Answered(Box::new(answered));
            self.agenda.plan(at, Event::Agent(agent, event));
        }
        Ok(())
    }

    /// A server that was replaced processes what reaches it as if nothing had happened. The store refuses everything
    /// that it wants to write, and it ends.
    pub(super) fn serve_rival(&mut self) -> Held {
        for arrival in std::mem::take(&mut self.rival_inbox) {
            let (origin, input) = self.unpack(arrival);
            let now = self.controller.clock.now(self.now);
            let Some(rival) = self.controller.rival.as_mut() else { continue };
            let mut batch = Batch::default();
            rival.admit(&mut batch, input, origin, now)?;
            let pending = rival.step(batch, now)?;
            if let Some(released) = rival.commit_replaced(pending)? {
                promise(released.changes.is_empty(), || {
                    format!("a server that was replaced could still write: {:?}", released.changes)
                })?;
                self.answer_all(released.answers)?;
                continue;
            }
            self.faults.note(Fault::ControllerFenced);
            let epoch = rival.epoch;
            self.controller.rival = None;
            self.provider.forget_waiting_calls(epoch);
        }
        Ok(())
    }
}
