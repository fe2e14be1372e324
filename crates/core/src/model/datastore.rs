//! Datastores: names for places with blobs, on this server or elsewhere, and the credentials for those elsewhere.
//!
//! No decision depends on datastores, so World does not hold them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Caller;
use crate::ids::WorkspaceId;
use crate::time::Wall;

/// The datastores that every workspace has from the beginning: for uploads of clients and for outputs of jobs.
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

/// The datastore as specified by a client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatastoreSpec {
    /// `None` for a container on this server.
    pub account: Option<ForeignAccount>,
    pub container: Box<str>,
    pub description: Option<Box<str>>,
    pub tags: BTreeMap<String, String>,
    pub properties: BTreeMap<String, String>,
}

/// A storage account that is not on this server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignAccount {
    pub name: Box<str>,
    pub endpoint: Option<Box<str>>,
    pub protocol: Option<Box<str>>,
    pub opened_by: AccountCredentials,
    /// Encrypted, so that it cannot be read from the rows or from a copy of them.
    pub secret: Option<Box<str>>,
}

/// The kind of credentials for a storage account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccountCredentials {
    /// The identity of the caller.
    None,
    AccountKey,
    Sas,
}

impl AccountCredentials {
    pub const ALL: [AccountCredentials; 3] =
        [AccountCredentials::None, AccountCredentials::AccountKey, AccountCredentials::Sas];

    /// Azure's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            AccountCredentials::None => "None",
            AccountCredentials::AccountKey => "AccountKey",
            AccountCredentials::Sas => "Sas",
        }
    }
}
