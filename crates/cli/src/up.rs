//! `muster up`: the server, in the foreground, for whoever started it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use muster_core::ErrorChain;
use muster_server::{Ready, ServeError, ServerConfig, Workspaces};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::env::shell_quoted;
use crate::failure::{Failure, Outcome, printable};
use crate::output;
use crate::place::StateDirArg;

/// The region of workspaces that are made on first use; clients show it, nothing depends on it.
const LOCATION: &str = "eastus";

/// Start the server and keep it in the foreground
///
/// It listens for Azure's clients and for the other commands, makes nodes when jobs need them and lets them
/// go when they are idle. Ctrl-C stops it; nodes and jobs go on for a while and are found again by the next
/// start.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating: writes the state directory and starts processes on this machine."
)]
pub struct Args {
    #[command(flatten)]
    start: Start,
}

/// What every server is started with.
#[derive(Debug, clap::Args)]
pub struct Start {
    #[command(flatten)]
    place: StateDirArg,
    /// The address to listen on; port 0 takes the last one again, or any
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7443", value_parser = address)]
    listen: SocketAddr,
    /// Your own prices: a JSON file of [{"size": …, "usd_per_hour": "0.31"}, …]
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Let other machines in: every user with a key runs programs as you
    #[arg(long)]
    trusted_users: bool,
}

pub fn run(args: Args) -> Outcome {
    start(args.start, Workspaces::OnFirstUse)
}

pub fn start(args: Start, workspaces: Workspaces) -> Outcome {
    if !args.listen.ip().is_loopback() && !args.trusted_users {
        return Err(Failure::refused(format!(
            "--listen {} lets other machines in, and jobs run as you, without a sandbox; listen on \
             127.0.0.1, or add --trusted-users if everyone who gets a key may do what you may",
            args.listen
        )));
    }
    let agent_binary = std::env::current_exe()
        .map_err(|why| Failure::error(format!("cannot find this program's own file: {why}")))?;
    let config = ServerConfig {
        state_dir: args.place.path()?,
        listen: args.listen,
        agent_binary,
        price_file: args.prices,
        location: LOCATION.to_owned(),
        workspaces,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Failure::error(format!("cannot start: {why}")))?;
    runtime.block_on(async {
        let signals = Signals::listen()?;
        muster_server::run(config, announce, signals.shutdown()).await.map_err(|why| match &why {
            // The user's own file, as they gave it.
            ServeError::Prices(_) => Failure::refused(printable(&ErrorChain(&why).to_string())),
            _ => Failure::of(&why),
        })
    })
}

/// Both are listened to even where they were ignored, as SIGINT is for a shell's background commands.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Outcome<Signals> {
        let listen = |kind| {
            signal(kind).map_err(|why| Failure::error(format!("cannot listen for signals: {why}")))
        };
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// The first signal asks the server to end; a second one does not ask. Either is safe: what was
    /// acknowledged is on disk.
    async fn shutdown(mut self) {
        self.next().await;
        output::say("stopping; once more to stop at once");
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(1);
        });
    }
}

fn announce(ready: &Ready) {
    let mut out = std::io::stdout().lock();
    // Whoever closed it does not want to know; the server serves all the same.
    let _ = writeln!(out, "ready {}", ready.url).and_then(|()| out.flush());
    let dir = shell_quoted(&ready.state_dir.to_string_lossy());
    output::say(&format!("state is kept in {}", ready.state_dir.display()));
    output::say(&format!("to use it from another shell: eval \"$(muster env --state-dir {dir})\""));
    for note in &ready.notes {
        output::say(&format!("note: {note}"));
    }
    output::say(
        "nodes are processes of this user on this machine, and jobs are not sandboxed yet: run only \
         what you trust",
    );
    output::say("Ctrl-C stops the server");
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "give an address and a port, such as 127.0.0.1:7443".to_owned())
}
