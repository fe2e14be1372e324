//! The processes of one job in a sandbox, which the spawner creates and which is controlled through its line.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use muster_core::agent::Signal;
use muster_core::model::Exit;
use muster_sandbox::job::{self, Ending, Event, LaunchError, Line, Pulse, Spawner};
use muster_sandbox::network::JobNetwork;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A sandbox takes milliseconds to create, unless a disk or a network under the node's files hangs.
const START_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("cannot create the job's sandbox: {0}")]
    Sandbox(String),
    #[error("the job's sandbox was not created within {} s", START_WITHIN.as_secs())]
    TooSlow,
    #[error("the job was killed before it had started (signal 9)")]
    Killed,
    #[error("the spawner, which starts all jobs, has died")]
    Orphaned,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A running job. Dropping it kills all its processes.
#[derive(Debug)]
pub(crate) struct SandboxedJob {
    line: AsyncFd<Line>,
    ending: Option<Ending>,
    spawner: Pulse,
    network: Option<OwnNetwork>,
}

/// The network of a job that shares its node, with access to the server, which ends with the job.
#[derive(Debug)]
pub(crate) struct OwnNetwork {
    pub(crate) network: Arc<JobNetwork>,
    /// Only held, never read.
    pub(crate) _relay: Option<AbortOnDrop>,
}

/// A task that is aborted when this is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(pub(crate) tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SandboxedJob {
    pub(crate) async fn start(
        spawner: &Spawner,
        launch: job::Launch,
        log: &File,
        network: Option<OwnNetwork>,
    ) -> Result<SandboxedJob, StartError> {
        let pulse = spawner.pulse()?;
        let own = network.as_ref().map(|own| &*own.network);
        match started(spawner, launch, log, own).await {
            Ok(line) => Ok(SandboxedJob { line, ending: None, spawner: pulse, network }),
            Err(error) => {
                end_without(&pulse);
                Err(error)
            }
        }
    }

    /// The job's own network, if it has one.
    pub(crate) fn network(&self) -> Option<Arc<JobNetwork>> {
        self.network.as_ref().map(|own| own.network.clone())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let signal = match signal {
            Signal::Terminate => job::Signal::Terminate,
            Signal::Kill => job::Signal::Kill,
        };
        if let Err(error) = self.line.get_ref().signal(signal) {
            tracing::error!(%error, "cannot signal a job");
        }
    }

    /// Waits until no process of the job is left. May be dropped and called again.
    pub(crate) async fn wait(&mut self) -> io::Result<Exit> {
        while let Some(event) = next(&self.line).await? {
            match event {
                Event::Ended(ending) => self.ending = Some(ending),
                // The init could not report: the job was killed by us or by another process.
                Event::Killed => self.ending = Some(Ending::Signal(libc::SIGKILL)),
                Event::Started | Event::NotStarted { .. } => {}
            }
        }
        if self.ending.is_none() {
            end_without(&self.spawner);
        }
        Ok(match self.ending {
            Some(Ending::Code(code)) => Exit::Code(code),
            Some(Ending::Signal(signal)) => Exit::Signal(signal),
            // The job could not be started completely, and was killed for that.
            None => Exit::Signal(libc::SIGKILL),
        })
    }
}

async fn started(
    spawner: &Spawner,
    launch: job::Launch,
    log: &File,
    network: Option<&JobNetwork>,
) -> Result<AsyncFd<Line>, StartError> {
    let line = spawner.launch(launch, log, network)?;
    // SAFETY: a line has one socket, open until it is dropped and always the same one.
    let line = unsafe { AsyncFd::register_with_interest(line, Interest::READABLE) };
    let line = line.map_err(io::Error::from)?;
    match tokio::time::timeout(START_WITHIN, next(&line)).await {
        Ok(Ok(Some(Event::Started))) => Ok(line),
        Ok(Ok(Some(Event::NotStarted { message }))) => Err(StartError::Sandbox(message)),
        Ok(Ok(Some(Event::Ended(_) | Event::Killed))) => Err(StartError::Killed),
        Ok(Ok(None)) => Err(StartError::Orphaned),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(StartError::TooSlow),
    }
}

/// Without its spawner an agent can start nothing, and its jobs have ended through no fault of their own. So the agent
/// exits, and with it the node: its jobs get another attempt elsewhere, instead of being reported as failed.
fn end_without(spawner: &Pulse) {
    if spawner.is_gone() {
        tracing::error!("the spawner, which starts all jobs, has died; this node ends");
        std::process::exit(1);
    }
}

async fn next(line: &AsyncFd<Line>) -> io::Result<Option<Event>> {
    loop {
        let mut ready = line.readable().await?;
        if let Ok(event) = ready.try_io(|line| line.get_ref().next()) {
            return event;
        }
    }
}
