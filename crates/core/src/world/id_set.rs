//! A set of job IDs that stores neighbours as one range, because the children of an array have consecutive IDs.

use std::collections::BTreeMap;

use crate::ids::JobId;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdSet {
    /// The last ID of each range, by its first. Ranges neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
    len: usize,
}

impl IdSet {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn first(&self) -> Option<JobId> {
        self.ranges.first_key_value().map(|(first, _)| JobId(*first))
    }

    pub fn contains(&self, id: JobId) -> bool {
        self.range_with(id.0).is_some()
    }

    fn range_with(&self, id: u64) -> Option<(u64, u64)> {
        let (first, last) = self.ranges.range(..=id).next_back()?;
        (*last >= id).then_some((*first, *last))
    }

    pub fn insert(&mut self, id: JobId) -> bool {
        let is_new = !self.contains(id);
        if is_new {
            self.insert_range(id, id);
        }
        is_new
    }

    /// Adds IDs of which none is in the set.
    pub fn insert_range(&mut self, first: JobId, last: JobId) {
        let (mut first, mut last) = (first.0, last.0);
        debug_assert!(self.ranges.range(first..=last).next().is_none(), "none is in the set");
        self.len += usize::try_from(last - first + 1).unwrap_or(usize::MAX);
        if let Some((before, _)) = first.checked_sub(1).and_then(|id| self.range_with(id)) {
            self.ranges.remove(&before);
            first = before;
        }
        if let Some(after) = last.checked_add(1).and_then(|next| self.ranges.remove(&next)) {
            last = after;
        }
        self.ranges.insert(first, last);
    }

    pub fn remove(&mut self, id: JobId) -> bool {
        self.remove_range(id, id)
    }

    /// Removes IDs that follow each other. Nothing is removed unless all of them are in the set.
    pub fn remove_range(&mut self, begin: JobId, end: JobId) -> bool {
        let Some((first, last)) = self.range_with(begin.0) else { return false };
        if last < end.0 {
            return false;
        }
        self.ranges.remove(&first);
        if first < begin.0 {
            self.ranges.insert(first, begin.0 - 1);
        }
        if end.0 < last {
            self.ranges.insert(end.0 + 1, last);
        }
        self.len -= usize::try_from(end.0 - begin.0 + 1).unwrap_or(usize::MAX);
        true
    }

    /// How many IDs follow this one without a gap.
    pub fn count_after(&self, id: JobId) -> u64 {
        self.range_with(id.0 + 1).map_or(0, |(_, last)| last - id.0)
    }

    /// The ranges of neighbours, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (JobId, JobId)> {
        self.ranges.iter().map(|(first, last)| (JobId(*first), JobId(*last)))
    }

    /// Removes up to `count` of the smallest IDs that follow each other, and returns them as a range.
    pub fn take_first(&mut self, count: usize) -> Option<(JobId, JobId)> {
        let (first, last) = self.ranges.first_key_value().map(|(first, last)| (*first, *last))?;
        let count = u64::try_from(count).ok().filter(|count| *count > 0)?;
        let end = last.min(first.saturating_add(count - 1));
        self.ranges.remove(&first);
        if end < last {
            self.ranges.insert(end + 1, last);
        }
        self.len -= usize::try_from(end - first + 1).unwrap_or(usize::MAX);
        Some((JobId(first), JobId(end)))
    }

    /// The same for the largest ones.
    pub fn take_last(&mut self, count: usize) -> Option<(JobId, JobId)> {
        let (first, last) = self.ranges.last_key_value().map(|(first, last)| (*first, *last))?;
        let count = u64::try_from(count).ok().filter(|count| *count > 0)?;
        let begin = first.max((last + 1).saturating_sub(count));
        if first < begin {
            self.ranges.insert(first, begin - 1);
        } else {
            self.ranges.remove(&first);
        }
        self.len -= usize::try_from(last - begin + 1).unwrap_or(usize::MAX);
        Some((JobId(begin), JobId(last)))
    }

    pub fn iter(&self) -> impl Iterator<Item = JobId> {
        self.ranges.iter().flat_map(|(first, last)| (*first..=*last).map(JobId))
    }

    /// How many IDs are smaller than this one.
    pub fn count_below(&self, id: JobId) -> usize {
        let ranges = self.ranges.range(..id.0);
        let count: u64 = ranges.map(|(first, last)| (*last).min(id.0 - 1) - first + 1).sum();
        usize::try_from(count).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Does the same to an `IdSet` and to a `BTreeSet`, and compares them.
    #[test]
    fn it_is_a_set() {
        let (mut set, mut model) = (IdSet::default(), BTreeSet::new());
        let mut seed = 7u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let id = JobId(seed >> 33 & 63);
            let count = (seed >> 41 & 7) as usize;
            match seed >> 60 {
                0..=6 => assert_eq!(set.insert(id), model.insert(id)),
                7..=11 => assert_eq!(set.remove(id), model.remove(&id)),
                12 | 13 => {
                    let taken =
                        if seed >> 60 == 12 { set.take_first(count) } else { set.take_last(count) };
                    let Some((first, last)) = taken else { continue };
                    for id in first.0..=last.0 {
                        let end = if seed >> 60 == 12 { model.first() } else { model.last() };
                        assert!(end.is_some() && model.contains(&JobId(id)));
                    }
                    let before: Vec<JobId> = model.iter().copied().collect();
                    model.retain(|id| !(first..=last).contains(id));
                    let rest: Vec<JobId> = model.iter().copied().collect();
                    let kept = if seed >> 60 == 12 {
                        before.ends_with(&rest)
                    } else {
                        before.starts_with(&rest)
                    };
                    assert!(kept && before.len() - rest.len() <= count);
                }
                _ => {
                    let last = JobId(id.0 + count as u64);
                    if model.range(id..=last).next().is_none() {
                        set.insert_range(id, last);
                        model.extend((id.0..=last.0).map(JobId));
                    }
                }
            }
            assert_eq!(set.iter().collect::<BTreeSet<_>>(), model);
            assert_eq!((set.len(), set.first()), (model.len(), model.first().copied()));
            assert_eq!(set.count_below(id), model.range(..id).count());
            assert_eq!(set.contains(id), model.contains(&id));
            assert!(
                set.ranges
                    .iter()
                    .all(|(first, last)| first <= last && !set.ranges.contains_key(&(last + 1)))
            );
        }
    }
}
