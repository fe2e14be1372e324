//! `muster agent`: a node's side, which a provider starts; and with `--join` what runs on a machine that adds its
//! capacity to a server.

use std::path::PathBuf;

use muster_agent::{AgentConfig, FullServer, Gpu};
use muster_core::agent::LOG_BYTES_MAX;
use muster_core::model::HostName;
use muster_host_agent::{HostAgentConfig, Server};
use muster_providers::joined::JoinToken;
use muster_sandbox::job::Spawner;

use crate::failure::{CliResult, Failure, printable};
use crate::output;

/// Add this machine to a server, or run as the agent of a node
///
/// With --join, this machine becomes a host: its nodes are made here as the server needs them, and run jobs as nodes on the
/// server's machine do. `muster host token` on the server gives the token, which is good once; from then on this machine has
/// a key of its own and needs none. Asked to end, it leaves its nodes running for the next start to find; without it they
/// end themselves when their leases do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating: makes nodes on this machine and runs jobs on them, as the server says."
)]
pub struct Args {
    /// The server whose host this machine becomes
    #[arg(long, value_name = "URL", conflicts_with_all = ["node", "dir", "server"])]
    join: Option<Server>,
    /// What `muster host token` printed; not needed again once this machine has joined
    #[arg(long, requires = "join", env = "MUSTER_JOIN_TOKEN", hide_env_values = true)]
    token: Option<JoinToken>,
    /// What this machine is called [default: its host name]
    #[arg(long, requires = "join")]
    name: Option<String>,
    /// Where this machine keeps its key and its nodes
    /// [default: $XDG_STATE_HOME/muster-host or ~/.local/state/muster-host]
    #[arg(long, value_name = "DIR", requires = "join")]
    state: Option<PathBuf>,
    /// A folder that nodes of this machine see beside the usual, read-only
    #[arg(long, value_name = "DIR", requires = "join")]
    node_folder: Vec<PathBuf>,
    /// End the nodes of this machine when this is asked to end
    #[arg(long, requires = "join")]
    leave: bool,
    /// The node's name
    #[arg(long, required_unless_present = "join", hide = true)]
    node: Option<String>,
    /// The node's folder; it holds the node's secret
    #[arg(long, required_unless_present = "join", hide = true)]
    dir: Option<PathBuf>,
    /// Where the server listens
    #[arg(long, value_name = "URL", required_unless_present = "join", hide = true)]
    server: Option<String>,
    /// The only certificates that the server may be signed by [default: as the token says]
    #[arg(long, value_name = "FILE", required_unless_present = "join")]
    ca: Option<PathBuf>,
    /// The same with the public ones, for programs in jobs that call the server
    #[arg(long, value_name = "FILE", requires = "sandboxed", hide = true)]
    ca_bundle: Option<PathBuf>,
    /// What the node proves itself with [default: in its folder]
    #[arg(long, value_name = "FILE", hide = true)]
    secret: Option<PathBuf>,
    /// The folder of the socket that leads to the server
    #[arg(long, value_name = "DIR", hide = true)]
    relay: Option<PathBuf>,
    /// Where other nodes find this one
    #[arg(long, hide = true)]
    address: Option<String>,
    /// Run each job in a sandbox of its own
    #[arg(long, hide = true)]
    sandboxed: bool,
    /// Run jobs in the node's sandbox, as different users
    #[arg(long, requires = "sandboxed", hide = true)]
    jobs_share: bool,
    /// A folder that jobs in sandboxes find empty, besides the node's own
    #[arg(long, value_name = "DIR", requires = "sandboxed", hide = true)]
    hide: Vec<PathBuf>,
    /// Holds the Python environments that the server has built
    #[arg(long, value_name = "DIR", hide = true)]
    environments: Option<PathBuf>,
    /// The most that a job may write to its folder
    #[arg(long, value_name = "BYTES", hide = true)]
    disk: Option<u64>,
    /// What this node does not enforce, for whoever reads the logs of its jobs
    #[arg(long, value_name = "WHAT", hide = true)]
    not_enforced: Vec<String>,
    /// Why this node does not reach the internet although it should, for whoever reads the logs of its jobs
    #[arg(long, value_name = "WHY", hide = true)]
    why_no_internet: Option<String>,
    /// How many GPUs the node's size has
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    gpu_slots: u32,
    /// A GPU that is there: the number of its device, and the driver's name for it
    #[arg(long, value_name = "N[=UUID]", hide = true)]
    gpu: Vec<Gpu>,
}

pub fn run(args: Args) -> CliResult {
    match args.join.clone() {
        Some(server) => join(server, args),
        None => node(args),
    }
}

fn join(server: Server, args: Args) -> CliResult {
    let name = match &args.name {
        Some(name) => HostName::new(name)
            .map_err(|bad| Failure::refused(format!("--name {}: {bad}", printable(name))))?,
        None => own_name()?,
    };
    let binary = std::env::current_exe()
        .map_err(|why| Failure::error(format!("cannot find this program's own file: {why}")))?;
    let config = HostAgentConfig {
        server,
        token: args.token,
        name,
        dir: args.state.map_or_else(place, Ok)?,
        ca_file: args.ca,
        binary,
        shown: args.node_folder,
        // As a server's setting is named where it has no file.
        uv: std::env::var_os("MUSTER_UV").filter(|path| !path.is_empty()).map(PathBuf::from),
        leaves: args.leave,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Failure::error(format!("cannot start: {why}")))?;
    let ended = runtime.block_on(muster_host_agent::run(config, output::say));
    ended.map_err(|why| Failure::of(&why))
}

/// The first part of what the machine calls itself.
fn own_name() -> CliResult<HostName> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let first = name.split('.').next().unwrap_or_default();
    HostName::new(first).ok().filter(|name| !name.is_local()).ok_or_else(|| {
        let name = printable(&name);
        Failure::refused(format!(
            "this machine's name {name:?} is none for a host; give it one with --name"
        ))
    })
}

fn place() -> CliResult<PathBuf> {
    let variable =
        |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = variable("XDG_STATE_HOME");
    let state = state.or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    let state = state.ok_or_else(|| {
        Failure::refused("neither XDG_STATE_HOME nor HOME is set; name a folder with --state")
    })?;
    Ok(state.join("muster-host"))
}

fn node(args: Args) -> CliResult {
    let Args {
        node,
        dir,
        server,
        ca,
        ca_bundle,
        secret,
        relay,
        address,
        sandboxed,
        hide,
        environments,
        disk,
        jobs_share,
        not_enforced,
        why_no_internet,
        gpu_slots,
        gpu,
        ..
    } = args;
    let (Some(node), Some(dir), Some(server), Some(ca_file)) = (node, dir, server, ca) else {
        return Err(Failure::refused("a node's agent needs --node, --dir, --server and --ca"));
    };
    // It forks: before there is a second thread, and before the secret is read.
    let spawner = sandboxed
        .then(Spawner::start)
        .transpose()
        .map_err(|why| Failure::error(format!("cannot start what starts jobs: {why}")))?;
    let config = AgentConfig {
        node,
        dir,
        server,
        ca_file,
        ca_bundle,
        secret_file: secret,
        relay,
        address,
        hidden: hide,
        environments,
        disk_bytes: disk,
        log_bytes: LOG_BYTES_MAX,
        full_server: FullServer::default(),
        jobs_share,
        not_enforced,
        why_no_internet,
        gpu_slots,
        gpus: gpu,
    };
    let agent = muster_agent::run(config, spawner);
    crate::block_on(async { agent.await.map_err(|why| Failure::of(&why)) })
}
