//! The state that all request handlers share.

use std::sync::Arc;
use std::time::Duration;

use muster_core::Regions;
use muster_core::catalogue::Catalogue;
use muster_core::ids::WorkspaceId;
use muster_core::model::DefaultLimits;
use tokio::sync::{mpsc, watch};

use crate::Workspaces;
use crate::artifacts::JobLocks;
use crate::artifacts::removal::Unremoved;
use crate::blobs::{Blobs, KeyedLock};
use crate::config::Kept;
use crate::environments::Service;
use crate::feeds::Feeds;
use crate::followers::Followers;
use crate::guesses::Guesses;
use crate::http::{Offer, Source, Tunnel};
use crate::live::Live;
use crate::logs::Logs;
use crate::post_mortems::PostMortems;
use crate::rates::Rates;
use crate::readers::Readers;
use crate::refusals::Refusals;
use crate::series::Series;
use crate::services::Services;
use crate::sizes::Sizes;
use crate::storage::{Retention, Storage};
use crate::tokens::{Audiences, Keyring};
use crate::writer::Handle;

pub struct App {
    /// `https://HOST:PORT`, taken from the configuration and never from a request.
    pub base_url: String,
    /// The same for the second listener, which serves files.
    pub files_url: String,
    /// True once the server is asked to stop; long polls then return at once.
    pub stopping: watch::Receiver<bool>,
    /// How long a report from a node or a host is held open while there is no news for it.
    pub held: Duration,
    pub location: Box<str>,
    pub regions: Regions,
    /// Whether jobs may act as the users who submitted them.
    pub user_identity: bool,
    /// The vCPU limits that apply where none was set.
    pub default_limits: DefaultLimits,
    pub workspaces: Workspaces,
    pub catalogue: Arc<Catalogue>,
    /// Whether this machine accepts more nodes than it has cores and memory for.
    pub over_commit: bool,
    /// Whether nodes can reach only their cluster and this server.
    pub nodes_are_restricted: bool,
    /// The limits that nodes on this machine do not enforce.
    pub not_enforced: Vec<String>,
    pub keyring: Arc<Keyring>,
    pub audiences: Audiences,
    pub guesses: Guesses,
    pub writer: Handle,
    pub readers: Readers,
    pub live: Arc<Live>,
    pub logs: Arc<Logs>,
    pub blobs: Arc<Blobs>,
    pub post_mortems: Arc<PostMortems>,
    pub environments: Arc<Service>,
    pub storage: Storage,
    pub series: Series,
    pub turns: JobLocks,
    pub unremoved: Unremoved,
    /// Locks the workspaces whose usage is being computed.
    pub usage_turns: KeyedLock<WorkspaceId>,
    pub retention: Retention,
    pub kept: Kept,
    pub sizes: Sizes,
    pub refusals: Refusals,
    pub rates: Rates,
    /// Those who follow the event log.
    pub followers: Arc<Followers>,
    /// What the followers of a workspace share.
    pub feeds: Feeds,
    /// See [`Limits`](crate::Limits).
    pub connections_per_address: Option<usize>,
    /// The services of running jobs that users open.
    pub services: Services,
    pub offer: Offer,
    /// Passes connections from joined hosts to the listener that serves their nodes.
    pub node_calls: mpsc::Sender<(Tunnel, Source)>,
}
