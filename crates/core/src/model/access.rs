//! Who may do what: users, their keys, and the roles that they have on a scope.
//!
//! A role allows actions on everything within its scope, and roles only add permissions. A user without any role may do
//! nothing, and learns no more than an anonymous caller. The owner of the state directory stands above all of this, so
//! the owner cannot be locked out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{KeyDigest, WorkspaceKey};
use crate::ids::ClusterId;
use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The stable identifier that tokens carry (`oid`).
    pub object_id: Box<str>,
    /// The display name, compared without case.
    pub name: Box<str>,
    pub kind: UserKind,
    pub created_at: Wall,
    /// `None` after a revocation: the user cannot sign in then. A managed identity never has a key, because its nodes
    /// are recognised by the connection that they use.
    pub key: Option<UserKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserKind {
    Person,
    /// A program, which Azure calls a service principal.
    Service,
    /// A cluster's system-assigned managed identity. It is created and deleted together with the cluster.
    Managed(ClusterId),
}

impl UserKind {
    /// Azure's name for this kind.
    pub fn as_str(self) -> &'static str {
        match self {
            UserKind::Person => "User",
            UserKind::Service | UserKind::Managed(_) => "ServicePrincipal",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserKey {
    pub digest: KeyDigest,
    pub made_at: Wall,
}

/// Azure's roles, as far as they have a meaning in Muster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Role {
    Owner,
    Contributor,
    DataScientist,
    ComputeOperator,
    Reader,
}

/// What a request does. Each endpoint requires exactly one action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Read,
    /// Submit and cancel jobs.
    RunJobs,
    /// Create, change and delete clusters.
    ManageComputes,
    /// Create and delete workspaces.
    ManageWorkspaces,
    ManageQuota,
    /// Manage users, keys and roles.
    ManageAccess,
}

impl Action {
    pub const ALL: [Action; 6] = [
        Action::Read,
        Action::RunJobs,
        Action::ManageComputes,
        Action::ManageWorkspaces,
        Action::ManageQuota,
        Action::ManageAccess,
    ];

    /// What the caller wanted to do, for the text of a refusal.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Read => "read",
            Action::RunJobs => "submit or cancel jobs",
            Action::ManageComputes => "create, change or delete computes",
            Action::ManageWorkspaces => "create or delete workspaces",
            Action::ManageQuota => "change quotas",
            Action::ManageAccess => "manage users, keys and roles",
        }
    }
}

impl Role {
    pub const ALL: [Role; 5] =
        [Role::Owner, Role::Contributor, Role::DataScientist, Role::ComputeOperator, Role::Reader];

    /// The roles that allow this action, the least powerful first.
    pub fn that_allow(action: Action) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().rev().filter(move |role| role.allows(action))
    }

    /// Azure's name for the role.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Owner => "Owner",
            Role::Contributor => "Contributor",
            Role::DataScientist => "AzureML Data Scientist",
            Role::ComputeOperator => "AzureML Compute Operator",
            Role::Reader => "Reader",
        }
    }

    /// The ID of Azure's built-in role, which is the same in every tenant. Clients send it instead of the name.
    pub fn definition_id(self) -> &'static str {
        match self {
            Role::Owner => "8e3af657-a8ff-443c-a75c-2fe8c4bcb635",
            Role::Contributor => "b24988ac-6180-42a0-ab88-20f7382dd24c",
            Role::DataScientist => "f6c7c914-8db3-469d-8ca1-694a8f32e121",
            Role::ComputeOperator => "e503ece1-11d0-4e8e-8e2c-7a6c3bf38815",
            Role::Reader => "acdd72a7-3385-48ef-bd42-f606fba81ae7",
        }
    }

    /// Finds a role by its name, with or without Azure's prefix and spaces, or by its ID.
    pub fn parse(text: &str) -> Option<Role> {
        let bare = |text: &str| -> String {
            let text = text.to_ascii_lowercase().replace([' ', '-', '_'], "");
            text.strip_prefix("azureml").unwrap_or(&text).to_owned()
        };
        Role::ALL.into_iter().find(|role| {
            bare(role.as_str()) == bare(text) || role.definition_id().eq_ignore_ascii_case(text)
        })
    }

    pub fn allows(self, action: Action) -> bool {
        match (self, action) {
            (_, Action::Read) | (Role::Owner, _) => true,
            (Role::Contributor, action) => action != Action::ManageAccess,
            (Role::DataScientist, action) => action == Action::RunJobs,
            (Role::ComputeOperator, action) => action == Action::ManageComputes,
            (Role::Reader, _) => false,
        }
    }
}

/// Where a role or a lock applies: there and everywhere below. In lower case, because Azure ignores case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    Everything,
    Subscription(Box<str>),
    Group {
        subscription: Box<str>,
        resource_group: Box<str>,
    },
    Workspace(WorkspaceKey),
    /// Only locks apply to a single compute; roles do not.
    Compute {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
}

impl Scope {
    pub fn subscription(subscription: &str) -> Scope {
        Scope::Subscription(subscription.to_ascii_lowercase().into())
    }

    pub fn group(subscription: &str, resource_group: &str) -> Scope {
        Scope::Group {
            subscription: subscription.to_ascii_lowercase().into(),
            resource_group: resource_group.to_ascii_lowercase().into(),
        }
    }

    pub fn workspace(key: &WorkspaceKey) -> Scope {
        Scope::Workspace(key.folded())
    }

    pub fn compute(workspace: &WorkspaceKey, name: &str) -> Scope {
        Scope::Compute { workspace: workspace.folded(), name: name.to_ascii_lowercase().into() }
    }

    /// Whether a role or lock at this scope also applies at the other.
    pub fn contains(&self, other: &Scope) -> bool {
        let mut above = Some(other.clone());
        while let Some(scope) = above {
            if scope == *self {
                return true;
            }
            above = scope.parent();
        }
        false
    }

    pub fn parent(&self) -> Option<Scope> {
        match self {
            Scope::Compute { workspace, .. } => Some(Scope::Workspace(workspace.clone())),
            Scope::Everything => None,
            Scope::Subscription(_) => Some(Scope::Everything),
            Scope::Group { subscription, .. } => Some(Scope::Subscription(subscription.clone())),
            Scope::Workspace(key) => Some(Scope::Group {
                subscription: key.subscription.clone(),
                resource_group: key.resource_group.clone(),
            }),
        }
    }
}

impl fmt::Display for Scope {
    /// Writes the scope in Azure's form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Everything => f.write_str("/"),
            Scope::Subscription(subscription) => write!(f, "/subscriptions/{subscription}"),
            Scope::Group { subscription, resource_group } => {
                write!(f, "/subscriptions/{subscription}/resourceGroups/{resource_group}")
            }
            Scope::Workspace(WorkspaceKey { subscription, resource_group, name }) => write!(
                f,
                "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/\
                 Microsoft.MachineLearningServices/workspaces/{name}"
            ),
            Scope::Compute { workspace, name } => {
                write!(f, "{}/computes/{name}", Scope::Workspace(workspace.clone()))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleAssignment {
    /// Chosen by the client that created the assignment. Azure's clients use a GUID.
    pub name: Box<str>,
    /// The object ID of the user who has the role.
    pub object_id: Box<str>,
    pub role: Role,
    pub scope: Scope,
    pub created_at: Wall,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_holds_what_is_below_it_and_nothing_beside_it() {
        let workspace = Scope::workspace(&WorkspaceKey::new("S", "G", "W"));
        let beside = Scope::workspace(&WorkspaceKey::new("s", "g", "w2"));
        let scopes = [Scope::Everything, Scope::subscription("s"), Scope::group("s", "G")];
        for scope in &scopes {
            assert!(scope.contains(&workspace) && scope.contains(&beside), "{scope}");
            assert!(!workspace.contains(scope), "{scope}");
        }
        assert!(workspace.contains(&workspace) && !workspace.contains(&beside));
        assert!(!Scope::group("s2", "g").contains(&workspace));
        assert!(!Scope::subscription("s2").contains(&workspace));
    }

    #[test]
    fn roles_are_known_by_every_name_that_clients_use() {
        for role in Role::ALL {
            assert_eq!(Role::parse(role.as_str()), Some(role));
            assert_eq!(Role::parse(&role.definition_id().to_ascii_uppercase()), Some(role));
        }
        assert_eq!(Role::parse("data-scientist"), Some(Role::DataScientist));
        assert_eq!(Role::parse("compute operator"), Some(Role::ComputeOperator));
        assert_eq!(Role::parse("god"), None);
    }

    #[test]
    fn each_role_allows_what_azure_says() {
        use Action::*;
        let allowed = |role: Role| -> Vec<Action> {
            Action::ALL.into_iter().filter(|action| role.allows(*action)).collect()
        };
        assert_eq!(allowed(Role::Owner), Action::ALL);
        assert_eq!(
            allowed(Role::Contributor),
            [Read, RunJobs, ManageComputes, ManageWorkspaces, ManageQuota]
        );
        assert_eq!(allowed(Role::DataScientist), [Read, RunJobs]);
        assert_eq!(allowed(Role::ComputeOperator), [Read, ManageComputes]);
        assert_eq!(allowed(Role::Reader), [Read]);
    }
}
