//! Combines the points of several levels into the intervals of a query.

use super::{Point, Points};

/// Points at intervals of `step_s`. `levels` are in order of preference: an interval without points in one level is
/// filled from the next.
pub fn fill(levels: &[Points], step_s: u64) -> Points {
    let mut filled = Points::new();
    for level in levels {
        let mut own = Points::new();
        let mut points = level.iter().peekable();
        while let Some((first, _)) = points.peek() {
            let start = *first - *first % step_s;
            let in_step = std::iter::from_fn(|| points.next_if(|(at, _)| **at < start + step_s));
            own.extend(Point::over(in_step.map(|(_, point)| *point)).map(|point| (start, point)));
        }
        for (start, point) in own {
            filled.entry(start).or_insert(point);
        }
    }
    filled
}
