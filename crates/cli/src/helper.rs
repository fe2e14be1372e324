//! `muster helper`: creates the sandboxes of nodes on this host. A server starts it; users do not.

use std::os::fd::AsFd;
use std::path::PathBuf;

use muster_sandbox::helper::{HelperConfig, serve};

use crate::failure::{CliResult, Failure};

/// Create the sandboxes of this host's nodes, as a server requests on standard input
#[derive(Debug, clap::Args)]
#[command(
    hide = true,
    after_help = "Mutating: creates namespaces, cgroups, mounts and network devices, for its own nodes only."
)]
pub struct Args {
    /// Distinguishes this server's objects from those of other servers
    #[arg(long)]
    instance: String,
    /// Folder that contains a folder per node
    #[arg(long, value_name = "DIR")]
    nodes: PathBuf,
    /// Folder that contains a folder per node, with the socket that leads to the server
    #[arg(long, value_name = "DIR")]
    relays: PathBuf,
    /// Folder for the logs of deleted nodes
    #[arg(long, value_name = "DIR")]
    logs: PathBuf,
    /// The `muster` program that nodes run
    #[arg(long, value_name = "FILE")]
    binary: PathBuf,
    /// File with the CA certificates to trust for the server
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The same including public CAs, for programs in jobs
    #[arg(long, value_name = "FILE")]
    ca_bundle: Option<PathBuf>,
    /// Additional folder of the host that nodes can read
    #[arg(long, value_name = "DIR")]
    show: Vec<PathBuf>,
    /// Folder with the Python environments that the server has built, which nodes can read
    #[arg(long, value_name = "DIR")]
    environments: Option<PathBuf>,
    /// Use only files of this user, who has fewer permissions than this process
    #[arg(long, value_name = "UID")]
    owner: Option<u32>,
}

pub fn run(args: Args) -> CliResult {
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = socket.map_err(|why| Failure::error(format!("there is no socket: {why}")))?;
    let config = HelperConfig {
        instance: args.instance,
        nodes: args.nodes,
        relays: args.relays,
        logs: args.logs,
        binary: args.binary,
        ca_file: args.ca,
        ca_bundle: args.ca_bundle,
        shown: args.show,
        environments: args.environments,
        owner: args.owner,
    };
    serve(&socket, config).map_err(|why| Failure::of(&why))
}
