//! What runs on a node: jobs as processes, their logs, signals, and the conversation with the
//! server.
//!
//! Every decision is taken by [`muster_core::agent::Machine`]; this crate is the world around it:
//!
//! * `node` is the loop: news in, actions out, in order;
//! * `exchange` keeps one report under way to the server (`client`), and repeats it until it is
//!   answered;
//! * `attempt` takes one order from its specification to its end, `process` runs it, or `sandboxed` with
//!   [`muster_sandbox::job`] in a sandbox; `log` sends its output, `files` brings its files and keeps what it leaves;
//! * `engine` is what it runs in, chosen for each job; `environment` has it find its Python;
//! * `services` starts what people open of a job, and connects them;
//! * `meter` measures what the node and its jobs use;
//! * `relay` leads whoever calls the server from inside the node to its socket;
//! * `journal` holds what a restart must not forget;
//! * [`home`], [`identity`], [`kin`] and [`descriptors`] say what belongs to a node on its machine:
//!   a provider that makes nodes here uses them to find everything again.
//!
//! It knows nothing of scheduling and nothing of providers. It dials out; the relay is the one place where it listens,
//! on the node's own loopback.

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
use crate::limits::Memory;
use crate::meter::Meter;
use crate::node::Node;
use crate::removals::Removals;
use crate::sandboxed::AbortOnDrop;

/// Of a node that shares this machine's own network.
const ADDRESS: &str = "127.0.0.1";
/// What an earlier agent left running is killed and then gone, unless the kernel holds it.
const LEFTOVERS_WITHIN: Duration = Duration::from_secs(10);

/// How often the agent looks at the length of its log.
const LOG_LOOK_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    pub node: String,
    /// The node's folder, see [`home`]. It holds the secret already.
    pub dir: PathBuf,
    /// Where the server listens, `https://HOST:PORT`.
    pub server: String,
    /// The only certificates (PEM) that the server may be signed by.
    pub ca_file: PathBuf,
    /// The same with the public ones, for programs in sandboxed jobs that call the server.
    pub ca_bundle: Option<PathBuf>,
    /// Folders that sandboxed jobs find empty, besides the node's own.
    pub hidden: Vec<PathBuf>,
    /// Python environments that the server has built; `None`: there are none on this machine.
    pub environments: Option<PathBuf>,
    /// The most that a job may write to its folder.
    pub disk_bytes: Option<u64>,
    /// The most of a job's output that is taken; the server takes no more than
    /// [`LOG_BYTES_MAX`](muster_core::agent::LOG_BYTES_MAX).
    pub log_bytes: u64,
    pub full_server: FullServer,
    /// Whether sandboxed jobs share the node's instead of having their own.
    pub jobs_share: bool,
    /// What the node does not enforce, in words.
    pub not_enforced: Vec<String>,
    /// Why the node does not reach the internet although it should, with what to do.
    pub why_no_internet: Option<String>,
    /// What the node proves itself with; in its folder if it is nowhere else.
    pub secret_file: Option<PathBuf>,
    /// The folder of the socket that leads to the server, where no network does.
    pub relay: Option<PathBuf>,
    /// Where other nodes find this one.
    pub address: Option<String>,
    /// The GPUs that its size has.
    pub gpu_slots: u32,
    /// Those of them that are there.
    pub gpus: Vec<Gpu>,
}

/// How long the end of a job waits for a server whose disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullServer {
    /// With what the job leaves. Then the job fails, and says why.
    pub outputs_wait: Duration,
    /// With the rest of its log, counted from when its processes were gone. Then the log says what is missing. Until then the
    /// job counts as running, so this is no longer than the outputs wait.
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
    #[error("the CA certificate {path} is not usable")]
    BadCa { path: PathBuf, source: rustls::Error },
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("cannot set up the HTTP client")]
    Client(#[source] reqwest::Error),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot listen on this node for whoever wants to reach the server")]
    Relay(#[source] io::Error),
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    #[error("{count} processes of an earlier agent do not end")]
    Leftovers { count: usize },
    #[error("an attempt ended without a word")]
    AttemptPanicked { source: tokio::task::JoinError },
}

/// Lives as this node's agent until the node is over. Returns at once if the folder has an agent
/// already.
///
/// Call it on a runtime whose threads live as long as the process (a current-thread one starts
/// fastest): the kernel kills a job when the thread that started it ends.
///
/// With a spawner, which has to be started before that runtime, jobs run in a sandbox.
pub async fn run(config: AgentConfig, spawner: Option<Spawner>) -> Result<(), AgentError> {
    run_with_timing(config, spawner, Timing::default()).await
}

/// As [`run`], with shorter (or longer) patience.
#[doc(hidden)]
pub async fn run_with_timing(
    config: AgentConfig,
    spawner: Option<Spawner>,
    timing: Timing,
) -> Result<(), AgentError> {
    let failed = |source| AgentError::Home { dir: config.dir.clone(), source };
    let home = Home::new(std::path::absolute(&config.dir).map_err(failed)?);
    let Some(_lock) = home.lock().map_err(failed)? else {
        tracing::info!("another agent runs this node");
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
        tracing::warn!(there, of = config.gpu_slots, "this node has not all GPUs of its size");
    }
    let meter = Meter::new(home.dir().to_owned(), config.gpus.clone(), spawner.is_some());
    let meter = Arc::new(meter);
    meter.start();
    let gpus = Gpus::new(config.gpu_slots, config.gpus);
    let missing = config.not_enforced.join(", ");
    let missing = (!missing.is_empty()).then(|| format!("not enforced on this node: {missing}"));
    let why_no_internet = config.why_no_internet.map(|why| {
        format!("this node does not reach the internet, although egress is true, because {why}")
    });
    let warnings = missing.into_iter().chain(why_no_internet.clone()).collect();
    let (node, memory) = (config.node, Memory::of_this_node());
    let _log = AbortOnDrop(tokio::spawn(keep_log_short(home.agent_log())));
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
    tracing::info!("the agent is up");
    node.live().await
}

/// For an agent that writes its log itself. In a sandbox its node's first process does, and there is no such file.
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

/// As the kernel knows them, without links. What is not there need not be hidden.
fn hidden(home: &Home, others: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let folders = others.iter().map(PathBuf::as_path).chain([home.dir()]);
    folders.filter(|folder| folder.exists()).map(std::path::Path::canonicalize).collect()
}

/// A new one for every agent, not only for every boot: what an agent runs dies with it.
fn boot_id(identity: &Identity) -> String {
    format!("{}-{}-{}", identity.boot, identity.pid, identity.start_ticks)
}

/// The kernel killed the first process of each job together with the agent; their children are
/// still there.
fn end_leftovers(node: &str, home: &Home) -> Result<(), AgentError> {
    let failed = |source| AgentError::Home { dir: home.dir().to_path_buf(), source };
    let left = kin::kill_all(node, home, LEFTOVERS_WITHIN).map_err(failed)?;
    if left.is_empty() { Ok(()) } else { Err(AgentError::Leftovers { count: left.len() }) }
}
