//! What runs on a machine that joined a server: it keeps the nodes that the server wants here, with the same walls as on the
//! server's own machine.
//!
//! * `join` turns a token into a key of this machine's own; `slot` is the folder where that is kept;
//! * `exchange` says what is held here and hears what should be; `client` is how;
//! * `host_agent` is the loop: `plan` says what is to be made and removed, a provider does it;
//! * `environments` builds what their jobs' Python is made of;
//! * `relay` leads the nodes to the server.
//!
//! It decides nothing about jobs. Its nodes speak to the server for themselves, so what happens to them when the network is
//! cut follows from their leases, whether anybody runs this or not.

mod announced;
mod client;
mod environments;
mod exchange;
mod host_agent;
mod host_files;
mod join;
mod plan;
mod relay;

use std::io;
use std::path::PathBuf;

use muster_core::model::HostName;
use muster_environments::store::StoreError;
use muster_providers::joined::JoinToken;
use muster_sandbox::link::LinkError;

pub use client::Server;
pub use host_agent::run;

#[derive(Debug, Clone)]
pub struct HostAgentConfig {
    pub server: Server,
    /// To join with, if this machine has not.
    pub token: Option<JoinToken>,
    /// What the machine is to be called.
    pub name: HostName,
    /// Where everything of it is kept.
    pub dir: PathBuf,
    /// The certificates that the server may be signed by, instead of what the token says.
    pub ca_file: Option<PathBuf>,
    /// The `muster` program that nodes run.
    pub binary: PathBuf,
    /// What of the machine nodes see beside the usual.
    pub shown: Vec<PathBuf>,
    /// Where uv is, which builds Python environments; else it is looked for.
    pub uv: Option<PathBuf>,
    /// Whether nodes end when this is asked to end.
    pub leaves: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum HostAgentError {
    #[error("cannot use {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("another muster uses {}; stop it, or name another folder with --state", path.display())]
    Taken { path: PathBuf },
    #[error("{} is damaged; remove it and join again with a new token", path.display())]
    Damaged { path: PathBuf },
    #[error(
        "this machine has not joined a server yet; get a token with `muster host token` on the server, and give it with --token"
    )]
    NoToken,
    #[error(
        "the server at {server} is not the one that the token is from: its certificate authority is another; check the \
         address, and get a new token from that server if it is right"
    )]
    Stranger { server: String },
    #[error("the server does not let this machine in: {message}")]
    Refused { message: String },
    #[error(
        "the server does not know this machine any more; its nodes here are ended. To join again, get a new token with \
         `muster host token` on the server"
    )]
    Removed,
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("cannot set up the HTTP client")]
    Client(#[source] reqwest::Error),
    #[error("cannot keep nodes apart on this machine; see `muster doctor`")]
    Enforcement(#[source] LinkError),
    #[error("cannot keep Python environments on this machine")]
    Environments(#[source] StoreError),
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    #[error("there are no random numbers")]
    Random,
}
