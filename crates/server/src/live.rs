//! A view of the writer's World that request handlers can use without asking the writer: which nodes have news, which
//! epochs are live, and who has which permissions. It is updated after every commit, never before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::access::Directory;
use muster_core::agent::NodeUsage;
use muster_core::governance::Governance;
use muster_core::hosts::Hosts;
use muster_core::ids::{ClusterId, Epoch, JobId, NodeId, WorkspaceId};
use muster_core::model::{HostName, Job, JobPhase, User};
use muster_core::{Change, World};
use muster_providers::joined::Roster;
use muster_wire::host::Load;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::usage::{MeasuredNode, NodeLoad, Usages};

pub struct Live {
    inner: Mutex<Inner>,
    /// Counts commits, for those who follow the event log.
    commits: watch::Sender<u64>,
    pub metrics: Metrics,
    roster: Arc<Roster>,
}

#[derive(Default)]
struct Inner {
    /// A counter per node, which changes whenever there is news for the node.
    news: BTreeMap<Arc<str>, watch::Sender<u64>>,
    /// The newest report of each node: the boot id of its agent, and its sequence number.
    reports: BTreeMap<Arc<str>, watch::Sender<(Box<str>, u64)>>,
    /// Every node in World. A node that is about to be created is here before the provider is asked.
    nodes: BTreeMap<Arc<str>, ClusterId>,
    attempts: BTreeMap<Epoch, LiveAttempt>,
    epoch_of: BTreeMap<JobId, Epoch>,
    /// The epochs of the tasks that a node was given and may start by itself.
    given: BTreeMap<NodeId, BTreeSet<Epoch>>,
    directory: Arc<Directory>,
    governance: Arc<Governance>,
    hosts: Arc<Hosts>,
    /// The load of each host that has nodes.
    loads: BTreeMap<HostName, Load>,
    usages: Usages,
}

/// The holder of a live epoch, which may write to its log and upload files for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveAttempt {
    pub job: JobId,
    pub job_name: Arc<str>,
    pub workspace: WorkspaceId,
    /// The nodes of the members, by rank.
    pub nodes: Vec<Arc<str>>,
    /// Whether the attempt was cancelled and has not ended yet.
    pub is_ending: bool,
}

impl LiveAttempt {
    pub fn rank_of(&self, node: &str) -> Option<usize> {
        self.nodes.iter().position(|member| &**member == node)
    }
}

/// Tells whether a report is still the newest of its node.
pub struct Newest {
    own: (Box<str>, u64),
    seen: watch::Receiver<(Box<str>, u64)>,
}

impl Newest {
    pub fn is_superseded(&self) -> bool {
        *self.seen.borrow() != self.own
    }

    pub async fn superseded(&mut self) {
        let own = self.own.clone();
        // This fails when the node has been deleted; then the response says so.
        let _ = self.seen.wait_for(|newest| *newest != own).await;
    }
}

impl Live {
    /// `run` is a number that no other run of this server has.
    pub fn new(run: u64, silence_max: Duration) -> Live {
        let roster = Arc::new(Roster::new(run, silence_max));
        let commits = watch::Sender::new(0);
        Live { inner: Mutex::default(), commits, metrics: Metrics::default(), roster }
    }

    /// The nodes that other hosts should have.
    pub fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster)
    }

    /// Starts from a newly built World, and wakes everything that waits, because anything may have changed.
    pub fn reset(&self, world: &World) {
        self.metrics.reset(world);
        self.roster.reset(world.nodes());
        let mut inner = self.lock();
        inner.attempts.clear();
        inner.epoch_of.clear();
        inner.given.clear();
        inner.nodes = world.nodes().map(|node| (node.name.clone(), node.cluster)).collect();
        let Inner { nodes, usages, .. } = &mut *inner;
        usages.retain(|node| nodes.contains_key(node));
        inner.directory = Arc::new(world.directory().clone());
        inner.governance = Arc::new(world.governance().clone());
        inner.hosts = Arc::new(world.hosts().clone());
        inner.loads.clear();
        for node in world.nodes() {
            inner.weigh(world, &node.host);
        }
        for job in world.jobs() {
            inner.follow(world, job);
        }
        for node in world.nodes() {
            inner.follow_given(world, node.id);
        }
        for news in inner.news.values() {
            news.send_modify(|count| *count += 1);
        }
        self.commits.send_modify(|count| *count += 1);
    }

    /// Changes after every commit. Receivers read the event log themselves, so they never hold up the writer.
    pub fn commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// Applies the changes of a commit.
    pub fn publish(&self, world: &World, changes: &[Change]) {
        self.metrics.publish(world, changes);
        let mut touched: BTreeSet<NodeId> = BTreeSet::new();
        let mut inner = self.lock();
        for change in changes {
            match change {
                Change::NodeChanged { node, .. } => {
                    touched.insert(node.id);
                    inner.weigh(world, &node.host);
                    self.roster.update(node);
                    if world.node(node.id).is_none() {
                        inner.nodes.remove(&node.name);
                        inner.news.remove(&node.name);
                        inner.reports.remove(&node.name);
                        inner.usages.forget(&node.name);
                    } else {
                        inner.nodes.insert(node.name.clone(), node.cluster);
                    }
                }
                Change::JobSubmitted { job, .. }
                | Change::ChildCreated { job, .. }
                | Change::JobChanged { job, .. } => {
                    let members = job.attempt().into_iter().flat_map(|attempt| &attempt.members);
                    touched.extend(members.map(|member| member.node));
                    inner.follow(world, job);
                }
                // Once it is decided how an attempt ends, every member must be notified.
                Change::MemberChanged(change) => {
                    let job = world.job(change.job).filter(|_| change.verdict.is_some());
                    let attempt = job.and_then(Job::attempt);
                    let members = attempt.into_iter().flat_map(|attempt| &attempt.members);
                    touched.extend(members.map(|member| member.node));
                    touched.insert(change.member.node);
                }
                // From here on, a revoked key and its tokens are invalid.
                Change::AccessChanged(_) => {
                    inner.directory = Arc::new(world.directory().clone());
                }
                Change::HostsChanged(_) => inner.hosts = Arc::new(world.hosts().clone()),
                Change::GovernanceChanged(_) => {
                    inner.governance = Arc::new(world.governance().clone())
                }
                Change::PrincipalSeen(_)
                | Change::WorkspaceChanged(_)
                | Change::WorkspaceGone(_)
                | Change::ActivityNoted(_)
                | Change::DeploymentChanged(_)
                | Change::JobMetadataChanged { .. }
                | Change::JobGone { .. }
                | Change::DeploymentGone { .. }
                | Change::DatastoreChanged(_)
                | Change::AssetChanged(_)
                | Change::AssetGone { .. }
                | Change::AssetContainerChanged(_)
                | Change::AssetContainerGone { .. }
                | Change::DatastoreGone { .. }
                | Change::AccountChanged(_)
                | Change::QuotaChanged(_)
                | Change::ClusterChanged { .. }
                | Change::AttemptEnded(_)
                | Change::TreeSaved(_)
                | Change::LedgerPosted(_)
                | Change::OperationChanged(_)
                | Change::EffectQueued(_)
                | Change::EffectSettled { .. } => {}
            }
        }
        for node in &touched {
            inner.follow_given(world, *node);
        }
        for node in touched.into_iter().filter_map(|node| world.node(node)) {
            if let Some(news) = inner.news.get(&node.name) {
                news.send_modify(|count| *count += 1);
            }
        }
        self.commits.send_modify(|count| *count += 1);
    }

    /// Notifies of everything that happens to this node from now on.
    pub fn news_of(&self, node: &str) -> watch::Receiver<u64> {
        let mut inner = self.lock();
        if let Some(news) = inner.news.get(node) {
            return news.subscribe();
        }
        let (sender, receiver) = watch::channel(0);
        inner.news.insert(node.into(), sender);
        receiver
    }

    /// A node waits only for the response to its newest report, and sends the next one on another connection, so that
    /// the previous connection is free for the one after. Closing it instead would cost both sides a handshake for
    /// every report.
    pub fn newest_report(&self, node: &str, boot: &str, sequence: u64) -> Newest {
        let mut inner = self.lock();
        let own = (Box::from(boot), sequence);
        let seen = match inner.reports.get(node) {
            Some(newest) => {
                newest.send_if_modified(|newest| {
                    // Sequence numbers of different agents cannot be compared.
                    let is_newer = newest.0 != own.0 || newest.1 < own.1;
                    if is_newer {
                        newest.clone_from(&own);
                    }
                    is_newer
                });
                newest.subscribe()
            }
            None => {
                let (sender, receiver) = watch::channel(own.clone());
                inner.reports.insert(node.into(), sender);
                receiver
            }
        };
        Newest { own, seen }
    }

    /// Records the usage of a node in World; that of an unknown node would never be removed.
    pub fn note_usage(&self, node: &str, usage: NodeUsage) {
        let mut inner = self.lock();
        let Inner { nodes, usages, .. } = &mut *inner;
        if let Some((name, _)) = nodes.get_key_value(node) {
            usages.take(name, usage);
        }
    }

    /// The usage of live nodes and of the live jobs on them.
    pub fn usage(&self) -> Vec<MeasuredNode> {
        let inner = self.lock();
        let job_on = |epoch, node: &str| {
            let attempt: &LiveAttempt = inner.attempts.get(&epoch)?;
            attempt.rank_of(node).map(|_| Arc::clone(&attempt.job_name))
        };
        inner.usages.all(|node| inner.nodes.get(node).copied(), job_on)
    }

    pub fn usage_of(&self, node: &str) -> Option<NodeLoad> {
        self.lock().usages.load_of(node)
    }

    /// Users and roles, as of the last commit.
    pub fn directory(&self) -> Arc<Directory> {
        Arc::clone(&self.lock().directory)
    }

    /// Resource groups and locks, as of the last commit.
    pub fn governance(&self) -> Arc<Governance> {
        Arc::clone(&self.lock().governance)
    }

    /// Hosts and join tokens, as of the last commit.
    pub fn hosts(&self) -> Arc<Hosts> {
        Arc::clone(&self.lock().hosts)
    }

    /// The load that its nodes put on a host, as of the last commit.
    pub fn load_of(&self, host: &HostName) -> Load {
        self.lock().loads.get(host).copied().unwrap_or_default()
    }

    pub fn knows_node(&self, name: &str) -> bool {
        self.lock().nodes.contains_key(name)
    }

    /// The identity of the node's cluster, if it has one.
    pub fn identity_of_node(&self, name: &str) -> Option<Arc<User>> {
        let inner = self.lock_for(name)?;
        inner.directory.identity_of(*inner.nodes.get(name)?).cloned()
    }

    /// The attempt with this epoch, if this node runs it.
    pub fn attempt_on(&self, epoch: Epoch, node: &str) -> Option<LiveAttempt> {
        let inner = self.lock_for(node)?;
        inner.attempts.get(&epoch).filter(|attempt| attempt.rank_of(node).is_some()).cloned()
    }

    /// Returns `None` for a node whose host was removed: an accepted connection can outlive the membership of its host.
    fn lock_for(&self, node: &str) -> Option<MutexGuard<'_, Inner>> {
        let home = self.roster.home_of(node);
        let inner = self.lock();
        let is_removed = |home| inner.hosts.host(home).is_none_or(|host| host.key.is_none());
        if home.as_ref().is_some_and(is_removed) { None } else { Some(inner) }
    }

    pub fn jobs_with_attempts(&self) -> Vec<JobId> {
        self.lock().epoch_of.keys().copied().collect()
    }

    pub fn attempt(&self, epoch: Epoch) -> Option<LiveAttempt> {
        self.lock().attempts.get(&epoch).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic cannot leave anything half-done: every update is a single insert or remove.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn weigh(&mut self, world: &World, host: &HostName) {
        match world.host_nodes(host) {
            Some(host_nodes) => {
                let nodes = u32::try_from(host_nodes.nodes.len()).unwrap_or(u32::MAX);
                self.loads.insert(host.clone(), Load { used: host_nodes.used, nodes });
            }
            None => {
                self.loads.remove(host);
            }
        }
    }

    /// The attempts of tasks that a node was given ahead are live from then on: it may start them at any time.
    fn follow_given(&mut self, world: &World, id: NodeId) {
        let node = world.node(id);
        let leases = node.into_iter().flat_map(|node| node.leases());
        let now: BTreeMap<Epoch, JobId> = leases
            .flat_map(|lease| lease.followers())
            .map(|lease| (lease.epoch, lease.job))
            .collect();
        let before = match now.is_empty() {
            true => self.given.remove(&id).unwrap_or_default(),
            false => self.given.insert(id, now.keys().copied().collect()).unwrap_or_default(),
        };
        for epoch in before.iter().filter(|epoch| !now.contains_key(epoch)) {
            let is_own = |attempt: &LiveAttempt| self.epoch_of.get(&attempt.job) == Some(epoch);
            // One whose turn has come has a record.
            if self.attempts.get(epoch).is_some_and(|attempt| !is_own(attempt)) {
                self.attempts.remove(epoch);
            }
        }
        let Some(node) = node else { return };
        for (epoch, job) in now.iter().filter(|(epoch, _)| !before.contains(epoch)) {
            let Some(job) = world.live_job(*job).filter(|job| job.attempt().is_none()) else {
                continue;
            };
            let (job_name, workspace) = (Arc::from(&*job.name), job.workspace);
            let nodes = vec![node.name.clone()];
            let live = LiveAttempt { job: job.id, job_name, workspace, nodes, is_ending: false };
            self.attempts.insert(*epoch, live);
        }
    }

    fn follow(&mut self, world: &World, job: &Job) {
        if let Some(old) = self.epoch_of.remove(&job.id) {
            self.attempts.remove(&old);
        }
        if let Some(attempt) = job.attempt() {
            let name = |node: NodeId| world.node(node).map_or("".into(), |node| node.name.clone());
            let nodes = attempt.members.iter().map(|member| name(member.node)).collect();
            let is_ending = job.phase() == JobPhase::CancelRequested;
            let (job_name, workspace) = (Arc::from(&*job.name), job.workspace);
            let live = LiveAttempt { job: job.id, job_name, workspace, nodes, is_ending };
            self.attempts.insert(attempt.epoch, live);
            self.epoch_of.insert(job.id, attempt.epoch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_nodes_newest_report_waits_for_an_answer() {
        let live = Live::new(1, Duration::from_secs(1));
        let first = live.newest_report("n", "boot", 1);
        assert!(!first.is_superseded());
        let third = live.newest_report("n", "boot", 3);
        // Overtaken in transit.
        let second = live.newest_report("n", "boot", 2);
        let other = live.newest_report("m", "boot", 1);
        assert!(first.is_superseded() && second.is_superseded());
        assert!(!third.is_superseded() && !other.is_superseded());
        // Another agent starts from one again.
        let restarted = live.newest_report("n", "later", 1);
        assert!(third.is_superseded() && !restarted.is_superseded());
    }
}
