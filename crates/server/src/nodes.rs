//! Which provider makes this server's nodes.

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

/// How much nodes on this machine are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// As much as this machine lets us.
    Auto,
    /// In sandboxes, or not at all.
    Sandbox,
    /// Plain processes of the server's own user.
    None,
}

/// What every provider of nodes on this machine is told.
pub struct Facts {
    pub agent_binary: PathBuf,
    pub machine: Machine,
    /// Whether a node may have fewer GPUs than its size.
    pub over_commit: bool,
    /// As plain processes of this machine see it.
    pub server_url: String,
    pub port: u16,
    /// Where somebody with more rights makes sandboxes for us.
    pub helper_socket: Option<PathBuf>,
    pub server_host: String,
    pub ca_file: PathBuf,
    /// The same with the public ones.
    pub ca_bundle: PathBuf,
    /// What nodes see of the environments.
    pub environments: PathBuf,
    /// What of the machine nodes see beside the usual.
    pub shown: Vec<PathBuf>,
    /// Whether nodes may reach more than their cluster and the server.
    pub has_internet: bool,
    pub job_disk_bytes: u64,
    /// Whether jobs share their node's sandbox instead of having one each.
    pub jobs_share: bool,
    pub node_secret: Arc<dyn Fn(&str) -> String + Send + Sync>,
}

/// Who makes nodes, and how it keeps them apart.
pub struct NodeBackend {
    pub provider: Arc<dyn Provider>,
    /// In a sentence.
    pub words: String,
    /// What it does not, each in words with the reason.
    pub not_enforced: Vec<String>,
    /// Whether nodes are kept from all but their cluster and the server, as `egress = false` asks.
    pub stay_in: bool,
    /// What to say if nodes should reach more than their cluster and the server, and do not.
    pub no_internet: Option<String>,
}

pub fn provider(
    isolation: Isolation,
    state_dir: &StateDir,
    facts: Facts,
    relays: Sockets,
) -> Result<NodeBackend, LinkError> {
    let reason = match isolation {
        Isolation::None => "as isolation = \"none\" asks for".to_owned(),
        Isolation::Auto | Isolation::Sandbox => match sandboxed(state_dir, &facts, relays) {
            Ok((sandboxed, enforcement)) => {
                let words = in_sandboxes(&enforcement, facts.has_internet);
                let no_internet = enforcement.no_internet(facts.has_internet);
                return Ok(NodeBackend {
                    provider: Arc::new(sandboxed),
                    words,
                    not_enforced: enforcement.missing,
                    stay_in: !facts.has_internet,
                    no_internet,
                });
            }
            // Whoever set up a helper for us counts on it.
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
        "nodes are processes of this user on this machine, and jobs are not sandboxed: run only what you trust \
         ({reason})"
    );
    let not_enforced = vec![format!("sandboxes around nodes and jobs ({reason})")];
    let provider = Arc::new(local);
    Ok(NodeBackend { provider, words, not_enforced, stay_in: false, no_internet: None })
}

fn in_sandboxes(enforcement: &Enforcement, may_go_out: bool) -> String {
    let there = "nodes are sandboxes on this machine, each with its own network, processes, files";
    let out = match (&enforcement.why_no_internet, may_go_out) {
        (_, false) => "they reach their cluster and this server only (egress = false)".to_owned(),
        (None, true) => "they reach what this machine reaches, but for its loopback".to_owned(),
        (Some(why), true) => {
            format!("they reach their cluster and this server only, as {why}")
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
    // Inside, whatever we listen on, the relay is there.
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
