//! Workspaces and the principals that act in them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{OperationId, PrincipalId, WorkspaceId};
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(default)]
    pub about: About,
    /// Set while its computes are on their way out: it goes with the last of them.
    #[serde(default)]
    pub deletion: Option<Deletion>,
}

/// What people write on a workspace; nothing is decided by it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub friendly_name: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub tags: BTreeMap<String, String>,
    /// Opaque to us: the JSON text that the client sent, given back as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_network: Option<Box<str>>,
    /// The names of what was asked for and is not known here: whoever looks at the workspace is told.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ignored: BTreeSet<Box<str>>,
}

/// A delete that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    pub operation: OperationId,
    pub since: Wall,
    /// The object id of whoever asked: their roles may go with what is deleted, but they still want to know
    /// how it ended.
    pub by: Option<Box<str>>,
}
