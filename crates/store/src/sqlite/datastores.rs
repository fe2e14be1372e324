//! Datastores that users created.

use std::path::Path;

use muster_core::ids::WorkspaceId;
use muster_core::model::{Caller, Datastore};
use muster_core::time::Wall;
use rusqlite::{Connection, Row};

use super::doc;
use super::write::Writer;
use crate::StoreError;

/// Replaces the datastore of that name, but keeps who created it and when.
pub(super) fn put(writer: &Writer<'_>, datastore: &Datastore) -> Result<(), StoreError> {
    let first = doc::encode(&(datastore.created_at, &datastore.created_by));
    writer.run(
        "INSERT INTO datastores (workspace, folded, doc, first) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (workspace, folded) DO UPDATE SET doc = excluded.doc",
        (datastore.workspace.0, datastore.name.to_ascii_lowercase(), doc::encode(datastore), first),
    )
}

pub(super) fn remove(
    writer: &Writer<'_>,
    workspace: WorkspaceId,
    name: &str,
) -> Result<(), StoreError> {
    let sql = "DELETE FROM datastores WHERE workspace = ?1 AND folded = ?2";
    writer.run(sql, (workspace.0, name))
}

pub(super) fn forget(writer: &Writer<'_>, workspace: WorkspaceId) -> Result<(), StoreError> {
    writer.run("DELETE FROM datastores WHERE workspace = ?1", (workspace.0,))
}

pub(super) fn one(
    connection: &Connection,
    path: &Path,
    workspace: WorkspaceId,
    name: &str,
) -> Result<Option<Datastore>, StoreError> {
    let sql = "SELECT doc, first FROM datastores WHERE workspace = ?1 AND folded = ?2";
    let params = (doc::key(workspace.0), name.to_ascii_lowercase());
    let found = doc::rows(connection, path, sql, params, |row| read(row, path))?;
    Ok(found.into_iter().next())
}

pub(super) fn all(
    connection: &Connection,
    path: &Path,
    workspace: WorkspaceId,
) -> Result<Vec<Datastore>, StoreError> {
    let sql = "SELECT doc, first FROM datastores WHERE workspace = ?1 ORDER BY folded";
    doc::rows(connection, path, sql, (doc::key(workspace.0),), |row| read(row, path))
}

fn read(row: &Row<'_>, path: &Path) -> Result<Datastore, StoreError> {
    let datastore: Datastore = doc::decode(row, 0, path)?;
    let (created_at, created_by): (Wall, Caller) = doc::decode(row, 1, path)?;
    Ok(Datastore { created_at, created_by, ..datastore })
}
