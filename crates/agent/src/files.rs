//! The files of a job: what it brings is there when it starts, what it leaves is kept for its next attempt.
//!
//! Kept are `outputs/`, `logs/`, what it leaves by name, and the checkpoint folder that it declares, each member its own; all
//! but what has a name also while it runs. The folder belongs to the job, which may do anything in there while we look: see
//! [`muster_trees::Folder`].

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

/// What tells a job where its checkpoint folder is.
pub(crate) const CHECKPOINT_VARIABLE: &str = "MUSTER_CHECKPOINT_DIR";

/// Between two tries of a call.
pub(crate) struct Patience(Backoff);

impl Default for Patience {
    fn default() -> Patience {
        Patience(Backoff::new(Duration::from_millis(50), Duration::from_secs(5)))
    }
}

impl Patience {
    /// Waits, if the same call may well work then; whoever does not want it any more drops this.
    pub(crate) async fn forgive(&mut self, error: CallError) -> Result<(), CallError> {
        match error {
            CallError::Unreachable(_) | CallError::NotWanted { .. } | CallError::Status { .. } => {
                tracing::debug!(error = %ErrorChain(&error), "files cannot be moved just now");
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

/// Whether a path is this one, or in the folder that this one is.
fn is_in(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A line of ours among the job's own.
pub(crate) fn note(log: &Path, text: &str) {
    let line = format!("muster: {text}\n");
    let written = OpenOptions::new().append(true).open(log).and_then(|mut log| {
        // In one piece, so that it stays one line.
        log.write_all(line.as_bytes())
    });
    if let Err(error) = written {
        tracing::warn!(%error, text, "cannot tell the job's owner");
    }
}
