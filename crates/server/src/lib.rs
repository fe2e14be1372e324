//! The server: HTTP in front, the writer behind it, and the hands that carry out what was decided.
//!
//! It knows how requests are authenticated and how changes get to disk. It does not know how a provider makes
//! a node, how an agent runs a job, or why anything is decided.

mod app;
mod artifacts;
pub mod backup;
mod blobs;
mod certificates;
mod check;
mod clock;
mod ended;
pub mod environments;
mod first_start;
mod guesses;
mod http;
mod live;
mod logs;
mod metrics;
mod nodes;
mod outbox;
pub mod pki;
mod post_mortems;
pub mod prices;
mod rates;
mod readers;
mod refusals;
mod registered;
mod reserve;
mod room;
mod secrets;
mod services;
mod silence;
pub mod state_dir;
mod storage;
mod sweeper;
pub mod tokens;
mod writer;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use muster_core::catalogue::Catalogue;
use muster_core::model::HostName;
use muster_core::time::Span;
use muster_core::{HostRequest, Input, Settings, lease};
use muster_providers::Provider;
use muster_providers::joined::Joined;
use muster_providers::joined::protocol::{EnvironmentTerms, Terms};
use muster_providers::walled::{Machine, Sockets};
use muster_store::{Durability, SqliteReader, SqliteStore, Store, StoreError};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::app::App;
use crate::artifacts::Turns;
use crate::blobs::Blobs;
use crate::certificates::{Keeper, Opened};
use crate::check::Check;
pub use crate::environments::Environments;
use crate::environments::Service;
use crate::guesses::Guesses;
pub use crate::http::limits::{DESCRIPTORS_MIN, DESCRIPTORS_WANTED};
use crate::live::Live;
use crate::logs::Logs;
pub use crate::nodes::Isolation;
use crate::post_mortems::PostMortems;
pub use crate::rates::RateLimits;
use crate::rates::Rates;
use crate::readers::Readers;
use crate::refusals::Refusals;
use crate::reserve::Reserve;
use crate::services::Services;
use crate::state_dir::{Connection, StateDir, StateDirError};
pub use crate::storage::Retention;
use crate::storage::Storage;
use crate::tokens::{Audiences, Keyring};
use crate::writer::Unavailable;

/// Before what could not be written down is said again.
const MEASURE_PAUSE: Duration = Duration::from_millis(200);

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
    pub isolation: Isolation,
    /// Where somebody with more rights makes walls for us.
    pub helper_socket: Option<PathBuf>,
    /// What of the machine nodes behind walls see beside the usual.
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

/// How workspaces come into being.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workspaces {
    /// When somebody who may make them names one: for one person.
    OnFirstUse,
    /// When somebody makes one: for many, whose slips must not become workspaces.
    ByHand,
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
    #[error("cannot keep nodes apart on this machine, as --isolation walls asks for")]
    Walls(#[source] muster_sandbox::link::LinkError),
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

/// Serves until `shutdown` resolves. Nodes stay up and are adopted by the next start.
pub async fn run(
    config: ServerConfig,
    on_ready: impl FnOnce(&Ready) + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let state_dir = StateDir::new(&config.state_dir);
    let _lock = state_dir.take()?;
    first_start::prepare(&state_dir)?;
    let set_back = clock::record_in(&state_dir.clock());
    let catalogue = Arc::new(match &config.price_file {
        Some(path) => prices::read(path)?,
        None => Catalogue::builtin(),
    });
    let reserve = Reserve::of(&state_dir);
    // A start on a full disk needs a little space, too.
    reserve.use_if_needed();
    let doors = open(&config, &state_dir).await?;
    let address = doors.api.local_addr().unwrap_or(config.listen);
    let files_port = doors.files.local_addr().map_or(config.files_port, |address| address.port());
    let host_name = host_name();
    let host = match &config.public_host {
        Some(host) => in_url(host),
        None => public_host(address.ip(), &host_name),
    };
    let base_url = format!("https://{host}:{}", address.port());
    let (stop, stopping) = watch::channel(false);

    let own = config.certificate.clone();
    let own = own.map(|(cert, key)| pki::OwnFiles { cert, key, host: host.clone() });
    let has_own = own.is_some();
    let Secured { tls, keeper, ca_file, ca_bundle, ca_pem, authority, keyring, mut notes } =
        secure(&state_dir, &host_name, &host, own)?;
    let hangup = match config.hangup_reloads {
        true => Some(signal(SignalKind::hangup()).map_err(ServeError::Signals)?),
        false => None,
    };
    let keeper = tokio::spawn(certificates::keep(keeper, hangup));

    let silence_max = Duration::from_micros(lease::silence(config.lease).0);
    let live = Arc::new(Live::new(secrets::random_number(), silence_max));
    let (effects, wishes) = mpsc::unbounded_channel();
    let database = state_dir.database();
    let open_path = database.clone();
    let reserved = reserve.clone();
    let open_store: writer::OpenStore = Box::new(move || {
        reserved.use_if_needed();
        let (store, is_check_left) = SqliteStore::open_existing(&open_path, Durability::Disk)?;
        Ok((Box::new(store) as Box<dyn Store>, is_check_left))
    });
    let settings = Settings {
        over_commit: config.over_commit,
        eviction_grace: config.eviction_grace,
        lease: config.lease,
        queued_per_principal_max: config.limits.queued_per_user.unwrap_or(u32::MAX),
        queued_per_workspace_max: config.limits.queued_per_workspace.unwrap_or(u32::MAX),
        ..Settings::default()
    };
    // Both before anything else is opened, as that removes what was left half done.
    let (storage, storage_thread) = Storage::open(state_dir.storage(), reserve.clone())?;
    let (writer, mut writer_thread) =
        writer::start(open_store, settings, catalogue.clone(), live.clone(), effects)?;

    // Before there are nodes, which see its folder.
    let environments = Service::open(state_dir.environments(), config.environments.clone())?;
    let environments = Arc::new(environments);
    let secrets = keyring.clone();
    let machine = Machine::this();
    let facts = nodes::Facts {
        machine: machine.clone(),
        over_commit: config.over_commit,
        agent_binary: config.agent_binary.clone(),
        // Agents are on this machine: no name to resolve.
        server_url: format!("https://{}:{}", agent_host(address.ip()), address.port()),
        port: address.port(),
        helper_socket: config.helper_socket.clone(),
        server_host: host.clone(),
        ca_file,
        ca_bundle,
        environments: state_dir.environments_shown(),
        shown: config.shown.clone(),
        has_way_out: config.egress,
        job_disk_bytes: config.job_disk_bytes,
        jobs_share: config.jobs_share,
        node_secret: Arc::new(move |name| secrets.node_secret(name)),
    };
    let (relays, relay_doors) = Sockets::new(state_dir.relays());
    let apart = nodes::provider(config.isolation, &state_dir, facts, relays);
    let nodes::Apart { provider, words: isolation, not_enforced } =
        apart.map_err(ServeError::Walls)?;
    let provider: Arc<dyn Provider> = Arc::new(Joined::new(provider, live.roster()));
    let post_mortems = Arc::new(PostMortems::new(state_dir.post_mortems()));
    let outbox = outbox::Hands {
        provider: provider.clone(),
        post_mortems: post_mortems.clone(),
        environments: environments.clone(),
    };
    let outbox = outbox::run(wishes, outbox, writer.clone());
    let outbox = tokio::spawn(outbox);
    let ended = tokio::spawn(ended::run(provider.clone(), live.clone(), writer.clone()));
    let sweeper = tokio::spawn(sweeper::run(provider, live.clone(), writer.clone()));
    let silence = tokio::spawn(silence::run(live.clone(), writer.clone(), silence_max / 8));

    let seen = HostRequest::Seen { name: HostName::local(), capacity: machine.capacity() };
    let measured = measure(writer.clone(), seen);
    let measuring = match writer_thread.waits_for_check {
        true => Some(tokio::spawn(measured)),
        false => {
            measured.await;
            None
        }
    };
    let terms = Terms {
        url: base_url.clone(),
        has_way_out: config.egress,
        job_disk_bytes: config.job_disk_bytes,
        jobs_share: config.jobs_share,
        environments: EnvironmentTerms {
            build_within_s: config.environments.build_within.as_secs(),
            bytes_max: config.environments.bytes_max,
            indexes: config.environments.indexes.clone(),
        },
    };
    let offer = http::Offer { ca_pem, authority, terms };
    let share_max = config.limits.storage_bytes;
    let blobs = Blobs::new(state_dir.blobs(), config.blob_store.as_deref(), share_max)?;
    let blobs = Arc::new(blobs);
    let readers: Readers =
        Readers::new(database.clone(), |path| Ok(Box::new(SqliteReader::open(path)?)));
    storage.hold_sweeps(writer_thread.waits_for_check || storage.waits_for_check());
    let retention = config.retention;
    let sweeping = storage::run_sweeper(storage.clone(), blobs.clone(), readers.clone(), retention);
    let blob_sweeper = tokio::spawn(sweeping);
    let reserve = tokio::spawn(reserve.keep());

    let tidying = environments::run_tidier(
        environments.clone(),
        live.clone(),
        (readers.clone(), writer.clone()),
    );
    let tidier = tokio::spawn(tidying);

    let (node_calls, calls) = http::calls();
    let app = Arc::new(App {
        audiences: Audiences::for_base(&base_url),
        base_url: base_url.clone(),
        files_url: format!("https://{host}:{files_port}"),
        stopping: stopping.clone(),
        held: Duration::from_micros(lease::held(config.lease).0),
        location: config.location.as_str().into(),
        workspaces: config.workspaces,
        catalogue,
        over_commit: config.over_commit,
        not_enforced,
        keyring,
        guesses: Guesses::default(),
        writer: writer.clone(),
        readers: readers.clone(),
        blobs,
        post_mortems,
        environments: environments.clone(),
        storage: storage.clone(),
        turns: Turns::default(),
        retention,
        live,
        logs: Arc::new(Logs::new(state_dir.logs())),
        refusals: Refusals::default(),
        rates: Rates::new(config.limits.rates),
        connections_per_address: config.limits.connections_per_address,
        services: Services::default(),
        offer,
        node_calls,
    });
    let pid = std::process::id();
    let connection = Connection {
        url: base_url.clone(),
        port: address.port(),
        files_port,
        pid,
        has_own_certificate: has_own,
    };
    state_dir.write_connection(&connection)?;
    let machine = machine_words(&machine, config.over_commit);
    let root = state_dir.root().to_owned();
    let tasks = check::left(&state_dir, &writer, &writer_thread, &storage)?;
    if let Some(by) = set_back {
        notes.push(format!(
            "the clock is {} s behind the last run; the server continues from the later time, so tokens and links keep \
             their lifetimes",
            by.as_secs()
        ));
    }
    if !tasks.is_empty() {
        notes.push(
            "the store is large and is being checked for damage; changes are refused until that is done"
                .into(),
        );
    }
    on_ready(&Ready { url: base_url, state_dir: root, machine, isolation, notes });

    let mut check = Check::start(tasks, storage.clone());
    let writer_ended = &mut writer_thread.ended;
    let wait = async {
        let damage = tokio::select! {
            () = shutdown => None,
            // Without its writer a server can only refuse.
            _ = writer_ended => None,
            damage = check.damage() => Some(damage),
        };
        stop.send_replace(true);
        damage
    };
    let serve = http::serve(doors, relay_doors, calls, tls, app, stopping, config.drain);
    let (damage, ()) = tokio::join!(wait, serve);
    outbox.abort();
    keeper.abort();
    ended.abort();
    sweeper.abort();
    silence.abort();
    blob_sweeper.abort();
    reserve.abort();
    tidier.abort();
    measuring.inspect(tokio::task::JoinHandle::abort);
    // Its threads end when what they run is killed.
    let _ = tokio::task::spawn_blocking(move || environments.stop()).await;
    check.end().await;
    let end = move || {
        readers.end();
        storage.stop();
    };
    let _ = tokio::task::spawn_blocking(end).await;
    writer.stop();
    // The writer finishes its batch; everything acknowledged is on disk already.
    let joined = move || (storage_thread.join().is_ok(), writer_thread.join());
    match tokio::task::spawn_blocking(joined).await {
        Ok((true, Ok(result))) => Ok(damage.map_or(result, Err)?),
        Ok((_, Err(writer::Panicked)) | (false, _)) | Err(_) => Err(ServeError::Writer),
    }
}

fn machine_words(machine: &Machine, over_commit: bool) -> String {
    let rule = match over_commit {
        true => "nodes may ask for more than that, and then share it (over-commit = true)",
        false => "nodes wait where there is no room (over-commit = false)",
    };
    format!("this machine has {machine} for nodes; {rule}")
}

/// Tells core what this machine has, as soon as it can be written down.
async fn measure(writer: writer::Handle, seen: HostRequest) {
    loop {
        match writer.say(Input::ChangeHosts(Box::new(seen.clone()))).await {
            Ok(Ok(_)) | Err(Unavailable::Stopping) => return,
            Ok(Err(refused)) => {
                tracing::error!(error = %refused, "this machine cannot be measured");
                return;
            }
            Err(_) => tokio::time::sleep(MEASURE_PAUSE).await,
        }
    }
}

/// What the server proves itself with, and checks others by.
struct Secured {
    tls: Arc<rustls::ServerConfig>,
    keeper: Keeper,
    ca_file: PathBuf,
    ca_bundle: PathBuf,
    ca_pem: String,
    /// What a token to join with names our authority by.
    authority: String,
    keyring: Arc<Keyring>,
    notes: Vec<String>,
}

fn secure(
    state_dir: &StateDir,
    host_name: &str,
    host: &str,
    own: Option<pki::OwnFiles>,
) -> Result<Secured, ServeError> {
    let names = pki::Names::for_host(host_name, Some(host));
    let opened = Keeper::open(state_dir.pki(), names, own, SystemTime::now())?;
    let Opened { keeper, identity, bundle } = opened;
    let keyring = Arc::new(tokens::load_or_create(&state_dir.keys())?);
    let notes = notes(&identity, &bundle, keyring.owner_key_made());
    let tls = keeper.tls()?;
    let pki::Identity { ca_pem, ca_path: ca_file, authority, .. } = identity;
    let ca_bundle = bundle.path;
    Ok(Secured { tls, keeper, ca_file, ca_bundle, ca_pem, authority, keyring, notes })
}

async fn open(config: &ServerConfig, state_dir: &StateDir) -> Result<http::Doors, ServeError> {
    let last = state_dir.read_connection().ok();
    let api = listen(config.listen, "listen", last.as_ref().map(|last| last.port)).await?;
    let files = SocketAddr::new(config.listen.ip(), config.files_port);
    let files = listen(files, "files-port", last.map(|last| last.files_port)).await?;
    let metrics = match config.metrics_listen {
        Some(address) => Some(listen(address, "metrics-listen", None).await?),
        None => None,
    };
    Ok(http::Doors { api, files, metrics })
}

/// Port 0 means "any", but nodes of the last run know the last port: it is taken again if it is free.
async fn listen(
    address: SocketAddr,
    setting: &'static str,
    last: Option<u16>,
) -> Result<TcpListener, ServeError> {
    if let Some(last) = last.filter(|last| address.port() == 0 && *last != 0)
        && let Ok(listener) = TcpListener::bind(SocketAddr::new(address.ip(), last)).await
    {
        return Ok(listener);
    }
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| ServeError::Listen { address, setting, source })
}

/// The name under which clients are told to find us: configured, never taken from a request.
fn public_host(ip: IpAddr, host_name: &str) -> String {
    match ip {
        ip if ip.is_loopback() => "localhost".to_owned(),
        ip if ip.is_unspecified() => host_name.to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// An IPv6 address has brackets there.
fn in_url(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_ascii_lowercase() }
}

fn agent_host(ip: IpAddr) -> String {
    match ip {
        ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

fn notes(identity: &pki::Identity, bundle: &pki::Bundle, is_first_start: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if identity.renewed == pki::Renewed::CaAndLeaf && !is_first_start {
        notes
            .push("made a new certificate authority: run `muster env` again in open shells".into());
    }
    if bundle.public_from.is_none() {
        notes.push(
            "found no public certificate authorities on this machine: programs that use `muster env` \
             reach only this server (install ca-certificates, then start again)"
                .into(),
        );
    }
    notes
}
