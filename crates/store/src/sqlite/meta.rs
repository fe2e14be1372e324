//! The row about the store itself, which also fences off earlier writers.

use std::path::Path;

use muster_core::ids::EPOCH_SHIFT;
use muster_core::planted::{Bug, is_planted};
use rusqlite::{Connection, TransactionBehavior};

use super::fault::Doing;
use crate::StoreError;

/// Ids start at an epoch shifted by this many bits and must stay below 2^63, the largest integer of a row. In
/// milliseconds since 1970, that limit is the year 2248.
pub(super) const EPOCH_MAX: u64 = (1 << (63 - EPOCH_SHIFT)) - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    /// The epoch of the handle that may write.
    pub(super) controller_epoch: u64,
    pub(super) next_sequence: u64,
    pub(super) last_wall_us: u64,
    pub(super) last_revision: u64,
}

impl Meta {
    pub(super) fn read(connection: &Connection, path: &Path) -> Result<Meta, StoreError> {
        let sql = "SELECT controller_epoch, next_sequence, last_wall_us, last_revision FROM meta";
        connection
            .prepare_cached(sql)
            .and_then(|mut statement| {
                statement.query_row([], |row| {
                    Ok(Meta {
                        controller_epoch: row.get(0)?,
                        next_sequence: row.get(1)?,
                        last_wall_us: row.get(2)?,
                        last_revision: row.get(3)?,
                    })
                })
            })
            .doing("reading the store's state", path)
    }

    /// The same for the writer that claimed the store as `held`: refused if another one has claimed it since.
    pub(super) fn read_as(
        held: u64,
        connection: &Connection,
        path: &Path,
    ) -> Result<Meta, StoreError> {
        let meta = Meta::read(connection, path)?;
        if meta.controller_epoch != held {
            return Err(StoreError::Fenced { held, now: meta.controller_epoch });
        }
        Ok(meta)
    }

    pub(super) fn write(&self, connection: &Connection, path: &Path) -> Result<(), StoreError> {
        let sql = "UPDATE meta SET controller_epoch = ?1, next_sequence = ?2, last_wall_us = ?3, \
                   last_revision = ?4";
        let values =
            (self.controller_epoch, self.next_sequence, self.last_wall_us, self.last_revision);
        connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(values))
            .map(|_| ())
            .doing("writing the store's state", path)
    }
}

/// Claims the store: from the moment this is on disk, no earlier handle can commit.
pub(super) fn claim(
    connection: &mut Connection,
    path: &Path,
    unix_ms: u64,
) -> Result<u64, StoreError> {
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .doing("claiming the store", path)?;
    let mut meta = Meta::read(&transaction, path)?;
    let unix_ms = if is_planted(Bug::EpochFromRowOnly) { 0 } else { unix_ms };
    let epoch = unix_ms.max(meta.controller_epoch + 1);
    if epoch > EPOCH_MAX {
        return Err(StoreError::Clock { unix_ms });
    }
    meta.controller_epoch = epoch;
    meta.write(&transaction, path)?;
    transaction.commit().doing("claiming the store", path)?;
    Ok(epoch)
}
