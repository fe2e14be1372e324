//! The agent, which runs on a node: jobs as processes, their logs, signals, and the exchange with the server.
//!
//! [`muster_core::agent::Machine`] makes every decision; this crate carries them out:
//!
//! * `node` is the loop: events in, actions out, in order;
//! * `exchange` keeps one report in flight to the server (`client`), and repeats it until there is a reply;
//! * `attempt` takes one assignment from its specification to its end, `process` runs it, or `sandboxed` with
//!   [`muster_sandbox::job`] in a sandbox; `log` sends its output, and `files` fetches its files and saves what it
//!   leaves;
//! * `engine` is what it runs in, chosen for each job; `environment` provides its Python;
//! * `services` starts the services of a job that people open, and connects them;
//! * `meter` measures what the node and its jobs use;
//! * `relay` forwards calls from inside the node to the server's socket;
//! * `journal` contains what a restart must not forget;
//! * [`home`], [`identity`], [`kin`] and [`descriptors`] define what belongs to a node on its host: a provider that
//!   creates nodes here uses them to find everything again.
//!
//! The agent knows nothing about scheduling or providers. It dials out; only the relay listens, on the node's own
//! loopback.

mod attempt;
mod backoff;
mod bound;
mod client;
mod clock;
mod engine;
mod environment;
mod exchange;
mod files;
mod gpus;
pub mod home;
mod journal;
pub mod kin;
mod limits;
mod log;
mod lookups;
mod members;
mod meter;
mod mlflow;
mod node;
mod notice;
mod process;
mod ranks;
mod relay;
mod removals;
mod running;
mod sandboxed;
mod services;

pub use muster_sandbox::{descriptors, identity};

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use muster_core::agent::{Machine, Record, Timing};
use muster_sandbox::job::Spawner;

use crate::attempt::{Context, ServerAccess};
use crate::client::Client;
pub use crate::gpus::Gpu;
use crate::gpus::Gpus;
use crate::home::Home;
use crate::identity::Identity;
use crate::journal::Journal;
pub use crate::journal::JournalError;
use crate::limits::{JobGroups, Memory};
use crate::meter::Meter;
use crate::node::Node;
use crate::removals::Removals;
use crate::sandboxed::AbortOnDrop;

/// The address of a node that shares the host's own network.
const ADDRESS: &str = "127.0.0.1";
/// Leftover processes of an earlier agent are killed and end within this time, unless the kernel blocks them.
const LEFTOVERS_WITHIN: Duration = Duration::from_secs(10);

/// How often the agent checks the size of its log.
const LOG_LOOK_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    pub node: String,
    /// The node's folder, see [`home`]. It already contains the secret.
    pub dir: PathBuf,
    /// Where the server listens, `https://HOST:PORT`.
    pub server: String,
    /// The only CA certificates (PEM) that the agent trusts.
    pub ca_file: PathBuf,
    /// The same together with the public ones, for programs in sandboxed jobs that call the server.
    pub ca_bundle: Option<PathBuf>,
    /// Folders that look empty to sandboxed jobs, besides the node's own.
    pub hidden: Vec<PathBuf>,
    /// Python environments that the server has built. `None` if there are none on this host.
    pub environments: Option<PathBuf>,
    /// The most that a job may write to its folder.
    pub disk_bytes: Option<u64>,
    /// The most output of a job that is accepted. The server accepts no more than
    /// [`LOG_BYTES_MAX`](muster_core::agent::LOG_BYTES_MAX).
    pub log_bytes: u64,
    pub full_server: FullServer,
    /// Whether sandboxed jobs share the node's sandbox instead of having their own.
    pub jobs_share: bool,
    /// Descriptions of what the node does not enforce.
    pub not_enforced: Vec<String>,
    /// Why the node has no internet access although it should, with the remedy.
    pub why_no_internet: Option<String>,
    /// The secret with which the node authenticates. `None` means the one in its folder.
    pub secret_file: Option<PathBuf>,
    /// The folder of the socket that leads to the server, for a node without a network to it.
    pub relay: Option<PathBuf>,
    /// The address at which other nodes reach this one.
    pub address: Option<String>,
    /// The number of GPUs of its size.
    pub gpu_slots: u32,
    /// The GPUs that are available.
    pub gpus: Vec<Gpu>,
}

/// How long the end of a job waits for a server whose disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullServer {
    /// How long a job waits with its outputs. After that the job fails with the reason.
    pub outputs_wait: Duration,
    /// How long it waits with the rest of its log, counted from the end of its processes. After that the log says what
    /// is missing. Until then the job counts as running, so this is no longer than the wait for outputs.
    pub log_waits: Duration,
}

impl Default for FullServer {
    fn default() -> FullServer {
        FullServer { outputs_wait: Duration::from_secs(30), log_waits: Duration::from_secs(30) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot use the node's folder {dir}")]
    Home { dir: PathBuf, source: io::Error },
    #[error("cannot read the node's secret {path}")]
    Secret { path: PathBuf, source: io::Error },
    #[error("the node's name or secret does not fit into an HTTP header")]
    NotAHeader,
    #[error("cannot read the CA certificate {path}")]
    Ca { path: PathBuf, source: rustls_pki_types::pem::Error },
    #[error("the CA certificate {path} is not valid")]
    BadCa { path: PathBuf, source: rustls::Error },
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("cannot set up the HTTP client")]
    Client(#[source] reqwest::Error),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot listen on this node for calls to the server")]
    Relay(#[source] io::Error),
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    #[error("{count} processes of an earlier agent do not end")]
    Leftovers { count: usize },
    #[error("an attempt ended without an event")]
    AttemptPanicked { source: tokio::task::JoinError },
}

/// Runs as this node's agent until the node has ended. Returns at once if the folder already has an agent.
///
/// Call it on a runtime whose threads live as long as the process (a current-thread one starts fastest): the kernel
/// kills a job when the thread that started it ends.
///
/// With a spawner, which has to be started before that runtime, jobs run in a sandbox.
pub async fn run(config: AgentConfig, spawner: Option<Spawner>) -> Result<(), AgentError> {
    run_with_timing(config, spawner, Timing::default()).await
}

/// Like [`run`], with other timeouts.
#[doc(hidden)]
pub async fn run_with_timing(
    config: AgentConfig,
    spawner: Option<Spawner>,
    timing: Timing,
) -> Result<(), AgentError> {
    let failed = |source| AgentError::Home { dir: config.dir.clone(), source };
    let home = Home::new(std::path::absolute(&config.dir).map_err(failed)?);
    let Some(_lock) = home.lock().map_err(failed)? else {
        tracing::info!("another agent is already running this node");
        return Ok(());
    };
    let identity = Identity::own().map_err(failed)?;
    identity.write(&home.agent_pid()).map_err(failed)?;
    let path = config.secret_file.clone().unwrap_or_else(|| home.secret());
    let secret =
        std::fs::read_to_string(&path).map_err(|source| AgentError::Secret { path, source })?;
    if let Some(folder) = &config.relay {
        relay::start(&config.server, folder).await.map_err(AgentError::Relay)?;
    }
    let client = Client::new(&config, secret.trim())?;
    let (journal, records) = Journal::open(home.journal(), &identity.boot)?;
    if !records.is_empty() {
        end_leftovers(&config.node, &home)?;
    }
    let address = config.address.as_deref().unwrap_or(ADDRESS);
    let machine = Machine::new(&boot_id(&identity), address, timing, clock::now());
    let machine = machine.recover(&records);
    let hidden = hidden(&home, &config.hidden).map_err(failed)?;
    let AgentConfig { disk_bytes, log_bytes, full_server, jobs_share, .. } = config;
    let access = config.relay.clone();
    let access =
        access.map(|relay| ServerAccess::new(&config.server, relay, config.ca_bundle.clone()));
    let there = config.gpus.len();
    if (there as u64) < u64::from(config.gpu_slots) {
        tracing::warn!(
            there,
            of = config.gpu_slots,
            "this node does not have all GPUs of its size"
        );
    }
    let meter = Meter::new(home.dir().to_owned(), config.gpus.clone(), spawner.is_some());
    let meter = Arc::new(meter);
    meter.start();
    let gpus = Gpus::new(config.gpu_slots, config.gpus);
    let missing = config.not_enforced.join(", ");
    let missing = (!missing.is_empty()).then(|| format!("not enforced on this node: {missing}"));
    let why_no_internet = config.why_no_internet.map(|why| {
        format!("this node has no internet access, although egress is true, because {why}")
    });
    let warnings = missing.into_iter().chain(why_no_internet.clone()).collect();
    let (node, memory) = (config.node, Memory::of_this_node());
    let groups = Arc::new(JobGroups::of_this_node());
    let _log = AbortOnDrop(tokio::spawn(keep_log_short(home.agent_log())));
    let _tidy = AbortOnDrop(tokio::spawn(Arc::clone(&groups).tidy()));
    let environments = config.environments;
    let context = Context {
        client,
        home,
        node,
        spawner,
        hidden,
        disk_bytes,
        log_bytes,
        full_server,
        jobs_share,
        memory,
        groups,
        meter,
        warnings,
        why_no_internet,
        access,
        gpus,
        environments,
        removals: Removals::default(),
    };
    let mut node = Node::new(machine, journal, context);
    if records.iter().any(|record| matches!(record, Record::Took(_))) {
        node.resume_logs();
    }
    tracing::info!("the agent is running");
    node.live().await
}

/// Cuts the log of an agent that writes it itself. In a sandbox the node's first process does this, and there is no
/// such file.
async fn keep_log_short(log: PathBuf) {
    loop {
        tokio::time::sleep(LOG_LOOK_EVERY).await;
        match muster_sandbox::logs::cut_if_long(&log) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "cannot cut this agent's log");
            }
            _ => {}
        }
    }
}

/// Resolves links, as the kernel does. Missing folders need not be hidden.
fn hidden(home: &Home, others: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let folders = others.iter().map(PathBuf::as_path).chain([home.dir()]);
    folders.filter(|folder| folder.exists()).map(std::path::Path::canonicalize).collect()
}

/// Different for every agent, not only for every boot, because what an agent runs dies with it.
fn boot_id(identity: &Identity) -> String {
    format!("{}-{}-{}", identity.boot, identity.pid, identity.start_ticks)
}

/// Ends leftover processes. The kernel killed the first process of each job together with the earlier agent, but not
/// their children.
fn end_leftovers(node: &str, home: &Home) -> Result<(), AgentError> {
    let failed = |source| AgentError::Home { dir: home.dir().to_path_buf(), source };
    let left = kin::kill_all(node, home, LEFTOVERS_WITHIN).map_err(failed)?;
    if left.is_empty() { Ok(()) } else { Err(AgentError::Leftovers { count: left.len() }) }
}
