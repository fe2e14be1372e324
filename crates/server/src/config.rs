//! What a server is told when it is started, what it says when it is ready, and why it did not start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use muster_core::model::DefaultLimits;
use muster_core::time::Span;
use muster_core::{ClusterNames, Regions};
use muster_store::StoreError;

use crate::environments::Environments;
use crate::nodes::Isolation;
use crate::rates::RateLimits;
use crate::state_dir::{StateDirError, Workspaces};
use crate::storage::Retention;
use crate::{blobs, environments, first_start, pki, prices, tokens};

#[derive(Debug, Clone)]
pub struct ServerConfig {
    pub state_dir: PathBuf,
    pub listen: SocketAddr,
    /// Of the second listener, on the same address; 0 is any.
    pub files_port: u16,
    /// Where `/metrics` is served without TLS and without a key.
    pub metrics_listen: Option<SocketAddr>,
    /// The host in the addresses that clients are given; else it follows from `listen`.
    pub public_host: Option<String>,
    /// The operator's own certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether SIGHUP means to look for new certificates. A terminal that is closed sends it, too.
    pub hangup_reloads: bool,
    /// How long a stop waits for requests under way.
    pub drain: Duration,
    /// The `muster` binary that local nodes run as their agent.
    pub agent_binary: PathBuf,
    /// The operator's own prices, instead of ours.
    pub price_file: Option<PathBuf>,
    /// The region of workspaces for which none is named.
    pub location: String,
    pub workspaces: Workspaces,
    /// Whether a state directory of the other command may become one of this.
    pub may_change_mode: bool,
    pub isolation: Isolation,
    /// Where somebody with more rights makes sandboxes for us.
    pub helper_socket: Option<PathBuf>,
    /// What of the machine sandboxed nodes see beside the usual.
    pub shown: Vec<PathBuf>,
    /// Whether those nodes may reach more than their cluster and the server.
    pub egress: bool,
    /// The most that a job on them may write to its folder.
    pub job_disk_bytes: u64,
    pub environments: Environments,
    /// The address of the object store that has the bytes of blobs, if they are not here.
    pub blob_store: Option<String>,
    pub retention: Retention,
    /// Whether jobs share their node's sandbox instead of having one each.
    pub jobs_share: bool,
    /// Whether this machine takes more nodes than it has cores and memory for.
    pub over_commit: bool,
    /// Where no two computes may have the same name.
    pub cluster_names: ClusterNames,
    pub regions: Regions,
    pub default_limits: DefaultLimits,
    /// What a job has when its node is taken away.
    pub eviction_grace: Span,
    /// How long a node may go on unheard; within what `muster_core::lease` says.
    pub lease: Span,
    pub limits: Limits,
}

/// What one tenant may take, so that there is something left for the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Jobs that may wait.
    pub queued_per_user: Option<u32>,
    pub queued_per_workspace: Option<u32>,
    pub rates: RateLimits,
    /// Of the files of one workspace.
    pub storage_bytes: Option<u64>,
    /// Connections from one address: `Some(0)` for as many as there are places, `None` for a part of them.
    pub connections_per_address: Option<usize>,
}

/// What whoever started the server is told once it can be used.
#[derive(Debug, Clone)]
pub struct Ready {
    pub url: String,
    pub state_dir: PathBuf,
    /// What this machine has for nodes, in a sentence.
    pub machine: String,
    /// How nodes are kept apart, in a sentence.
    pub isolation: String,
    pub notes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    #[error(transparent)]
    FirstStart(#[from] first_start::FirstStartError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Pki(#[from] pki::PkiError),
    #[error(transparent)]
    Certificate(#[from] pki::OwnError),
    #[error("cannot keep nodes apart on this machine, as --isolation sandbox asks for")]
    Enforcement(#[source] muster_sandbox::link::LinkError),
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    #[error(transparent)]
    Tokens(#[from] tokens::TokenError),
    #[error(transparent)]
    Prices(#[from] prices::PriceFileError),
    #[error(transparent)]
    Blobs(#[from] blobs::OpenError),
    #[error(transparent)]
    Table(#[from] environments::OpenError),
    #[error("the writer ended with a bug of ours; what was acknowledged is on disk: see the log")]
    Writer,
    #[error("cannot listen on {address}; is the port taken? choose another with --{setting}")]
    Listen {
        address: SocketAddr,
        setting: &'static str,
        #[source]
        source: std::io::Error,
    },
}
