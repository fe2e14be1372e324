//! The host agent, which runs on a host that joined a server: it keeps the nodes that the server wants here, in the
//! same sandboxes as on the server's own host.
//!
//! * `join` exchanges a join token for a key of this host's own; `host_files` is the folder in which that is kept;
//! * `exchange` reports what exists here and receives what should exist, through `client`;
//! * `host_agent` is the loop: `plan` determines what is to be created and removed, and a provider does it;
//! * `environments` builds the Python environments of their jobs;
//! * `relay` connects the nodes to the server.
//!
//! It decides nothing about jobs. Its nodes communicate with the server themselves, so what happens to them when the
//! network is interrupted follows from their leases, whether or not this is running.

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
    /// The token to join with, if this host has not joined yet.
    pub token: Option<JoinToken>,
    /// The name of the host.
    pub name: HostName,
    /// The folder in which everything of it is kept.
    pub dir: PathBuf,
    /// The CA certificates to trust for the server, instead of those that the token identifies.
    pub ca_file: Option<PathBuf>,
    /// The `muster` program that nodes run.
    pub binary: PathBuf,
    /// Paths of the host that nodes see, besides the usual ones.
    pub shown: Vec<PathBuf>,
    /// The path of uv, which builds Python environments. `None` means that it is searched for.
    pub uv: Option<PathBuf>,
    /// Whether nodes end when this is asked to end.
    pub leaves: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum HostAgentError {
    #[error("cannot use {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("another muster uses {}; stop it, or choose another folder with --state", path.display())]
    Taken { path: PathBuf },
    #[error("{} is damaged; remove it and join again with a new token", path.display())]
    Damaged { path: PathBuf },
    #[error(
        "this host has not joined a server yet; create a token with `muster host token` on the server, and pass it with --token"
    )]
    NoToken,
    #[error(
        "the server at {server} is not the one that the token is from: it has another certificate authority; check the \
         address, and if it is right, create a new token on that server"
    )]
    UnknownHost { server: String },
    #[error("the server refuses this host: {message}")]
    Refused { message: String },
    #[error(
        "the server does not know this host any more; its nodes here are ended. To join again, create a new token with \
         `muster host token` on the server"
    )]
    Removed,
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("cannot set up the HTTP client")]
    Client(#[source] reqwest::Error),
    #[error("cannot create sandboxes on this host; see `muster doctor`")]
    Enforcement(#[source] LinkError),
    #[error("cannot store Python environments on this host")]
    Environments(#[source] StoreError),
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    #[error("cannot get random numbers from the system")]
    Random,
}
