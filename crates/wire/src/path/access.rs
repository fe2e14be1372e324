//! The paths of users, keys and roles: roles at Azure's own paths, users at Muster's.

use muster_core::model::{Scope, WorkspaceKey};

use super::route::parse_id;
use super::segments::encode;

const AUTHORIZATION: &str = "Microsoft.Authorization";
const IDENTITY: &str = "Muster.Identity";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessRoute {
    /// Muster's own: who the caller is, and what they may do.
    Me,
    /// Muster's own: the users of the server.
    Users,
    User {
        name: Box<str>,
    },
    RotateKey {
        name: Box<str>,
    },
    RevokeKey {
        name: Box<str>,
    },
    RoleAssignments(Scope),
    RoleAssignment {
        scope: Scope,
        name: Box<str>,
    },
    RoleDefinitions(Scope),
}

impl AccessRoute {
    /// `words` are the segments in lower case.
    pub(super) fn of(segments: &[String], words: &[&str]) -> Option<AccessRoute> {
        if let ["providers", identity, rest @ ..] = words
            && identity.eq_ignore_ascii_case(IDENTITY)
        {
            let name = || segments[3].as_str().into();
            return match rest {
                ["me"] => Some(AccessRoute::Me),
                ["users"] => Some(AccessRoute::Users),
                ["users", _] => Some(AccessRoute::User { name: name() }),
                ["users", _, "rotatekey"] => Some(AccessRoute::RotateKey { name: name() }),
                ["users", _, "revokekey"] => Some(AccessRoute::RevokeKey { name: name() }),
                _ => None,
            };
        }
        let at = words.windows(2).position(|pair| {
            pair[0] == "providers" && pair[1].eq_ignore_ascii_case(AUTHORIZATION)
        })?;
        let scope = scope_of(&segments[..at].join("/"))?;
        match &words[at + 2..] {
            ["roleassignments"] => Some(AccessRoute::RoleAssignments(scope)),
            ["roleassignments", _] => {
                let name = segments[at + 3].as_str().into();
                Some(AccessRoute::RoleAssignment { scope, name })
            }
            ["roledefinitions"] => Some(AccessRoute::RoleDefinitions(scope)),
            _ => None,
        }
    }

    pub(super) fn methods(&self) -> &'static str {
        match self {
            AccessRoute::Me
            | AccessRoute::Users
            | AccessRoute::RoleAssignments(_)
            | AccessRoute::RoleDefinitions(_) => "GET",
            AccessRoute::User { .. } | AccessRoute::RoleAssignment { .. } => "GET, PUT, DELETE",
            AccessRoute::RotateKey { .. } | AccessRoute::RevokeKey { .. } => "POST",
        }
    }

    pub(super) fn path(&self) -> String {
        match self {
            AccessRoute::Me => format!("/providers/{IDENTITY}/me"),
            AccessRoute::Users => format!("/providers/{IDENTITY}/users"),
            AccessRoute::User { name } => format!("/providers/{IDENTITY}/users/{}", encode(name)),
            AccessRoute::RotateKey { name } => {
                format!("/providers/{IDENTITY}/users/{}/rotateKey", encode(name))
            }
            AccessRoute::RevokeKey { name } => {
                format!("/providers/{IDENTITY}/users/{}/revokeKey", encode(name))
            }
            AccessRoute::RoleAssignments(scope) => {
                format!("{}/providers/{AUTHORIZATION}/roleAssignments", scope_path(scope))
            }
            AccessRoute::RoleAssignment { scope, name } => format!(
                "{}/providers/{AUTHORIZATION}/roleAssignments/{}",
                scope_path(scope),
                encode(name)
            ),
            AccessRoute::RoleDefinitions(scope) => {
                format!("{}/providers/{AUTHORIZATION}/roleDefinitions", scope_path(scope))
            }
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::super::{Request, Route};
    use super::*;

    #[test]
    fn every_address_reads_back() {
        let workspace = Scope::workspace(&WorkspaceKey::new("s", "r g", "w"));
        let scopes =
            [Scope::Everything, Scope::subscription("s"), Scope::group("s", "r%g"), workspace];
        let mut routes = vec![AccessRoute::Me, AccessRoute::Users];
        let name: Box<str> = "ada@x".into();
        routes.push(AccessRoute::User { name: name.clone() });
        routes.push(AccessRoute::RotateKey { name: name.clone() });
        routes.push(AccessRoute::RevokeKey { name: name.clone() });
        for scope in scopes {
            routes.push(AccessRoute::RoleAssignments(scope.clone()));
            routes.push(AccessRoute::RoleDefinitions(scope.clone()));
            routes.push(AccessRoute::RoleAssignment { scope, name: name.clone() });
        }
        for route in routes {
            let route = Route::Access(route);
            let path = route.path().expect("every route has a path");
            assert_eq!(
                Request::parse(&path, None).expect("the path is valid").route,
                route,
                "{path}"
            );
            let shouted = path.replace("providers", "PROVIDERS").replace("/users", "//USERS");
            assert_eq!(
                Request::parse(&shouted, None).expect("the path is valid").route,
                route,
                "{shouted}"
            );
        }
    }

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
