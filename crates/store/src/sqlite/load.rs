//! Reads the rows that World is rebuilt from.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use muster_core::model::{Job, WorkspaceKey, parent_and_index};
use muster_core::planted::{Bug, is_planted};
use muster_core::time::Wall;
use muster_core::{Effect, KnownJob, WorldRows};
use rusqlite::Connection;

use super::fault::Doing;
use super::meta::Meta;
use super::{children, doc, members};
use crate::StoreError;

/// The caller has begun a transaction, so that all tables are of one moment.
pub(super) fn rows(connection: &Connection, path: &Path) -> Result<WorldRows, StoreError> {
    let meta = Meta::read(connection, path)?;
    // The index of live jobs returns them by cluster; SQLite would sort a million texts to reorder them.
    let mut jobs: Vec<Job> = doc::many(
        connection,
        path,
        "SELECT doc FROM jobs INDEXED BY jobs_live WHERE live = 1",
        [],
    )?;
    jobs.sort_unstable_by_key(|job| job.id);
    let trees = children::load(connection, path, &mut jobs)?;
    members::overlay_all(connection, path, &mut jobs)?;
    let mut effects: Vec<Effect> =
        doc::many(connection, path, "SELECT doc FROM outbox ORDER BY id", [])?;
    if is_planted(Bug::OutboxRowDropped) && !effects.is_empty() {
        effects.remove(0);
    }
    Ok(WorldRows {
        next_sequence: meta.next_sequence,
        last_wall: Wall(meta.last_wall_us),
        principals: doc::many(connection, path, "SELECT doc FROM principals ORDER BY id", [])?,
        workspaces: doc::many(connection, path, "SELECT doc FROM workspaces ORDER BY id", [])?,
        quotas: doc::many(
            connection,
            path,
            "SELECT doc FROM quotas ORDER BY subscription, location",
            [],
        )?,
        accounts: doc::many(
            connection,
            path,
            "SELECT doc FROM accounts ORDER BY cluster, principal",
            [],
        )?,
        users: doc::many(connection, path, "SELECT doc FROM users ORDER BY folded", [])?,
        roles: doc::many(connection, path, "SELECT doc FROM roles ORDER BY folded", [])?,
        groups: doc::many(
            connection,
            path,
            "SELECT doc FROM resource_groups ORDER BY subscription, folded",
            [],
        )?,
        locks: doc::many(connection, path, "SELECT doc FROM locks ORDER BY scope, folded", [])?,
        hosts: doc::many(connection, path, "SELECT doc FROM hosts ORDER BY name", [])?,
        tickets: doc::many(connection, path, "SELECT doc FROM tickets ORDER BY digest", [])?,
        clusters: doc::many(connection, path, "SELECT doc FROM clusters ORDER BY id", [])?,
        nodes: doc::many(connection, path, "SELECT doc FROM nodes ORDER BY id", [])?,
        jobs,
        trees,
        effects,
    })
}

/// A job with this name, or a child of a job, whether it has a row or not.
pub(super) fn job(
    connection: &Connection,
    path: &Path,
    workspace: &WorkspaceKey,
    name: &str,
) -> Result<Option<KnownJob>, StoreError> {
    if let Some(found) = job_with_row(connection, path, workspace, &name.to_ascii_lowercase())? {
        return Ok(Some(found));
    }
    let Some(parent) = children::parent_name(name) else { return Ok(None) };
    let Some(parent) = job_with_row(connection, path, workspace, &parent)? else {
        return Ok(None);
    };
    let Some(child) = parent.job.child_named(name) else { return Ok(None) };
    let child = children::one(connection, path, &parent.job, child)?;
    Ok(child.map(|child| KnownJob { job: Arc::new(child), ..parent }))
}

fn job_with_row(
    connection: &Connection,
    path: &Path,
    workspace: &WorkspaceKey,
    folded: &str,
) -> Result<Option<KnownJob>, StoreError> {
    let key = workspace.folded();
    let sql = "SELECT j.doc, s.doc, j.metadata FROM workspaces w \
               JOIN jobs j ON j.workspace = w.id AND j.folded = ?4 \
               JOIN specs s ON s.hash = j.spec \
               WHERE w.subscription = ?1 AND w.resource_group = ?2 AND w.folded = ?3";
    let values = (&key.subscription, &key.resource_group, &key.name, folded);
    let mut found = doc::rows(connection, path, sql, values, |row| {
        let job = members::overlay(connection, path, doc::decode(row, 0, path)?)?;
        let spec = Arc::new(doc::decode(row, 1, path)?);
        let metadata = doc::decode_optional(row, 2, path)?;
        Ok(KnownJob { job: Arc::new(job), spec, metadata })
    })?;
    Ok(found.pop())
}

/// The numbers for which there is a job with this name, an underscore and the number.
pub(super) fn numbered(
    connection: &Connection,
    path: &Path,
    workspace: &WorkspaceKey,
    name: &str,
) -> Result<BTreeSet<u32>, StoreError> {
    let key = workspace.folded();
    let sql = "SELECT j.folded FROM workspaces w JOIN jobs j ON j.workspace = w.id \
               AND j.folded >= ?4 || '_0' AND j.folded < ?4 || '_:' \
               WHERE w.subscription = ?1 AND w.resource_group = ?2 AND w.folded = ?3";
    let folded = name.to_ascii_lowercase();
    let values = (&key.subscription, &key.resource_group, &key.name, &folded);
    let mut numbers = BTreeSet::new();
    doc::each(connection, path, sql, values, |row| {
        let found: Box<str> = row.get(0).doing("reading the names of jobs", path)?;
        let number = parent_and_index(&found).filter(|(parent, _)| *parent == folded);
        numbers.extend(number.map(|(_, number)| number));
        Ok(())
    })?;
    Ok(numbers)
}
