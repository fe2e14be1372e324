//! The life cycle of a server, in three parts: its state is opened and checked (`open`), its background tasks are started
//! and requests are served (`serve`), and everything is closed in order (`close`).

mod background;
#[cfg(test)]
pub mod in_test;
mod server;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::pin::{Pin, pin};
use std::time::Duration;

use muster_core::{ErrorChain, HostRequest, Input};
use muster_store::StoreError;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;

use self::background::Background;
use self::server::{Opened, Server};
use crate::artifacts::removal;
use crate::check::Check;
use crate::config::{Ready, ServeError, ServerConfig};
use crate::reserve::ReserveFile;
use crate::state_dir::StateDir;
use crate::writer::{self, Unavailable};
use crate::{clock, first_start, http, retention};

/// How long a start waits until the capacity of this machine is recorded.
const MEASURE_PATIENCE: Duration = Duration::from_secs(2);
/// The pause before another attempt to record this machine.
const MEASURE_PAUSE: Duration = Duration::from_millis(200);

/// Serves until `shutdown` resolves. Nodes keep running and are adopted by the next start. If the disk is full, this
/// waits until there is space for a start.
pub async fn run(
    config: ServerConfig,
    on_ready: impl FnOnce(&Ready) + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let mut shutdown = pin!(shutdown);
    let Some(running) = Running::open(config, shutdown.as_mut()).await? else { return Ok(()) };
    let closing = running.serve(on_ready, shutdown).await?;
    closing.close(|part| tracing::debug!(?part, "closed")).await
}

/// A server that is open and has not accepted a request yet.
struct Running {
    /// Keeps other servers out of the state directory.
    lock: File,
    opened: Opened,
    hangup: Option<Signal>,
    /// How far the clock was set back since the last run.
    set_back: Option<Duration>,
}

/// A server that has answered its last request.
struct Closing {
    /// Keeps other servers out of the state directory.
    lock: File,
    server: Server,
    background: Background,
    check: Check,
    damage: Option<StoreError>,
}

/// What is closed, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The background tasks, among them the outbox. They need the writers.
    Background,
    /// The builds of environments, and the checks of the stores.
    Work,
    Readers,
    /// The last connection to the store. Everything acknowledged is on disk already, and it finishes its batch.
    Writer,
    Storage,
    /// Another server may use the state directory from here on.
    Lock,
}

impl Running {
    /// Opens everything. Returns `None` if the server is stopped while it waits for space on its disk.
    async fn open(
        config: ServerConfig,
        mut shutdown: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<Option<Running>, ServeError> {
        let state_dir = StateDir::new(&config.state_dir);
        let lock = state_dir.take()?;
        state_dir.check_mode(config.workspaces, config.may_change_mode)?;
        let set_back = clock::record_in(&state_dir.clock());
        let hangup = hangup(&config)?;
        let reserve = ReserveFile::of(&state_dir);
        loop {
            tokio::select! {
                () = shutdown.as_mut() => return Ok(None),
                () = reserve.wait_for_space() => {}
            }
            match open(&config, &state_dir, &reserve).await {
                Err(failed) if reserve.lacks_space() => {
                    tracing::warn!(error = %ErrorChain(&failed), "the disk became full during the start");
                }
                opened => return Ok(Some(Running { lock, opened: opened?, hangup, set_back })),
            }
        }
    }

    /// Starts the background tasks and serves until `shutdown` resolves, the writer ends or a store turns out to be
    /// damaged. Then no connection is accepted, polls are answered at once, and requests in progress finish.
    async fn serve(
        self,
        on_ready: impl FnOnce(&Ready) + Send,
        mut shutdown: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<Closing, ServeError> {
        let Running { lock, opened, hangup, set_back } = self;
        let Opened { mut server, certificates, listeners, relay_listeners, effect_queue } = opened;
        let mut background = Background::default();
        server.start_tasks(&mut background, (certificates, hangup), effect_queue);
        let mut measured = Box::pin(measure(server.stores.writer.clone(), server.nodes.seen()));
        let waits_for_check = server.stores.writer_thread.waits_for_check;
        // A store that accepts no writes delays neither a start nor a stop.
        if waits_for_check || timeout(MEASURE_PATIENCE, &mut measured).await.is_err() {
            background.start(measured);
        }

        let (stop, stopping) = watch::channel(false);
        let (node_calls, calls) = http::calls();
        let app = server.app(stopping.clone(), node_calls);
        background.start(removal::run(app.clone()));
        background.start(retention::run(app.clone()));
        server.state_dir.write_connection(&server.connection())?;
        let tasks = server.checks_left()?;
        on_ready(&server.ready(set_back, !tasks.is_empty()));

        let mut check = Check::start(tasks, server.stores.storage.clone());
        let (tls, drain) = (server.secured.tls.clone(), server.drain());
        let writer_ended = &mut server.stores.writer_thread.ended;
        let wait = async {
            let damage = tokio::select! {
                () = shutdown.as_mut() => None,
                // Without its writer, a server could only refuse requests.
                _ = writer_ended => None,
                damage = check.damage() => Some(damage),
            };
            stop.send_replace(true);
            damage
        };
        let serve = http::serve(listeners, relay_listeners, calls, tls, app, stopping, drain);
        let (damage, ()) = tokio::join!(wait, serve);
        Ok(Closing { lock, server, background, check, damage })
    }
}

impl Closing {
    /// Closes each part when nothing needs it any more, and calls `closed` after each.
    async fn close(self, mut closed: impl FnMut(Part)) -> Result<(), ServeError> {
        let Closing { lock, server, background, check, damage } = self;
        background.end().await;
        closed(Part::Background);
        let stopped = server.close(check, &mut closed).await?;
        drop(lock);
        closed(Part::Lock);
        Ok(damage.map_or(stopped, Err)?)
    }
}

async fn open(
    config: &ServerConfig,
    state_dir: &StateDir,
    reserve: &ReserveFile,
) -> Result<Opened, ServeError> {
    first_start::prepare(state_dir)?;
    state_dir.write_mode(config.workspaces)?;
    Server::open(config.clone(), state_dir.clone(), reserve.clone()).await
}

/// The signal that reloads certificates, if it is enabled.
fn hangup(config: &ServerConfig) -> Result<Option<Signal>, ServeError> {
    match config.hangup_reloads {
        true => signal(SignalKind::hangup()).map(Some).map_err(ServeError::Signals),
        false => Ok(None),
    }
}

/// Reports the capacity of this machine to the core, as soon as it can be recorded.
async fn measure(writer: writer::Handle, seen: HostRequest) {
    loop {
        match writer.submit(Input::ChangeHosts(Box::new(seen.clone()))).await {
            Ok(Ok(_)) | Err(Unavailable::Stopping) => return,
            Ok(Err(refused)) => {
                tracing::error!(error = %refused, "cannot record the capacity of this machine");
                return;
            }
            Err(_) => tokio::time::sleep(MEASURE_PAUSE).await,
        }
    }
}
