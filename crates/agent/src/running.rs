//! A job's processes, plain or behind walls.

use std::io;
use std::sync::Arc;

use muster_core::agent::Signal;
use muster_core::model::Exit;
use muster_sandbox::network::JobNetwork;

use crate::process::Process;
use crate::walled::Walled;

/// When it is dropped, the job is dead: all of it behind walls, otherwise as far as it stayed in its group.
#[derive(Debug)]
pub(crate) enum Running {
    Plain(Process),
    Walled(Walled),
}

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        match self {
            Running::Plain(process) => process.signal(signal),
            Running::Walled(walled) => walled.signal(signal),
        }
    }

    /// The job's own network, if it has one.
    pub(crate) fn network(&self) -> Option<Arc<JobNetwork>> {
        match self {
            Running::Plain(_) => None,
            Running::Walled(walled) => walled.network(),
        }
    }

    /// May be dropped and called again.
    pub(crate) async fn wait(&mut self) -> io::Result<Exit> {
        match self {
            Running::Plain(process) => process.wait().await,
            Running::Walled(walled) => walled.wait().await,
        }
    }

    pub(crate) async fn leftovers_gone(&self) {
        match self {
            Running::Plain(process) => process.leftovers_gone().await,
            // Its end is told when nothing is left.
            Running::Walled(_) => {}
        }
    }
}
