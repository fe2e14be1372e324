//! Asking for a workspace.

use super::principal;
use crate::change::Change;
use crate::ids::WorkspaceId;
use crate::input::{Answer, Refused, Reply};
use crate::limits;
use crate::model::{Caller, Workspace, WorkspaceKey, check_path_name};
use crate::step::Turn;

/// Azure's bounds on the two names.
const WORKSPACE_NAME_MAX: usize = 33;
const RESOURCE_GROUP_NAME_MAX: usize = 90;
const SUBSCRIPTION_MAX: usize = 64;
const LOCATION_MAX: usize = 64;

pub(crate) fn create(
    turn: &mut Turn<'_>,
    key: &WorkspaceKey,
    location: &str,
    by: &Caller,
) -> Answer {
    if let Some(workspace) = turn.world.workspace(key) {
        return Ok(Reply::Workspace(workspace.clone()));
    }
    let parts = [
        ("subscription", &key.subscription, SUBSCRIPTION_MAX),
        ("resourceGroup", &key.resource_group, RESOURCE_GROUP_NAME_MAX),
        ("workspace", &key.name, WORKSPACE_NAME_MAX),
        ("location", &location.into(), LOCATION_MAX),
    ];
    for (target, name, max) in parts {
        check_path_name(name, max)
            .map_err(|why| Refused::invalid(target, format!("{target} {name:?}: {why}")))?;
    }
    if turn.world.workspaces().count() >= limits::WORKSPACES_MAX {
        return Err(Refused::too_many(
            "workspace",
            format!("there are {} workspaces, the most allowed; reuse one", limits::WORKSPACES_MAX),
        ));
    }
    let created_by = principal(turn, by);
    let workspace = Workspace {
        id: WorkspaceId(turn.world.draw()),
        key: key.clone(),
        location: location.into(),
        created_at: turn.now.wall,
        created_by,
    };
    turn.emit(Change::WorkspaceCreated(workspace.clone()));
    Ok(Reply::Workspace(workspace))
}
