//! The loop of a joined host: receives what is wanted, creates and removes nodes, and reports what exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_core::ids::NodeId;
use muster_core::model::{Capacity, HostName, Tier};
use muster_core::{ErrorChain, NodeRequest};
use muster_environments::store::Store;
use muster_providers::joined::protocol::{
    HeldNode, HostReport, SyncAnswer, Terms, WantedNode, one_line,
};
use muster_providers::sandboxed::{
    HelperConfig, Machine, SandboxConfig, SandboxProvider, Sockets, helper_command,
};
use muster_providers::{ListError, Provider as _};
use muster_sandbox::link::{Helper, Link, LinkError};
use muster_sandbox::protocol::{self, Enforcement, Seen};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Server, Tunnels};
use crate::environments::Environments;
use crate::exchange::{Exchange, UnknownHost};
use crate::host_files::{CA_BUNDLE, HostFiles, Membership, random};
use crate::join::{Member, join};
use crate::plan::{HostAction, actions};
use crate::{HostAgentConfig, HostAgentError, announced, relay};

/// Nodes that end by themselves are noticed by polling.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The pause before something that failed is attempted again.
const REST: Duration = Duration::from_secs(10);

/// The secrets of nodes, by node.
type Secrets = Arc<Mutex<BTreeMap<String, String>>>;

/// Keeps the nodes that the server wants on this host, until it is asked to end or the host is no longer wanted. `say`
/// receives messages for the operator.
pub async fn run(config: HostAgentConfig, say: impl Fn(&str)) -> Result<(), HostAgentError> {
    let mut signals = Signals::listen()?;
    let files = HostFiles::take(&config.dir)?;
    let capacity = Machine::this().capacity();
    let member = tokio::select! {
        member = join(&files, &config, capacity) => member?,
        () = signals.next() => return Ok(()),
    };
    say(&format!("this host joined {} as {}", config.server, member.membership.name));
    let Member { mut membership, client, card } = member;
    // New terms apply to new nodes: the provider is restarted with them, and finds the old nodes unchanged.
    loop {
        let secrets = Secrets::default();
        let environments = Environments::open(
            files.path("environments"),
            config.uv.clone(),
            &membership.terms.environments,
        )?;
        let way = Tunnels { client: client.clone(), card: card.clone() };
        let (provider, enforcement) =
            provider(&files, &config, &membership.terms, &environments, (&secrets, way)).await?;
        say(&announced::enforcement(&enforcement));
        let may_go_out = membership.terms.has_internet;
        for note in announced::lacking(config.uv.as_deref(), &enforcement, may_go_out) {
            say(&format!("note: {note}"));
        }
        let host_agent = HostAgent {
            provider: Arc::new(provider),
            exchange: Exchange::new(client.clone(), card.clone(), random()?),
            files: &files,
            membership,
            capacity,
            not_enforced: enforcement.missing,
            secrets,
            seen: Vec::new(),
            ended: Vec::new(),
            answer: None,
            environments,
            busy: BTreeSet::new(),
            troubles: BTreeMap::new(),
            tasks: JoinSet::new(),
        };
        match host_agent.live(&mut signals, config.leaves).await? {
            End::Asked => return Ok(()),
            End::NewTerms(new) => membership = new,
        }
    }
}

async fn provider(
    files: &HostFiles,
    config: &HostAgentConfig,
    terms: &Terms,
    environments: &Environments,
    (secrets, way): (&Secrets, Tunnels),
) -> Result<(SandboxProvider, Enforcement), HostAgentError> {
    let (sockets, opened) = Sockets::new(files.path("relays"));
    tokio::spawn(relay::run(opened, way));
    let shown = (config, environments.shown_dir());
    let config = sandbox_config(files, shown, terms, sockets, Arc::clone(secrets))?;
    let started = tokio::task::spawn_blocking(move || SandboxProvider::start(config)).await;
    started.unwrap_or_else(|_| Err(broken())).map_err(HostAgentError::Enforcement)
}

/// Why a host agent ends.
enum End {
    Asked,
    NewTerms(Membership),
}

struct HostAgent<'a> {
    provider: Arc<SandboxProvider>,
    exchange: Exchange,
    files: &'a HostFiles,
    membership: Membership,
    capacity: Capacity,
    not_enforced: Vec<String>,
    secrets: Secrets,
    seen: Vec<Seen>,
    /// Nodes of which certainly nothing is running any more.
    ended: Vec<String>,
    answer: Option<SyncAnswer>,
    environments: Environments,
    /// Nodes that are being created or removed.
    busy: BTreeSet<String>,
    troubles: BTreeMap<String, Trouble>,
    tasks: JoinSet<Done>,
}

struct Trouble {
    message: String,
    rests_until: Instant,
}

/// The result of an action.
struct Done {
    node: String,
    result: Result<(), String>,
}

impl HostAgent<'_> {
    async fn live(mut self, signals: &mut Signals, leaves: bool) -> Result<End, HostAgentError> {
        loop {
            // Without knowing what exists, no report is sent, because anything missing from it counts as deleted.
            if !self.look().await {
                tokio::select! {
                    () = tokio::time::sleep(LOOK_EVERY) => continue,
                    () = signals.next() => return Ok(End::Asked),
                }
            }
            self.act();
            let report = self.report();
            tokio::select! {
                answer = self.exchange.answer(&report) => match answer {
                    Ok(answer) if answer.terms != self.membership.terms => {
                        self.finish_deeds().await;
                        let membership = Membership { terms: answer.terms, ..self.membership };
                        self.files.join(&membership)?;
                        return Ok(End::NewTerms(membership));
                    }
                    Ok(answer) => self.follow(answer),
                    Err(UnknownHost) => {
                        self.end_nodes().await;
                        self.files.leave()?;
                        return Err(HostAgentError::Removed);
                    }
                },
                Some(done) = self.tasks.join_next() => self.on_done(done),
                () = self.environments.heard() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = signals.next() => {
                    if leaves {
                        self.end_nodes().await;
                    }
                    return Ok(End::Asked);
                }
            }
        }
    }

    fn follow(&mut self, answer: SyncAnswer) {
        let secret = |node: &WantedNode| (node.name.clone(), node.secret.clone());
        *self.secrets.lock().unwrap_or_else(PoisonError::into_inner) =
            answer.nodes.iter().map(secret).collect();
        self.environments.want(&answer.environments);
        if answer.nodes.is_empty() && self.seen.is_empty() {
            self.environments.tidy();
        }
        self.answer = Some(answer);
    }

    /// Lists the nodes. Returns false if that failed.
    async fn look(&mut self) -> bool {
        let provider = Arc::clone(&self.provider);
        let look = move || Ok((provider.seen()?, provider.ended()?));
        match tokio::task::spawn_blocking(look).await {
            Ok(Ok((seen, ended))) => {
                (self.seen, self.ended) = (seen, ended);
                return true;
            }
            Ok(Err(error)) => {
                let error: ListError = error;
                let error = ErrorChain(&error);
                tracing::warn!(%error, "cannot list the nodes of this host");
            }
            Err(_) => tracing::error!("listing the nodes of this host panicked"),
        }
        false
    }

    fn act(&mut self) {
        let Some(answer) = &self.answer else { return };
        let now = Instant::now();
        let rests = |name: &str| {
            let rests = |trouble: &Trouble| now < trouble.rests_until;
            self.busy.contains(name) || self.troubles.get(name).is_some_and(rests)
        };
        for action in actions(&answer.nodes, (&self.seen, &self.ended), rests) {
            let hands = (Arc::clone(&self.provider), self.environments.store());
            let node = match &action {
                HostAction::Make(wanted) => wanted.name.clone(),
                HostAction::Remove(name) => name.clone(),
            };
            self.busy.insert(node.clone());
            let order = match action {
                HostAction::Make(wanted) => Some(order(wanted, &self.membership.name)),
                HostAction::Remove(_) => None,
            };
            self.tasks.spawn_blocking(move || Done {
                result: carry_out((&hands.0, &hands.1), &node, order),
                node,
            });
        }
    }

    fn on_done(&mut self, done: Result<Done, tokio::task::JoinError>) {
        let Ok(Done { node, result }) = done else {
            // It is unknown which node this was, so no node is treated as busy.
            tracing::error!("creating or removing a node panicked");
            self.busy.clear();
            return;
        };
        self.busy.remove(&node);
        match result {
            Ok(()) => drop(self.troubles.remove(&node)),
            Err(message) => {
                tracing::warn!(node, message, "cannot create or remove a node; retrying");
                let trouble = Trouble { message, rests_until: Instant::now() + REST };
                self.troubles.insert(node, trouble);
            }
        }
    }

    /// Everything that exists here, as of the last listing.
    fn report(&mut self) -> HostReport {
        let mut names: BTreeSet<&str> = self.seen.iter().map(|seen| seen.node.as_str()).collect();
        names.extend(self.busy.iter().map(String::as_str));
        let wanted = self.answer.iter().flat_map(|answer| &answer.nodes);
        let wanted: BTreeSet<&str> = wanted.map(|node| node.name.as_str()).collect();
        self.troubles
            .retain(|name, _| names.contains(name.as_str()) || wanted.contains(name.as_str()));
        names.extend(self.troubles.keys().map(String::as_str));
        let lives = |name: &str| self.seen.iter().any(|seen| seen.node == name && seen.is_alive);
        let held = |name: &&str| HeldNode {
            name: (*name).to_owned(),
            is_alive: lives(name) && !self.busy.contains(*name),
            has_ended: self.ended.iter().any(|ended| ended == name),
            trouble: self.troubles.get(*name).map(|trouble| one_line(&trouble.message)),
        };
        HostReport {
            following: self.answer.as_ref().map(|answer| answer.stamp),
            capacity: self.capacity,
            not_enforced: self.not_enforced.clone(),
            nodes: names.iter().map(held).collect(),
            environments: self.environments.report(),
        }
    }

    async fn end_nodes(&mut self) {
        self.answer = None;
        self.finish_deeds().await;
        // Nodes that cannot be seen now end when their leases expire.
        self.look().await;
        for Seen { node, .. } in self.seen.clone() {
            let hands = (Arc::clone(&self.provider), self.environments.store());
            self.tasks.spawn_blocking(move || Done {
                result: carry_out((&hands.0, &hands.1), &node, None),
                node,
            });
        }
        self.finish_deeds().await;
    }

    async fn finish_deeds(&mut self) {
        while let Some(done) = self.tasks.join_next().await {
            self.on_done(done);
        }
    }
}

/// Creates the requested node, or removes the node.
fn carry_out(
    (provider, environments): (&SandboxProvider, &Store),
    node: &str,
    order: Option<NodeRequest>,
) -> Result<(), String> {
    match order {
        Some(order) => {
            tracing::info!(node, "making");
            let opened = environments.open_to(order.cluster);
            opened.map_err(|failed| {
                format!("cannot open the folder of its environments: {failed}")
            })?;
            provider.create(&order).map_err(|error| ErrorChain(&error).to_string())
        }
        None => {
            tracing::info!(node, "removing");
            provider.delete(node).map_err(|error| ErrorChain(&error).to_string())
        }
    }
}

/// A provider only uses the name, the cluster and the size.
fn order(wanted: WantedNode, host: &HostName) -> NodeRequest {
    NodeRequest {
        node: NodeId(0),
        cluster: wanted.cluster,
        name: wanted.name.into(),
        host: host.clone(),
        vm_size: "".into(),
        capacity: wanted.capacity,
        tier: Tier::Dedicated,
    }
}

fn sandbox_config(
    files: &HostFiles,
    (config, environments): (&HostAgentConfig, &Path),
    terms: &Terms,
    sockets: Sockets,
    secrets: Secrets,
) -> Result<SandboxConfig, HostAgentError> {
    let damaged = |_| HostAgentError::Damaged { path: files.path("membership") };
    let itself: Server = terms.url.parse().map_err(damaged)?;
    let helper = HelperConfig {
        instance: files.instance(),
        nodes: files.path("sandboxes"),
        relays: files.path("relays"),
        logs: files.path("node-logs"),
        binary: config.binary.clone(),
        ca_file: files.path("ca.pem"),
        ca_bundle: Some(files.path(CA_BUNDLE)),
        shown: config.shown.clone(),
        environments: Some(environments.to_owned()),
        owner: None,
    };
    let url = format!("https://127.0.0.1:{}", itself.port());
    let found_at = protocol::Server { url, host: itself.host().to_owned() };
    Ok(SandboxConfig {
        link: Link::new(Helper::Started(helper_command(&helper)), found_at),
        node_secret: Box::new(move |name| {
            let secrets = secrets.lock().unwrap_or_else(PoisonError::into_inner);
            secrets.get(name).cloned().unwrap_or_default()
        }),
        relays: Box::new(sockets),
        machine: Machine::this(),
        over_commit: false,
        has_internet: terms.has_internet,
        job_disk_bytes: terms.job_disk_bytes,
        jobs_share: terms.jobs_share,
    })
}

fn broken() -> LinkError {
    LinkError::Ended(std::io::Error::other("the task panicked"))
}

/// Handles both signals, whichever way we were started.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Result<Signals, HostAgentError> {
        let listen = |kind| signal(kind).map_err(HostAgentError::Signals);
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
