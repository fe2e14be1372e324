//! Names and ids in paths, and what clients write before them.

use muster_core::model::WorkspaceKey;

use super::PathError;
use super::segments::encode;

const PROVIDER: &str = "Microsoft.MachineLearningServices";
/// The prefix that some clients put before a name.
const NAME_PREFIX: &str = "azureml:";

/// The ARM id of a workspace. Unlike a path, it is not encoded, because clients compare and split it as it is.
pub fn workspace_id(key: &WorkspaceKey) -> String {
    format!(
        "/subscriptions/{}/resourceGroups/{}/providers/{PROVIDER}/workspaces/{}",
        key.subscription, key.resource_group, key.name
    )
}

/// The id of a quota (`what` is `quotas`) or of its usage (`usages`).
pub(crate) fn quota_id(subscription: &str, location: &str, what: &str, name: &str) -> String {
    format!("/subscriptions/{subscription}/providers/{PROVIDER}/locations/{location}/{what}/{name}")
}

/// The workspace and the remaining segments, if the id or path is that of a workspace or of something in it.
pub(crate) fn parse_id(id: &str) -> Option<(WorkspaceKey, Vec<&str>)> {
    let parts: Vec<&str> = id.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [subscriptions, sub, groups, group, providers, ml, workspaces, name, rest @ ..]
            if subscriptions.eq_ignore_ascii_case("subscriptions")
                && groups.eq_ignore_ascii_case("resourcegroups")
                && providers.eq_ignore_ascii_case("providers")
                && is_provider(ml)
                && workspaces.eq_ignore_ascii_case("workspaces") =>
        {
            Some((WorkspaceKey::new(sub, group, name), rest.to_vec()))
        }
        _ => None,
    }
}

/// `azureml:cpu` → `cpu`.
pub(crate) fn strip_prefix(name: &str) -> &str {
    match name.get(..NAME_PREFIX.len()) {
        Some(prefix) if prefix.eq_ignore_ascii_case(NAME_PREFIX) => &name[NAME_PREFIX.len()..],
        Some(_) | None => name,
    }
}

pub(super) fn is_provider(word: &str) -> bool {
    word.eq_ignore_ascii_case(PROVIDER)
}

pub(super) fn workspace_path(key: &WorkspaceKey) -> String {
    workspace_id(&WorkspaceKey::new(
        &encode(&key.subscription),
        &encode(&key.resource_group),
        &encode(&key.name),
    ))
}

pub(super) fn name_of(segment: &str) -> Result<Box<str>, PathError> {
    match strip_prefix(segment) {
        "" => Err(PathError::EmptyName { text: segment.to_owned() }),
        name => Ok(name.into()),
    }
}
