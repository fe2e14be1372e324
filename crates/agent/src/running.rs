//! A job's processes, plain or in a sandbox.

use std::io;
use std::sync::Arc;

use muster_core::agent::Signal;
use muster_core::model::Exit;
use muster_sandbox::network::JobNetwork;

use crate::process::Process;
use crate::sandboxed::SandboxedJob;

/// Dropping it kills the job: completely in a sandbox, otherwise as far as it remained in its process group.
#[derive(Debug)]
pub(crate) enum Running {
    Plain(Process),
    SandboxedJob(SandboxedJob),
}

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        match self {
            Running::Plain(process) => process.signal(signal),
            Running::SandboxedJob(sandboxed) => sandboxed.signal(signal),
        }
    }

    /// The job's own network, if it has one.
    pub(crate) fn network(&self) -> Option<Arc<JobNetwork>> {
        match self {
            Running::Plain(_) => None,
            Running::SandboxedJob(sandboxed) => sandboxed.network(),
        }
    }

    /// May be dropped and called again.
    pub(crate) async fn wait(&mut self) -> io::Result<Exit> {
        match self {
            Running::Plain(process) => process.wait().await,
            Running::SandboxedJob(sandboxed) => sandboxed.wait().await,
        }
    }

    pub(crate) async fn leftovers_gone(&self) {
        match self {
            Running::Plain(process) => process.leftovers_gone().await,
            // Its end is reported only when nothing is left.
            Running::SandboxedJob(_) => {}
        }
    }
}
