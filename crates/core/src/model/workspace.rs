//! Workspaces, and the principals that act in them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{OperationId, PrincipalId, WorkspaceId};
use crate::time::Wall;

/// A user or program that has made a request. It gets a small ID when it is first seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    pub id: PrincipalId,
    /// The stable identifier that tokens carry (`oid`).
    pub object_id: Box<str>,
    pub name: Box<str>,
}

/// A principal as named by a request, before World has assigned an ID to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub object_id: Box<str>,
    pub name: Box<str>,
}

/// The key of a workspace: Azure's three names, compared without case.
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

    /// The form that is equal for all spellings of the same key.
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
    /// Set while its computes are being deleted. The workspace is deleted together with the last of them.
    #[serde(default)]
    pub deletion: Option<Deletion>,
}

/// What users write on a workspace. No decision depends on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub friendly_name: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub tags: BTreeMap<String, String>,
    /// The JSON text that the client sent. Muster does not interpret it, and returns it unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_network: Option<Box<str>>,
    /// The names of requested properties that Muster does not know. They are shown with the workspace.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ignored: BTreeSet<Box<str>>,
}

/// A deletion that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    pub operation: OperationId,
    pub since: Wall,
    /// The object ID of the caller. Their roles may be deleted together with the workspace, but they may still follow
    /// the operation.
    pub by: Option<Box<str>>,
}
