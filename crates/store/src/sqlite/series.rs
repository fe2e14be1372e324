//! Time series in a SQLite file of their own.

mod trim;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use muster_core::ids::ClusterId;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use super::checkpoint::Checkpoints;
use super::fault::Doing;
use super::{Durability, doc, open, schema, size};
use crate::StoreError;
use crate::series::{
    Block, Level, Metric, NODES_MAX, Point, Points, Query, RecordedNode, Retention, Sample, Series,
    SeriesReader, Subject, fill,
};
use crate::size::DatabaseSize;

const DOING: &str = "writing time series";

/// A node that had no points for this long no longer counts towards [`NODES_MAX`].
const NODE_GONE_AFTER_S: u64 = 3_600;

/// Points of up to this interval are computed at once, because all samples of a minute are added together.
const ADDED_TOGETHER_S: u64 = 60;

#[derive(Debug)]
pub struct SqliteSeries {
    connection: Connection,
    path: PathBuf,
    checkpoints: Checkpoints,
}

impl SqliteSeries {
    /// Like [`SqliteStore::open`](super::SqliteStore::open).
    pub fn open(path: &Path, durability: Durability) -> Result<SqliteSeries, StoreError> {
        let open::Opened { mut connection, .. } =
            open::writer(path, &schema::SERIES, durability, open::Look::Whole)?;
        let checkpoints = Checkpoints::watch(&mut connection).doing("opening the store", path)?;
        Ok(SqliteSeries { connection, path: path.to_owned(), checkpoints })
    }

    /// Limits the log to about this many bytes, for a disk without room for one of the usual size.
    pub fn limit_log(&mut self, bytes: u64) {
        self.checkpoints.limit_bytes(bytes);
    }
}

impl Series for SqliteSeries {
    fn add(
        &mut self,
        samples: &[Sample],
        existing: &BTreeSet<ClusterId>,
        now_s: u64,
        retention: &Retention,
    ) -> Result<(), StoreError> {
        let path = &self.path;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .doing(DOING, path)?;
        let rows = Rows { connection: &transaction, path };
        let mut by_subject: BTreeMap<&Subject, Vec<&Sample>> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| existing.contains(&sample.subject.cluster)) {
            by_subject.entry(&sample.subject).or_default().push(sample);
        }
        for (subject, samples) in &by_subject {
            rows.add(subject, samples, now_s)?;
        }
        rows.expire(now_s, retention)?;
        rows.delete_other_clusters(existing)?;
        let clusters: BTreeSet<ClusterId> =
            by_subject.keys().map(|subject| subject.cluster).collect();
        for cluster in clusters {
            rows.shrink(cluster, now_s, retention.cluster_bytes_max)?;
        }
        transaction.commit().doing(DOING, path)?;
        self.checkpoints.after_commit(&self.connection);
        Ok(())
    }
}

/// The tables, in a transaction.
struct Rows<'t> {
    connection: &'t Connection,
    path: &'t Path,
}

/// A row of `subjects`.
#[derive(Debug, Clone, Copy)]
struct SubjectRow {
    id: u64,
    first_s: u64,
    last_s: u64,
    bytes: u64,
}

/// The blocks of one subject that were read or changed.
#[derive(Default)]
struct OpenBlocks {
    blocks: BTreeMap<(Level, u64), OpenBlock>,
}

#[derive(Default)]
struct OpenBlock {
    block: Block,
    /// The size that counts for the row that is there now.
    bytes: u64,
    is_changed: bool,
}

impl Rows<'_> {
    fn add(&self, subject: &Subject, samples: &[&Sample], now_s: u64) -> Result<(), StoreError> {
        let (Some(first_s), Some(last_s)) = (
            samples.iter().map(|sample| sample.at_s).min(),
            samples.iter().map(|sample| sample.at_s).max(),
        ) else {
            return Ok(());
        };
        let known = subject_row(self.connection, self.path, subject)?;
        if known.is_none() && subject.node.is_some() && self.has_all_nodes(subject, now_s)? {
            return Ok(());
        }
        let row = match known {
            Some(row) => row,
            None => self.insert_subject(subject, first_s)?,
        };
        let newest_s = row.last_s.max(last_s);
        let mut open = OpenBlocks::default();
        let levels = subject.levels();
        self.add_samples(&mut open, row.id, levels[0], samples)?;
        let times = samples.iter().map(|sample| sample.at_s);
        let times: BTreeSet<u64> = times.chain(known.map(|row| row.last_s)).collect();
        for pair in levels.windows(2) {
            let [fine, coarse] = [pair[0], pair[1]];
            let mut done: BTreeSet<u64> = times.iter().map(|at_s| coarse.point_of(*at_s)).collect();
            if coarse.step_s > ADDED_TOGETHER_S {
                // The point that is not complete yet follows when the next one begins.
                done.remove(&coarse.point_of(newest_s));
            }
            for at_s in done {
                self.roll_up(&mut open, row.id, (fine, coarse), at_s)?;
            }
        }
        let bytes = self.write_blocks(open, row)?;
        let sql =
            "UPDATE subjects SET first_s = min(first_s, ?2), last_s = ?3, bytes = ?4 WHERE id = ?1";
        self.execute(sql, (row.id, first_s, newest_s, bytes))
    }

    fn add_samples(
        &self,
        open: &mut OpenBlocks,
        subject: u64,
        level: Level,
        samples: &[&Sample],
    ) -> Result<(), StoreError> {
        let mut points: BTreeMap<(u64, Metric), Vec<Point>> = BTreeMap::new();
        for sample in samples {
            for (metric, value) in &sample.values {
                let at = (level.point_of(sample.at_s), *metric);
                points.entry(at).or_default().push(Point::sample(*value));
            }
        }
        let times: BTreeSet<u64> = points.keys().map(|(at_s, _)| *at_s).collect();
        for at_s in times {
            self.open(open, subject, level, at_s)?.replace(level, at_s, &[]);
        }
        for ((at_s, metric), points) in points {
            if let Some(point) = Point::over(points) {
                let block = self.open(open, subject, level, at_s)?;
                block.block.set(metric, slot(level, at_s), point);
            }
        }
        Ok(())
    }

    /// Computes a point of the coarse level from those of the fine level, if there are any.
    fn roll_up(
        &self,
        open: &mut OpenBlocks,
        subject: u64,
        (fine, coarse): (Level, Level),
        at_s: u64,
    ) -> Result<(), StoreError> {
        let block = &self.open(open, subject, fine, at_s)?.block;
        let first = slot(fine, at_s);
        let slots = first..first + usize::try_from(coarse.step_s / fine.step_s).unwrap_or(0);
        let over = |metric| {
            let points = block.points(metric).filter(|(slot, _)| slots.contains(slot));
            Some((metric, Point::over(points.map(|(_, point)| point))?))
        };
        let points: Vec<(Metric, Point)> = block.metrics().filter_map(over).collect();
        if !points.is_empty() {
            self.open(open, subject, coarse, at_s)?.replace(coarse, at_s, &points);
        }
        Ok(())
    }

    /// The block of this time.
    fn open<'b>(
        &self,
        open: &'b mut OpenBlocks,
        subject: u64,
        level: Level,
        at_s: u64,
    ) -> Result<&'b mut OpenBlock, StoreError> {
        let start_s = level.block_of(at_s);
        let entry = match open.blocks.entry((level, start_s)) {
            Entry::Occupied(entry) => return Ok(entry.into_mut()),
            Entry::Vacant(entry) => entry,
        };
        let found = block(self.connection, self.path, level, start_s, subject)?;
        let (block, bytes) = match found {
            // Points that cannot be read are replaced.
            Some(bytes) => (
                Block::parse(&bytes, level.slots()).unwrap_or_default(),
                trim::row_bytes(bytes.len()),
            ),
            None => (Block::default(), 0),
        };
        Ok(entry.insert(OpenBlock { block, bytes, is_changed: false }))
    }

    /// Returns the size of all blocks of the subject.
    fn write_blocks(&self, open: OpenBlocks, row: SubjectRow) -> Result<u64, StoreError> {
        let mut bytes = row.bytes;
        for ((level, start_s), open) in open.blocks.into_iter().filter(|(_, it)| it.is_changed) {
            let points = open.block.to_bytes();
            bytes = bytes.saturating_sub(open.bytes) + trim::row_bytes(points.len());
            let sql =
                "INSERT INTO blocks VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET points = ?2";
            self.execute(sql, (key(level, start_s, row.id), points))?;
        }
        Ok(bytes)
    }

    fn insert_subject(&self, subject: &Subject, first_s: u64) -> Result<SubjectRow, StoreError> {
        let sql = "INSERT INTO subjects (cluster, node, first_s, last_s, bytes) VALUES (?1, ?2, ?3, ?3, 0)";
        self.execute(sql, (subject.cluster.0, node_column(subject), first_s))?;
        let id = u64::try_from(self.connection.last_insert_rowid()).unwrap_or(0);
        Ok(SubjectRow { id, first_s, last_s: first_s, bytes: 0 })
    }

    fn has_all_nodes(&self, subject: &Subject, now_s: u64) -> Result<bool, StoreError> {
        let sql =
            "SELECT count(*) FROM subjects WHERE cluster = ?1 AND node <> '' AND last_s >= ?2";
        let since_s = now_s.saturating_sub(NODE_GONE_AFTER_S);
        let mut statement = self.connection.prepare_cached(sql).doing(DOING, self.path)?;
        let count: u64 = statement
            .query_row((subject.cluster.0, since_s), |row| row.get(0))
            .doing(DOING, self.path)?;
        Ok(count >= NODES_MAX as u64)
    }

    fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(sql).doing(DOING, self.path)?;
        statement.execute(params).map(drop).doing(DOING, self.path)
    }
}

impl OpenBlock {
    /// Replaces the points of all metrics at this time.
    fn replace(&mut self, level: Level, at_s: u64, points: &[(Metric, Point)]) {
        self.is_changed = true;
        self.block.clear(slot(level, at_s));
        for (metric, point) in points {
            self.block.set(*metric, slot(level, at_s), *point);
        }
    }
}

fn slot(level: Level, at_s: u64) -> usize {
    usize::try_from(at_s % level.block_s / level.step_s).unwrap_or(0)
}

const SUBJECT_BITS: u32 = 31;
const START_BITS: u32 = 29;
/// All blocks begin at multiples of this.
const START_UNIT_S: u64 = 600;

fn key(level: Level, start_s: u64, subject: u64) -> u64 {
    key_of_start(level, start_s) | subject & ((1 << SUBJECT_BITS) - 1)
}

/// The first key of the blocks that begin then.
fn key_of_start(level: Level, start_s: u64) -> u64 {
    let start = (start_s / START_UNIT_S).min((1 << START_BITS) - 1);
    u64::from(level.code) << (START_BITS + SUBJECT_BITS) | start << SUBJECT_BITS
}

fn node_column(subject: &Subject) -> &str {
    subject.node.as_deref().unwrap_or_default()
}

fn block(
    connection: &Connection,
    path: &Path,
    level: Level,
    start_s: u64,
    subject: u64,
) -> Result<Option<Vec<u8>>, StoreError> {
    let sql = "SELECT points FROM blocks WHERE key = ?1";
    let mut statement = connection.prepare_cached(sql).doing("reading points", path)?;
    let key = (key(level, start_s, subject),);
    statement.query_row(key, |row| row.get(0)).optional().doing("reading points", path)
}

fn subject_row(
    connection: &Connection,
    path: &Path,
    subject: &Subject,
) -> Result<Option<SubjectRow>, StoreError> {
    let sql = "SELECT id, first_s, last_s, bytes FROM subjects WHERE cluster = ?1 AND node = ?2";
    let params = (doc::key(subject.cluster.0), node_column(subject));
    let found = doc::rows(connection, path, sql, params, |row| read_subject(row, path))?;
    Ok(found.into_iter().next())
}

fn read_subject(row: &rusqlite::Row<'_>, path: &Path) -> Result<SubjectRow, StoreError> {
    let read = || {
        Ok(SubjectRow {
            id: row.get(0)?,
            first_s: row.get(1)?,
            last_s: row.get(2)?,
            bytes: row.get(3)?,
        })
    };
    read().doing("reading a row", path)
}

pub struct SqliteSeriesReader {
    connection: Connection,
    path: PathBuf,
}

impl SqliteSeriesReader {
    pub fn open(path: &Path) -> Result<SqliteSeriesReader, StoreError> {
        let connection = open::reader(path, &schema::SERIES)?;
        Ok(SqliteSeriesReader { connection, path: path.to_owned() })
    }
}

impl SeriesReader for SqliteSeriesReader {
    fn size(&mut self) -> Result<DatabaseSize, StoreError> {
        size::measure(&self.connection, &self.path, size::SERIES)
    }

    fn read(&mut self, query: &Query) -> Result<BTreeMap<Metric, Points>, StoreError> {
        let path = &self.path;
        let connection = &*self.connection.transaction().doing("reading points", path)?;
        let Some(row) = subject_row(connection, path, &query.subject)? else {
            return Ok(BTreeMap::new());
        };
        let levels = query.subject.levels();
        let own = levels.iter().rposition(|level| level.step_s <= query.step_s).unwrap_or(0);
        let read = |level: &Level| level_points(connection, path, &row, *level, query);
        let finer = levels[..=own].iter().rev().map(read).collect::<Result<Vec<_>, _>>()?;
        let steps = levels[own + 1..].iter().map(|level| level.step_s);
        let coarser = levels[own + 1..].iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let mut series = BTreeMap::new();
        for metric in &query.metrics {
            let of = |levels: &[BTreeMap<Metric, Points>]| -> Vec<Points> {
                levels.iter().map(|level| level.get(metric).cloned().unwrap_or_default()).collect()
            };
            let coarser: Vec<_> = steps.clone().zip(of(&coarser)).collect();
            let points = fill(&of(&finer), &coarser, query.step_s);
            if !points.is_empty() {
                series.insert(*metric, points);
            }
        }
        Ok(series)
    }

    fn nodes(&mut self, cluster: ClusterId) -> Result<Vec<RecordedNode>, StoreError> {
        let sql = "SELECT node, first_s, last_s FROM subjects WHERE cluster = ?1 AND node <> '' ORDER BY node";
        doc::rows(&self.connection, &self.path, sql, (doc::key(cluster.0),), |row| {
            let read = || {
                Ok(RecordedNode { name: row.get(0)?, first_s: row.get(1)?, last_s: row.get(2)? })
            };
            read().doing("reading a row", &self.path)
        })
    }
}

/// The points of a level in the time of the query.
fn level_points(
    connection: &Connection,
    path: &Path,
    row: &SubjectRow,
    level: Level,
    query: &Query,
) -> Result<BTreeMap<Metric, Points>, StoreError> {
    let kept_from_s = row.last_s.saturating_sub(level.kept_s + level.block_s);
    let from_s = query.from_s - query.from_s % query.step_s;
    let mut start_s = level.block_of(from_s.max(row.first_s).max(kept_from_s));
    let end_s = query.to_s.min(row.last_s + 1);
    let mut series: BTreeMap<Metric, Points> = BTreeMap::new();
    while start_s < end_s {
        let bytes = block(connection, path, level, start_s, row.id)?.unwrap_or_default();
        let block = Block::parse(&bytes, level.slots()).map_err(|why| doc::damaged(path, &why))?;
        for metric in block.metrics().filter(|metric| query.metrics.contains(metric)) {
            let points = block
                .points(metric)
                .map(|(slot, point)| (start_s + slot as u64 * level.step_s, point));
            let in_time = points.filter(|(at_s, _)| *at_s >= from_s && *at_s < query.to_s);
            series.entry(metric).or_default().extend(in_time);
        }
        start_s += level.block_s;
    }
    Ok(series)
}
