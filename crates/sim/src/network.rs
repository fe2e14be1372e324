//! The way between agents and the controller: slow at best, and at times lossy.
//!
//! Every latency is above zero, so nothing that is sent at an instant can come back within it.

use std::collections::BTreeMap;

use muster_core::time::Span;

use crate::agenda::AgentId;
use crate::chance::{Chance, Stream};
use crate::clock::{Moment, minutes};
use crate::faults::{Fault, FaultCounts};

/// What reaches the controller does so on a grid, so that inputs meet in one instant and batches are real.
pub(crate) const ARRIVAL_GRID: Span = Span::seconds(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Report,
    Answer,
}

pub(crate) struct Network {
    reports: Chance,
    answers: Chance,
    weather: Chance,
    is_faulty: bool,
    /// Agents whose network is bad at present, and until when.
    patches: BTreeMap<AgentId, Moment>,
    pub(crate) faults: FaultCounts,
}

impl Network {
    pub(crate) fn new(seed: u64, is_faulty: bool) -> Network {
        Network {
            reports: Chance::new(seed, Stream::Reports),
            answers: Chance::new(seed, Stream::Answers),
            weather: Chance::new(seed, Stream::Weather),
            is_faulty,
            patches: BTreeMap::new(),
            faults: FaultCounts::default(),
        }
    }

    pub(crate) fn calm_down(&mut self) {
        self.is_faulty = false;
        self.patches.clear();
    }

    /// When the weather changes next, if it ever does.
    pub(crate) fn next_weather(&mut self) -> Option<Span> {
        self.is_faulty.then(|| self.weather.span(minutes(30), minutes(600)))
    }

    /// A bad patch for one of the agents that are there: long enough, at times, for its lease to run out.
    pub(crate) fn spoil(&mut self, agents: &[AgentId], now: Moment) {
        self.patches.retain(|_, until| *until > now);
        if !self.is_faulty || agents.is_empty() {
            return;
        }
        let agent = agents[self.weather.index(agents.len())];
        let until = now + self.weather.span(Span::seconds(20), Span::seconds(240));
        self.patches.insert(agent, until);
    }

    /// When a message that is sent now is received: never, once or twice. Messages that say something new
    /// are hit more often, as little can go wrong with the others.
    pub(crate) fn carry(
        &mut self,
        direction: Direction,
        agent: AgentId,
        is_news: bool,
        now: Moment,
    ) -> [Option<Moment>; 2] {
        let is_spoilt = self.patches.get(&agent).is_some_and(|until| *until > now);
        let chance = match direction {
            Direction::Report => &mut self.reports,
            Direction::Answer => &mut self.answers,
        };
        // All three are always drawn, so that a quiet message does not move what comes after it.
        let at = now + chance.span(Span::milliseconds(2), Span::milliseconds(150));
        let late = now + chance.span(Span::seconds(1), Span::seconds(90));
        let draw = chance.below(1_000);
        if !self.is_faulty {
            return [Some(at), None];
        }
        let (lost, doubled, delayed) = match (is_spoilt, is_news) {
            (true, _) => (850, 875, 900),
            (false, true) => (15, 25, 40),
            (false, false) => (1, 2, 3),
        };
        let (mishap, received) = match draw {
            draw if draw < lost => (Mishap::Lost, [None, None]),
            draw if draw < doubled => (Mishap::Doubled, [Some(at), Some(late)]),
            draw if draw < delayed => (Mishap::Delayed, [Some(late), None]),
            _ => return [Some(at), None],
        };
        self.faults.note(fault(direction, mishap));
        received
    }
}

enum Mishap {
    Lost,
    Doubled,
    Delayed,
}

fn fault(direction: Direction, mishap: Mishap) -> Fault {
    match (direction, mishap) {
        (Direction::Report, Mishap::Lost) => Fault::ReportLost,
        (Direction::Report, Mishap::Doubled) => Fault::ReportDoubled,
        (Direction::Report, Mishap::Delayed) => Fault::ReportDelayed,
        (Direction::Answer, Mishap::Lost) => Fault::AnswerLost,
        (Direction::Answer, Mishap::Doubled) => Fault::AnswerDoubled,
        (Direction::Answer, Mishap::Delayed) => Fault::AnswerDelayed,
    }
}
