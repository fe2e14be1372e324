//! The files of a blob, and lists of blobs. A list walks along the names and skips the groups that a delimiter forms,
//! so that the cost of a page depends on its length only.

use std::path::Path;

use muster_core::ids::WorkspaceId;
use rusqlite::Connection;

use super::{BLOB_COLUMNS, blob, blob_of, digest_of, doc};
use crate::StoreError;
use crate::sqlite::fault::Doing;
use crate::storage::{
    BlobPart, BlockFrom, BlockRef, Blocks, ContainerId, Content, ListQuery, Listed, Listing, Span,
    Stored,
};

/// Greater than every byte of UTF-8: it sorts after all names with the same prefix.
const AFTER_ALL: u8 = 0xff;
/// Rows that are fetched at a time. With a delimiter, many of them may be skipped.
const ROWS_AT_ONCE: usize = 128;

pub(super) fn content(
    connection: &Connection,
    path: &Path,
    container: ContainerId,
    name: &str,
    span: Span,
) -> Result<Option<Content>, StoreError> {
    let Some((id, blob)) = blob(connection, path, container, name)? else { return Ok(None) };
    let to = span.to.unwrap_or(u64::MAX);
    let sql = "SELECT starts, digest, bytes FROM segments
               WHERE blob = ?1 AND starts <= ?3 AND bytes > 0 AND starts >= coalesce(
                   (SELECT max(starts) FROM segments WHERE blob = ?1 AND starts <= ?2), 0)
               ORDER BY place";
    let params = (id, doc::key(span.from), doc::key(to));
    let rows = doc::rows(connection, path, sql, params, |row| {
        let digest = digest_of(row, 1, path)?;
        let numbers = || Ok((row.get(0)?, row.get(2)?));
        let (starts, bytes): (u64, u64) = numbers().doing("reading a blob", path)?;
        Ok((starts, BlobPart { digest, bytes }))
    })?;
    let starts = rows.first().map_or(0, |(starts, _)| *starts);
    let segments = rows.into_iter().map(|(_, segment)| segment).collect();
    Ok(Some(Content { blob, starts, segments }))
}

pub(super) fn list(
    connection: &Connection,
    path: &Path,
    container: ContainerId,
    query: &ListQuery,
) -> Result<Listing, StoreError> {
    let prefix = query.prefix.as_bytes();
    let upper = [prefix, &[AFTER_ALL]].concat();
    // Names after this one. Only shorter names sort before the prefix itself.
    let mut after = query.after.clone().filter(|after| after.as_slice() >= prefix);
    let mut items: Vec<Listed> = Vec::new();
    let delimiter = query.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
    // One more row than requested shows whether there is another page.
    let wanted = query.limit.saturating_add(1);
    let mut marks: Vec<Vec<u8>> = Vec::new();
    'walk: while items.len() < wanted {
        let limit = ROWS_AT_ONCE.min(wanted - items.len());
        let sql = format!(
            "SELECT {BLOB_COLUMNS} FROM blobs
             WHERE container = ?1 AND name >= ?2 AND name > ?3 AND name < ?4 ORDER BY name LIMIT ?5"
        );
        let floor = after.as_deref().unwrap_or(&[]);
        let is_first = after.is_none();
        let from: &[u8] = if is_first { prefix } else { floor };
        let params = (doc::key(container.0), from, floor, &upper[..], limit);
        let rows = doc::rows(connection, path, &sql, params, |row| blob_of(row, path))?;
        let is_end = rows.len() < limit;
        for (_, blob) in rows {
            let rest = &blob.name[query.prefix.len()..];
            let cut = delimiter.and_then(|delimiter| Some(rest.find(delimiter)? + delimiter.len()));
            match cut {
                Some(cut) => {
                    let group = &blob.name[..query.prefix.len() + cut];
                    let skip = [group.as_bytes(), &[AFTER_ALL]].concat();
                    items.push(Listed::Prefix(group.into()));
                    marks.push(skip.clone());
                    // Skip all other names with the same beginning.
                    after = Some(skip);
                    continue 'walk;
                }
                None => {
                    after = Some(blob.name.as_bytes().to_vec());
                    marks.push(blob.name.as_bytes().to_vec());
                    items.push(Listed::Blob(blob));
                }
            }
        }
        if is_end {
            break;
        }
    }
    let is_more = items.len() > query.limit;
    items.truncate(query.limit);
    marks.truncate(query.limit);
    Ok(Listing { items, next: marks.pop().filter(|_| is_more) })
}

pub(super) fn blocks(
    connection: &Connection,
    path: &Path,
    container: ContainerId,
    name: &str,
) -> Result<Blocks, StoreError> {
    let blob = blob(connection, path, container, name)?;
    let pair = |row: &rusqlite::Row<'_>| {
        let read = || Ok((row.get(0)?, row.get(1)?));
        read().doing("listing blocks", path)
    };
    let committed = match &blob {
        Some((id, _)) => {
            let sql = "SELECT block, bytes FROM segments
                       WHERE blob = ?1 AND block IS NOT NULL ORDER BY place";
            doc::rows(connection, path, sql, (id,), pair)?
        }
        None => Vec::new(),
    };
    let sql = "SELECT block, bytes FROM staged WHERE container = ?1 AND name = ?2";
    let params = (doc::key(container.0), name.as_bytes());
    let uncommitted = doc::rows(connection, path, sql, params, pair)?;
    Ok(Blocks { blob: blob.map(|(_, blob)| blob), committed, uncommitted })
}

/// Each file counts once, however many blobs it is part of.
pub(super) fn stored(
    connection: &Connection,
    path: &Path,
    workspace: WorkspaceId,
) -> Result<Stored, StoreError> {
    let sum = |sql: &str| -> Result<u64, StoreError> {
        let mut statement = connection.prepare_cached(sql).doing("reading", path)?;
        statement.query_row((workspace.0,), |row| row.get(0)).doing("reading", path)
    };
    let blob_bytes = sum("SELECT coalesce(sum(bytes), 0) FROM
                          (SELECT max(bytes) AS bytes FROM segments WHERE workspace = ?1 GROUP BY digest)")?;
    let uncommitted_bytes = sum("SELECT coalesce(sum(bytes), 0) FROM
                          (SELECT max(bytes) AS bytes FROM staged WHERE workspace = ?1 AND NOT EXISTS
                           (SELECT 1 FROM segments WHERE segments.workspace = staged.workspace
                            AND segments.digest = staged.digest) GROUP BY digest)")?;
    Ok(Stored { blob_bytes, uncommitted_bytes })
}

/// The file of one block of a blob. `blob` is the id of its row, if there is one.
pub(super) fn block(
    connection: &Connection,
    path: &Path,
    container: ContainerId,
    name: &[u8],
    blob: Option<u64>,
    wanted: &BlockRef,
) -> Result<Option<BlobPart>, StoreError> {
    let segment = |row: &rusqlite::Row<'_>| {
        let digest = digest_of(row, 0, path)?;
        let bytes = row.get(1).doing("reading a block", path)?;
        Ok(BlobPart { digest, bytes })
    };
    if wanted.from != BlockFrom::Committed {
        let sql = "SELECT digest, bytes FROM staged
                   WHERE container = ?1 AND name = ?2 AND block = ?3";
        let params = (doc::key(container.0), name, &*wanted.id);
        let found = doc::rows(connection, path, sql, params, segment)?;
        if !found.is_empty() || wanted.from == BlockFrom::Uncommitted {
            return Ok(found.into_iter().next());
        }
    }
    let Some(blob) = blob else { return Ok(None) };
    let sql = "SELECT digest, bytes FROM segments WHERE blob = ?1 AND block = ?2 LIMIT 1";
    let found = doc::rows(connection, path, sql, (blob, &*wanted.id), segment)?;
    Ok(found.into_iter().next())
}
