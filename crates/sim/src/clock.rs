//! Virtual time: one count of microseconds, from which both of the controller's clocks are made.

use std::fmt;
use std::ops::{Add, Sub};

use muster_core::time::{Elapsed, Now, Span, Wall};

/// Monday 2026-01-05, 00:00 UTC: any day will do, but it must always be the same one.
const WALL_START: u64 = 1_767_571_200_000_000;
/// The controller's machine had been on for an hour. The two clocks differ, so that one taken for the
/// other shows at once.
const ELAPSED_START: u64 = 3_600_000_000;

pub(crate) const MINUTE: Span = minutes(1);
pub(crate) const HOUR: Span = minutes(60);
pub(crate) const DAY: Span = minutes(24 * 60);

pub(crate) const fn minutes(minutes: u64) -> Span {
    Span::seconds(60 * minutes)
}

/// Microseconds since the scenario began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    /// What the controller's clocks show.
    pub(crate) fn now(self) -> Now {
        Now { elapsed: Elapsed(ELAPSED_START + self.0), wall: self.wall() }
    }

    pub(crate) fn wall(self) -> Wall {
        Wall(WALL_START + self.0)
    }

    pub(crate) fn unix_ms(self) -> u64 {
        self.wall().0 / 1_000
    }

    pub(crate) fn of_wall(wall: Wall) -> Moment {
        Moment(wall.0.saturating_sub(WALL_START))
    }

    pub(crate) fn of_elapsed(elapsed: Elapsed) -> Moment {
        Moment(elapsed.0.saturating_sub(ELAPSED_START))
    }

    /// The next instant, at or after this one, that is a multiple of `grid`.
    pub(crate) fn on_grid(self, grid: Span) -> Moment {
        Moment(self.0.next_multiple_of(grid.0))
    }
}

impl Add<Span> for Moment {
    type Output = Moment;

    fn add(self, span: Span) -> Moment {
        Moment(self.0.saturating_add(span.0))
    }
}

impl Sub for Moment {
    type Output = Span;

    fn sub(self, earlier: Moment) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000_000;
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        let (hours, minutes) = (rest / 3_600, rest / 60 % 60);
        write!(f, "day {days} {hours:02}:{minutes:02}:{:02}.{:06}", rest % 60, self.0 % 1_000_000)
    }
}
