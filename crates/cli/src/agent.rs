//! `muster agent`: a node's side. Started by a provider, never by hand.

use std::path::PathBuf;

use muster_agent::AgentConfig;
use muster_sandbox::job::Nursery;

use crate::failure::{Failure, Outcome};

/// Run as the agent of a node
#[derive(Debug, clap::Args)]
#[command(
    hide = true,
    after_help = "Mutating: runs jobs in the node's folder until the node is over."
)]
pub struct Args {
    /// The node's name
    #[arg(long)]
    node: String,
    /// The node's folder; it holds the node's secret
    #[arg(long)]
    dir: PathBuf,
    /// Where the server listens
    #[arg(long, value_name = "URL")]
    server: String,
    /// The only certificates that the server may be signed by
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The same with the public ones, for programs in jobs that call the server
    #[arg(long, value_name = "FILE", requires = "walls")]
    ca_bundle: Option<PathBuf>,
    /// What the node proves itself with [default: in its folder]
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// The folder of the socket that leads to the server
    #[arg(long, value_name = "DIR")]
    relay: Option<PathBuf>,
    /// Where other nodes find this one
    #[arg(long)]
    address: Option<String>,
    /// Run each job in a sandbox of its own
    #[arg(long)]
    walls: bool,
    /// A folder that jobs in sandboxes find empty, besides the node's own
    #[arg(long, value_name = "DIR", requires = "walls")]
    hide: Vec<PathBuf>,
    /// The most that a job may write to its folder
    #[arg(long, value_name = "BYTES")]
    disk: Option<u64>,
}

pub fn run(args: Args) -> Outcome {
    let Args { node, dir, server, ca, ca_bundle, secret, relay, address, walls, hide, disk } = args;
    // It forks: before there is a second thread, and before the secret is read.
    let nursery = walls
        .then(Nursery::start)
        .transpose()
        .map_err(|why| Failure::error(format!("cannot start what starts jobs: {why}")))?;
    let config = AgentConfig {
        node,
        dir,
        server,
        ca_file: ca,
        ca_bundle,
        secret_file: secret,
        relay,
        address,
        hidden: hide,
        disk_bytes: disk,
    };
    let agent = muster_agent::run(config, nursery);
    crate::block_on(async { agent.await.map_err(|why| Failure::of(&why)) })
}
