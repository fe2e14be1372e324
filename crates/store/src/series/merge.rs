//! Combines the points of several levels into the intervals of a query.

use super::{Point, Points};

/// Points at intervals of `step_s`. `levels` are in order of preference: an interval without points in one level is
/// filled from the next. `coarser` levels, each with its interval, continue the series into the past, before the first
/// point of the others.
pub fn fill(levels: &[Points], coarser: &[(u64, Points)], step_s: u64) -> Points {
    let mut filled = Points::new();
    for level in levels {
        let mut points = level.iter().peekable();
        while let Some((first, _)) = points.peek() {
            let start = *first - *first % step_s;
            let in_step = std::iter::from_fn(|| points.next_if(|(at, _)| **at < start + step_s));
            let point = Point::over(in_step.map(|(_, point)| *point));
            if let Some(point) = point {
                filled.entry(start).or_insert(point);
            }
        }
    }
    for (level_step_s, level) in coarser {
        let first = filled.keys().next().copied().unwrap_or(u64::MAX);
        // An interval that the others cover in part is theirs.
        let before = level.iter().take_while(|(at, _)| **at + level_step_s <= first);
        let before: Vec<_> = before.map(|(at, point)| (*at - *at % step_s, *point)).collect();
        filled.extend(before);
    }
    filled
}
