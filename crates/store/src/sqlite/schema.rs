//! The file's format: how our files are recognised, and the steps that upgrade older ones.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::fault::Doing;
use crate::StoreError;

/// "MUSR" in ASCII, in the header of every file. Files from before the first release have another mark, because their
/// records were different.
pub(super) const APPLICATION_ID: u32 = 0x4d55_5352;

/// A kind of file: its mark, and the steps that create it. They are applied in order, each in a transaction of its own.
/// A released step never changes: add one instead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schema<'s> {
    pub mark: u32,
    pub steps: &'s [&'s str],
}

impl Schema<'_> {
    /// The format that this version writes.
    pub(super) const fn known(&self) -> u32 {
        self.steps.len() as u32
    }
}

/// The state of the server.
pub(super) const MAIN: Schema<'static> = Schema { mark: APPLICATION_ID, steps: STEPS };

pub(super) const STEPS: &[&str] = &[
    include_str!("migrations/0001_first.sql"),
    include_str!("migrations/0002_access.sql"),
    include_str!("migrations/0003_governance.sql"),
    include_str!("migrations/0004_deployments.sql"),
    include_str!("migrations/0005_hosts.sql"),
    include_str!("migrations/0006_job_trees.sql"),
    include_str!("migrations/0007_datastores.sql"),
    include_str!("migrations/0008_assets.sql"),
    include_str!("migrations/0009_job_metadata.sql"),
    include_str!("migrations/0010_names.sql"),
    include_str!("migrations/0011_children.sql"),
    include_str!("migrations/0012_packed.sql"),
];

/// The rows of blobs: "MUSB" in ASCII.
pub(super) const STORAGE: Schema<'static> = Schema { mark: 0x4d55_5342, steps: STORAGE_STEPS };

const STORAGE_STEPS: &[&str] = &[
    include_str!("migrations/storage_0001_first.sql"),
    include_str!("migrations/storage_0002_names.sql"),
];

/// The time series for charts: "MUST" in ASCII.
pub(super) const SERIES: Schema<'static> = Schema { mark: 0x4d55_5354, steps: SERIES_STEPS };

const SERIES_STEPS: &[&str] = &[include_str!("migrations/series_0001_first.sql")];

/// What the header of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// New, or left behind by a crash before the first step was completed.
    Empty,
    Version(u32),
}

/// Reads the header, and refuses a file that is not ours or is newer than this version. Changes nothing.
pub(super) fn inspect(
    connection: &mut Connection,
    path: &Path,
    schema: &Schema<'_>,
) -> Result<Format, StoreError> {
    // In one transaction, because another process may be creating its tables right now.
    let connection = &*connection.transaction().doing("reading the store's header", path)?;
    let application: u32 = header(connection, "application_id", path)?;
    let version: u32 = header(connection, "user_version", path)?;
    if application == schema.mark {
        let known = schema.known();
        return if version > known {
            Err(StoreError::TooNew { path: path.to_owned(), found: version, known })
        } else {
            Ok(Format::Version(version))
        };
    }
    let what = if application != 0 {
        "another program's mark is in its header"
    } else if version != 0 || has_tables(connection, path)? {
        "it is another program's database"
    } else {
        return Ok(Format::Empty);
    };
    Err(StoreError::NotOurs { path: path.to_owned(), what })
}

/// Reads the whole file, because damage must be found before the file is written to.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let verdict: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .doing("checking the store", path)?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(StoreError::Damaged { path: path.to_owned(), what: verdict })
    }
}

/// Applies the steps that the file has not had yet, which brings it to the current format.
pub(super) fn migrate(
    connection: &mut Connection,
    path: &Path,
    schema: &Schema<'_>,
) -> Result<(), StoreError> {
    for (step, sql) in (0u32..).zip(schema.steps) {
        let doing = "upgrading the store";
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .doing(doing, path)?;
        // Checked again inside the transaction, because another process may have just done it.
        let done: u32 = header(&transaction, "user_version", path)?;
        if done <= step {
            transaction.execute_batch(sql).doing(doing, path)?;
            transaction.pragma_update(None, "application_id", schema.mark).doing(doing, path)?;
            transaction.pragma_update(None, "user_version", step + 1).doing(doing, path)?;
            transaction.commit().doing(doing, path)?;
        }
    }
    Ok(())
}

fn header(connection: &Connection, field: &str, path: &Path) -> Result<u32, StoreError> {
    connection
        .pragma_query_value(None, field, |row| row.get::<_, i64>(0))
        // SQLite returns the 32 bits as a signed number.
        .map(|value| value as u32)
        .doing("reading the store's header", path)
}

fn has_tables(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    connection
        .query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
        .doing("reading the store's header", path)
}
