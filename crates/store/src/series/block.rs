//! The points of all metrics of one subject in an interval, and their bytes.
//!
//! ```text
//! block  = column …                        in the order of the metrics' codes
//! column = code (1 byte), slots, means, excesses
//! ```
//!
//! Numbers have 7 bits per byte, the lowest first (LEB128). `slots` is the number of intervals up to the last point of
//! the metric. Means are followed by how far each maximum exceeds its mean. Both are lists of tokens, each a number: an
//! even token is the difference to the value before (zigzag, times two), and an odd token is a run of slots that repeat
//! the value before, or of slots without a point. A metric that does not change therefore takes a few bytes for the
//! whole block.

use std::collections::BTreeMap;

use super::{Metric, Point};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Block {
    /// The points by slot.
    columns: BTreeMap<Metric, Vec<Option<Point>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a block of points cannot be read")]
pub struct BlockError;

impl Block {
    pub fn set(&mut self, metric: Metric, slot: usize, point: Point) {
        let column = self.columns.entry(metric).or_default();
        if column.len() <= slot {
            column.resize(slot + 1, None);
        }
        column[slot] = Some(point);
    }

    /// Removes the points of all metrics in a slot.
    pub fn clear(&mut self, slot: usize) {
        for column in self.columns.values_mut() {
            if let Some(point) = column.get_mut(slot) {
                *point = None;
            }
            let filled = column.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
            column.truncate(filled);
        }
        self.columns.retain(|_, column| !column.is_empty());
    }

    pub fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        self.columns.keys().copied()
    }

    /// The points of a metric by slot.
    pub fn points(&self, metric: Metric) -> impl Iterator<Item = (usize, Point)> + '_ {
        let column = self.columns.get(&metric).into_iter().flatten();
        column.enumerate().filter_map(|(slot, point)| Some((slot, (*point)?)))
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut columns: Vec<_> = self.columns.iter().collect();
        columns.sort_by_key(|(metric, _)| metric.code());
        for (metric, column) in columns {
            bytes.push(metric.code());
            put(&mut bytes, column.len() as u64);
            put_column(&mut bytes, column.iter().map(|point| point.map(|point| point.mean)));
            // Slots without a point are known from the means.
            let points = column.iter().flatten();
            put_column(&mut bytes, points.map(|point| Some(point.max.saturating_sub(point.mean))));
        }
        bytes
    }

    /// Reads the bytes of a block that has at most this many slots. Metrics that this version does not know are left
    /// out.
    pub fn parse(bytes: &[u8], slots_max: usize) -> Result<Block, BlockError> {
        let mut rest = bytes;
        let mut columns = BTreeMap::new();
        while let Some((code, after)) = rest.split_first() {
            rest = after;
            let slots = usize::try_from(take(&mut rest)?).map_err(|_| BlockError)?;
            if slots > slots_max {
                return Err(BlockError);
            }
            let means = take_column(&mut rest, slots)?;
            let count = means.iter().flatten().count();
            let excesses = take_column(&mut rest, count)?;
            let mut excesses = excesses.into_iter();
            let mut column = Vec::with_capacity(slots);
            for mean in means {
                let Some(mean) = mean else {
                    column.push(None);
                    continue;
                };
                let excess = excesses.next().flatten().ok_or(BlockError)?;
                let max = mean.checked_add(excess).ok_or(BlockError)?;
                column.push(Some(Point { mean, max }));
            }
            if let Some(metric) = Metric::of_code(*code) {
                columns.insert(metric, column);
            }
        }
        Ok(Block { columns })
    }
}

const RUN: u64 = 0b01;
const ABSENT: u64 = 0b10;

fn put_column(bytes: &mut Vec<u8>, values: impl Iterator<Item = Option<u64>>) {
    let mut before = 0u64;
    let mut values = values.peekable();
    while let Some(value) = values.next() {
        let kind = match value {
            None => ABSENT,
            Some(value) if value == before => 0,
            Some(value) => {
                put_wide(bytes, u128::from(zigzag(value.wrapping_sub(before) as i64)) << 1);
                before = value;
                continue;
            }
        };
        let mut more = 0u64;
        while values.next_if_eq(&value).is_some() {
            more += 1;
        }
        put(bytes, more << 2 | kind | RUN);
    }
}

fn take_column(rest: &mut &[u8], slots: usize) -> Result<Vec<Option<u64>>, BlockError> {
    let mut column = Vec::with_capacity(slots);
    let mut before = 0u64;
    while column.len() < slots {
        let token = take_wide(rest)?;
        if token & u128::from(RUN) == 0 {
            let zigzag = u64::try_from(token >> 1).map_err(|_| BlockError)?;
            before = before.wrapping_add(unzigzag(zigzag) as u64);
            column.push(Some(before));
            continue;
        }
        let run = usize::try_from(token >> 2).ok().and_then(|more| more.checked_add(1));
        let run = run.filter(|run| *run <= slots - column.len()).ok_or(BlockError)?;
        let value = (token & u128::from(ABSENT) == 0).then_some(before);
        column.resize(column.len() + run, value);
    }
    Ok(column)
}

/// Small numbers for small differences, whatever their sign.
fn zigzag(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn put(bytes: &mut Vec<u8>, number: u64) {
    put_wide(bytes, u128::from(number));
}

fn put_wide(bytes: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(rest: &mut &[u8]) -> Result<u64, BlockError> {
    u64::try_from(take_wide(rest)?).map_err(|_| BlockError)
}

/// At most ten bytes, which hold the 65 bits of the longest token.
fn take_wide(rest: &mut &[u8]) -> Result<u128, BlockError> {
    let mut number = 0u128;
    for shift in (0..70).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(BlockError)?;
        *rest = after;
        number |= u128::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(BlockError)
}
