//! The paths of run history, and of the related services that clients ask about a run.

use muster_core::model::WorkspaceKey;

use super::PathError;
use super::route::{name_of, split_workspace, workspace_path};
use super::segments::encode;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryRoute {
    /// The status and the log URLs, which clients poll.
    RunDetails {
        workspace: WorkspaceKey,
        run: Box<str>,
    },
    /// A run itself.
    Run {
        workspace: WorkspaceKey,
        run: Box<str>,
    },
    /// A run and its outputs, requested by the id in the body.
    RunData(WorkspaceKey),
    RunChildren {
        workspace: WorkspaceKey,
        run: Box<str>,
    },
    /// The services on one node of a run.
    RunServices {
        workspace: WorkspaceKey,
        run: Box<str>,
        node: Box<str>,
    },
    /// The locations of data that a run left.
    ResolvedData(WorkspaceKey),
    /// The locations of models that a run left.
    ResolvedModels(WorkspaceKey),
}

impl HistoryRoute {
    pub(super) fn of(
        segments: &[String],
        words: &[&str],
    ) -> Result<Option<HistoryRoute>, PathError> {
        let [service @ ("history" | "data" | "modelregistry"), "v1.0", ..] = words else {
            return Ok(None);
        };
        let is_history = *service == "history";
        let Some((workspace, names, rest)) = split_workspace(&segments[2..], &words[2..]) else {
            return Ok(None);
        };
        // The name of a run is unique in its workspace, so the experiment is not needed.
        let (names, rest) = match rest {
            ["experiments", _, "runs", ..] => (&names[2..], &rest[2..]),
            _ => (names, rest),
        };
        Ok(match rest {
            ["runs", _] if is_history => {
                Some(HistoryRoute::Run { workspace, run: name_of(&names[1])? })
            }
            ["runs", _, "details"] if is_history => {
                Some(HistoryRoute::RunDetails { workspace, run: name_of(&names[1])? })
            }
            ["runs", _, "children"] if is_history => {
                Some(HistoryRoute::RunChildren { workspace, run: name_of(&names[1])? })
            }
            ["runs", _, "serviceinstances", _] if is_history => {
                let (run, node) = (name_of(&names[1])?, names[3].as_str().into());
                Some(HistoryRoute::RunServices { workspace, run, node })
            }
            ["rundata"] if is_history => Some(HistoryRoute::RunData(workspace)),
            ["models", "batchgetresolveduris"] if *service == "modelregistry" => {
                Some(HistoryRoute::ResolvedModels(workspace))
            }
            ["dataversion", "batchgetresolveduris"] if *service == "data" => {
                Some(HistoryRoute::ResolvedData(workspace))
            }
            _ => None,
        })
    }

    pub fn workspace(&self) -> &WorkspaceKey {
        match self {
            HistoryRoute::RunDetails { workspace, .. }
            | HistoryRoute::Run { workspace, .. }
            | HistoryRoute::ResolvedModels(workspace)
            | HistoryRoute::RunData(workspace)
            | HistoryRoute::RunChildren { workspace, .. }
            | HistoryRoute::RunServices { workspace, .. }
            | HistoryRoute::ResolvedData(workspace) => workspace,
        }
    }

    pub fn path(&self) -> String {
        let at = workspace_path(self.workspace());
        match self {
            HistoryRoute::RunDetails { run, .. } => {
                format!("/history/v1.0{at}/runs/{}/details", encode(run))
            }
            HistoryRoute::Run { run, .. } => format!("/history/v1.0{at}/runs/{}", encode(run)),
            HistoryRoute::ResolvedModels(_) => {
                format!("/modelregistry/v1.0{at}/models/batchGetResolvedUris")
            }
            HistoryRoute::RunData(_) => format!("/history/v1.0{at}/rundata"),
            HistoryRoute::RunChildren { run, .. } => {
                format!("/history/v1.0{at}/runs/{}/children", encode(run))
            }
            HistoryRoute::RunServices { run, node, .. } => {
                let (run, node) = (encode(run), encode(node));
                format!("/history/v1.0{at}/runs/{run}/serviceinstances/{node}")
            }
            HistoryRoute::ResolvedData(_) => {
                format!("/data/v1.0{at}/dataversion/batchGetResolvedUris")
            }
        }
    }

    pub(super) fn methods(&self) -> &'static str {
        match self {
            HistoryRoute::RunDetails { .. }
            | HistoryRoute::RunChildren { .. }
            | HistoryRoute::RunServices { .. } => "GET",
            HistoryRoute::Run { .. } => "GET, PATCH",
            HistoryRoute::RunData(_)
            | HistoryRoute::ResolvedData(_)
            | HistoryRoute::ResolvedModels(_) => "POST",
        }
    }
}
