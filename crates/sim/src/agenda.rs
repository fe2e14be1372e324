//! What will happen, in order: by time, then by kind, then in the order it was planned.
//!
//! The kind comes before the order of planning on purpose. A batch sends its effects and answers out
//! together, single inputs one by one; within one kind both come to the same order.

use std::collections::BTreeMap;

use muster_core::Answer;
use muster_core::agent::{Desired, Report};
use muster_core::ids::{EffectId, Epoch};
use muster_core::model::Exit;
use muster_core::time::Elapsed;

use crate::clock::Moment;

/// One boot of one machine: a machine that is made again under its old name has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AgentId(pub(crate) u64);

/// Something that a user wants, by its place in the list of all such things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WishId(pub(crate) usize);

#[derive(Debug)]
pub(crate) enum Event {
    /// The controller comes up again.
    Restart,
    Provider(ProviderEvent),
    /// One agent's network turns bad for a while.
    Weather,
    Agent(AgentId, AgentEvent),
    Client(WishId, ClientEvent),
    Arrival(Arrival),
    Checkpoint,
}

#[derive(Debug)]
pub(crate) enum ProviderEvent {
    /// The call under way for this node has made the machine.
    Made {
        node: Box<str>,
    },
    Booted {
        node: Box<str>,
        made_at: Moment,
    },
    /// The call under way for this node is over.
    Finished {
        node: Box<str>,
    },
}

#[derive(Debug)]
pub(crate) enum AgentEvent {
    Heartbeat,
    Tick,
    Answered(Box<Answered>),
    /// The next thing happens to a task, unless something else was planned for it since.
    Task {
        epoch: Epoch,
        plan: u32,
        due: Due,
    },
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
    Ready,
    Exit(Exit),
}

#[derive(Debug)]
pub(crate) enum ClientEvent {
    Send,
    /// Nobody answered this try.
    TimedOut {
        tries: u32,
    },
    Answered(Box<Answer>),
}

/// Something that reaches the controller.
#[derive(Debug)]
pub(crate) enum Arrival {
    Request(WishId),
    Report(Box<SentReport>),
    EffectDone { effect: EffectId, result: Result<(), String> },
    Tick,
}

#[derive(Debug, Clone)]
pub(crate) struct SentReport {
    pub(crate) agent: AgentId,
    pub(crate) node: Box<str>,
    pub(crate) report: Report,
    pub(crate) sequence: u64,
    /// By the agent's own clock.
    pub(crate) sent_at: Elapsed,
    /// Whether it says anything that no answered report said before.
    pub(crate) is_news: bool,
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
        Event::Provider(_) => 1,
        Event::Weather => 2,
        Event::Agent(..) => 3,
        Event::Client(..) => 4,
        Event::Arrival(_) => 5,
        Event::Checkpoint => 6,
    }
}
