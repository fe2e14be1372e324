//! What will happen, in order: by time, then by kind, then in the order in which it was planned.
//!
//! The kind deliberately comes before the order of planning. A batch sends its effects and answers together, single
//! inputs one by one; within one kind, both have the same order.

use std::collections::BTreeMap;

use muster_core::agent::{Desired, Record, Report};
use muster_core::ids::{EffectId, Epoch};
use muster_core::model::Exit;
use muster_core::time::Elapsed;
use muster_core::{Input, InputResult, NodeRequest, SaveRequest};

use crate::clock::Moment;
use crate::mischief::Mischief;
use crate::network::Direction;

/// One boot of one machine. A machine that is created again under its old name has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AgentId(pub(crate) u64);

/// A request of a user, by its index in the list of all requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestId(pub(crate) usize);

#[derive(Debug)]
pub(crate) enum Event {
    /// The server starts again.
    Restart,
    /// A problem of the server's host is over.
    Mended(Mended),
    Provider(ProviderEvent),
    Mischief(Mischief),
    /// This agent is disconnected until then: in this direction, or in both if none is given.
    Cut(AgentId, Option<Direction>, Moment),
    Agent(AgentId, AgentEvent),
    Client(RequestId, ClientEvent),
    /// A user cancels a job that is just about to end.
    Race {
        job: Box<str>,
    },
    Arrival(Arrival),
    /// Every quiet agent renews its lease.
    Beat,
    OrphanSearch,
    /// The server looks for jobs that have been kept for long enough.
    Retention,
    Checkpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mended {
    Clock,
    Stall,
}

#[derive(Debug)]
pub(crate) enum ProviderEvent {
    /// A create call has created its machine, perhaps long after it was answered.
    Made { request: Box<NodeRequest> },
    Booted {
        node: Box<str>,
        made_at: Moment,
        /// The journal of an earlier agent on this machine.
        journal: Vec<Record>,
    },
    /// The call under way for this node is over.
    Finished { node: Box<str> },
    /// A create call that was sent twice arrives for the second time.
    Repeated { request: Box<NodeRequest> },
    /// The provider evicts the machine.
    Evicted { node: Box<str>, made_at: Moment, is_noticed: bool },
    /// The provider finds that all processes of the node have ended.
    Ended { node: Box<str> },
    /// The deletion of an orphan is carried out.
    Swept { node: Box<str>, made_at: Moment },
}

#[derive(Debug)]
pub(crate) enum AgentEvent {
    /// Reports, unless another report was planned since.
    Heartbeat {
        plan: u32,
    },
    /// The server has news for it, so its long poll returns.
    Poke,
    Tick,
    Answered(Box<Answered>),
    /// The next event of a task, unless another one was planned since.
    Task {
        epoch: Epoch,
        plan: u32,
        due: Due,
    },
    /// A running task saves its checkpoint.
    Keep {
        epoch: Epoch,
    },
    /// A pause is over.
    Resume,
}

#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) sequence: u64,
    pub(crate) sent_at: Elapsed,
    pub(crate) desired: Desired,
}

#[derive(Debug, Clone)]
pub(crate) enum Due {
    Fetch,
    /// It is prepared.
    Ready,
    /// It was told that all members are ready.
    Go,
    Exit(Exit),
    /// It kills its agent.
    Poison,
}

#[derive(Debug)]
pub(crate) enum ClientEvent {
    Send,
    /// This request was not answered in time.
    TimedOut {
        tries: u32,
    },
    Answered {
        answer: Box<InputResult>,
        /// Whether the requested job was on disk before the request was processed.
        was_known: bool,
    },
}

/// Something that reaches the server.
#[derive(Debug)]
pub(crate) enum Arrival {
    Request(RequestId),
    Report(Box<SentReport>),
    EffectDone {
        effect: EffectId,
        result: Result<(), String>,
    },
    Evicted {
        node: Box<str>,
    },
    Ended {
        node: Box<str>,
    },
    /// A node saves the files of a task.
    Kept(Box<SaveRequest>),
    /// A user rehearses an eviction.
    Rehearsed(Box<Input>),
    /// The capacity of hosts, when a server starts.
    Measured(Box<Input>),
    /// Ended jobs that may be due for removal.
    Expired(Box<Input>),
    Tick,
}

#[derive(Debug, Clone)]
pub(crate) struct SentReport {
    pub(crate) from: Sender,
    pub(crate) node: Box<str>,
    pub(crate) report: Report,
}

/// The sender of a report, and what it needs to interpret the answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) agent: AgentId,
    pub(crate) sequence: u64,
    /// By the agent's own clock.
    pub(crate) sent_at: Elapsed,
    /// Whether it contains anything that no answered report contained before.
    pub(crate) is_news: bool,
    /// Whether it represents many reports that would all have been the same.
    pub(crate) is_beat: bool,
}

#[derive(Default)]
pub(crate) struct Agenda {
    entries: BTreeMap<(Moment, u8, u64), Event>,
    planned: u64,
}

impl Agenda {
    pub(crate) fn plan(&mut self, at: Moment, event: Event) {
        self.planned += 1;
        self.entries.insert((at, kind(&event), self.planned), event);
    }

    pub(crate) fn next_at(&self) -> Option<Moment> {
        self.entries.first_key_value().map(|((at, _, _), _)| *at)
    }

    /// The next event, if it happens at `now`.
    pub(crate) fn pop(&mut self, now: Moment) -> Option<Event> {
        if self.next_at()? > now {
            return None;
        }
        self.entries.pop_first().map(|(_, event)| event)
    }
}

fn kind(event: &Event) -> u8 {
    match event {
        Event::Restart => 0,
        Event::Mended(_) => 1,
        Event::Provider(_) => 2,
        Event::Mischief(_) => 3,
        Event::Cut(..) => 4,
        Event::Agent(..) => 5,
        Event::Client(..) => 6,
        Event::Race { .. } => 7,
        Event::Arrival(_) => 8,
        Event::Beat => 9,
        Event::OrphanSearch => 10,
        Event::Retention => 11,
        Event::Checkpoint => 12,
    }
}
