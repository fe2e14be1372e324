//! The configuration of a server, what it reports when it is ready, and the errors of a start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use muster_core::model::DefaultLimits;
use muster_core::retention::JobRetention;
use muster_core::time::Span;
use muster_core::{ClusterNames, Regions};
use muster_store::series::Retention as HistoryRetention;
use muster_store::{EventRetention, StoreError};

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
    /// The port of the second listener, on the same address; 0 means any free port.
    pub files_port: u16,
    /// Where `/metrics` is served without TLS and without a key.
    pub metrics_listen: Option<SocketAddr>,
    /// The host in the URLs that clients receive; by default it is derived from `listen`.
    pub public_host: Option<String>,
    /// The operator's own certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether SIGHUP reloads the certificates. Closing a terminal sends this signal, too.
    pub hangup_reloads: bool,
    /// How long a stop waits for requests in progress.
    pub drain: Duration,
    /// The `muster` binary that local nodes run as their agent.
    pub agent_binary: PathBuf,
    /// The operator's price file, which replaces the built-in prices.
    pub price_file: Option<PathBuf>,
    /// The region of workspaces that do not name one.
    pub location: String,
    pub workspaces: Workspaces,
    /// Whether `muster up` may open a state directory of `muster serve`, or the other way round.
    pub may_change_mode: bool,
    pub isolation: Isolation,
    /// The socket of a helper that runs with more privileges and creates sandboxes for this server.
    pub helper_socket: Option<PathBuf>,
    /// Additional paths of the host that sandboxed nodes can see.
    pub shown: Vec<PathBuf>,
    /// Whether these nodes have internet access, beyond their cluster and the server.
    pub egress: bool,
    /// How many bytes a job on these nodes may write to its folder.
    pub job_disk_bytes: u64,
    pub environments: Environments,
    /// The address of the object store for the bytes of blobs, if they are not stored locally.
    pub blob_store: Option<String>,
    pub retention: Retention,
    pub kept: Kept,
    /// Whether jobs run in their node's sandbox instead of one of their own.
    pub jobs_share: bool,
    /// Whether this machine accepts more nodes than it has cores and memory for.
    pub over_commit: bool,
    /// Whether jobs may act as the users who submitted them.
    pub user_identity: bool,
    /// The scope in which the names of computes must be unique.
    pub cluster_names: ClusterNames,
    pub regions: Regions,
    pub default_limits: DefaultLimits,
    /// How long a job may continue after its node is evicted.
    pub eviction_grace: Span,
    /// How long a node may continue without hearing from the server; the bounds are in `muster_core::lease`.
    pub lease: Span,
    pub limits: Limits,
}

/// How long, or how much, is kept of what the server records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub jobs: JobRetention,
    pub events: EventRetention,
    pub activity: Span,
    /// The history of computes.
    pub history: HistoryRetention,
}

/// The limits of one tenant, which leave room for the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The number of jobs that may wait.
    pub queued_per_user: Option<u32>,
    pub queued_per_workspace: Option<u32>,
    pub rates: RateLimits,
    /// The maximum total size of the files of one workspace.
    pub storage_bytes: Option<u64>,
    /// Connections from one address: `Some(0)` means no separate limit, `None` means a fraction of all connections.
    pub connections_per_address: Option<usize>,
}

/// What the server reports to its caller once it is ready.
#[derive(Debug, Clone)]
pub struct Ready {
    pub url: String,
    pub state_dir: PathBuf,
    /// One sentence about the capacity that this machine has for nodes.
    pub machine: String,
    /// One sentence about how nodes are isolated.
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
    #[error("cannot create sandboxes on this machine, but --isolation sandbox requires them")]
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
    #[error(
        "the writer stopped because of a bug in muster; acknowledged changes are on disk: see the log"
    )]
    Writer,
    #[error("cannot listen on {address}; is the port in use? choose another with --{setting}")]
    Listen {
        address: SocketAddr,
        setting: &'static str,
        #[source]
        source: std::io::Error,
    },
}
