//! The network between agents and the server: slow at best, sometimes lossy, sometimes disconnected.
//!
//! Every latency is above zero, so the answer to a message never arrives in the instant in which the message was sent.

use std::collections::BTreeMap;

use muster_core::time::Span;

use crate::agenda::AgentId;
use crate::chance::{Chance, Stream};
use crate::clock::Moment;
use crate::faults::{Fault, FaultCounts};

/// Messages reach the server on a grid of time, so that several inputs arrive in one instant and can be batched.
pub(crate) const ARRIVAL_GRID: Span = Span::seconds(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Report,
    Reply,
}

/// What is wrong with one agent's network, and until when.
#[derive(Debug, Clone, Copy, Default)]
struct Trouble {
    lossy: Moment,
    late: Moment,
    no_reports: Moment,
    no_answers: Moment,
}

pub(crate) struct Network {
    reports: Chance,
    answers: Chance,
    client_answers: Chance,
    is_faulty: bool,
    troubles: BTreeMap<AgentId, Trouble>,
    pub(crate) faults: FaultCounts,
}

impl Network {
    pub(crate) fn new(seed: u64, is_faulty: bool) -> Network {
        Network {
            reports: Chance::new(seed, Stream::Reports),
            answers: Chance::new(seed, Stream::Answers),
            client_answers: Chance::new(seed, Stream::ClientAnswers),
            is_faulty,
            troubles: BTreeMap::new(),
            faults: FaultCounts::default(),
        }
    }

    pub(crate) fn calm_down(&mut self) {
        self.is_faulty = false;
        self.troubles.clear();
    }

    pub(crate) fn is_faulty(&self) -> bool {
        self.is_faulty
    }

    fn trouble(&mut self, agent: AgentId) -> &mut Trouble {
        self.troubles.entry(agent).or_default()
    }

    /// Loses most messages of this agent.
    pub(crate) fn spoil(&mut self, agent: AgentId, until: Moment) {
        let trouble = self.trouble(agent);
        trouble.lossy = trouble.lossy.max(until);
    }

    /// Delays most messages of this agent.
    pub(crate) fn slow_down(&mut self, agent: AgentId, until: Moment) {
        let trouble = self.trouble(agent);
        trouble.late = trouble.late.max(until);
    }

    pub(crate) fn cut(&mut self, agent: AgentId, direction: Direction, until: Moment) {
        let trouble = self.trouble(agent);
        let cut = match direction {
            Direction::Report => &mut trouble.no_reports,
            Direction::Reply => &mut trouble.no_answers,
        };
        *cut = until.max(*cut);
    }

    pub(crate) fn cut_both_ways(&mut self, agent: AgentId, until: Moment) {
        self.cut(agent, Direction::Report, until);
        self.cut(agent, Direction::Reply, until);
    }

    pub(crate) fn is_troubled(&self, agent: AgentId, now: Moment) -> bool {
        self.troubles.get(&agent).is_some_and(|trouble| {
            let Trouble { lossy, late, no_reports, no_answers } = *trouble;
            lossy.max(late).max(no_reports).max(no_answers) > now
        })
    }

    /// Whether this agent gets an answer to a request that is not one of its reports.
    pub(crate) fn is_connected(&self, agent: AgentId, now: Moment) -> bool {
        let cut = |trouble: &Trouble| trouble.no_reports.max(trouble.no_answers) > now;
        !self.troubles.get(&agent).is_some_and(cut)
    }

    pub(crate) fn forget(&mut self, agent: AgentId) {
        self.troubles.remove(&agent);
    }

    /// Whether an answer to a client gets through.
    pub(crate) fn carry_to_client(&mut self) -> bool {
        if self.client_answers.permille(12) && self.is_faulty {
            self.faults.note(Fault::ClientAnswerLost);
            return false;
        }
        true
    }

    /// When a message that is sent now arrives: never, once or twice. Messages with news are hit more often, because
    /// faults of other messages have little effect.
    pub(crate) fn carry(
        &mut self,
        direction: Direction,
        agent: AgentId,
        is_news: bool,
        now: Moment,
    ) -> [Option<Moment>; 2] {
        let trouble = self.troubles.get(&agent).copied().unwrap_or_default();
        let (chance, cut) = match direction {
            Direction::Report => (&mut self.reports, trouble.no_reports),
            Direction::Reply => (&mut self.answers, trouble.no_answers),
        };
        // All three are always drawn, so that a quiet message does not change the draws after it.
        let at = now + chance.span(Span::milliseconds(2), Span::milliseconds(150));
        let late = now + chance.span(Span::seconds(1), Span::seconds(90));
        let draw = chance.below(1_000);
        if !self.is_faulty {
            return [Some(at), None];
        }
        if cut > now {
            return [None, None];
        }
        let (lost, doubled, delayed) = match (trouble.lossy > now, trouble.late > now, is_news) {
            (true, _, _) => (850, 875, 900),
            (false, true, _) => (100, 250, 850),
            (false, false, true) => (15, 25, 40),
            (false, false, false) => (5, 10, 15),
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
        (Direction::Reply, Mishap::Lost) => Fault::AnswerLost,
        (Direction::Reply, Mishap::Doubled) => Fault::AnswerDoubled,
        (Direction::Reply, Mishap::Delayed) => Fault::AnswerDelayed,
    }
}
