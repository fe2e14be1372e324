//! Deletes points that are no longer kept.

use std::collections::BTreeSet;

use muster_core::ids::ClusterId;

use super::{Rows, START_BITS, SUBJECT_BITS, SubjectRow, key, key_of_start, read_subject};
use crate::StoreError;
use crate::series::{Level, Retention};
use crate::sqlite::doc;
use crate::sqlite::fault::Doing as _;

/// The points of a cluster that are never deleted to save space are those of the current hour.
const KEPT_ANYWAY_S: u64 = 3_600;
const DAY_S: u64 = 86_400;

/// What a block of this size takes in the file. Pages of rows that grow and are deleted are not full.
pub(super) fn row_bytes(points: usize) -> u64 {
    let points = points as u64;
    24 + points + points / 2
}

/// The same in SQL.
const ROW_BYTES: &str = "24 + length(points) + length(points) / 2";

impl Rows<'_> {
    /// Deletes the blocks that are older than their level keeps them, and subjects without any.
    pub(super) fn expire(&self, now_s: u64, retention: &Retention) -> Result<(), StoreError> {
        let subject_mask = (1u64 << SUBJECT_BITS) - 1;
        for level in Level::ALL {
            let kept_s = level.kept_s.min(retention.kept_s);
            let before_s = level.block_of(now_s.saturating_sub(kept_s));
            let keys = (key_of_start(*level, 0), key_of_start(*level, before_s));
            let sql = format!(
                "SELECT key & {subject_mask}, sum({ROW_BYTES}) FROM blocks WHERE key >= ?1 AND key < ?2 GROUP BY 1"
            );
            let old = doc::rows(self.connection, self.path, &sql, keys, |row| {
                let read = || Ok::<(u64, u64), rusqlite::Error>((row.get(0)?, row.get(1)?));
                read().doing("reading a row", self.path)
            })?;
            if old.is_empty() {
                continue;
            }
            for (subject, bytes) in old {
                self.take_off(subject, bytes)?;
            }
            self.execute("DELETE FROM blocks WHERE key >= ?1 AND key < ?2", keys)?;
        }
        let unused_s = now_s.saturating_sub(DAY_S);
        self.execute("DELETE FROM subjects WHERE bytes <= 0 AND last_s < ?1", (unused_s,))
    }

    pub(super) fn delete_other_clusters(
        &self,
        existing: &BTreeSet<ClusterId>,
    ) -> Result<(), StoreError> {
        let sql = "SELECT DISTINCT cluster FROM subjects";
        let clusters = doc::rows(self.connection, self.path, sql, [], |row| {
            row.get(0).map(ClusterId).doing("reading a row", self.path)
        })?;
        for cluster in clusters.iter().filter(|cluster| !existing.contains(cluster)) {
            let sql = "SELECT id, first_s, last_s, bytes FROM subjects WHERE cluster = ?1";
            for row in self.subjects(sql, (cluster.0,))? {
                self.delete_blocks(&row, u64::MAX)?;
            }
            self.execute("DELETE FROM subjects WHERE cluster = ?1", (cluster.0,))?;
        }
        Ok(())
    }

    /// Deletes the oldest day of the cluster's nodes, and then of the cluster itself, until its points fit.
    pub(super) fn shrink(
        &self,
        cluster: ClusterId,
        now_s: u64,
        bytes_max: u64,
    ) -> Result<(), StoreError> {
        let until_s = now_s - now_s % KEPT_ANYWAY_S;
        while self.bytes_of(cluster)? > bytes_max {
            let sql = "SELECT id, first_s, last_s, bytes FROM subjects WHERE cluster = ?1 AND first_s < ?2 \
                       ORDER BY node = '', first_s LIMIT 1";
            let Some(row) = self.subjects(sql, (cluster.0, until_s))?.into_iter().next() else {
                return Ok(());
            };
            let before_s = (row.first_s - row.first_s % DAY_S + DAY_S).min(until_s);
            if row.last_s < before_s {
                self.delete_blocks(&row, u64::MAX)?;
                self.execute("DELETE FROM subjects WHERE id = ?1", (row.id,))?;
                continue;
            }
            let bytes = self.delete_blocks(&row, before_s)?;
            self.take_off(row.id, bytes)?;
            self.execute("UPDATE subjects SET first_s = ?2 WHERE id = ?1", (row.id, before_s))?;
        }
        Ok(())
    }

    fn bytes_of(&self, cluster: ClusterId) -> Result<u64, StoreError> {
        let sql = "SELECT coalesce(sum(bytes), 0) FROM subjects WHERE cluster = ?1";
        let found = doc::rows(self.connection, self.path, sql, (cluster.0,), |row| {
            row.get(0).doing("reading a row", self.path)
        })?;
        Ok(found.into_iter().next().unwrap_or(0))
    }

    fn subjects(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<Vec<SubjectRow>, StoreError> {
        doc::rows(self.connection, self.path, sql, params, |row| read_subject(row, self.path))
    }

    fn take_off(&self, subject: u64, bytes: u64) -> Result<(), StoreError> {
        let sql = "UPDATE subjects SET bytes = max(bytes - ?2, 0) WHERE id = ?1";
        self.execute(sql, (subject, bytes))
    }

    /// Deletes the blocks of a subject that end before then, one by one by their keys. Returns their size.
    fn delete_blocks(&self, row: &SubjectRow, before_s: u64) -> Result<u64, StoreError> {
        let mut bytes = 0;
        for level in Level::ALL {
            let kept_from_s = row.last_s.saturating_sub(level.kept_s + 2 * level.block_s);
            let mut start_s = level.block_of(row.first_s.max(kept_from_s));
            while start_s <= row.last_s && start_s + level.block_s <= before_s {
                let sql = format!("DELETE FROM blocks WHERE key = ?1 RETURNING {ROW_BYTES}");
                let key = (key(*level, start_s, row.id),);
                let freed = doc::rows(self.connection, self.path, &sql, key, |row| {
                    row.get::<_, u64>(0).doing("reading a row", self.path)
                })?;
                bytes += freed.iter().sum::<u64>();
                start_s += level.block_s;
            }
        }
        Ok(bytes)
    }
}

// The code of every level fits above the other parts of a key, and the key is not negative.
const _: () = assert!(START_BITS + SUBJECT_BITS + 2 < 63);
