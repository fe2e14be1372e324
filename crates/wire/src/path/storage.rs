//! The paths of the blob storage: datastores, and the storage's maintenance.

use muster_core::model::WorkspaceKey;

use super::PathError;
use super::route::{name_of, workspace_path};
use super::segments::encode;

const STORAGE_PROVIDER: &str = "Muster.Storage";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageRoute {
    Datastores(WorkspaceKey),
    Datastore {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    /// The secret that gives access to a datastore.
    DatastoreSecrets {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    /// Muster's own: deletes bytes that nothing references any more.
    CollectGarbage,
}

impl StorageRoute {
    /// Parses the segments after a workspace: `names` as given, `words` in lower case.
    pub(super) fn of_workspace(
        workspace: &WorkspaceKey,
        names: &[String],
        words: &[&str],
    ) -> Result<Option<StorageRoute>, PathError> {
        let workspace = workspace.clone();
        Ok(Some(match words {
            ["datastores"] => StorageRoute::Datastores(workspace),
            ["datastores", _] => StorageRoute::Datastore { workspace, name: name_of(&names[1])? },
            ["datastores", _, "listsecrets"] => {
                StorageRoute::DatastoreSecrets { workspace, name: name_of(&names[1])? }
            }
            _ => return Ok(None),
        }))
    }

    pub(super) fn of(words: &[&str]) -> Option<StorageRoute> {
        match words {
            ["providers", storage, "collectgarbage"]
                if storage.eq_ignore_ascii_case(STORAGE_PROVIDER) =>
            {
                Some(StorageRoute::CollectGarbage)
            }
            _ => None,
        }
    }

    pub fn path(&self) -> String {
        match self {
            StorageRoute::Datastores(key) => format!("{}/datastores", workspace_path(key)),
            StorageRoute::Datastore { workspace, name } => {
                format!("{}/datastores/{}", workspace_path(workspace), encode(name))
            }
            StorageRoute::DatastoreSecrets { workspace, name } => {
                format!("{}/datastores/{}/listSecrets", workspace_path(workspace), encode(name))
            }
            StorageRoute::CollectGarbage => format!("/providers/{STORAGE_PROVIDER}/collectGarbage"),
        }
    }

    pub fn methods(&self) -> &'static str {
        match self {
            StorageRoute::Datastores(_) => "GET",
            StorageRoute::Datastore { .. } => "GET, PUT, DELETE",
            StorageRoute::DatastoreSecrets { .. } | StorageRoute::CollectGarbage => "POST",
        }
    }
}
