//! Requests of users: each is checked against the model and applied, or refused without changing anything.

pub(crate) mod access;
pub(crate) mod asset;
pub(crate) mod cluster;
mod cluster_rules;
pub(crate) mod datastore;
pub(crate) mod deployment;
pub(crate) mod evict;
pub(crate) mod expired;
pub(crate) mod governance;
pub(crate) mod host;
pub(crate) mod instance;
pub(crate) mod job;
mod job_array;
mod job_compute;
mod job_data;
pub(crate) mod job_life;
mod job_service;
pub(crate) mod quota;
mod serverless;
pub(crate) mod workspace;

use std::collections::BTreeMap;

use crate::change::Change;
use crate::ids::{OperationId, PrincipalId, WorkspaceId};
use crate::input::Refused;
use crate::limits;
use crate::model::{
    Caller, Operation, OperationKind, OperationStatus, Principal, Scope, Workspace, WorkspaceKey,
};
use crate::refusal::{Rule, Target};
use crate::step::Transaction;
use crate::world::World;

/// The caller's ID. A caller who is seen for the first time is recorded.
fn principal(tx: &mut Transaction<'_>, caller: &Caller) -> PrincipalId {
    if let Some(id) = tx.world.principal_id(&caller.object_id) {
        return id;
    }
    let id = PrincipalId(tx.world.draw());
    tx.emit(Change::PrincipalSeen(Principal {
        id,
        object_id: caller.object_id.clone(),
        name: caller.name.clone(),
    }));
    id
}

fn find_workspace<'t>(
    tx: &'t Transaction<'_>,
    key: &WorkspaceKey,
) -> Result<&'t Workspace, Refused> {
    tx.world.workspace(key).ok_or_else(|| {
        Refused::not_found(
            "workspace",
            format!(
                "workspace '{}' does not exist in resource group '{}'; check the names, or create it",
                key.name, key.resource_group
            ),
        )
    })
}

/// The workspace in which something is to be created or changed, if that is allowed.
fn workspace_to_change(
    tx: &Transaction<'_>,
    key: &WorkspaceKey,
    (what, name, activity_request): (&str, &str, &str),
) -> Result<WorkspaceId, Refused> {
    let home = find_workspace(tx, key)?;
    if home.deletion.is_some() {
        let message = format!("workspace '{}' is being deleted; create another one", key.name);
        return Err(Refused::conflict("workspace", message));
    }
    match tx.world.governance().against_change(&Scope::workspace(key)) {
        Some(lock) => Err(governance::locked(what, name, activity_request, lock)),
        None => Ok(home.id),
    }
}

fn start_operation(tx: &mut Transaction<'_>, id: OperationId, scope: Scope, kind: OperationKind) {
    tx.emit(Change::OperationChanged(Operation {
        id,
        scope,
        by: tx.by.as_ref().map(|by| by.object_id.clone()),
        kind,
        status: OperationStatus::InProgress,
        started_at: tx.now.wall,
        ended_at: None,
        error: None,
    }));
}

/// Resources can only be created in a known region.
pub fn check_region(world: &World, location: &str) -> Result<(), Refused> {
    if world.is_region(location) {
        return Ok(());
    }
    let message = world.settings.regions.refusal(location, &shorten(location));
    Err(Refused::invalid("location", message))
}

fn check_tags(tags: &BTreeMap<String, String>) -> Result<(), Refused> {
    if tags.len() > limits::TAGS_MAX {
        return Err(Refused::invalid(
            "tags",
            format!(
                "there are {} tags; at most {} are allowed, so remove some",
                tags.len(),
                limits::TAGS_MAX
            ),
        ));
    }
    for (name, value) in tags {
        if name.is_empty() || name.len() > limits::TAG_NAME_BYTES_MAX {
            return Err(Refused::invalid(
                "tags",
                format!(
                    "the tag name {:?} has {} bytes; give it 1 to {}",
                    shorten(name),
                    name.len(),
                    limits::TAG_NAME_BYTES_MAX
                ),
            ));
        }
        if value.len() > limits::TAG_VALUE_BYTES_MAX {
            return Err(Refused::invalid(
                "tags",
                format!(
                    "the value of tag '{}' has {} bytes; at most {} are allowed, so shorten it",
                    shorten(name),
                    value.len(),
                    limits::TAG_VALUE_BYTES_MAX
                ),
            ));
        }
    }
    Ok(())
}

fn check_text(target: impl Into<Target>, text: Option<&str>, max: usize) -> Result<(), Refused> {
    match text {
        Some(text) if text.len() > max => {
            Err(Refused::invalid(target, Rule::TooLong { bytes: text.len(), max }))
        }
        Some(_) | None => Ok(()),
    }
}

/// Text from a user as it can appear in a message: short and on one line, whatever was sent.
pub(crate) fn shorten(text: &str) -> String {
    const SHOWN: usize = 60;
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut short: String = text.chars().take(SHOWN).map(plain).collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    short
}
