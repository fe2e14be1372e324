//! Assets: what jobs are made of, kept in versions under a name. Code, environments, data, models and components are
//! all alike here. They differ only in their bodies, which only the outer layers read.
//!
//! No decision depends on assets, so World does not hold them.

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

    /// The kind as named in messages.
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

/// One version of an asset. Its content never changes; its description and tags may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asset {
    pub workspace: WorkspaceId,
    pub kind: AssetKind,
    pub name: Box<str>,
    pub version: Box<str>,
    pub about: AssetSpec,
    /// It is not listed by default and never counts as the latest version, but can still be used.
    pub is_archived: bool,
    pub created_at: Wall,
    pub created_by: Caller,
    pub changed_at: Wall,
    pub changed_by: Caller,
}

/// The asset as specified by a client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetSpec {
    pub description: Option<Box<str>>,
    pub tags: BTreeMap<String, String>,
    /// JSON, as the client wrote it.
    pub properties: Option<Box<str>>,
    /// Created by a client as part of something else, under a generated name.
    pub is_anonymous: bool,
    /// The hash of its files as computed by the client. A client with the same files need not send them again.
    pub hash: Option<Box<str>>,
    /// The content of this kind of asset, as JSON. Equal content has equal text.
    pub body: Box<str>,
    /// Other properties of this kind that may change, such as a component's display name, as JSON.
    pub metadata: Option<Box<str>>,
}

/// A name with all its versions, which Azure calls a "container" of assets. It is unrelated to blob containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetContainer {
    pub workspace: WorkspaceId,
    pub kind: AssetKind,
    pub name: Box<str>,
    pub about: ContainerSpec,
    pub is_archived: bool,
    /// All its versions are anonymous, so it is left out of lists.
    pub is_anonymous: bool,
    pub versions: u32,
    /// The highest numeric version so far, even if it was deleted since.
    pub highest: u64,
    pub created_at: Wall,
    pub created_by: Caller,
    pub changed_at: Wall,
    pub changed_by: Caller,
}

impl AssetContainer {
    /// A version number that was never used.
    pub fn next_version(&self) -> u64 {
        self.highest + 1
    }
}

/// The description and tags of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub description: Option<Box<str>>,
    pub tags: BTreeMap<String, String>,
    /// JSON, as the client wrote it.
    pub properties: Option<Box<str>>,
}
