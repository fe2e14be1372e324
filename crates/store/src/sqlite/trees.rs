//! Which trees jobs use and have left. The files themselves are stored elsewhere.

use std::path::Path;

use muster_core::ids::{JobId, WorkspaceId};
use muster_core::model::{Job, SavedTree, TreeId};
use rusqlite::Connection;

use super::doc;
use super::fault::Doing;
use super::write::Writer;
use crate::StoreError;

/// Used in the column of a member's rank.
const CODE: i64 = -1;

pub(super) fn brought(writer: &Writer<'_>, job: &Job, code: &TreeId) -> Result<(), StoreError> {
    writer.run(
        "INSERT INTO job_trees (job, rank, workspace, tree) VALUES (?1, ?2, ?3, ?4)",
        (job.id.0, CODE, job.workspace.0, code.to_string()),
    )
}

/// Replaces the tree that the same member left before.
pub(super) fn saved(writer: &Writer<'_>, saved: &SavedTree) -> Result<(), StoreError> {
    writer.run(
        "INSERT INTO job_trees (job, rank, workspace, tree, doc) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (job, rank) DO UPDATE SET tree = excluded.tree, doc = excluded.doc",
        (saved.job.0, saved.rank, saved.workspace.0, saved.tree.to_string(), doc::encode(saved)),
    )
}

pub(super) fn forget(writer: &Writer<'_>, workspace: WorkspaceId) -> Result<(), StoreError> {
    writer.run("DELETE FROM job_trees WHERE workspace = ?1", (workspace.0,))
}

pub(super) fn of_job(
    connection: &Connection,
    path: &Path,
    job: JobId,
) -> Result<Vec<SavedTree>, StoreError> {
    let sql = "SELECT doc FROM job_trees WHERE job = ?1 AND rank >= 0 ORDER BY rank";
    doc::many(connection, path, sql, (doc::key(job.0),))
}

pub(super) fn wanted(
    connection: &Connection,
    path: &Path,
) -> Result<Vec<(WorkspaceId, TreeId)>, StoreError> {
    let sql = "SELECT DISTINCT workspace, tree FROM job_trees ORDER BY workspace, tree";
    doc::rows(connection, path, sql, [], |row| {
        let doing = "reading which files are wanted";
        let workspace = WorkspaceId(row.get(0).doing(doing, path)?);
        let tree: Box<str> = row.get(1).doing(doing, path)?;
        Ok((workspace, tree.parse().map_err(|why| doc::damaged(path, &why))?))
    })
}
