//! Deployments of templates: the latest ones of each resource group.

use std::path::Path;

use muster_core::limits::DEPLOYMENTS_PER_GROUP_MAX;
use muster_core::model::{Deployment, Scope};
use rusqlite::Connection;

use super::doc;
use super::write::Writer;
use crate::StoreError;

/// Replaces the deployment of that name, and deletes the oldest beyond the group's limit.
pub(super) fn put(writer: &Writer<'_>, deployment: &Deployment) -> Result<(), StoreError> {
    let group = deployment.scope();
    remove(writer, &group, Some(&deployment.name.to_ascii_lowercase()))?;
    let (subscription, resource_group) = parts(&group);
    writer.run(
        "INSERT INTO deployments (id, subscription, resource_group, folded, doc)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        (
            deployment.id.0,
            subscription,
            resource_group,
            deployment.name.to_ascii_lowercase(),
            doc::encode(deployment),
        ),
    )?;
    writer.run(
        "DELETE FROM deployments WHERE id IN (SELECT id FROM deployments
         WHERE subscription = ?1 AND resource_group = ?2 ORDER BY id DESC LIMIT -1 OFFSET ?3)",
        (subscription, resource_group, DEPLOYMENTS_PER_GROUP_MAX),
    )
}

/// `name` is `None` for all deployments of the group.
pub(super) fn remove(
    writer: &Writer<'_>,
    group: &Scope,
    name: Option<&str>,
) -> Result<(), StoreError> {
    let (subscription, resource_group) = parts(group);
    writer.run(
        "DELETE FROM deployments
         WHERE subscription = ?1 AND resource_group = ?2 AND (?3 IS NULL OR folded = ?3)",
        (subscription, resource_group, name),
    )
}

pub(super) fn one(
    connection: &Connection,
    path: &Path,
    group: &Scope,
    name: &str,
) -> Result<Option<Deployment>, StoreError> {
    let (subscription, resource_group) = parts(group);
    let sql = "SELECT doc FROM deployments
               WHERE subscription = ?1 AND resource_group = ?2 AND folded = ?3";
    doc::one(connection, path, sql, (subscription, resource_group, name.to_ascii_lowercase()))
}

pub(super) fn all(
    connection: &Connection,
    path: &Path,
    group: &Scope,
) -> Result<Vec<Deployment>, StoreError> {
    let sql = "SELECT doc FROM deployments
               WHERE subscription = ?1 AND resource_group = ?2 ORDER BY id DESC";
    doc::many(connection, path, sql, parts(group))
}

fn parts(group: &Scope) -> (&str, &str) {
    match group {
        Scope::Group { subscription, resource_group } => (subscription, resource_group),
        other => unreachable!("{other} is not a resource group"),
    }
}
