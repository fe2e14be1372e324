//! The faults there are, how often they come, and how many came.

use std::collections::BTreeMap;
use std::fmt;

use muster_core::time::Span;

use crate::chance::{Chance, Stream};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The controller died with changes that were not committed yet.
    KilledBeforeCommit,
    /// The controller died with the changes on disk, and nobody told.
    KilledAfterCommit,
    ReportLost,
    ReportDoubled,
    ReportDelayed,
    AnswerLost,
    AnswerDoubled,
    AnswerDelayed,
}

impl Fault {
    /// Whether it is one of those that end the controller's process.
    pub fn is_kill(self) -> bool {
        match self {
            Fault::KilledBeforeCommit | Fault::KilledAfterCommit => true,
            Fault::ReportLost
            | Fault::ReportDoubled
            | Fault::ReportDelayed
            | Fault::AnswerLost
            | Fault::AnswerDoubled
            | Fault::AnswerDelayed => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::KilledBeforeCommit => "controller killed before a commit",
            Fault::KilledAfterCommit => "controller killed after a commit",
            Fault::ReportLost => "report lost",
            Fault::ReportDoubled => "report doubled",
            Fault::ReportDelayed => "report delayed",
            Fault::AnswerLost => "answer lost",
            Fault::AnswerDoubled => "answer doubled",
            Fault::AnswerDelayed => "answer delayed",
        })
    }
}

/// How many faults of each kind there were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultCounts(BTreeMap<Fault, u64>);

impl FaultCounts {
    pub(crate) fn note(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> {
        self.0.iter().map(|(fault, count)| (*fault, *count))
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Says at which input the controller dies. It counts inputs that are likely to change something, so that
/// the place does not depend on how inputs are batched; at that place it waits for one that does.
pub(crate) struct Killer {
    chance: Chance,
    /// Candidates still to be let pass; `None` when nobody is to be killed.
    left: Option<u32>,
}

/// One death: on which side of the commit, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Death {
    pub(crate) fault: Fault,
    pub(crate) down: Span,
}

impl Killer {
    /// A few dozen inputs change something for every job, so this is about two deaths a day.
    const CANDIDATES: (u32, u32) = (30, 600);

    pub(crate) fn new(seed: u64, is_on: bool) -> Killer {
        let mut killer = Killer { chance: Chance::new(seed, Stream::Kills), left: None };
        if is_on {
            killer.arm();
        }
        killer
    }

    fn arm(&mut self) {
        let (least, most) = Self::CANDIDATES;
        self.left = Some(self.chance.number(least, most));
    }

    pub(crate) fn calm_down(&mut self) {
        self.left = None;
    }

    /// Whether the controller dies at the next candidate.
    pub(crate) fn is_due(&self) -> bool {
        self.left == Some(0)
    }

    pub(crate) fn pass(&mut self) {
        self.left = self.left.map(|left| left.saturating_sub(1));
    }

    /// The candidate does change something: how the controller dies.
    pub(crate) fn strike(&mut self) -> Death {
        let sides = [(1, Fault::KilledBeforeCommit), (1, Fault::KilledAfterCommit)];
        let fault = self.chance.weighted(&sides);
        // Half of them are back before any lease has run out.
        let longest = self.chance.weighted(&[(1, Span::seconds(15)), (1, Span::seconds(120))]);
        let down = self.chance.span(Span(1), longest);
        self.arm();
        Death { fault, down }
    }
}
