//! The event log: appended to by every commit, read from a revision, and shortened at its beginning.

use std::path::Path;

use muster_core::Change;
use muster_core::time::Wall;
use rusqlite::Connection;

use super::doc::{self, encode};
use super::fault::Doing;
use super::packed;
use super::write::Writer;
use crate::{Event, EventRetention, Revision, StoreError};

/// How many old entries a commit deletes at least, if there are as many.
const PRUNED_MIN: usize = 64;

pub(super) fn append(
    connection: &Connection,
    path: &Path,
    revision: u64,
    wall: Wall,
    change: &Change,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO events (revision, wall_us, change, packed) VALUES (?1, ?2, '', ?3)";
    let packed = packed::pack(&encode(change), wall.0);
    Writer { connection, path }.run(sql, (revision, wall.0, packed))
}

/// Deletes the oldest entries, up to the first one that is kept, so that the log has no gap. `last` is the newest entry,
/// and `appended` the number of entries of this commit.
pub(super) fn prune(
    connection: &Connection,
    path: &Path,
    kept: EventRetention,
    last: (u64, Wall),
    appended: usize,
) -> Result<(), StoreError> {
    let (last, wall) = last;
    let before = wall.0.saturating_sub(kept.age.0);
    let above = last.saturating_sub(kept.entries.max(1));
    // A few at a time, as the work of a commit must not grow with what others left behind, but more than it appended,
    // so that a backlog shrinks.
    let limit = appended.saturating_mul(2).max(PRUNED_MIN);
    let oldest = |limit: usize| {
        let sql = "SELECT revision, wall_us FROM events ORDER BY revision LIMIT ?1";
        doc::rows(connection, path, sql, (limit,), |row| {
            let doing = "reading events";
            Ok((row.get(0).doing(doing, path)?, row.get(1).doing(doing, path)?))
        })
    };
    let is_old =
        |&&(revision, at): &&(u64, u64)| revision < last && (revision <= above || at < before);
    // Most commits find nothing to delete, and need to look at one entry only.
    if !oldest(1)?.iter().any(|first| is_old(&first)) {
        return Ok(());
    }
    let oldest: Vec<(u64, u64)> = oldest(limit)?;
    match oldest.iter().take_while(is_old).last() {
        Some((revision, _)) => {
            Writer { connection, path }.run("DELETE FROM events WHERE revision <= ?1", (revision,))
        }
        None => Ok(()),
    }
}

/// Revisions have no gaps, so the first entry shows whether earlier ones were deleted.
pub(super) fn after(
    connection: &Connection,
    path: &Path,
    after: Revision,
    limit: usize,
) -> Result<Vec<Event>, StoreError> {
    let sql = "SELECT revision, wall_us, change, packed FROM events \
               WHERE revision > ?1 ORDER BY revision LIMIT ?2";
    let doing = "reading events";
    let found = doc::rows(connection, path, sql, (doc::key(after.0), limit), |row| {
        let wall_us = row.get(1).doing(doing, path)?;
        Ok(Event {
            revision: Revision(row.get(0).doing(doing, path)?),
            wall_us,
            change: doc::unpacked(row, 2, wall_us, path)?.into_owned().into(),
        })
    })?;
    match found.first() {
        Some(first) if first.revision.0 > after.0 + 1 => {
            Err(StoreError::EventsPruned { after: after.0, floor: first.revision.0 - 1 })
        }
        _ => Ok(found),
    }
}

/// The revision after which the log begins.
pub(super) fn floor(connection: &Connection, path: &Path) -> Result<Revision, StoreError> {
    let sql =
        "SELECT ifnull((SELECT min(revision) - 1 FROM events), (SELECT last_revision FROM meta))";
    let mut statement = connection.prepare_cached(sql).doing("reading events", path)?;
    let floor = statement.query_row([], |row| row.get(0)).doing("reading events", path)?;
    Ok(Revision(floor))
}
