//! Versioned assets, and their names.

use std::path::Path;

use muster_core::KnownAsset;
use muster_core::ids::WorkspaceId;
use muster_core::model::{Asset, AssetContainer, AssetKind, WorkspaceKey};
use rusqlite::{Connection, Row};

use super::doc;
use super::fault::Doing;
use super::write::Writer;
use crate::{Archived, AssetOrder, AssetQuery, ContainerView, StoreError};

/// The most assets with the same hash that are returned.
const FOUND_MAX: usize = 100;

/// A name of a kind in a workspace; compared ignoring case.
type Of<'n> = (WorkspaceId, AssetKind, &'n str);

pub(super) fn put(writer: &Writer<'_>, asset: &Asset) -> Result<(), StoreError> {
    writer.run(
        "INSERT INTO assets (workspace, kind, folded, version, hash, archived, doc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (workspace, kind, folded, version) DO UPDATE SET
         hash = excluded.hash, archived = excluded.archived, doc = excluded.doc",
        (
            asset.workspace.0,
            doc::word(&asset.kind),
            asset.name.to_ascii_lowercase(),
            &*asset.version,
            asset.about.hash.as_deref(),
            asset.is_archived,
            doc::encode(asset),
        ),
    )
}

pub(super) fn remove(
    writer: &Writer<'_>,
    (workspace, kind, name): Of<'_>,
    version: &str,
) -> Result<(), StoreError> {
    writer.run(
        "DELETE FROM assets WHERE workspace = ?1 AND kind = ?2 AND folded = ?3 AND version = ?4",
        (workspace.0, doc::word(&kind), name, version),
    )
}

pub(super) fn put_container(
    writer: &Writer<'_>,
    container: &AssetContainer,
) -> Result<(), StoreError> {
    writer.run(
        "INSERT INTO asset_containers (workspace, kind, folded, archived, anonymous, doc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (workspace, kind, folded) DO UPDATE SET
         archived = excluded.archived, anonymous = excluded.anonymous, doc = excluded.doc",
        (
            container.workspace.0,
            doc::word(&container.kind),
            container.name.to_ascii_lowercase(),
            container.is_archived,
            container.is_anonymous,
            doc::encode(container),
        ),
    )
}

/// Deletes a name with all its versions.
pub(super) fn remove_container(
    writer: &Writer<'_>,
    (workspace, kind, name): Of<'_>,
) -> Result<(), StoreError> {
    let kind = doc::word(&kind);
    for table in ["assets", "asset_containers"] {
        let sql = format!("DELETE FROM {table} WHERE workspace = ?1 AND kind = ?2 AND folded = ?3");
        writer.run(&sql, (workspace.0, &kind, name))?;
    }
    Ok(())
}

pub(super) fn forget(writer: &Writer<'_>, workspace: WorkspaceId) -> Result<(), StoreError> {
    writer.run("DELETE FROM assets WHERE workspace = ?1", (workspace.0,))?;
    writer.run("DELETE FROM asset_containers WHERE workspace = ?1", (workspace.0,))
}

/// The current rows, before a change.
pub(super) fn known(
    connection: &Connection,
    path: &Path,
    workspace: &WorkspaceKey,
    (kind, name, version): (AssetKind, &str, Option<&str>),
) -> Result<KnownAsset, StoreError> {
    let key = workspace.folded();
    let of_workspace = "(SELECT id FROM workspaces WHERE subscription = ?1 AND resource_group = ?2 AND folded = ?3)";
    let (kind, folded) = (doc::word(&kind), name.to_ascii_lowercase());
    let sql = format!(
        "SELECT doc FROM asset_containers WHERE workspace = {of_workspace} AND kind = ?4 AND folded = ?5"
    );
    let values = (&key.subscription, &key.resource_group, &key.name, &kind, &folded);
    let container = doc::one(connection, path, &sql, values)?;
    let Some(version) = version else { return Ok(KnownAsset { asset: None, container }) };
    let sql = format!(
        "SELECT doc FROM assets WHERE workspace = {of_workspace} AND kind = ?4 AND folded = ?5 AND version = ?6"
    );
    let values = (&key.subscription, &key.resource_group, &key.name, &kind, &folded, version);
    Ok(KnownAsset { asset: doc::one(connection, path, &sql, values)?, container })
}

pub(super) fn one(
    connection: &Connection,
    path: &Path,
    (workspace, kind, name): Of<'_>,
    version: &str,
) -> Result<Option<Asset>, StoreError> {
    let sql = "SELECT doc FROM assets \
               WHERE workspace = ?1 AND kind = ?2 AND folded = ?3 AND version = ?4";
    let values = (doc::key(workspace.0), doc::word(&kind), name.to_ascii_lowercase(), version);
    doc::one(connection, path, sql, values)
}

/// Each version with its position in the order.
pub(super) fn of_name(
    connection: &Connection,
    path: &Path,
    (workspace, query): (WorkspaceId, &AssetQuery),
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(i64, Asset)>, StoreError> {
    let (start, sql) = match query.order {
        AssetOrder::NewestFirst => (
            i64::MAX,
            "SELECT id, doc FROM assets WHERE workspace = ?1 AND kind = ?2 AND folded = ?3 \
             AND archived BETWEEN ?4 AND ?5 AND id < ?6 ORDER BY id DESC LIMIT ?7",
        ),
        AssetOrder::OldestFirst => (
            i64::MIN,
            "SELECT id, doc FROM assets WHERE workspace = ?1 AND kind = ?2 AND folded = ?3 \
             AND archived BETWEEN ?4 AND ?5 AND id > ?6 ORDER BY id LIMIT ?7",
        ),
    };
    let after = match after {
        Some(token) => {
            token.parse().map_err(|_| StoreError::BadPage { token: token.to_owned() })?
        }
        None => start,
    };
    let (least, most) = range(query.archived);
    let values = (
        doc::key(workspace.0),
        doc::word(&query.kind),
        query.name.to_ascii_lowercase(),
        least,
        most,
        after,
        limit,
    );
    doc::rows(connection, path, sql, values, |row| {
        Ok((row.get(0).doing("reading a row", path)?, doc::decode(row, 1, path)?))
    })
}

/// The range of values of the column `archived`.
fn range(archived: Archived) -> (i64, i64) {
    match archived {
        Archived::No => (0, 0),
        Archived::Yes => (1, 1),
        Archived::Both => (0, 1),
    }
}

pub(super) fn of_hash(
    connection: &Connection,
    path: &Path,
    (workspace, kind): (WorkspaceId, AssetKind),
    hash: &str,
) -> Result<Vec<Asset>, StoreError> {
    let sql = "SELECT doc FROM assets \
               WHERE workspace = ?1 AND kind = ?2 AND hash = ?3 AND archived = 0 ORDER BY id LIMIT ?4";
    let values = (doc::key(workspace.0), doc::word(&kind), hash, FOUND_MAX);
    doc::many(connection, path, sql, values)
}

/// A name, and its newest version.
const VIEW: &str = "SELECT c.doc, (SELECT a.doc FROM assets a WHERE a.workspace = c.workspace \
     AND a.kind = c.kind AND a.folded = c.folded AND a.archived = 0 ORDER BY a.id DESC LIMIT 1) \
     FROM asset_containers c";

pub(super) fn container(
    connection: &Connection,
    path: &Path,
    (workspace, kind, name): Of<'_>,
) -> Result<Option<ContainerView>, StoreError> {
    let sql = format!("{VIEW} WHERE c.workspace = ?1 AND c.kind = ?2 AND c.folded = ?3");
    let values = (doc::key(workspace.0), doc::word(&kind), name.to_ascii_lowercase());
    let found = doc::rows(connection, path, &sql, values, |row| view(row, path))?;
    Ok(found.into_iter().next())
}

pub(super) fn containers(
    connection: &Connection,
    path: &Path,
    (workspace, kind, archived): (WorkspaceId, AssetKind, Archived),
    after: &str,
    limit: usize,
) -> Result<Vec<ContainerView>, StoreError> {
    let sql = format!(
        "{VIEW} INDEXED BY asset_containers_named \
         WHERE c.workspace = ?1 AND c.kind = ?2 AND c.folded > ?3 AND c.anonymous = 0 \
         AND c.archived BETWEEN ?4 AND ?5 ORDER BY c.folded LIMIT ?6"
    );
    let (least, most) = range(archived);
    let values = (doc::key(workspace.0), doc::word(&kind), after, least, most, limit);
    doc::rows(connection, path, &sql, values, |row| view(row, path))
}

fn view(row: &Row<'_>, path: &Path) -> Result<ContainerView, StoreError> {
    let container = doc::decode(row, 0, path)?;
    Ok(ContainerView { container, latest: doc::decode_optional(row, 1, path)? })
}
