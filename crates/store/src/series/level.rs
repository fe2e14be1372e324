//! The resolutions in which series are stored.

/// Points of one resolution, and how long they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level {
    /// The number in the database.
    pub code: u8,
    /// The interval of a point, in seconds.
    pub step_s: u64,
    /// The interval of a block, in seconds.
    pub block_s: u64,
    pub kept_s: u64,
}

/// The levels of a kind of subject, the finest first.
pub type Levels = &'static [Level];

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 86_400;

const SAMPLES: Level = Level { code: 0, step_s: 10, block_s: 600, kept_s: HOUR_S };
const MINUTES: Level = Level { code: 1, step_s: MINUTE_S, block_s: HOUR_S, kept_s: DAY_S };
const TENS: Level = Level { code: 2, step_s: 600, block_s: DAY_S, kept_s: 31 * DAY_S };
const HOURS: Level =
    Level { code: 3, step_s: HOUR_S, block_s: 7 * DAY_S, kept_s: 10 * 366 * DAY_S };

impl Level {
    pub const OF_CLUSTERS: Levels = &[SAMPLES, MINUTES, TENS, HOURS];
    /// A cluster has many nodes over time, so they are kept in fewer levels.
    pub const OF_NODES: Levels = &[MINUTES, TENS];
    pub const ALL: Levels = Level::OF_CLUSTERS;

    /// The beginning of the interval of a point.
    pub fn point_of(&self, at_s: u64) -> u64 {
        at_s - at_s % self.step_s
    }

    /// The beginning of the interval of a block.
    pub fn block_of(&self, at_s: u64) -> u64 {
        at_s - at_s % self.block_s
    }

    /// The number of points in a block.
    pub fn slots(&self) -> usize {
        usize::try_from(self.block_s / self.step_s).expect("a few hundred")
    }
}
