//! Chooses the provider of this server's nodes.

use std::path::PathBuf;
use std::sync::Arc;

use muster_core::ErrorChain;
use muster_providers::Provider;
use muster_providers::local::{Local, LocalConfig};
use muster_providers::sandboxed::{
    HelperConfig, Machine, SandboxConfig, SandboxProvider, Sockets, helper_command,
};
use muster_sandbox::link::{Helper, Link, LinkError};
use muster_sandbox::protocol::{Enforcement, Server};

use crate::state_dir::StateDir;

/// How nodes on this machine are isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// In sandboxes if this machine allows them, otherwise as plain processes.
    Auto,
    /// In sandboxes, or not at all.
    Sandbox,
    /// Plain processes of the server's own user.
    None,
}

/// The settings for every provider of nodes on this machine.
pub struct Facts {
    pub agent_binary: PathBuf,
    pub machine: Machine,
    /// Whether a node may have fewer GPUs than its size.
    pub over_commit: bool,
    /// The URL for plain processes on this machine.
    pub server_url: String,
    pub port: u16,
    /// The socket of a helper that runs with more privileges and creates sandboxes for this server.
    pub helper_socket: Option<PathBuf>,
    pub server_host: String,
    pub ca_file: PathBuf,
    /// The same CA together with the public ones.
    pub ca_bundle: PathBuf,
    /// The folder with the environments that nodes can see.
    pub environments: PathBuf,
    /// Additional paths of the host that nodes can see.
    pub shown: Vec<PathBuf>,
    /// Whether nodes have internet access, beyond their cluster and the server.
    pub has_internet: bool,
    pub job_disk_bytes: u64,
    /// Whether jobs run in their node's sandbox instead of one of their own.
    pub jobs_share: bool,
    pub node_secret: Arc<dyn Fn(&str) -> String + Send + Sync>,
}

/// The provider of nodes, and how it isolates them.
pub struct NodeBackend {
    pub provider: Arc<dyn Provider>,
    /// One sentence about the isolation.
    pub words: String,
    /// The limits that it does not enforce, each with the reason.
    pub not_enforced: Vec<String>,
    /// Whether nodes are restricted to their cluster and the server, as `egress = false` requests.
    pub are_restricted: bool,
    /// The note for the case that nodes should have internet access, but do not.
    pub no_internet: Option<String>,
}

pub fn provider(
    isolation: Isolation,
    state_dir: &StateDir,
    facts: Facts,
    relays: Sockets,
) -> Result<NodeBackend, LinkError> {
    let reason = match isolation {
        Isolation::None => "because isolation = \"none\" is set".to_owned(),
        Isolation::Auto | Isolation::Sandbox => match sandboxed(state_dir, &facts, relays) {
            Ok((sandboxed, enforcement)) => {
                let words = in_sandboxes(&enforcement, facts.has_internet);
                let no_internet = enforcement.no_internet(facts.has_internet);
                return Ok(NodeBackend {
                    provider: Arc::new(sandboxed),
                    words,
                    not_enforced: enforcement.missing,
                    are_restricted: !facts.has_internet,
                    no_internet,
                });
            }
            // An operator who has set up a helper relies on it.
            Err(failed) if isolation == Isolation::Sandbox || facts.helper_socket.is_some() => {
                return Err(failed);
            }
            Err(failed) => ErrorChain(&failed).to_string(),
        },
    };
    let secret = facts.node_secret;
    let local = Local::new(LocalConfig {
        nodes_dir: state_dir.nodes(),
        agent_binary: facts.agent_binary,
        server_url: facts.server_url,
        ca_file: facts.ca_file,
        environments: Some(facts.environments),
        node_secret: Box::new(move |name| secret(name)),
    });
    let words = format!(
        "nodes are processes of this user on this machine, and jobs are not sandboxed: run only code that you trust \
         ({reason})"
    );
    let not_enforced = vec![format!("sandboxes around nodes and jobs ({reason})")];
    let provider = Arc::new(local);
    Ok(NodeBackend { provider, words, not_enforced, are_restricted: false, no_internet: None })
}

fn in_sandboxes(enforcement: &Enforcement, may_go_out: bool) -> String {
    let there = "nodes are sandboxes on this machine, each with its own network, processes, files";
    let out = match (&enforcement.why_no_internet, may_go_out) {
        (_, false) => "they reach only their cluster and this server (egress = false)".to_owned(),
        (None, true) => {
            "they reach everything that this machine reaches, except its loopback addresses"
                .to_owned()
        }
        (Some(why), true) => {
            format!("they reach only their cluster and this server, because {why}")
        }
    };
    match &enforcement.missing[..] {
        [] => format!("{there}, users and limits; {out}"),
        missing => format!("{there}; {out}; not enforced: {}", missing.join(", ")),
    }
}

fn sandboxed(
    state_dir: &StateDir,
    facts: &Facts,
    relays: Sockets,
) -> Result<(SandboxProvider, Enforcement), LinkError> {
    let secret = Arc::clone(&facts.node_secret);
    let helper = match &facts.helper_socket {
        Some(path) => Helper::Called(path.clone()),
        None => Helper::Started(helper_command(&HelperConfig {
            instance: state_dir.instance(),
            nodes: state_dir.sandboxes(),
            relays: state_dir.relays(),
            logs: state_dir.node_logs(),
            binary: facts.agent_binary.clone(),
            ca_file: facts.ca_file.clone(),
            ca_bundle: Some(facts.ca_bundle.clone()),
            shown: facts.shown.clone(),
            environments: Some(facts.environments.clone()),
            owner: None,
        })),
    };
    // Inside a sandbox, the relay is at this address, whatever the server listens on.
    let url = format!("https://127.0.0.1:{}", facts.port);
    SandboxProvider::start(SandboxConfig {
        link: Link::new(helper, Server { url, host: facts.server_host.clone() }),
        node_secret: Box::new(move |name| secret(name)),
        relays: Box::new(relays),
        machine: facts.machine.clone(),
        over_commit: facts.over_commit,
        has_internet: facts.has_internet,
        job_disk_bytes: facts.job_disk_bytes,
        jobs_share: facts.jobs_share,
    })
}
