//! Jobs after their submission: their metadata, lists of them, and their deletion.

use std::path::Path;

use muster_core::ids::{JobId, WorkspaceId};
use muster_core::model::{Job, JobMetadata};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::doc;
use super::write::Writer;
use crate::{Archived, JobQuery, StoreError};

pub(super) fn put_metadata(
    writer: &Writer<'_>,
    job: JobId,
    metadata: &JobMetadata,
) -> Result<(), StoreError> {
    writer.run(
        "UPDATE jobs SET metadata = ?2, archived = ?3 WHERE id = ?1",
        (job.0, doc::encode(metadata), metadata.is_archived),
    )
}

/// Deletes a job with everything that belongs to it alone, and with its children, which have the following IDs up to
/// `last`. Its cost is kept, together with the tags by which it is
/// summed up.
pub(super) fn remove(writer: &Writer<'_>, job: JobId, last: JobId) -> Result<(), StoreError> {
    let steps = [
        "INSERT INTO gone_job_tags (job, tags)
         SELECT j.id, coalesce(j.metadata ->> '$.tags', s.doc ->> '$.tags')
         FROM jobs j JOIN specs s ON s.hash = j.spec
         WHERE j.id = ?1 AND coalesce(j.metadata ->> '$.tags', s.doc ->> '$.tags') <> '{}'",
        "DELETE FROM attempts WHERE job BETWEEN ?1 AND ?2",
        "DELETE FROM members WHERE job BETWEEN ?1 AND ?2",
        "DELETE FROM job_trees WHERE job BETWEEN ?1 AND ?2",
        "DELETE FROM children WHERE id BETWEEN ?1 AND ?2",
        "DELETE FROM tree_totals WHERE parent = ?1",
        "DELETE FROM specs WHERE hash = (SELECT spec FROM jobs WHERE id = ?1)
         AND NOT EXISTS (SELECT 1 FROM jobs WHERE spec = specs.hash AND id <> ?1)",
        "DELETE FROM jobs WHERE id = ?1",
    ];
    let last = last.max(job);
    let run = |sql: &str| match sql.contains("?2") {
        true => writer.run(sql, (job.0, last.0)),
        false => writer.run(sql, (job.0,)),
    };
    steps.into_iter().try_for_each(run)
}

/// The job with this ID if it has ended. Children have no row here.
pub(super) fn ended(
    connection: &Connection,
    path: &Path,
    job: JobId,
) -> Result<Option<Job>, StoreError> {
    let sql = "SELECT doc FROM jobs WHERE id = ?1 AND live = 0";
    doc::one(connection, path, sql, (doc::key(job.0),))
}

/// Jobs that have ended, without children, in the order of their IDs.
pub(super) fn ended_after(
    connection: &Connection,
    path: &Path,
    after: JobId,
    limit: usize,
) -> Result<Vec<Job>, StoreError> {
    let sql = "SELECT doc FROM jobs WHERE id > ?1 AND live = 0 ORDER BY id LIMIT ?2";
    doc::many(connection, path, sql, (doc::key(after.0), limit))
}

/// The condition after `WHERE` for a list of jobs, newest first, and its values.
pub(super) fn condition(
    workspace: WorkspaceId,
    before: JobId,
    query: &JobQuery,
    limit: usize,
) -> (String, Vec<Value>) {
    let mut sql = "j.workspace = ? AND j.id < ?".to_owned();
    let number = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let mut values = vec![number(workspace.0), number(before.0)];
    if let Some(archived) = match query.archived {
        Archived::No => Some(0),
        Archived::Yes => Some(1),
        Archived::Both => None,
    } {
        sql += " AND j.archived = ?";
        values.push(Value::Integer(archived));
    }
    if let Some(tag) = &query.tag {
        let tags = "json_each(coalesce(j.metadata, s.doc), '$.tags')";
        sql += &format!(" AND EXISTS (SELECT 1 FROM {tags} WHERE key = ?)");
        values.push(Value::Text(tag.to_string()));
    }
    sql += " ORDER BY j.id DESC LIMIT ?";
    values.push(number(limit as u64));
    (sql, values)
}
