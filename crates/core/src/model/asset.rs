//! Assets: what jobs are made of, kept in versions under a name. Code, environments, data, models and components are
//! the same here; what makes them different is in their bodies, which only the edges read.
//!
//! No decision depends on them, so World does not hold them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Caller;
use crate::ids::WorkspaceId;
use crate::time::Wall;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AssetKind {
    Code,
    Environment,
    Data,
    Model,
    Component,
}

impl AssetKind {
    pub const ALL: [AssetKind; 5] = [
        AssetKind::Code,
        AssetKind::Environment,
        AssetKind::Data,
        AssetKind::Model,
        AssetKind::Component,
    ];

    /// As a message calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            AssetKind::Code => "code",
            AssetKind::Environment => "environment",
            AssetKind::Data => "data",
            AssetKind::Model => "model",
            AssetKind::Component => "component",
        }
    }
}

/// One version. What it is made of is never changed; what is written on it may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asset {
    pub workspace: WorkspaceId,
    pub kind: AssetKind,
    pub name: Box<str>,
    pub version: Box<str>,
    pub about: AssetSpec,
    /// Not listed unless asked for, and never the latest. It can still be used.
    pub is_archived: bool,
    pub created_at: Wall,
    pub created_by: Caller,
    pub changed_at: Wall,
    pub changed_by: Caller,
}

/// As a client wants it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetSpec {
    pub description: Option<Box<str>>,
    pub tags: BTreeMap<String, String>,
    /// JSON, as the client wrote it.
    pub properties: Option<Box<str>>,
    /// Made by a client on the way to something else, under a name that nobody chose.
    pub is_anonymous: bool,
    /// Of its files, as the client made it: whoever has the same need not send them again.
    pub hash: Option<Box<str>>,
    /// JSON, the same text for the same content: what this kind is made of.
    pub body: Box<str>,
    /// JSON: what else of this kind may change, as a component's display name.
    pub metadata: Option<Box<str>>,
}

/// A name with all its versions, as Azure has "containers" of assets. It has nothing to do with those of blobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetContainer {
    pub workspace: WorkspaceId,
    pub kind: AssetKind,
    pub name: Box<str>,
    pub about: ContainerSpec,
    pub is_archived: bool,
    /// All its versions are: nobody wants to see it in a list.
    pub is_anonymous: bool,
    pub versions: u32,
    /// The highest version so far that is a number, also if it is deleted by now.
    pub highest: u64,
    pub created_at: Wall,
    pub created_by: Caller,
    pub changed_at: Wall,
    pub changed_by: Caller,
}

impl AssetContainer {
    /// A version that nothing had yet.
    pub fn next_version(&self) -> u64 {
        self.highest + 1
    }
}

/// What is written on a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub description: Option<Box<str>>,
    pub tags: BTreeMap<String, String>,
    /// JSON, as the client wrote it.
    pub properties: Option<Box<str>>,
}
