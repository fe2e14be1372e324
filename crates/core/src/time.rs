//! Time as an argument. The core never asks for it.
//!
//! Two clocks, on purpose of different types: leases run on [`Elapsed`] (it cannot be set), ledger and
//! idle timers on [`Wall`] (it survives a restart). The driver makes sure that neither goes backwards.

use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Wall(pub u64);

/// Microseconds of a clock that only counts up while this machine is on (CLOCK_BOOTTIME). Never stored:
/// it means nothing to the next boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Elapsed(pub u64);

/// A length of time in microseconds.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Span(pub u64);

impl Span {
    pub const ZERO: Span = Span(0);

    pub const fn seconds(seconds: u64) -> Span {
        Span(seconds.saturating_mul(1_000_000))
    }

    pub const fn milliseconds(milliseconds: u64) -> Span {
        Span(milliseconds.saturating_mul(1_000))
    }

    pub const fn as_seconds(self) -> u64 {
        self.0 / 1_000_000
    }
}

/// Both clocks, read together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    pub elapsed: Elapsed,
    pub wall: Wall,
}

macro_rules! clock {
    ($clock:ident) => {
        impl Add<Span> for $clock {
            type Output = $clock;

            fn add(self, span: Span) -> $clock {
                $clock(self.0.saturating_add(span.0))
            }
        }

        impl Sub for $clock {
            type Output = Span;

            fn sub(self, earlier: $clock) -> Span {
                Span(self.0.saturating_sub(earlier.0))
            }
        }
    };
}

clock!(Wall);
clock!(Elapsed);
