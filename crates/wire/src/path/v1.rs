//! Paths that only azureml-core (SDK v1) uses: its reads of computes, which go to the data plane, and the services
//! behind its experiments, which are not supported.

use muster_core::model::WorkspaceKey;

use super::PathError;
use super::route::{name_of, split_workspace, workspace_path};
use super::segments::encode;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum V1Route {
    V1Computes(WorkspaceKey),
    V1Compute {
        workspace: WorkspaceKey,
        name: Box<str>,
    },
    /// Experiments, snapshots of source folders, and runs that are started from them.
    V1Experiments(WorkspaceKey),
}

impl V1Route {
    pub(super) fn of(segments: &[String], words: &[&str]) -> Result<Option<V1Route>, PathError> {
        let [service, version, ..] = words else { return Ok(None) };
        // The whole id of the workspace follows `rp/workspaces`.
        let is_plane = matches!((*service, *version), ("rp", "workspaces"));
        let is_versioned = version.starts_with('v');
        if !is_plane && !is_versioned {
            return Ok(None);
        }
        let Some((workspace, names, rest)) = split_workspace(&segments[2..], &words[2..]) else {
            return Ok(None);
        };
        Ok(match (*service, rest) {
            ("rp", ["computes"]) => Some(V1Route::V1Computes(workspace)),
            ("rp", ["computes", _]) => {
                Some(V1Route::V1Compute { workspace, name: name_of(&names[1])? })
            }
            ("history", ["experiments" | "experimentids", ..])
            | ("content", ["snapshots", ..])
            | ("execution", ["experiments", ..]) => Some(V1Route::V1Experiments(workspace)),
            _ => None,
        })
    }

    pub fn workspace(&self) -> &WorkspaceKey {
        match self {
            V1Route::V1Computes(workspace)
            | V1Route::V1Compute { workspace, .. }
            | V1Route::V1Experiments(workspace) => workspace,
        }
    }

    pub fn path(&self) -> String {
        let at = workspace_path(self.workspace());
        match self {
            V1Route::V1Computes(_) => format!("/rp/workspaces{at}/computes"),
            V1Route::V1Compute { name, .. } => {
                format!("/rp/workspaces{at}/computes/{}", encode(name))
            }
            V1Route::V1Experiments(_) => format!("/history/v1.0{at}/experiments"),
        }
    }

    pub fn methods(&self) -> &'static str {
        match self {
            V1Route::V1Computes(_) | V1Route::V1Compute { .. } => "GET",
            // Other methods get the same response.
            V1Route::V1Experiments(_) => "GET, POST",
        }
    }
}
