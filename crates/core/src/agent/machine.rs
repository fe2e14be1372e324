//! The pure state machine of a node: it merges what is desired with what the node holds, keeps the lease, and
//! decides what to journal.
//!
//! The runtime around it (the real agent, or the simulator) feeds it events and carries out the [`Action`]s in
//! order. The record of a `Journal` action must be on disk before any later action is carried out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Assignment, AttemptPhase, AttemptReport, Desired, EpochRange, Report};
use crate::ids::Epoch;
use crate::lease::{LEASE_MAX, share};
use crate::model::{Exit, Spans};
use crate::planted::{Bug, is_planted};
use crate::time::{Elapsed, Span};

/// The time limits by which a node acts when it does not hear from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The lease that the other spans are meant for. Under a shorter lease they shrink in proportion.
    pub lease: Span,
    /// How long a process has between SIGTERM and SIGKILL.
    pub stop_grace: Span,
    /// How long before the end of the lease every process is sent SIGTERM. It is longer than the grace period, so
    /// that nothing still runs when the server may give the job to another node.
    pub lease_margin: Span,
    /// How long after the end of its lease a node that still gets no answer ends itself.
    pub alone_max: Span,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            lease: LEASE_MAX,
            stop_grace: Span::seconds(10),
            lease_margin: Span::seconds(15),
            alone_max: Span::seconds(60),
        }
    }
}

impl Timing {
    fn under(self, lease: Span) -> Timing {
        let share = |span| share(span, self.lease, lease);
        Timing {
            lease,
            stop_grace: share(self.stop_grace),
            lease_margin: share(self.lease_margin),
            alone_max: share(self.alone_max),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Journal(Record),
    /// Prepare the attempt, and start it if `go` is set; otherwise call `on_prepared` once it is prepared.
    Start(Assignment),
    /// Start the attempt, which is prepared.
    Go(Epoch),
    /// Notify the job that its node will be evicted, and how long it has.
    Notice {
        epoch: Epoch,
        within: Span,
    },
    Signal {
        epoch: Epoch,
        signal: Signal,
    },
    /// Report at once: something that the server is waiting for has changed.
    Report,
    /// End the agent: nothing runs any more, and the node is no longer needed.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Kill,
}

/// A line of the journal, which survives a restart of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// Never accept this epoch or an earlier one again.
    Floor(Epoch),
    Took(Epoch),
    Ended {
        epoch: Epoch,
        exit: Exit,
    },
    Forgotten(Epoch),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Held {
    /// Part of a batch. It starts when the attempt before it has ended.
    Waiting(Box<Assignment>),
    Preparing {
        stop: Option<Stop>,
        start: Start,
    },
    Running {
        stop: Option<Stop>,
        timeout_at: Option<Elapsed>,
    },
    Ended {
        exit: Exit,
    },
}

/// What an attempt needs before it can start: it is prepared, and the server has confirmed that all members are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Start {
    is_ready: bool,
    go: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stop {
    kill_at: Elapsed,
    why: StopReason,
    killed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopReason {
    Unwanted,
    TimedOut,
    Evicted,
}

#[derive(Debug, Clone)]
pub struct Machine {
    boot_id: Box<str>,
    address: Box<str>,
    timing: Timing,
    /// `timing`, scaled to the lease that the server grants.
    leased: Timing,
    floor: Epoch,
    held: BTreeMap<Epoch, Held>,
    /// Measurements of attempts that have ended. They are not journalled, because no decision depends on them.
    spans: BTreeMap<Epoch, Spans>,
    /// For attempts that are part of a batch: since when each has its place, and for how long each had it. Not journalled
    /// either.
    since: BTreeMap<Epoch, Elapsed>,
    held_for: BTreeMap<Epoch, Span>,
    lease_until: Elapsed,
    /// The newest report that was answered. Answers to older reports are ignored.
    answered: u64,
    is_ending: bool,
}

impl Machine {
    /// A node that has just started. It has no lease yet, so it ends itself if no answer ever arrives.
    pub fn new(boot_id: &str, address: &str, timing: Timing, now: Elapsed) -> Machine {
        Machine {
            boot_id: boot_id.into(),
            address: address.into(),
            timing,
            leased: timing,
            floor: Epoch(0),
            held: BTreeMap::new(),
            spans: BTreeMap::new(),
            since: BTreeMap::new(),
            held_for: BTreeMap::new(),
            lease_until: now,
            answered: 0,
            is_ending: false,
        }
    }

    /// The same node after its agent restarted: its processes have ended, but their endings still have to be reported.
    pub fn recover(mut self, records: &[Record]) -> Machine {
        for record in records {
            match record {
                Record::Floor(epoch) => self.floor = self.floor.max(*epoch),
                Record::Took(epoch) => {
                    self.floor = self.floor.max(*epoch);
                    self.held.insert(*epoch, Held::Ended { exit: Exit::Stopped });
                }
                Record::Ended { epoch, exit } => {
                    self.held.insert(*epoch, Held::Ended { exit: exit.clone() });
                }
                Record::Forgotten(epoch) => {
                    self.held.remove(epoch);
                }
            }
        }
        self
    }

    pub fn report(&self) -> Report {
        let phases = self.held.iter().filter_map(|(epoch, held)| {
            let phase = match held {
                Held::Waiting(_) => return None,
                Held::Preparing { start, .. } if start.is_ready => AttemptPhase::Ready,
                Held::Preparing { .. } => AttemptPhase::Preparing,
                Held::Running { stop: Some(stop), .. } if stop.why == StopReason::Evicted => {
                    AttemptPhase::Evicting
                }
                Held::Running { .. } => AttemptPhase::Running,
                Held::Ended { exit } => AttemptPhase::Ended(exit.clone()),
            };
            Some((*epoch, phase))
        });
        let attempts = phases.map(|(epoch, phase)| AttemptReport {
            epoch,
            spans: self.spans.get(&epoch).copied(),
            held: self.held_for.get(&epoch).copied(),
            phase,
        });
        Report {
            boot_id: self.boot_id.clone(),
            address: self.address.clone(),
            floor: self.floor,
            attempts: attempts.collect(),
            waiting: self.waiting(),
        }
    }

    /// The attempts that it has not begun, as ranges.
    fn waiting(&self) -> Vec<EpochRange> {
        let mut ranges: Vec<EpochRange> = Vec::new();
        let waiting = self.held.iter().filter(|(_, held)| matches!(held, Held::Waiting(_)));
        for (epoch, _) in waiting {
            match ranges.last_mut() {
                Some(range) if range.last.0 + 1 == epoch.0 => range.last = *epoch,
                _ => ranges.push(EpochRange { first: *epoch, last: *epoch }),
            }
        }
        ranges
    }

    /// The server answered the report with number `sequence`, which was sent at `sent_at`. The numbers increase.
    pub fn on_desired(
        &mut self,
        desired: &Desired,
        sequence: u64,
        sent_at: Elapsed,
        now: Elapsed,
    ) -> Vec<Action> {
        if sequence <= self.answered {
            return Vec::new();
        }
        self.answered = sequence;
        let from = if is_planted(Bug::LeaseFromAnswer) { now } else { sent_at };
        self.lease_until = from + desired.lease;
        self.leased = self.timing.under(desired.lease);
        self.is_ending |= desired.end;
        let mut actions = Vec::new();
        if desired.end {
            self.return_waiting();
        }
        self.forget(&desired.acknowledged, &mut actions);
        let unwanted: Vec<Epoch> = self
            .held
            .keys()
            .filter(|epoch| **epoch < desired.as_of)
            .filter(|epoch| {
                let waits = matches!(self.held.get(epoch), Some(Held::Waiting(_)));
                let mut wanted = desired.assignments.iter();
                !wanted.any(|one| one.covers(**epoch) && !(waits && one.is_recalled))
            })
            .copied()
            .collect();
        for epoch in unwanted {
            self.stop(epoch, StopReason::Unwanted, self.patient(now), &mut actions);
        }
        let may_start = !self.is_ending && !self.is_lease_over(now);
        if may_start {
            for assignment in &desired.assignments {
                self.take_on(assignment, now, &mut actions);
                self.on_eviction_notice(assignment, now, &mut actions);
            }
        }
        // This follows the assignments, because those below the new floor have just been accepted.
        if may_start && desired.floor > self.floor {
            self.floor = desired.floor;
            actions.push(Action::Journal(Record::Floor(desired.floor)));
            actions.push(Action::Report);
        }
        self.end_if_done(now, &mut actions);
        actions
    }

    fn forget(&mut self, acknowledged: &[Epoch], actions: &mut Vec<Action>) {
        for epoch in acknowledged {
            if let Some(Held::Ended { .. }) = self.held.get(epoch) {
                self.held.remove(epoch);
                self.spans.remove(epoch);
                self.held_for.remove(epoch);
                actions.push(Action::Journal(Record::Forgotten(*epoch)));
            }
        }
    }

    fn take_on(&mut self, assignment: &Assignment, now: Elapsed, actions: &mut Vec<Action>) {
        if let Some(held) = self.held.get_mut(&assignment.epoch) {
            if let Held::Preparing { stop: None, start } = held
                && assignment.go
                && !start.go
            {
                start.go = true;
                actions.extend(start.is_ready.then_some(Action::Go(assignment.epoch)));
            }
            return;
        }
        if assignment.epoch <= self.floor && !is_planted(Bug::FloorIgnored) {
            return;
        }
        let followers: Vec<Assignment> = match assignment.is_recalled {
            true => Vec::new(),
            false => assignment.of_followers().collect(),
        };
        self.floor = followers.last().map_or(assignment.epoch, |last| last.epoch);
        if !followers.is_empty() {
            self.since.insert(assignment.epoch, now);
            // After a restart it must start none of them; then it does not have them any more.
            actions.push(Action::Journal(Record::Floor(self.floor)));
        }
        for follower in followers {
            self.held.insert(follower.epoch, Held::Waiting(Box::new(follower)));
        }
        self.begin(assignment.clone(), actions);
    }

    fn begin(&mut self, assignment: Assignment, actions: &mut Vec<Action>) {
        let start = Start { is_ready: false, go: assignment.go };
        self.held.insert(assignment.epoch, Held::Preparing { stop: None, start });
        actions.push(Action::Journal(Record::Took(assignment.epoch)));
        actions.push(Action::Start(assignment));
    }

    /// An attempt has ended: the next one of its batch takes its place.
    fn begin_next(&mut self, ended: Epoch, now: Elapsed, actions: &mut Vec<Action>) {
        let Some(since) = self.since.remove(&ended) else { return };
        self.held_for.insert(ended, now - since);
        let next = Epoch(ended.0 + 1);
        if let Some(Held::Waiting(assignment)) = self.held.get(&next) {
            let assignment = (**assignment).clone();
            self.since.insert(next, now);
            self.begin(assignment, actions);
        }
    }

    /// Returns every attempt that it has not begun.
    fn return_waiting(&mut self) {
        self.held.retain(|_, held| !matches!(held, Held::Waiting(_)));
    }

    /// A node of this attempt will be evicted: a running process is asked to end, and has longer than usual to do so.
    fn on_eviction_notice(
        &mut self,
        assignment: &Assignment,
        now: Elapsed,
        actions: &mut Vec<Action>,
    ) {
        let Some(within) = assignment.evict else { return };
        if let Some(Held::Running { stop: stop @ None, .. }) = self.held.get_mut(&assignment.epoch)
        {
            *stop = Some(Stop { kill_at: now + within, why: StopReason::Evicted, killed: false });
            let epoch = assignment.epoch;
            actions.push(Action::Notice { epoch, within });
            actions.push(Action::Signal { epoch, signal: Signal::Terminate });
            actions.push(Action::Report);
        }
    }

    /// An attempt that was not to start at once is prepared.
    pub fn on_prepared(&mut self, epoch: Epoch) -> Vec<Action> {
        match self.held.get_mut(&epoch) {
            Some(Held::Preparing { stop: None, start }) => {
                start.is_ready = true;
                // `go` is already set if the server does not wait for all members to be ready.
                vec![if start.go { Action::Go(epoch) } else { Action::Report }]
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// The process of this epoch has started; it may run for `timeout`.
    pub fn on_started(&mut self, epoch: Epoch, timeout: Option<Span>, now: Elapsed) -> Vec<Action> {
        let Some(Held::Preparing { stop, .. }) = self.held.get(&epoch) else { return Vec::new() };
        let stop = *stop;
        let timeout_at = timeout.map(|timeout| now + timeout);
        self.held.insert(epoch, Held::Running { stop, timeout_at });
        let mut actions = vec![Action::Report];
        // It had to stop while it was being prepared, when there was no process to signal yet.
        if stop.is_some() {
            actions.insert(0, Action::Signal { epoch, signal: Signal::Terminate });
        }
        actions
    }

    /// The process of this epoch has ended and only its outputs are still being saved, so its timeout no longer counts.
    pub fn on_ending(&mut self, epoch: Epoch) {
        if let Some(Held::Running { timeout_at, .. }) = self.held.get_mut(&epoch) {
            *timeout_at = None;
        }
    }

    /// How long the attempt's files took. Called before [`Machine::on_exited`], and reported together with it.
    pub fn on_measured(&mut self, epoch: Epoch, spans: Spans) {
        if self.held.contains_key(&epoch) {
            self.spans.insert(epoch, spans);
        }
    }

    /// The process of this epoch has ended, or could not be started.
    pub fn on_exited(&mut self, epoch: Epoch, exit: Exit, now: Elapsed) -> Vec<Action> {
        let stop = match self.held.get(&epoch) {
            Some(Held::Preparing { stop, .. } | Held::Running { stop, .. }) => *stop,
            Some(Held::Waiting(_) | Held::Ended { .. }) | None => return Vec::new(),
        };
        // A process that was asked to stop did not finish by itself, whatever its exit code is.
        let exit = match stop.map(|stop| stop.why) {
            None => exit,
            Some(StopReason::Unwanted) => Exit::Stopped,
            Some(StopReason::TimedOut) => Exit::TimedOut,
            // After an eviction notice, however, it may have had the time to finish.
            Some(StopReason::Evicted) if exit.is_success() => exit,
            Some(StopReason::Evicted) => Exit::Evicted,
        };
        self.held.insert(epoch, Held::Ended { exit: exit.clone() });
        let mut actions = vec![Action::Journal(Record::Ended { epoch, exit })];
        if self.is_lease_over(now) {
            self.return_waiting();
        }
        self.begin_next(epoch, now, &mut actions);
        actions.push(Action::Report);
        self.end_if_done(now, &mut actions);
        actions
    }

    /// The runtime wants the node to end: stops everything, then ends.
    pub fn on_leave(&mut self, now: Elapsed) -> Vec<Action> {
        self.is_ending = true;
        self.return_waiting();
        let mut actions = Vec::new();
        let epochs: Vec<Epoch> = self.held.keys().copied().collect();
        for epoch in epochs {
            self.stop(epoch, StopReason::Unwanted, self.patient(now), &mut actions);
        }
        self.end_if_done(now, &mut actions);
        actions
    }

    /// Acts on every time limit that has been reached.
    pub fn on_tick(&mut self, now: Elapsed) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.is_lease_over(now) {
            self.return_waiting();
        }
        let epochs: Vec<Epoch> = self.held.keys().copied().collect();
        for epoch in epochs {
            if self.is_lease_over(now) {
                self.stop(epoch, StopReason::Unwanted, self.kill_by(), &mut actions);
            }
            if let Some(Held::Running { timeout_at: Some(at), .. }) = self.held.get(&epoch)
                && *at <= now
            {
                self.stop(epoch, StopReason::TimedOut, self.patient(now), &mut actions);
            }
            self.kill_if_due(epoch, now, &mut actions);
        }
        self.end_if_done(now, &mut actions);
        actions
    }

    /// When `on_tick` has something to do even if no event arrives.
    pub fn next_tick(&self) -> Elapsed {
        let alone = self.lease_until + self.leased.alone_max;
        let lease = self.stop_at();
        let held = self.held.values().filter_map(|held| match held {
            Held::Preparing { stop: Some(stop), .. } | Held::Running { stop: Some(stop), .. } => {
                let next = if stop.kill_at > self.kill_by() { lease } else { stop.kill_at };
                (!stop.killed).then_some(next)
            }
            Held::Running { stop: None, timeout_at } => {
                Some(timeout_at.map_or(lease, |at| at.min(lease)))
            }
            Held::Waiting(_) | Held::Preparing { stop: None, .. } => Some(lease),
            Held::Ended { .. } => None,
        });
        held.min().map_or(alone, |at| at.min(alone))
    }

    fn stop_at(&self) -> Elapsed {
        Elapsed(self.lease_until.0.saturating_sub(self.leased.lease_margin.0))
    }

    /// When every process must have been killed, which is before the lease ends. An agent that wakes up later kills
    /// them at once.
    fn kill_by(&self) -> Elapsed {
        self.stop_at() + self.leased.stop_grace
    }

    fn patient(&self, now: Elapsed) -> Elapsed {
        now + self.timing.stop_grace
    }

    fn is_lease_over(&self, now: Elapsed) -> bool {
        self.stop_at() <= now
    }

    fn stop(&mut self, epoch: Epoch, why: StopReason, kill_at: Elapsed, actions: &mut Vec<Action>) {
        match self.held.get_mut(&epoch) {
            // The server takes it back once it is missing in a report.
            Some(Held::Waiting(_)) => {
                self.held.remove(&epoch);
                actions.push(Action::Report);
            }
            Some(Held::Preparing { stop, .. } | Held::Running { stop, .. }) if stop.is_none() => {
                *stop = Some(Stop { kill_at, why, killed: false });
                actions.push(Action::Signal { epoch, signal: Signal::Terminate });
            }
            // It was given more time before, but nothing may run once the lease is over.
            Some(
                Held::Preparing { stop: Some(stop), .. } | Held::Running { stop: Some(stop), .. },
            ) => stop.kill_at = stop.kill_at.min(kill_at),
            Some(_) | None => {}
        }
    }

    fn kill_if_due(&mut self, epoch: Epoch, now: Elapsed, actions: &mut Vec<Action>) {
        if let Some(
            Held::Preparing { stop: Some(stop), .. } | Held::Running { stop: Some(stop), .. },
        ) = self.held.get_mut(&epoch)
            && stop.kill_at <= now
            && !stop.killed
        {
            stop.killed = true;
            actions.push(Action::Signal { epoch, signal: Signal::Kill });
        }
    }

    /// Ends the node when that was requested, or after too long without an answer, but never while a process runs.
    /// Endings that were not acknowledged do not delay it: the server has given up on this node by then.
    fn end_if_done(&mut self, now: Elapsed, actions: &mut Vec<Action>) {
        let is_alone = self.lease_until + self.leased.alone_max <= now;
        let runs = self.held.values().any(|held| match held {
            Held::Preparing { .. } | Held::Running { .. } => true,
            Held::Waiting(_) | Held::Ended { .. } => false,
        });
        if (self.is_ending || is_alone) && !runs {
            self.is_ending = true;
            actions.push(Action::End);
        }
    }
}
