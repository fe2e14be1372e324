//! Time series for charts, in a database file of their own: nodes by state, jobs, cost, and the use of CPUs, memory and
//! GPUs, per cluster and per node. No decision depends on them.
//!
//! Series are stored in several resolutions ([`Level`]), the coarser ones for longer. A point is the mean and the
//! maximum of an interval. The points of one cluster or node are stored in blocks ([`Block`]), each of which has all
//! metrics of an interval and is encoded in few bytes.

mod block;
mod level;
mod merge;
mod metric;

use std::collections::{BTreeMap, BTreeSet};

use muster_core::ids::ClusterId;

pub use block::{Block, BlockError};
pub use level::{Level, Levels};
pub use merge::fill;
pub use metric::{Metric, UnknownMetric};

use crate::StoreError;
use crate::size::DatabaseSize;

/// The most nodes of a cluster that have series of their own at the same time.
pub const NODES_MAX: usize = 100;

/// The mean and the maximum of an interval, in the unit in which the metric is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub mean: u64,
    pub max: u64,
}

impl Point {
    pub fn sample(value: u64) -> Point {
        Point { mean: value, max: value }
    }

    /// One point for several, each of which counts the same. `None` if there are none.
    pub fn over(points: impl IntoIterator<Item = Point>) -> Option<Point> {
        let (mut sum, mut count, mut max) = (0u128, 0u128, 0);
        for point in points {
            sum += u128::from(point.mean);
            count += 1;
            max = max.max(point.max);
        }
        // Rounded to the nearest. The mean of numbers is at most the largest of them, so it fits.
        let mean = (sum + count / 2).checked_div(count)?;
        Some(Point { mean: u64::try_from(mean).unwrap_or(u64::MAX), max })
    }
}

/// Points by the second at which their interval begins.
pub type Points = BTreeMap<u64, Point>;

/// What a series is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub cluster: ClusterId,
    /// `None` for the cluster as a whole.
    pub node: Option<Box<str>>,
}

impl Subject {
    pub fn levels(&self) -> Levels {
        match self.node {
            None => Level::OF_CLUSTERS,
            Some(_) => Level::OF_NODES,
        }
    }
}

/// The values of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub subject: Subject,
    /// Seconds since 1970.
    pub at_s: u64,
    pub values: BTreeMap<Metric, u64>,
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long points are kept, unless their level keeps them for a shorter time.
    pub kept_s: u64,
    /// The most bytes of one cluster. If they are exceeded, the oldest points of its nodes are deleted first.
    pub cluster_bytes_max: u64,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { kept_s: 365 * 86_400, cluster_bytes_max: 1_000_000 }
    }
}

/// The writer's side.
pub trait Series: Send {
    /// Adds samples, computes the coarser points of the intervals that they complete, and deletes what is no longer
    /// kept, in one transaction. A minute of a subject replaces an earlier one, so all samples of a minute belong into
    /// one call. Clusters that are not in `existing` are deleted with their nodes.
    fn add(
        &mut self,
        samples: &[Sample],
        existing: &BTreeSet<ClusterId>,
        now_s: u64,
        retention: &Retention,
    ) -> Result<(), StoreError>;
}

/// A node that has a series, and the time that it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedNode {
    pub name: Box<str>,
    pub first_s: u64,
    pub last_s: u64,
}

/// Which points are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub subject: Subject,
    pub from_s: u64,
    /// Exclusive.
    pub to_s: u64,
    /// The interval of the points, in seconds. Intervals begin at multiples of it.
    pub step_s: u64,
    pub metrics: BTreeSet<Metric>,
}

/// The readers' side: every result is one snapshot.
pub trait SeriesReader: Send {
    /// Every metric that has points.
    fn read(&mut self, query: &Query) -> Result<BTreeMap<Metric, Points>, StoreError>;
    /// The nodes that have series, by name.
    fn nodes(&mut self, cluster: ClusterId) -> Result<Vec<RecordedNode>, StoreError>;
    /// The size of the database.
    fn size(&mut self) -> Result<DatabaseSize, StoreError>;
}

#[cfg(test)]
mod tests;
