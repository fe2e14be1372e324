//! `muster agent`: the agent of a node, which a provider starts; and with `--join`, the host agent on a machine that
//! adds its capacity to a server.

use std::path::PathBuf;

use muster_agent::{AgentConfig, FullServer, Gpu};
use muster_core::agent::LOG_BYTES_MAX;
use muster_core::model::HostName;
use muster_host_agent::{HostAgentConfig, Server};
use muster_providers::joined::JoinToken;
use muster_sandbox::job::Spawner;

use crate::failure::{CliResult, Failure, printable};
use crate::output;

/// Join this machine to a server as a host, or run the agent of a node
///
/// With --join, this machine becomes a host: the server creates nodes on it as needed, and they run jobs like nodes on
/// the server's own host. Create a join token with `muster host token` on the server; it can be used once, and from
/// then on this machine has its own key. When stopped, it leaves its nodes running for the next start to take over;
/// without one, they end when their leases do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Mutating: creates nodes on this machine and runs the server's jobs on them."
)]
pub struct Args {
    /// Server to join
    #[arg(long, value_name = "URL", conflicts_with_all = ["node", "dir", "server"])]
    join: Option<Server>,
    /// Join token, from `muster host token`; not needed once this machine has joined
    #[arg(long, requires = "join", env = "MUSTER_JOIN_TOKEN", hide_env_values = true)]
    token: Option<JoinToken>,
    /// Name of this host [default: its host name]
    #[arg(long, requires = "join")]
    name: Option<String>,
    /// Directory for this host's key and nodes
    /// [default: $XDG_STATE_HOME/muster-host or ~/.local/state/muster-host]
    #[arg(long, value_name = "DIR", requires = "join")]
    state: Option<PathBuf>,
    /// Additional folder that nodes on this host can read
    #[arg(long, value_name = "DIR", requires = "join")]
    node_folder: Vec<PathBuf>,
    /// End the nodes on this host when this process is stopped
    #[arg(long, requires = "join")]
    leave: bool,
    /// Name of the node
    #[arg(long, required_unless_present = "join", hide = true)]
    node: Option<String>,
    /// Folder of the node; it contains the node's secret
    #[arg(long, required_unless_present = "join", hide = true)]
    dir: Option<PathBuf>,
    /// Address of the server
    #[arg(long, value_name = "URL", required_unless_present = "join", hide = true)]
    server: Option<String>,
    /// File with the CA certificates to trust for the server [default: those of the token]
    #[arg(long, value_name = "FILE", required_unless_present = "join")]
    ca: Option<PathBuf>,
    /// The same including public CAs, for programs in jobs that call the server
    #[arg(long, value_name = "FILE", requires = "sandboxed", hide = true)]
    ca_bundle: Option<PathBuf>,
    /// File with the node's secret [default: in its folder]
    #[arg(long, value_name = "FILE", hide = true)]
    secret: Option<PathBuf>,
    /// Folder of the socket that leads to the server
    #[arg(long, value_name = "DIR", hide = true)]
    relay: Option<PathBuf>,
    /// Address at which other nodes reach this one
    #[arg(long, hide = true)]
    address: Option<String>,
    /// Run each job in its own sandbox
    #[arg(long, hide = true)]
    sandboxed: bool,
    /// Run jobs in the node's sandbox, as different users
    #[arg(long, requires = "sandboxed", hide = true)]
    jobs_share: bool,
    /// Folder that is empty in job sandboxes, in addition to the node's own
    #[arg(long, value_name = "DIR", requires = "sandboxed", hide = true)]
    hide: Vec<PathBuf>,
    /// Folder with the Python environments that the server has built
    #[arg(long, value_name = "DIR", hide = true)]
    environments: Option<PathBuf>,
    /// Maximum bytes that a job may write to its folder
    #[arg(long, value_name = "BYTES", hide = true)]
    disk: Option<u64>,
    /// What this node does not enforce, for the logs of its jobs
    #[arg(long, value_name = "WHAT", hide = true)]
    not_enforced: Vec<String>,
    /// Why this node has no internet access although it should, for the logs of its jobs
    #[arg(long, value_name = "WHY", hide = true)]
    why_no_internet: Option<String>,
    /// Number of GPUs of the node's size
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    gpu_slots: u32,
    /// An available GPU: its device number, and the driver's name for it
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
        // The variable of the server's setting; the host agent has no configuration file.
        uv: std::env::var_os("MUSTER_UV").filter(|path| !path.is_empty()).map(PathBuf::from),
        leaves: args.leave,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Failure::error(format!("cannot start: {why}")))?;
    let ended = runtime.block_on(muster_host_agent::run(config, output::say));
    ended.map_err(|why| Failure::of(&why))
}

/// The first label of the machine's host name.
fn own_name() -> CliResult<HostName> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let first = name.split('.').next().unwrap_or_default();
    HostName::new(first).ok().filter(|name| !name.is_local()).ok_or_else(|| {
        let name = printable(&name);
        Failure::refused(format!(
            "the machine's name {name:?} is not valid for a host; set another with --name"
        ))
    })
}

fn place() -> CliResult<PathBuf> {
    let variable =
        |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = variable("XDG_STATE_HOME");
    let state = state.or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    let state = state.ok_or_else(|| {
        Failure::refused("neither XDG_STATE_HOME nor HOME is set; choose a folder with --state")
    })?;
    Ok(state.join("muster-host"))
}

/// Returns to the kernel what the allocator keeps after the command line has been read, which is most of the memory of
/// this process. The spawner is a copy of this process, and every job starts as a copy of the spawner.
fn return_free_memory() {
    // This links the allocator, which is the global one in the program, but not in a test.
    use mimalloc as _;
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: takes no memory, and frees none that is in use.
    unsafe { mi_collect(true) }
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
        return Err(Failure::refused("the agent of a node needs --node, --dir, --server and --ca"));
    };
    return_free_memory();
    // This forks, so it must happen before there is a second thread and before the secret is read.
    let spawner = sandboxed
        .then(Spawner::start)
        .transpose()
        .map_err(|why| Failure::error(format!("cannot start the spawner of jobs: {why}")))?;
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
