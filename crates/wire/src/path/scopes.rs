//! Scopes in Azure's notation.

use muster_core::model::{Scope, WorkspaceKey};

use super::ids::parse_id;
use super::segments::encode;

/// A scope in Azure's notation; `None` if roles cannot be assigned on it.
pub fn scope_of(id: &str) -> Option<Scope> {
    let parts: Vec<&str> = id.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [] => Some(Scope::Everything),
        [subscriptions, subscription] if subscriptions.eq_ignore_ascii_case("subscriptions") => {
            Some(Scope::subscription(subscription))
        }
        [subscriptions, subscription, groups, group]
            if subscriptions.eq_ignore_ascii_case("subscriptions")
                && groups.eq_ignore_ascii_case("resourcegroups") =>
        {
            Some(Scope::group(subscription, group))
        }
        _ => match parse_id(id) {
            Some((key, rest)) if rest.is_empty() => Some(Scope::workspace(&key)),
            Some(_) | None => None,
        },
    }
}

/// Empty for [`Scope::Everything`], so that a provider can follow.
pub(super) fn scope_path(scope: &Scope) -> String {
    match scope {
        Scope::Everything => String::new(),
        Scope::Subscription(subscription) => {
            Scope::Subscription(encode(subscription).into()).to_string()
        }
        Scope::Group { subscription, resource_group } => Scope::Group {
            subscription: encode(subscription).into(),
            resource_group: encode(resource_group).into(),
        }
        .to_string(),
        Scope::Workspace(key) => Scope::Workspace(WorkspaceKey::new(
            &encode(&key.subscription),
            &encode(&key.resource_group),
            &encode(&key.name),
        ))
        .to_string(),
        Scope::Compute { workspace, name } => {
            format!(
                "{}/computes/{}",
                scope_path(&Scope::Workspace(workspace.clone())),
                encode(name)
            )
        }
    }
}

/// A scope that can have a lock, in Azure's notation.
pub fn lockable_of(id: &str) -> Option<Scope> {
    scope_of(id).or_else(|| {
        let (workspace, rest) = parse_id(id)?;
        let [computes, name] = rest.as_slice() else { return None };
        let is_compute = computes.eq_ignore_ascii_case("computes");
        is_compute.then(|| Scope::compute(&workspace, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Request;
    use crate::routes::Route;

    #[test]
    fn roles_are_given_on_whole_workspaces_and_above() {
        let compute = "/subscriptions/s/resourceGroups/g/providers/\
                       Microsoft.MachineLearningServices/workspaces/w/computes/c";
        assert_eq!(scope_of(compute), None);
        assert_eq!(scope_of("/subscriptions"), None);
        assert_eq!(scope_of("/"), Some(Scope::Everything));
        let path = format!("{compute}/providers/Microsoft.Authorization/roleAssignments");
        assert_eq!(Request::parse(&path, None).expect("a path").route, Route::Unknown);
    }
}
