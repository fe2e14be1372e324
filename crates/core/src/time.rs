//! Time as an argument: the core never reads a clock.
//!
//! There are two clocks, which deliberately have different types. Leases use [`Elapsed`], which cannot be set; the
//! ledger and idle times use [`Wall`], which survives a restart. The driver ensures that neither runs backwards.

use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Wall(pub u64);

/// Microseconds of a clock that only counts up while the host is running (CLOCK_BOOTTIME). It is never stored, because
/// it has no meaning after the next boot.
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
