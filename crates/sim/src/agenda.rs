//! What will happen, in order: by time, then by kind, then in the order it was planned.
//!
//! The kind comes before the order of planning on purpose. A batch sends its effects and answers out
//! together, single inputs one by one; within one kind both come to the same order.

use std::collections::BTreeMap;

use muster_core::agent::{Desired, Record, Report};
use muster_core::ids::{EffectId, Epoch};
use muster_core::model::Exit;
use muster_core::time::Elapsed;
use muster_core::{Input, InputResult, NodeRequest, SaveRequest};

use crate::clock::Moment;
use crate::mischief::Mischief;
use crate::network::Direction;

/// One boot of one machine: a machine that is made again under its old name has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AgentId(pub(crate) u64);

/// Something that a user wants, by its place in the list of all such things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestId(pub(crate) usize);

#[derive(Debug)]
pub(crate) enum Event {
    /// The controller comes up again.
    Restart,
    /// Something that was wrong with the controller's machine is right again.
    Mended(Mended),
    Provider(ProviderEvent),
    Mischief(Mischief),
    /// This agent is cut off until then, both ways if none is given.
    Cut(AgentId, Option<Direction>, Moment),
    Agent(AgentId, AgentEvent),
    Client(RequestId, ClientEvent),
    /// Someone wants a job to end that is just about to.
    Race {
        job: Box<str>,
    },
    Arrival(Arrival),
    /// Every quiet agent tells the controller that it is there.
    Beat,
    OrphanSearch,
    Checkpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mended {
    Clock,
    Stall,
}

#[derive(Debug)]
pub(crate) enum ProviderEvent {
    /// A create call has made its machine, perhaps long after it was answered.
    Made { request: Box<NodeRequest> },
    Booted {
        node: Box<str>,
        made_at: Moment,
        /// What an earlier agent of this machine wrote down.
        journal: Vec<Record>,
    },
    /// The call under way for this node is over.
    Finished { node: Box<str> },
    /// A create call that was sent twice arrives for the second time.
    Repeated { request: Box<NodeRequest> },
    /// The provider takes the machine away.
    Evicted { node: Box<str>, made_at: Moment, is_noticed: bool },
    /// It is seen that nothing of the node lives any more.
    Ended { node: Box<str> },
    /// The sweeper's delete is carried out.
    Swept { node: Box<str>, made_at: Moment },
}

#[derive(Debug)]
pub(crate) enum AgentEvent {
    /// Reports, unless other plans were made since.
    Heartbeat {
        plan: u32,
    },
    /// The controller has news for it: its long poll comes back.
    Poke,
    Tick,
    Answered(Box<Answered>),
    /// The next thing happens to a task, unless something else was planned for it since.
    Task {
        epoch: Epoch,
        plan: u32,
        due: Due,
    },
    /// A task that runs keeps what it would leave.
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
    /// It was told that all members are.
    Go,
    Exit(Exit),
    /// It takes its agent down with it.
    Poison,
}

#[derive(Debug)]
pub(crate) enum ClientEvent {
    Send,
    /// Nobody answered this try.
    TimedOut {
        tries: u32,
    },
    Answered {
        answer: Box<InputResult>,
        /// Whether the job that was asked for was on disk before the request was looked at.
        was_known: bool,
    },
}

/// Something that reaches the controller.
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
    /// A node keeps what a task would leave.
    Kept(Box<SaveRequest>),
    /// Somebody asks for an eviction.
    Rehearsed(Box<Input>),
    /// Of hosts, when a controller starts.
    Measured(Box<Input>),
    Tick,
}

#[derive(Debug, Clone)]
pub(crate) struct SentReport {
    pub(crate) from: Sender,
    pub(crate) node: Box<str>,
    pub(crate) report: Report,
}

/// Who sent a report, and what the answer must say to be understood.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) agent: AgentId,
    pub(crate) sequence: u64,
    /// By the agent's own clock.
    pub(crate) sent_at: Elapsed,
    /// Whether it says anything that no answered report said before.
    pub(crate) is_news: bool,
    /// Whether it is one of those that stand for many that would all have said the same.
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
        Event::Checkpoint => 11,
    }
}
