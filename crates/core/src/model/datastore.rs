//! Datastores: names for places where blobs are, here or elsewhere, and what opens those that are elsewhere.
//!
//! No decision depends on them, so World does not hold them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Caller;
use crate::ids::WorkspaceId;
use crate::time::Wall;

/// Those that every workspace has from the beginning: where clients put what they upload, and what jobs leave.
pub const DEFAULT_DATASTORE: &str = "workspaceblobstore";
pub const ARTIFACT_DATASTORE: &str = "workspaceartifactstore";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datastore {
    pub workspace: WorkspaceId,
    pub name: Box<str>,
    pub about: DatastoreSpec,
    pub created_at: Wall,
    pub created_by: Caller,
    pub changed_at: Wall,
}

/// As a client wants it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatastoreSpec {
    /// `None` for a container of our own.
    pub account: Option<ForeignAccount>,
    pub container: Box<str>,
    pub description: Option<Box<str>>,
    pub tags: BTreeMap<String, String>,
    pub properties: BTreeMap<String, String>,
}

/// A storage account that is not ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignAccount {
    pub name: Box<str>,
    pub endpoint: Option<Box<str>>,
    pub protocol: Option<Box<str>>,
    pub opened_by: AccountCredentials,
    /// Sealed: nobody reads it from the rows or from a copy of them.
    pub secret: Option<Box<str>>,
}

/// What opens an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccountCredentials {
    /// The identity of whoever asks.
    None,
    AccountKey,
    Sas,
}

impl AccountCredentials {
    pub const ALL: [AccountCredentials; 3] =
        [AccountCredentials::None, AccountCredentials::AccountKey, AccountCredentials::Sas];

    /// As Azure spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            AccountCredentials::None => "None",
            AccountCredentials::AccountKey => "AccountKey",
            AccountCredentials::Sas => "Sas",
        }
    }
}
