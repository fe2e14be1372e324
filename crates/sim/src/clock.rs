//! Virtual time: one count of microseconds from which every clock is derived. No two clocks agree, and the server's can
//! be wrong.

use std::fmt;
use std::ops::{Add, Sub};

use muster_core::Wake;
use muster_core::time::{Elapsed, Now, Span, Wall};

/// Monday 2026-01-05, 00:00 UTC. Any day would do, but it must always be the same one.
const WALL_START: i64 = 1_767_571_200_000_000;
/// The server's host had been running for an hour. The two clocks differ, so that mistaking one for the other shows at
/// once.
const ELAPSED_START: i64 = 3_600_000_000;

pub(crate) const HOUR: Span = minutes(60);
pub(crate) const DAY: Span = minutes(24 * 60);

pub(crate) const fn minutes(minutes: u64) -> Span {
    Span::seconds(60 * minutes)
}

/// Microseconds since the scenario began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    /// The first instant at or after this one that is a multiple of `grid`.
    pub(crate) fn on_grid(self, grid: Span) -> Moment {
        Moment(self.0.next_multiple_of(grid.0))
    }

    /// The instant that is `shift` later or earlier, but not before the beginning.
    fn shifted(self, shift: i64) -> u64 {
        self.0.saturating_add_signed(shift)
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

/// The clocks of the server's host. Its wall clock can be set or stopped; its elapsed time restarts with every boot.
#[derive(Debug, Clone)]
pub(crate) struct ControllerClock {
    wall_shift: i64,
    frozen: Option<Wall>,
    elapsed_shift: i64,
    /// The latest wall time that was ever shown.
    latest: Wall,
}

impl Default for ControllerClock {
    fn default() -> ControllerClock {
        let (wall_shift, elapsed_shift) = (WALL_START, ELAPSED_START);
        ControllerClock { wall_shift, frozen: None, elapsed_shift, latest: Wall(0) }
    }
}

impl ControllerClock {
    pub(crate) fn now(&mut self, at: Moment) -> Now {
        let wall = self.wall(at);
        self.latest = self.latest.max(wall);
        Now { elapsed: self.elapsed(at), wall }
    }

    pub(crate) fn wall(&self, at: Moment) -> Wall {
        self.frozen.unwrap_or(Wall(at.shifted(self.wall_shift)))
    }

    pub(crate) fn elapsed(&self, at: Moment) -> Elapsed {
        Elapsed(at.shifted(self.elapsed_shift))
    }

    pub(crate) fn unix_ms(&self, at: Moment) -> u64 {
        self.wall(at).0 / 1_000
    }

    /// When a wake-up is due. By a wall clock that is stopped, it never is.
    pub(crate) fn due(&self, wake: Wake) -> Option<Moment> {
        let back = |time: u64, shift: i64| Moment(time.saturating_add_signed(-shift));
        let wall = wake.wall.filter(|at| self.frozen.is_none_or(|frozen| *at <= frozen));
        let wall = wall.map(|at| back(at.0, self.wall_shift));
        let elapsed = wake.elapsed.map(|at| back(at.0, self.elapsed_shift));
        wall.into_iter().chain(elapsed).min()
    }

    /// Sets the wall clock wrong by this many microseconds.
    pub(crate) fn set_wrong(&mut self, by: i64) {
        self.wall_shift = WALL_START + by;
    }

    pub(crate) fn freeze(&mut self, at: Moment) {
        self.frozen = Some(self.wall(at));
    }

    pub(crate) fn is_right(&self) -> bool {
        self.frozen.is_none() && self.wall_shift == WALL_START
    }

    /// Whether it shows a later time than it ever did, which a restored backup needs to be safe.
    pub(crate) fn is_ahead(&self, at: Moment) -> bool {
        self.is_right() && self.wall(at) > self.latest
    }

    /// Lets the clock run, with the correct time.
    pub(crate) fn mend(&mut self) {
        (self.frozen, self.wall_shift) = (None, WALL_START);
    }

    /// The host starts again, and has been running for `uptime`.
    pub(crate) fn reboot(&mut self, at: Moment, uptime: Span) {
        self.elapsed_shift = uptime.0 as i64 - at.0 as i64;
    }
}

/// A node's clock, which starts anywhere and runs slightly too fast or too slow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeClock {
    pub(crate) offset: u64,
    /// Parts per million, of either sign.
    pub(crate) drift: i64,
}

impl NodeClock {
    pub(crate) fn at(self, now: Moment) -> Elapsed {
        let gained = i128::from(now.0) * i128::from(self.drift) / 1_000_000;
        let gained = i64::try_from(gained).expect("a hundredth of a u64 that counts days");
        Elapsed((now.0 + self.offset).saturating_add_signed(gained))
    }

    /// The first instant at which it shows at least `time`.
    pub(crate) fn when(self, time: Elapsed) -> Moment {
        let shown = u128::from(time.0.saturating_sub(self.offset));
        let rate =
            u128::try_from(1_000_000 + self.drift).expect("it drifts by a hundredth at most");
        let estimate = u64::try_from(shown * 1_000_000 / rate).unwrap_or(u64::MAX);
        let mut at = Moment(estimate.saturating_sub(2));
        while self.at(at) < time {
            at = at + Span(1);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_clock_finds_its_way_back() {
        for drift in [-10_000, -1, 0, 7, 10_000] {
            let clock = NodeClock { offset: 77_000_000, drift };
            let mut last = Elapsed(0);
            for at in [0, 1, 999_999, 1_000_000, 86_400_000_000, 2_592_000_123_456] {
                let shown = clock.at(Moment(at));
                assert!(shown >= last);
                last = shown;
                let when = clock.when(shown);
                assert!(clock.at(when) >= shown && when <= Moment(at + 1), "{at} {drift} {when:?}");
            }
        }
    }

    #[test]
    fn a_wrong_clock_still_wakes_at_what_it_shows() {
        let mut clock = ControllerClock::default();
        let wake = Wake { wall: Some(clock.wall(Moment(7_200_000_000))), elapsed: None };
        assert_eq!(clock.due(wake), Some(Moment(7_200_000_000)));
        clock.set_wrong(3_600_000_000);
        assert_eq!(clock.due(wake), Some(Moment(3_600_000_000)));
        clock.freeze(Moment(0));
        assert_eq!(clock.due(wake), None);
    }
}
