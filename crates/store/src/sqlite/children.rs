//! The children of jobs that consist of other jobs. Only those that have started have a row.

use std::path::Path;

use muster_core::TreeRows;
use muster_core::ids::JobId;
use muster_core::model::{
    CancelReason, ChildCounts, Cost, Job, JobPhase, JobState, Part, parent_and_index,
};
use muster_core::time::{Span, Wall};
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};

use super::fault::Doing;
use super::write::Writer;
use super::{doc, members};
use crate::{ChildrenView, StoreError};

const DOING: &str = "reading the children of a job";

/// What differs from one child of a parent to the next.
#[derive(Serialize, Deserialize)]
struct Child<State> {
    attempts: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    losses: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_returned: bool,
    state: State,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn encode(job: &Job) -> String {
    let Job { attempts, losses, is_returned, state, .. } = job;
    let (attempts, losses, is_returned) = (*attempts, *losses, *is_returned);
    doc::encode(&Child { attempts, losses, is_returned, state })
}

/// The child of this row (its ID and its document).
fn decode(row: &Row<'_>, parent: &Job, path: &Path) -> Result<Job, StoreError> {
    let id = id(row, 0, path)?;
    let Child { attempts, losses, is_returned, state } = doc::decode(row, 1, path)?;
    let child = parent.child(id).ok_or_else(|| StoreError::Damaged {
        path: path.to_owned(),
        what: format!("{} is not a child of {}", id, parent.id),
    })?;
    Ok(Job { attempts, losses, is_returned, state, ..child })
}

fn id(row: &Row<'_>, column: usize, path: &Path) -> Result<JobId, StoreError> {
    let id: i64 = row.get(column).doing(DOING, path)?;
    Ok(JobId(id.cast_unsigned()))
}

pub(super) fn create(writer: &Writer<'_>, child: &Job) -> Result<(), StoreError> {
    writer.run(
        "INSERT INTO children (id, parent, cluster, phase, live, doc) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        (
            child.id.0,
            child.parent.map(|parent| parent.0),
            child.cluster.0,
            doc::word(&child.phase()),
            !child.phase().is_terminal(),
            encode(child),
        ),
    )
}

/// Returns the number of rows that were changed.
pub(super) fn update(writer: &Writer<'_>, child: &Job) -> Result<usize, StoreError> {
    let phase = child.phase();
    writer.count(
        "UPDATE children SET phase = ?2, live = ?3, doc = ?4 WHERE id = ?1",
        (child.id.0, doc::word(&phase), !phase.is_terminal(), encode(child)),
    )
}

/// Adds a line of the ledger to the total of the parent.
pub(super) fn add_cost(
    writer: &Writer<'_>,
    parent: JobId,
    (part, price, span): (Part, u64, Span),
) -> Result<(), StoreError> {
    writer.run(
        "INSERT INTO tree_totals VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO UPDATE SET span_us = span_us + excluded.span_us",
        (parent.0, part.0, price, span.0),
    )
}

/// The trees of live parents. Adds the live children to the jobs, which are sorted by ID before and after.
pub(super) fn load(
    connection: &Connection,
    path: &Path,
    jobs: &mut Vec<Job>,
) -> Result<Vec<TreeRows>, StoreError> {
    let mut trees = Vec::new();
    let mut live = Vec::new();
    for parent in jobs.iter().filter(|job| job.is_parent()) {
        let sql =
            "SELECT id, doc, phase, live FROM children WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
        let values = (parent.id.0, parent.last_id().0);
        let mut children = Vec::new();
        doc::each(connection, path, sql, values, |row| {
            let phase: Box<str> = row.get(2).doing(DOING, path)?;
            children.push((id(row, 0, path)?, doc::from_word::<JobPhase>(&phase, path)?));
            if row.get(3).doing(DOING, path)? {
                live.push(decode(row, parent, path)?);
            }
            Ok(())
        })?;
        if !children.is_empty() {
            trees.push(TreeRows { parent: parent.id, children });
        }
    }
    jobs.append(&mut live);
    jobs.sort_unstable_by_key(|job| job.id);
    Ok(trees)
}

/// The child with this ID, whether it has a row or not.
pub(super) fn one(
    connection: &Connection,
    path: &Path,
    parent: &Job,
    id: JobId,
) -> Result<Option<Job>, StoreError> {
    Ok(between(connection, path, parent, (id, id))?.pop())
}

/// The children with these IDs, in order, whether they have rows or not.
pub(super) fn between(
    connection: &Connection,
    path: &Path,
    parent: &Job,
    (first, last): (JobId, JobId),
) -> Result<Vec<Job>, StoreError> {
    let sql = "SELECT id, doc FROM children WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
    let rows = doc::rows(connection, path, sql, (doc::key(first.0), doc::key(last.0)), |row| {
        members::overlay(connection, path, decode(row, parent, path)?)
    })?;
    let mut rows = rows.into_iter().peekable();
    let ids = (first.0..=last.0).map(JobId);
    let child = |id| rows.next_if(|job| job.id == id).or_else(|| without_row(parent, id));
    Ok(ids.filter_map(child).collect())
}

/// A child that has not started. It ends with its parent.
fn without_row(parent: &Job, id: JobId) -> Option<Job> {
    let child = parent.child(id)?;
    let canceled = |at: Wall, why: CancelReason| JobState::Canceled { at, why };
    let state = match &parent.state {
        JobState::Canceled { at, why } => canceled(*at, why.clone()),
        JobState::Failed { at, .. } => canceled(*at, CancelReason::ParentTimedOut),
        JobState::Completed { at } => canceled(*at, CancelReason::Asked),
        JobState::Queued
        | JobState::Starting(_)
        | JobState::Running(_)
        | JobState::CancelRequested(_)
        | JobState::Parent(_) => JobState::Queued,
    };
    Some(Job { state, ..child })
}

/// The child that an ID belongs to, if any.
pub(super) fn by_id(
    connection: &Connection,
    path: &Path,
    id: JobId,
) -> Result<Option<Job>, StoreError> {
    // No other job has an ID between those of a parent and its children.
    let sql = "SELECT doc FROM jobs WHERE id < ?1 ORDER BY id DESC LIMIT 1";
    let parent: Option<Job> = doc::one(connection, path, sql, (doc::key(id.0),))?;
    match parent {
        Some(parent) if parent.last_id() >= id => one(connection, path, &parent, id),
        Some(_) | None => Ok(None),
    }
}

/// The children of a parent by phase.
fn counts(connection: &Connection, path: &Path, parent: &Job) -> Result<ChildCounts, StoreError> {
    let mut counts = ChildCounts::default();
    let sql = "SELECT phase, count(*) FROM children WHERE id BETWEEN ?1 AND ?2 GROUP BY phase";
    let values = (parent.id.0, parent.last_id().0);
    doc::each(connection, path, sql, values, |row| {
        let phase: Box<str> = row.get(0).doing(DOING, path)?;
        let number: u32 = row.get(1).doing(DOING, path)?;
        match doc::from_word(&phase, path)? {
            JobPhase::Completed => counts.completed += number,
            JobPhase::Failed => counts.failed += number,
            JobPhase::Canceled => counts.canceled += number,
            JobPhase::Queued
            | JobPhase::Starting
            | JobPhase::Running
            | JobPhase::CancelRequested => counts.live += number,
        }
        Ok(())
    })?;
    let without_row = parent.children().saturating_sub(counts.all());
    match parent.phase().is_terminal() {
        true => counts.canceled += without_row,
        false => counts.waiting = without_row,
    }
    Ok(counts)
}

/// The children of a parent in figures.
pub(super) fn figures(
    connection: &Connection,
    path: &Path,
    parent: &Job,
) -> Result<ChildrenView, StoreError> {
    let mut cost = Cost::default();
    let sql = "SELECT part, price_micro_usd_per_hour, span_us FROM tree_totals WHERE parent = ?1";
    doc::each(connection, path, sql, (parent.id.0,), |row| {
        let part = Part(row.get(0).doing(DOING, path)?);
        let span = Span(row.get(2).doing(DOING, path)?);
        cost.add(part, span, row.get(1).doing(DOING, path)?);
        Ok(())
    })?;
    let mut active = Vec::new();
    let sql = "SELECT id, doc FROM children INDEXED BY children_live \
               WHERE cluster = ?1 AND live = 1 AND id BETWEEN ?2 AND ?3";
    let values = (parent.cluster.0, parent.id.0, parent.last_id().0);
    doc::each(connection, path, sql, values, |row| {
        let child = members::overlay(connection, path, decode(row, parent, path)?)?;
        active.extend(child.attempt().into_iter().flat_map(|attempt| attempt.members.clone()));
        Ok(())
    })?;
    Ok(ChildrenView { counts: counts(connection, path, parent)?, cost, members: active })
}

/// The children of a cluster that hold nodes.
pub(super) fn each_active(
    connection: &Connection,
    path: &Path,
    cluster: u64,
    mut each: impl FnMut(&Job) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let sql = "SELECT c.id, c.doc, p.doc FROM children c INDEXED BY children_live \
               JOIN jobs p ON p.id = c.parent WHERE c.cluster = ?1 AND c.live = 1 \
               AND c.phase IN ('Starting', 'Running', 'CancelRequested')";
    doc::each(connection, path, sql, (cluster,), |row| {
        let parent: Job = doc::decode(row, 2, path)?;
        each(&members::overlay(connection, path, decode(row, &parent, path)?)?)
    })
}

/// The name of the parent that a child with this name would have, in lower case.
pub(super) fn parent_name(name: &str) -> Option<String> {
    parent_and_index(name).map(|(parent, _)| parent.to_ascii_lowercase())
}
