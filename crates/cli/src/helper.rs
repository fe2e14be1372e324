//! `muster helper`: makes the sandboxes of nodes on this machine. Started by a server, never by hand.

use std::os::fd::AsFd;
use std::path::PathBuf;

use muster_sandbox::helper::{HelperConfig, serve};

use crate::failure::{CliResult, Failure};

/// Make the walls of this machine's nodes, as a server asks on the standard input
#[derive(Debug, clap::Args)]
#[command(
    hide = true,
    after_help = "Mutating: makes namespaces, cgroups, mounts and network devices, for its own nodes only."
)]
pub struct Args {
    /// Tells what is ours from what other servers made
    #[arg(long)]
    instance: String,
    /// Holds a folder per node
    #[arg(long, value_name = "DIR")]
    nodes: PathBuf,
    /// Holds a folder per node, with the socket that leads to the server
    #[arg(long, value_name = "DIR")]
    relays: PathBuf,
    /// Where the logs of nodes that are gone are kept
    #[arg(long, value_name = "DIR")]
    logs: PathBuf,
    /// The `muster` program that nodes run
    #[arg(long, value_name = "FILE")]
    binary: PathBuf,
    /// The only certificates that the server may be signed by
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The same with the public ones, for programs in jobs
    #[arg(long, value_name = "FILE")]
    ca_bundle: Option<PathBuf>,
    /// What of the machine nodes see beside the usual, read-only
    #[arg(long, value_name = "DIR")]
    show: Vec<PathBuf>,
    /// Python environments that the server has built, which nodes see
    #[arg(long, value_name = "DIR")]
    environments: Option<PathBuf>,
    /// Use nothing of others than this user's, who has fewer rights than we have
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
