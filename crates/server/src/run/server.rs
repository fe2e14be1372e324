//! The parts of a server, opened in an order in which nothing is removed before it is known to be unreferenced.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use muster_core::catalogue::Catalogue;
use muster_core::model::HostName;
use muster_core::{Effect, HostRequest, Settings, lease};
use muster_providers::Provider;
use muster_providers::joined::Joined;
use muster_providers::joined::protocol::{EnvironmentTerms, Terms};
use muster_providers::sandboxed::{self, Machine, Sockets};
use muster_store::{Durability, SqliteReader, SqliteStore, Store, StoreError};
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, watch};

use super::Part;
use super::background::Background;
use crate::address::{self, Address};
use crate::app::App;
use crate::artifacts::JobLocks;
use crate::artifacts::removal::Unremoved;
use crate::blobs::{BlobError, Blobs, KeyedLock};
use crate::certificates::{self, CertificateSource};
use crate::check::{self, Check};
use crate::config::{Ready, ServeError, ServerConfig};
use crate::environments::{self, Service};
use crate::feeds::Feeds;
use crate::followers::{FollowerLimits, Followers};
use crate::guesses::Guesses;
use crate::http::{Listeners, Offer, Source, Tunnel};
use crate::live::Live;
use crate::logs::Logs;
use crate::post_mortems::PostMortems;
use crate::rates::Rates;
use crate::readers::Readers;
use crate::refusals::Refusals;
use crate::reserve::ReserveFile;
use crate::secured::{Secured, secure};
use crate::series::{self, Series};
use crate::services::Services;
use crate::sizes::Sizes;
use crate::state_dir::{Connection, StateDir};
use crate::storage::{self, Storage};
use crate::tokens::Audiences;
use crate::{ended, nodes, orphans, outbox, prices, secrets, silence, writer};

pub struct Server {
    config: ServerConfig,
    pub state_dir: StateDir,
    reserve: ReserveFile,
    address: Address,
    pub secured: Secured,
    catalogue: Arc<Catalogue>,
    pub stores: Stores,
    blobs: Arc<Blobs>,
    pub nodes: Nodes,
}

/// A server, and the parts that its start consumes.
pub struct Opened {
    pub server: Server,
    pub certificates: CertificateSource,
    pub listeners: Listeners,
    pub relay_listeners: mpsc::UnboundedReceiver<sandboxed::Opened>,
    pub effect_queue: mpsc::UnboundedReceiver<Effect>,
}

impl Server {
    pub async fn open(
        config: ServerConfig,
        state_dir: StateDir,
        reserve: ReserveFile,
    ) -> Result<Opened, ServeError> {
        let catalogue = Arc::new(match &config.price_file {
            Some(path) => prices::read(path)?,
            None => Catalogue::builtin(),
        });
        let listeners = address::open_listeners(&config, &state_dir).await?;
        let address = Address::of(&config, &listeners);
        let (secured, certificates) = secure(&config, &state_dir, &address)?;
        // Both databases are opened before the rest, which removes leftovers of interrupted work.
        let (stores, effect_queue) = Stores::open(&config, &state_dir, &reserve, &catalogue)?;
        let share_max = config.limits.storage_bytes;
        let blobs = Blobs::new(state_dir.blobs(), config.blob_store.as_deref(), share_max)?;
        let blobs = Arc::new(blobs);
        let (nodes, relay_listeners) =
            Nodes::open(&config, &state_dir, &address, &secured, &stores.live)?;
        let server = Server {
            config,
            state_dir,
            reserve,
            address,
            secured,
            catalogue,
            stores,
            blobs,
            nodes,
        };
        Ok(Opened { server, certificates, listeners, relay_listeners, effect_queue })
    }

    /// Starts the tasks that run until the server stops.
    pub fn start_tasks(
        &self,
        background: &mut Background,
        (certificates, hangup): (CertificateSource, Option<Signal>),
        effect_queue: mpsc::UnboundedReceiver<Effect>,
    ) {
        let Stores { live, writer, readers, storage, series, .. } = &self.stores;
        background.start(series::run_sampler(live.clone(), writer.clone(), series.clone()));
        let Nodes { provider, environments, post_mortems, .. } = &self.nodes;
        background.start(certificates::keep(certificates, hangup));
        let context = outbox::EffectContext {
            provider: provider.clone(),
            post_mortems: post_mortems.clone(),
            environments: environments.clone(),
        };
        background.start(outbox::run(effect_queue, context, writer.clone()));
        background.start(ended::run(provider.clone(), live.clone(), writer.clone()));
        background.start(orphans::run(provider.clone(), live.clone(), writer.clone()));
        let look_every = silence_max(&self.config) / 8;
        background.start(silence::run(live.clone(), writer.clone(), look_every));
        storage.hold_garbage_collection(
            self.stores.writer_thread.waits_for_check || storage.waits_for_check(),
        );
        let (blobs, retention) = (self.blobs.clone(), self.config.retention);
        background.start(storage::run_garbage_collector(
            storage.clone(),
            blobs,
            readers.clone(),
            retention,
        ));
        background.start(self.reserve.clone().keep());
        let stores = (readers.clone(), writer.clone());
        background.start(environments::run_tidier(environments.clone(), live.clone(), stores));
    }

    /// The state that all request handlers share.
    pub fn app(
        &self,
        stopping: watch::Receiver<bool>,
        node_calls: mpsc::Sender<(Tunnel, Source)>,
    ) -> Arc<App> {
        let Server { config, stores, nodes, .. } = self;
        let base_url = self.address.base_url();
        let logs = Arc::new(Logs::new(self.state_dir.logs()));
        self.count_logs(&logs);
        Arc::new(App {
            audiences: Audiences::for_base(&base_url),
            base_url,
            files_url: self.address.files_url(),
            stopping,
            held: Duration::from_micros(lease::held(config.lease).0),
            location: config.location.as_str().into(),
            regions: config.regions.clone(),
            default_limits: config.default_limits,
            user_identity: config.user_identity,
            workspaces: config.workspaces,
            catalogue: self.catalogue.clone(),
            over_commit: config.over_commit,
            nodes_are_restricted: nodes.are_restricted,
            not_enforced: nodes.not_enforced.clone(),
            keyring: self.secured.keyring.clone(),
            guesses: Guesses::default(),
            writer: stores.writer.clone(),
            readers: stores.readers.clone(),
            blobs: self.blobs.clone(),
            post_mortems: nodes.post_mortems.clone(),
            environments: nodes.environments.clone(),
            storage: stores.storage.clone(),
            series: stores.series.clone(),
            turns: JobLocks::default(),
            unremoved: Unremoved::noted_in(self.state_dir.logs()),
            usage_turns: KeyedLock::default(),
            retention: config.retention,
            kept: config.kept,
            sizes: Sizes::default(),
            live: stores.live.clone(),
            logs,
            refusals: Refusals::default(),
            rates: Rates::new(config.limits.rates),
            followers: Followers::new(FollowerLimits::default()),
            feeds: Feeds::default(),
            connections_per_address: config.limits.connections_per_address,
            services: Services::default(),
            offer: self.offer(),
            node_calls,
        })
    }

    /// Counts the logs of jobs towards the usage of their workspace.
    fn count_logs(&self, logs: &Arc<Logs>) {
        let (readers, logs) = (self.stores.readers.clone(), logs.clone());
        self.blobs.count_also(move |workspace| {
            let jobs = readers.look_up(|reader| reader.job_ids(workspace));
            let jobs = jobs.map_err(|failed| BlobError::Io(std::io::Error::other(failed)))?;
            logs.bytes_of(&jobs.into_iter().collect()).map_err(BlobError::Io)
        });
    }

    /// What a machine that joins learns about this server.
    fn offer(&self) -> Offer {
        let Server { config, secured, .. } = self;
        let terms = Terms {
            url: self.address.base_url(),
            has_internet: config.egress,
            job_disk_bytes: config.job_disk_bytes,
            jobs_share: config.jobs_share,
            environments: EnvironmentTerms {
                build_within_s: config.environments.build_within.as_secs(),
                bytes_max: config.environments.bytes_max,
                indexes: config.environments.indexes.clone(),
            },
        };
        Offer { ca_pem: secured.ca_pem.clone(), authority: secured.authority.clone(), terms }
    }

    pub fn connection(&self) -> Connection {
        Connection {
            url: self.address.base_url(),
            port: self.address.listens.port(),
            files_port: self.address.files_port,
            pid: std::process::id(),
            has_own_certificate: self.secured.has_own_certificate,
        }
    }

    /// The databases that were too large to be checked before.
    pub fn checks_left(&self) -> Result<Vec<check::Task>, StoreError> {
        let Stores { writer, writer_thread, storage, .. } = &self.stores;
        check::left(&self.state_dir, writer, writer_thread, storage)
    }

    /// The report for the caller that started the server.
    pub fn ready(&self, set_back: Option<Duration>, is_check_left: bool) -> Ready {
        let mut notes = self.secured.notes.clone();
        notes.extend(self.nodes.lacking.iter().cloned());
        if let Some(by) = set_back {
            notes.push(format!(
                "the clock is {} s behind the last run; the server continues from the later time, so tokens and links keep \
                 their lifetimes",
                by.as_secs()
            ));
        }
        if is_check_left {
            notes.push(
                "the store is large and is being checked for damage; changes are refused until that is done"
                    .into(),
            );
        }
        Ready {
            url: self.address.base_url(),
            state_dir: self.state_dir.root().to_owned(),
            machine: machine_words(&self.nodes.machine, self.config.over_commit),
            isolation: self.nodes.isolation.clone(),
            notes,
        }
    }

    /// How long requests in progress may take after a stop.
    pub fn drain(&self) -> Duration {
        self.config.drain
    }

    /// Closes everything that has its own threads, in the order of [`Part`], and calls `closed` after each.
    pub async fn close(
        self,
        check: Check,
        closed: &mut impl FnMut(Part),
    ) -> Result<Result<(), StoreError>, ServeError> {
        let Stores { writer, writer_thread, readers, storage, storage_thread, .. } = self.stores;
        let (series, series_thread) = (self.stores.series, self.stores.series_thread);
        let environments = self.nodes.environments;
        // Its threads end when the programs that they run are killed.
        let _ = tokio::task::spawn_blocking(move || environments.stop()).await;
        check.end().await;
        closed(Part::Work);
        let end = move || {
            readers.end();
            series.stop();
            let _ = series_thread.join(); // Nothing that must not be lost is there.
        };
        let _ = tokio::task::spawn_blocking(end).await;
        closed(Part::Readers);
        writer.stop();
        let written = tokio::task::spawn_blocking(move || writer_thread.join()).await;
        closed(Part::Writer);
        let end = move || {
            storage.stop();
            storage_thread.join().is_ok()
        };
        let is_stored = tokio::task::spawn_blocking(end).await;
        closed(Part::Storage);
        match (written, is_stored) {
            (Ok(Ok(result)), Ok(true)) => Ok(result),
            (Ok(Err(writer::Panicked)) | Err(_), _) | (_, Ok(false) | Err(_)) => {
                Err(ServeError::Writer)
            }
        }
    }
}

/// The databases, with their writers and readers.
pub struct Stores {
    live: Arc<Live>,
    pub writer: writer::Handle,
    pub writer_thread: writer::Thread,
    readers: Readers,
    pub storage: Storage,
    storage_thread: JoinHandle<()>,
    series: Series,
    series_thread: JoinHandle<()>,
}

impl Stores {
    fn open(
        config: &ServerConfig,
        state_dir: &StateDir,
        reserve: &ReserveFile,
        catalogue: &Arc<Catalogue>,
    ) -> Result<(Stores, mpsc::UnboundedReceiver<Effect>), ServeError> {
        let live = Arc::new(Live::new(secrets::random_number(), silence_max(config)));
        let (effects, effect_queue) = mpsc::unbounded_channel();
        let database = state_dir.database();
        let (open_path, reserved, kept) = (database.clone(), reserve.clone(), config.kept);
        let open_store: writer::OpenStore = Box::new(move || {
            reserved.use_if_needed();
            let (mut store, is_check_left) =
                SqliteStore::open_existing(&open_path, Durability::Disk)?;
            store.limit_log(reserved.log_bytes_max());
            store.limit_events(kept.events);
            store.limit_activity(kept.activity);
            Ok((Box::new(store) as Box<dyn Store>, is_check_left))
        });
        let settings = Settings {
            over_commit: config.over_commit,
            cluster_names: config.cluster_names,
            regions: config.regions.clone(),
            quota: config.default_limits,
            eviction_grace: config.eviction_grace,
            lease: config.lease,
            queued_per_principal_max: config.limits.queued_per_user.unwrap_or(u32::MAX),
            queued_per_workspace_max: config.limits.queued_per_workspace.unwrap_or(u32::MAX),
            retention: config.kept.jobs,
            ..Settings::default()
        };
        // The storage is opened first, because the writer claims its own database and starts to work.
        let (storage, storage_thread) = Storage::open(state_dir.storage(), reserve.clone())?;
        let (series, series_thread) =
            Series::start(state_dir.series(), config.kept.history, reserve)?;
        let (writer, writer_thread) = writer::start(
            open_store,
            settings,
            catalogue.clone(),
            live.clone(),
            effects,
            reserve.used(),
        )?;
        let readers: Readers =
            Readers::new(database, |path| Ok(Box::new(SqliteReader::open(path)?)));
        let stores = Stores {
            live,
            writer,
            writer_thread,
            readers,
            storage,
            storage_thread,
            series,
            series_thread,
        };
        Ok((stores, effect_queue))
    }
}

/// How long a host may be silent before it counts as such.
fn silence_max(config: &ServerConfig) -> Duration {
    Duration::from_micros(lease::silence(config.lease).0)
}

/// The provider of nodes, and the facts about nodes on this machine.
pub struct Nodes {
    machine: Machine,
    provider: Arc<dyn Provider>,
    /// One sentence about how nodes are isolated.
    isolation: String,
    not_enforced: Vec<String>,
    /// Whether nodes can reach only their cluster and the server.
    are_restricted: bool,
    /// Features that jobs lack on this machine, each with its remedy.
    lacking: Vec<String>,
    environments: Arc<Service>,
    post_mortems: Arc<PostMortems>,
}

impl Nodes {
    fn open(
        config: &ServerConfig,
        state_dir: &StateDir,
        address: &Address,
        secured: &Secured,
        live: &Live,
    ) -> Result<(Nodes, mpsc::UnboundedReceiver<sandboxed::Opened>), ServeError> {
        // Opened before there are nodes, which see its folder.
        let environments = Service::open(state_dir.environments(), config.environments.clone())?;
        let machine = Machine::this();
        let keyring = secured.keyring.clone();
        let facts = nodes::Facts {
            machine: machine.clone(),
            over_commit: config.over_commit,
            agent_binary: config.agent_binary.clone(),
            server_url: address.agent_url(),
            port: address.listens.port(),
            helper_socket: config.helper_socket.clone(),
            server_host: address.host.clone(),
            ca_file: secured.ca_file.clone(),
            ca_bundle: secured.ca_bundle.clone(),
            environments: state_dir.environments_shown(),
            shown: config.shown.clone(),
            has_internet: config.egress,
            job_disk_bytes: config.job_disk_bytes,
            jobs_share: config.jobs_share,
            node_secret: Arc::new(move |name| keyring.node_secret(name)),
        };
        let (relays, relay_listeners) = Sockets::new(state_dir.relays());
        let apart = nodes::provider(config.isolation, state_dir, facts, relays);
        let nodes::NodeBackend {
            provider,
            words: isolation,
            not_enforced,
            are_restricted,
            no_internet,
        } = apart.map_err(ServeError::Enforcement)?;
        let no_uv = environments::missing_uv(config.environments.uv.as_deref());
        let lacking = no_uv.into_iter().chain(no_internet).collect();
        let nodes = Nodes {
            machine,
            provider: Arc::new(Joined::new(provider, live.roster())),
            isolation,
            not_enforced,
            are_restricted,
            lacking,
            environments: Arc::new(environments),
            post_mortems: Arc::new(PostMortems::new(state_dir.post_mortems())),
        };
        Ok((nodes, relay_listeners))
    }

    /// The capacity of this machine for the core.
    pub fn seen(&self) -> HostRequest {
        HostRequest::Seen { name: HostName::local(), capacity: self.machine.capacity() }
    }
}

fn machine_words(machine: &Machine, over_commit: bool) -> String {
    let rule = match over_commit {
        true => "nodes may request more than that, and then share it (over-commit = true)",
        false => "nodes wait if there is no room (over-commit = false)",
    };
    format!("this machine has {machine} for nodes; {rule}")
}
