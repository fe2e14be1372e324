//! The files of a job: its code and inputs are in place when it starts, and its outputs are saved for its next attempt.
//!
//! Saved are `outputs/`, `logs/`, the named outputs, and the checkpoint folder that the job declares, separately for
//! each member. All except the named outputs are also saved while the job runs. The folder belongs to the job, which
//! may do anything in there while we read it: see [`muster_trees::Folder`].

mod data;
mod fetch;
mod keep;
mod watched;
mod web;

pub(crate) use data::input_value;
pub(crate) use fetch::bring;
pub(crate) use keep::{FolderSaver, KeepError, killed};

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use muster_core::ErrorChain;

use crate::backoff::Backoff;
use crate::client::CallError;

/// The variable that contains the path of the job's checkpoint folder.
pub(crate) const CHECKPOINT_VARIABLE: &str = "MUSTER_CHECKPOINT_DIR";

/// Waits between two attempts of a call.
pub(crate) struct Patience(Backoff);

impl Default for Patience {
    fn default() -> Patience {
        Patience(Backoff::new(Duration::from_millis(50), Duration::from_secs(5)))
    }
}

impl Patience {
    /// Waits, if the same call may well succeed later. The caller drops this when the call is no longer wanted.
    pub(crate) async fn forgive(&mut self, error: CallError) -> Result<(), CallError> {
        match error {
            CallError::Unreachable(_) | CallError::NotWanted { .. } | CallError::Status { .. } => {
                tracing::debug!(error = %ErrorChain(&error), "files cannot be transferred at the moment");
                tokio::time::sleep(self.0.grow()).await;
                Ok(())
            }
            CallError::Superseded
            | CallError::NotFound
            | CallError::Refused { .. }
            | CallError::BadAnswer(_)
            | CallError::OtherReport { .. } => Err(error),
        }
    }
}

/// Returns true if a path is `top`, or is below it.
fn is_in(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Writes one of our own lines into the job's log.
pub(crate) fn note(log: &Path, text: &str) {
    let line = format!("muster: {text}\n");
    let written = OpenOptions::new().append(true).open(log).and_then(|mut log| {
        // Written at once, so that it remains one line.
        log.write_all(line.as_bytes())
    });
    if let Err(error) = written {
        tracing::warn!(%error, text, "cannot write a note to the job's log");
    }
}
