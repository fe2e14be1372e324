//! Faults of a provider's calls, drawn call by call from streams of their own.

use muster_core::time::Span;

use crate::chance::{Chance, Stream};
use crate::clock::{Moment, minutes};
use crate::faults::Fault;

/// A fault of a create call.
pub(super) enum CreateFault {
    /// Refused at once, without creating anything.
    Refused { words: &'static str },
    /// An error is returned, but the machine appears this much later.
    TimedOut { later: Span },
    /// The call is sent twice, and arrives for the second time this much later.
    Twice { later: Span },
}

pub(super) struct CallFaults {
    is_on: bool,
    creates: Chance,
    boots: Chance,
    deletes: Chance,
    refusals: Chance,
    pub(super) no_capacity_until: Moment,
    pub(super) errors_until: Moment,
}

impl CallFaults {
    pub(super) fn new(seed: u64, is_on: bool) -> CallFaults {
        CallFaults {
            is_on,
            creates: Chance::new(seed, Stream::Calls),
            boots: Chance::of(seed, "boots"),
            deletes: Chance::of(seed, "deletes"),
            refusals: Chance::of(seed, "refusals"),
            no_capacity_until: Moment::default(),
            errors_until: Moment::default(),
        }
    }

    pub(super) fn calm_down(&mut self) {
        self.is_on = false;
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn is_refused(&mut self, now: Moment) -> bool {
        self.is_on && self.errors_until > now && self.refusals.permille(500)
    }

    pub(super) fn draw_create(&mut self, now: Moment) -> Option<CreateFault> {
        if !self.is_on {
            return None;
        }
        let draw = self.creates.below(1_000);
        let later = self.creates.span(Span::seconds(1), minutes(20));
        if self.no_capacity_until > now {
            return Some(CreateFault::Refused { words: "no capacity of this size" });
        }
        if self.is_refused(now) {
            let words =
                if draw.is_multiple_of(2) { "429 Too Many Requests" } else { "500 Server Error" };
            return Some(CreateFault::Refused { words });
        }
        match draw {
            0..25 => Some(CreateFault::TimedOut { later }),
            25..45 => Some(CreateFault::Twice { later }),
            _ => None,
        }
    }

    /// A boot that takes very long, or never ends.
    pub(super) fn draw_boot(&mut self) -> Option<(Fault, Option<Span>)> {
        if !self.is_on {
            return None;
        }
        let draw = self.boots.below(1_000);
        let slow = self.boots.span(minutes(2), minutes(20));
        match draw {
            0..15 => Some((Fault::BootNever, None)),
            15..35 => Some((Fault::BootSlow, Some(slow))),
            _ => None,
        }
    }

    /// Whether a delete call reports success but does nothing.
    pub(super) fn is_without_effect(&mut self) -> bool {
        self.is_on && self.deletes.permille(15)
    }
}
