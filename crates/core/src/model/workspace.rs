//! Workspaces and the principals that act in them.

use serde::{Deserialize, Serialize};

use crate::ids::{PrincipalId, WorkspaceId};
use crate::time::Wall;

/// Someone who may ask for things. Seen once, then known by a small id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    pub id: PrincipalId,
    /// The stable identifier that tokens carry (`oid`).
    pub object_id: Box<str>,
    pub name: Box<str>,
}

/// A principal as a request names it, before World has given it an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub object_id: Box<str>,
    pub name: Box<str>,
}

/// Where a workspace is found: Azure's three names, compared without case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkspaceKey {
    pub subscription: Box<str>,
    pub resource_group: Box<str>,
    pub name: Box<str>,
}

impl WorkspaceKey {
    pub fn new(subscription: &str, resource_group: &str, name: &str) -> WorkspaceKey {
        WorkspaceKey {
            subscription: subscription.into(),
            resource_group: resource_group.into(),
            name: name.into(),
        }
    }

    /// The form under which two spellings of one workspace are the same.
    pub fn folded(&self) -> WorkspaceKey {
        WorkspaceKey {
            subscription: self.subscription.to_ascii_lowercase().into(),
            resource_group: self.resource_group.to_ascii_lowercase().into(),
            name: self.name.to_ascii_lowercase().into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub key: WorkspaceKey,
    pub location: Box<str>,
    pub created_at: Wall,
    pub created_by: PrincipalId,
}
