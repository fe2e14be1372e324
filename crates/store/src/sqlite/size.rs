//! The size of a database by content. SQLite counts the pages of each table and index (`dbstat`).
//!
//! That reads the whole file, about a second for each gigabyte that is in memory. Every table is counted by itself, so
//! no snapshot is held for longer than one of them takes, and the log can be used again in between. The sum may
//! therefore differ a little from the file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use muster_core::model::{AttemptRecord, Job};
use muster_core::time::Wall;
use rusqlite::{Connection, OptionalExtension as _};

use super::doc;
use super::fault::Doing;
use crate::StoreError;
use crate::size::{Content, ContentSize, DatabaseSize};

const DOING: &str = "measuring the store";

type Oldest = fn(&Connection, &Path) -> Result<Option<Wall>, StoreError>;

/// The tables of one kind of content.
pub(super) struct Group {
    content: Content,
    /// The rows of the first one are counted.
    tables: &'static [&'static str],
    oldest: Oldest,
}

/// The contents of the state of the server. Tables that are not listed are `Other`.
pub(super) const MAIN: &[Group] = &[
    Group {
        content: Content::Jobs,
        tables: &["jobs", "specs", "members", "job_trees"],
        oldest: oldest_job,
    },
    Group { content: Content::Tasks, tables: &["children", "tree_totals"], oldest: unknown },
    Group { content: Content::Attempts, tables: &["attempts"], oldest: oldest_attempt },
    Group {
        content: Content::Ledger,
        tables: &["ledger", "ledger_totals", "gone_job_tags"],
        oldest: |connection, path| {
            time(connection, path, "SELECT from_us FROM ledger ORDER BY number LIMIT 1")
        },
    },
    Group {
        content: Content::Activity,
        tables: &["activity"],
        oldest: |connection, path| {
            time(connection, path, "SELECT at_us FROM activity ORDER BY number LIMIT 1")
        },
    },
    Group {
        content: Content::Events,
        tables: &["events"],
        oldest: |connection, path| {
            time(connection, path, "SELECT wall_us FROM events ORDER BY revision LIMIT 1")
        },
    },
    Group { content: Content::Assets, tables: &["assets", "asset_containers"], oldest: unknown },
];

pub(super) const STORAGE: &[Group] = &[Group {
    content: Content::Blobs,
    tables: &["blobs", "segments", "staged", "containers", "unreferenced"],
    oldest: |connection, path| {
        time(connection, path, "SELECT made_us FROM blobs ORDER BY id LIMIT 1")
    },
}];

pub(super) const SERIES: &[Group] = &[Group {
    content: Content::History,
    tables: &["blocks", "subjects"],
    oldest: |connection, path| {
        time(connection, path, "SELECT min(first_s) * 1000000 FROM subjects")
    },
}];

fn unknown(_: &Connection, _: &Path) -> Result<Option<Wall>, StoreError> {
    Ok(None)
}

fn time(connection: &Connection, path: &Path, sql: &str) -> Result<Option<Wall>, StoreError> {
    let found = connection.query_row(sql, [], |row| row.get::<_, Option<u64>>(0)).optional();
    Ok(found.doing(DOING, path)?.flatten().map(Wall))
}

fn oldest_job(connection: &Connection, path: &Path) -> Result<Option<Wall>, StoreError> {
    let sql = "SELECT doc FROM jobs ORDER BY id LIMIT 1";
    Ok(doc::one::<Job>(connection, path, sql, [])?.map(|job| job.submitted_at))
}

fn oldest_attempt(connection: &Connection, path: &Path) -> Result<Option<Wall>, StoreError> {
    let sql = "SELECT doc, packed, epoch FROM attempts ORDER BY job, epoch LIMIT 1";
    let found = doc::rows(connection, path, sql, [], |row| doc::attempt(row, path))?;
    Ok(found.first().map(|attempt: &AttemptRecord| attempt.granted_at))
}

/// The caller is not in a transaction.
pub(super) fn measure(
    connection: &Connection,
    path: &Path,
    groups: &[Group],
) -> Result<DatabaseSize, StoreError> {
    let mut bytes = bytes_by_table(connection, path)?;
    let mut contents = Vec::new();
    for Group { content, tables, oldest } in groups {
        let bytes = tables.iter().filter_map(|table| bytes.remove(*table)).sum();
        let sql = format!("SELECT count(*) FROM {}", tables[0]);
        let entries = connection.query_row(&sql, [], |row| row.get(0)).doing(DOING, path)?;
        let oldest = oldest(connection, path)?;
        contents.push(ContentSize { content: *content, bytes, entries: Some(entries), oldest });
    }
    let rest = bytes.into_values().sum();
    contents.push(ContentSize {
        content: Content::Other,
        bytes: rest,
        entries: None,
        oldest: None,
    });
    let number = |name: &str| {
        let read = connection.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
        read.doing(DOING, path)
    };
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    Ok(DatabaseSize {
        file: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        contents,
        unused_bytes: number("freelist_count")?.saturating_mul(number("page_size")?),
        // A database without a log has none to measure.
        log_bytes: fs::metadata(log).map_or(0, |about| about.len()),
    })
}

/// The size of every table with its indexes.
fn bytes_by_table(
    connection: &Connection,
    path: &Path,
) -> Result<BTreeMap<Box<str>, u64>, StoreError> {
    let sql = "SELECT name, tbl_name FROM sqlite_schema WHERE rootpage > 0";
    let trees = doc::rows(connection, path, sql, [], |row| {
        Ok((row.get(0).doing(DOING, path)?, row.get(1).doing(DOING, path)?))
    })?;
    let mut bytes: BTreeMap<Box<str>, u64> = BTreeMap::new();
    for (name, table) in trees {
        let (name, table): (Box<str>, Box<str>) = (name, table);
        let sql = "SELECT pgsize FROM dbstat WHERE name = ?1 AND aggregate = TRUE";
        let mut statement = connection.prepare_cached(sql).doing(DOING, path)?;
        let size = statement.query_row([&name], |row| row.get::<_, u64>(0)).optional();
        *bytes.entry(table).or_default() += size.doing(DOING, path)?.unwrap_or(0);
    }
    Ok(bytes)
}
