//! The requests that a job may send with its own token: about itself, and for its own files. They are accepted only
//! while its attempt is live.

use axum::http::HeaderMap;
use muster_core::model::{Caller, JobInput, Source, WorkspaceKey};
use muster_store::storage::Container;
use muster_wire::blob::{Right, StorageError};
use muster_wire::datastore::own_container;
use muster_wire::{ArmError, HistoryRoute, Route};

use super::auth;
use crate::app::App;
use crate::artifacts;
use crate::clock;
use crate::tokens::{self, RunToken};

const OVER: &str = "the attempt that this token was issued for has ended, so the token is no longer valid; sign in as yourself";

/// A caller that is a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run(RunToken);

/// `None` if the token does not belong to a job or proves nothing; an error if the run is refused.
pub fn of(app: &App, headers: &HeaderMap) -> Option<Result<Run, String>> {
    let token = tokens::bearer(auth::single(headers)).ok()?;
    let token = match app.keyring.verify_run(token, clock::unix_seconds())? {
        Ok(token) => token,
        Err(rejected) => return Some(Err(rejected.to_string())),
    };
    let attempt = app.live.attempt(token.epoch).filter(|attempt| attempt.job == token.job);
    Some(attempt.map(|_| Run(token)).ok_or_else(|| OVER.to_owned()))
}

impl Run {
    /// The caller as it appears in logs.
    pub fn caller(&self) -> Caller {
        let object_id = format!("run:{}", self.0.epoch);
        Caller { object_id: object_id.into(), name: self.0.name.clone() }
    }

    pub fn check(&self, method: &str, route: &Route) -> Result<(), ArmError> {
        let reads = matches!(method, "GET" | "HEAD");
        let is_own = match route {
            Route::Workspace(key) => reads && self.is_at_home(key),
            Route::Job { workspace, name }
            | Route::JobAttempts { workspace, name }
            | Route::WhyJob { workspace, name } => reads && self.is_self(workspace, name),
            Route::History(
                HistoryRoute::RunDetails { workspace, run }
                | HistoryRoute::RunChildren { workspace, run }
                | HistoryRoute::RunServices { workspace, run, .. },
            ) => reads && self.is_self(workspace, run),
            // The body names the run, and it is checked there.
            Route::History(HistoryRoute::RunData(workspace)) => self.is_at_home(workspace),
            _ => false,
        };
        if is_own { Ok(()) } else { Err(self.refusal()) }
    }

    /// Checks the name of a run that is given in the body.
    pub fn check_name(&self, name: &str) -> Result<(), ArmError> {
        if *name == *self.0.name { Ok(()) } else { Err(self.refusal()) }
    }

    fn is_self(&self, workspace: &WorkspaceKey, name: &str) -> bool {
        self.is_at_home(workspace) && *name == *self.0.name
    }

    fn is_at_home(&self, workspace: &WorkspaceKey) -> bool {
        self.0.workspace.folded() == workspace.folded()
    }

    fn refusal(&self) -> ArmError {
        ArmError::forbidden(format!(
            "the token of run '{}' is for its own job, its run history, its workspace and its own files, and for \
             nothing else; sign in as the cluster's identity (MSI_ENDPOINT) or as yourself",
            self.0.name
        ))
    }

    /// Whether the run may do this to a blob, or to all blobs with this prefix: anything in its own folder, and reading
    /// its inputs.
    pub fn may_touch(
        &self,
        app: &App,
        container: &Container,
        name: &str,
        right: Right,
    ) -> Result<bool, StorageError> {
        let is_own = *container.name == own_container(container.workspace, false)
            && container.owner.folded() == self.0.workspace.folded();
        if is_own && name.starts_with(&format!("{}/", artifacts::folder_of(&self.0.name))) {
            return Ok(true);
        }
        if !matches!(right, Right::Read | Right::List) {
            return Ok(false);
        }
        let job = self.0.job;
        let spec = app.readers.look_up(|reader| {
            let Some(job) = reader.job_by_id(job)? else { return Ok(None) };
            reader.spec_of(&job)
        });
        let spec = spec.map_err(|failed| {
            tracing::error!(error = %muster_core::ErrorChain(&failed), "cannot look up the inputs of a run");
            StorageError::unavailable("the server cannot read its store; see its log")
        })?;
        let reads = |input: &JobInput| match input {
            JobInput::Data { source: Source::Blobs(place), .. } => {
                let rest = name.strip_prefix(&*place.path);
                place.container == container.name
                    && rest.is_some_and(|rest| {
                        place.path.is_empty() || rest.is_empty() || rest.starts_with('/')
                    })
            }
            JobInput::Data { source: Source::Url | Source::Web(_), .. } | JobInput::Literal(_) => {
                false
            }
        };
        Ok(spec.is_some_and(|spec| spec.inputs.values().any(reads)))
    }
}
