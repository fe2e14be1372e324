//! What joined hosts should have, and what they report that they have.
//!
//! What they should have follows from committed nodes alone, so a server that restarts finds it again. Their reports
//! are not stored: after a start nothing is known about a host until it reports.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use muster_core::NodeRequest;
use muster_core::ids::ClusterId;
use muster_core::model::{HostName, Node, NodePhase, Recipe, RecipeId};
use tokio::sync::watch;

use super::HostError;
use super::protocol::{
    ENVIRONMENTS_MAX, EnvironmentState, HeldNode, Stamp, SyncRequest, WantedEnvironment, no_cluster,
};

/// How long a node may take to be created, and to be removed. Both are longer than a host's own provider takes.
const MADE_WITHIN: Duration = Duration::from_secs(90);
const GONE_WITHIN: Duration = Duration::from_secs(60);
/// An environment that was not requested for this long is no longer wanted.
const ASKED_WITHIN: Duration = Duration::from_secs(120);

pub struct Roster {
    /// Distinguishes lists of this run of the server from those of an earlier one.
    run: u64,
    /// A host reports several times within this time. After this long it counts as absent.
    silence_max: Duration,
    started: Instant,
    inner: Mutex<Inner>,
    heard: Condvar,
}

#[derive(Default)]
struct Inner {
    hosts: BTreeMap<HostName, Entry>,
    /// The host of every node on a joined host, including nodes that are being deleted.
    homes: BTreeMap<Arc<str>, HostName>,
}

struct Entry {
    wanted: BTreeMap<Arc<str>, NodeRequest>,
    /// Environments that were requested, and when last.
    environments: BTreeMap<(RecipeId, ClusterId), (Recipe, Instant)>,
    /// Counts the lists.
    news: watch::Sender<u64>,
    met: Option<Instant>,
    heard: Option<Heard>,
}

struct Heard {
    /// The run of the host agent, and the number of its report.
    number: (u64, u64),
    following: Option<u64>,
    not_enforced: Vec<String>,
    nodes: BTreeMap<String, HeldNode>,
    environments: BTreeMap<(RecipeId, ClusterId), EnvironmentState>,
    at: Instant,
}

impl Default for Entry {
    fn default() -> Entry {
        let (wanted, environments) = (BTreeMap::new(), BTreeMap::new());
        Entry { wanted, environments, news: watch::Sender::new(1), met: None, heard: None }
    }
}

impl Roster {
    /// `run` is a number that no earlier run of this server had.
    pub fn new(run: u64, silence_max: Duration) -> Roster {
        let (started, heard) = (Instant::now(), Condvar::new());
        Roster { run, silence_max, started, inner: Mutex::default(), heard }
    }

    /// Starts from all existing nodes.
    pub fn reset<'a>(&self, nodes: impl Iterator<Item = &'a Node>) {
        let mut inner = self.lock();
        inner.homes.clear();
        let mut wanted: BTreeMap<HostName, BTreeMap<Arc<str>, NodeRequest>> = BTreeMap::new();
        for node in nodes.filter(|node| !node.host.is_local()) {
            inner.homes.insert(node.name.clone(), node.host.clone());
            if let Some(request) = order_of(node) {
                wanted.entry(node.host.clone()).or_default().insert(node.name.clone(), request);
            }
        }
        for host in wanted.keys() {
            inner.hosts.entry(host.clone()).or_default();
        }
        for (host, entry) in &mut inner.hosts {
            entry.want(wanted.remove(host).unwrap_or_default());
        }
        self.heard.notify_all();
    }

    /// Records a change of a node.
    pub fn update(&self, node: &Node) {
        if node.host.is_local() {
            return;
        }
        let mut inner = self.lock();
        let request = order_of(node);
        if node.phase() == NodePhase::Gone {
            inner.homes.remove(&node.name);
        } else {
            inner.homes.insert(node.name.clone(), node.host.clone());
        }
        let entry = inner.hosts.entry(node.host.clone()).or_default();
        if entry.wanted.contains_key(&node.name) == request.is_some() {
            return;
        }
        let mut wanted = std::mem::take(&mut entry.wanted);
        match request {
            Some(request) => drop(wanted.insert(node.name.clone(), request)),
            None => drop(wanted.remove(&node.name)),
        }
        entry.want(wanted);
        self.heard.notify_all();
    }

    /// Lists everything that the host should have.
    pub fn wanted(&self, host: &HostName) -> (Stamp, Vec<NodeRequest>) {
        let mut inner = self.lock();
        let entry = inner.hosts.entry(host.clone()).or_default();
        let stamp = Stamp { run: self.run, count: *entry.news.borrow() };
        (stamp, entry.wanted.values().cloned().collect())
    }

    /// Lists the environments that jobs on its nodes are waiting for.
    pub fn wanted_environments(&self, host: &HostName) -> Vec<WantedEnvironment> {
        let inner = self.lock();
        let entry = inner.hosts.get(host);
        let all = entry.into_iter().flat_map(|entry| &entry.environments);
        let wanted = |((_, cluster), (recipe, _)): (&(_, ClusterId), &(Recipe, _))| {
            WantedEnvironment { cluster: *cluster, recipe: recipe.clone() }
        };
        all.map(wanted).collect()
    }

    /// Makes a host build an environment, if it has not yet, and show it to a cluster. Returns its state.
    pub fn environment(
        &self,
        host: &HostName,
        id: (RecipeId, ClusterId),
        recipe: &Recipe,
        now: Instant,
    ) -> EnvironmentState {
        let mut inner = self.lock();
        let entry = inner.hosts.entry(host.clone()).or_default();
        let is_asked =
            |_: &(RecipeId, ClusterId), (_, at): &mut (Recipe, Instant)| now - *at < ASKED_WITHIN;
        entry.environments.retain(is_asked);
        let is_new = !entry.environments.contains_key(&id);
        // A request beyond the limit is repeated later.
        if !is_new || entry.environments.len() < ENVIRONMENTS_MAX {
            entry.environments.insert(id, (recipe.clone(), now));
        }
        if is_new {
            entry.news.send_modify(|count| *count += 1);
        }
        let heard = entry.heard.as_ref().and_then(|heard| {
            // A host of an earlier version shows its environments to all clusters, and names none.
            let shown_to_all = (id.0, no_cluster());
            heard.environments.get(&id).or_else(|| heard.environments.get(&shown_to_all))
        });
        // A report from before the request is outdated.
        heard.filter(|_| !is_new).cloned().unwrap_or(EnvironmentState::Building)
    }

    /// Notifies of every new list for this host.
    pub fn news_of(&self, host: &HostName) -> watch::Receiver<u64> {
        self.lock().hosts.entry(host.clone()).or_default().news.subscribe()
    }

    /// Records that a host has just joined: it is not silent, although it has not reported yet what it has.
    pub fn meet(&self, host: &HostName, now: Instant) {
        self.lock().hosts.entry(host.clone()).or_default().met = Some(now);
    }

    /// Records a report of a host, unless there is a newer one.
    pub fn hear(&self, host: &HostName, request: &SyncRequest, now: Instant) {
        let SyncRequest { generation, sequence, report, .. } = request;
        let number = (*generation, *sequence);
        let mut inner = self.lock();
        let entry = inner.hosts.entry(host.clone()).or_default();
        let is_newer = |heard: &Heard| heard.number.0 == number.0 && heard.number.1 > number.1;
        if entry.heard.as_ref().is_some_and(is_newer) {
            return;
        }
        let following = report.following.filter(|stamp| stamp.run == self.run);
        entry.heard = Some(Heard {
            number,
            following: following.map(|stamp| stamp.count),
            not_enforced: report.not_enforced.clone(),
            nodes: report.nodes.iter().map(|node| (node.name.clone(), node.clone())).collect(),
            environments: report
                .environments
                .iter()
                .map(|one| ((one.id, one.cluster), one.state.clone()))
                .collect(),
            at: now,
        });
        self.heard.notify_all();
    }

    /// Returns true if the host has neither joined nor reported for too long. No host is silent for longer than the
    /// server has been running.
    pub fn is_silent(&self, host: &HostName, now: Instant) -> bool {
        self.silence(&self.lock(), host, now) >= self.silence_max
    }

    /// What the nodes of this host do not enforce, according to its report.
    pub fn not_enforced(&self, host: &HostName) -> Vec<String> {
        let inner = self.lock();
        let heard = inner.hosts.get(host).and_then(|entry| entry.heard.as_ref());
        heard.map(|heard| heard.not_enforced.clone()).unwrap_or_default()
    }

    /// The nodes of joined hosts that exist as far as we know: according to their hosts, or all of them until those
    /// have reported.
    pub fn held(&self) -> Vec<String> {
        let inner = self.lock();
        let is_held = |(name, host): &(&Arc<str>, &HostName)| {
            let heard = inner.hosts.get(host).and_then(|entry| entry.heard.as_ref());
            heard.is_none_or(|heard| heard.nodes.contains_key(&***name))
        };
        inner.homes.iter().filter(is_held).map(|(name, _)| name.to_string()).collect()
    }

    /// The nodes of joined hosts that have ended, according to their hosts. A name is never reused, so this remains
    /// true.
    pub fn ended(&self) -> Vec<String> {
        let inner = self.lock();
        let has_ended = |(name, host): &(&Arc<str>, &HostName)| {
            let heard = inner.hosts.get(host).and_then(|entry| entry.heard.as_ref());
            let held = heard.and_then(|heard| heard.nodes.get(&***name));
            held.is_some_and(|held| held.has_ended)
        };
        inner.homes.iter().filter(has_ended).map(|(name, _)| name.to_string()).collect()
    }

    /// The joined host of this node. Only our own records are used, so a host cannot affect the nodes of another.
    pub fn home_of(&self, node: &str) -> Option<HostName> {
        self.lock().homes.get(node).cloned()
    }

    /// Waits until the host reports that the node is alive, or was.
    pub(super) fn wait_made(&self, host: &HostName, node: &str) -> Result<(), HostError> {
        self.wait(host, node, MADE_WITHIN, |entry| {
            // The node is no longer wanted, so nothing waits for it; it is being removed.
            if !entry.wanted.contains_key(node) {
                return Some(Ok(()));
            }
            let held = entry.heard.as_ref()?.nodes.get(node)?;
            match &held.trouble {
                _ if held.is_alive || held.has_ended => Some(Ok(())),
                Some(trouble) => Some(Err(HostError::Trouble {
                    host: host.clone(),
                    node: node.to_owned(),
                    trouble: trouble.clone(),
                })),
                None => None,
            }
        })
    }

    /// Waits until the host, having received the list without the node, reports that nothing of it is left.
    pub(super) fn wait_gone(&self, host: &HostName, node: &str) -> Result<(), HostError> {
        let since = self.wanted(host).0.count;
        self.wait(host, node, GONE_WITHIN, |entry| {
            let heard = entry.heard.as_ref()?;
            let knows = heard.following.is_some_and(|count| count >= since);
            (knows && !heard.nodes.contains_key(node)).then_some(Ok(()))
        })
    }

    fn wait(
        &self,
        host: &HostName,
        node: &str,
        within: Duration,
        look: impl Fn(&Entry) -> Option<Result<(), HostError>>,
    ) -> Result<(), HostError> {
        let began = Instant::now();
        let mut inner = self.lock();
        loop {
            if let Some(result) = inner.hosts.get(host).and_then(&look) {
                return result;
            }
            let now = Instant::now();
            let (host, node) = (host.clone(), node.to_owned());
            let silence = self.silence(&inner, &host, now);
            if silence >= self.silence_max {
                return Err(HostError::Silent { host, node, seconds: silence.as_secs() });
            }
            let Some(left) = within.checked_sub(now - began) else {
                return Err(HostError::Late { host, node, seconds: within.as_secs() });
            };
            let patience = left.min(self.silence_max - silence);
            let waited = self.heard.wait_timeout(inner, patience);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn silence(&self, inner: &Inner, host: &HostName, now: Instant) -> Duration {
        let entry = inner.hosts.get(host);
        let heard = entry.and_then(|entry| entry.heard.as_ref()).map(|heard| heard.at);
        let last = heard.max(entry.and_then(|entry| entry.met)).unwrap_or(self.started);
        now.saturating_duration_since(last)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every update is complete before anything in it could panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn want(&mut self, wanted: BTreeMap<Arc<str>, NodeRequest>) {
        self.wanted = wanted;
        self.news.send_modify(|count| *count += 1);
    }
}

/// Returns the request for the node, if it is wanted.
fn order_of(node: &Node) -> Option<NodeRequest> {
    let is_wanted = match node.phase() {
        NodePhase::Requested | NodePhase::Booting | NodePhase::Idle | NodePhase::Leased => true,
        NodePhase::Unusable | NodePhase::Leaving | NodePhase::Gone => false,
    };
    is_wanted.then(|| NodeRequest {
        node: node.id,
        cluster: node.cluster,
        name: node.name.clone(),
        host: node.host.clone(),
        vm_size: node.vm_size.clone(),
        capacity: node.capacity,
        tier: node.tier,
    })
}

#[cfg(test)]
mod tests;
