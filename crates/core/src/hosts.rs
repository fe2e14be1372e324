//! The hosts and the join tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{Host, HostName, HostState, JoinTokenRecord, KeyDigest, Scope};

/// All hosts and join tokens. World holds them; the server reads a copy, renewed after every commit that changes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts {
    hosts: BTreeMap<HostName, Arc<Host>>,
    tickets: BTreeMap<KeyDigest, JoinTokenRecord>,
    /// The hosts by the scope of the clusters whose nodes they take.
    by_intent: BTreeMap<Scope, BTreeSet<HostName>>,
    /// Hosts that are not open.
    closed: BTreeSet<HostName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostChange {
    Host(Arc<Host>),
    HostGone(HostName),
    Ticket(JoinTokenRecord),
    TicketGone(KeyDigest),
}

impl Hosts {
    pub(crate) fn apply(&mut self, change: &HostChange) {
        match change {
            HostChange::Host(host) => {
                self.forget(&host.name);
                let takers = self.by_intent.entry(host.intent.clone()).or_default();
                takers.insert(host.name.clone());
                if !host.state.is_open() {
                    self.closed.insert(host.name.clone());
                }
                self.hosts.insert(host.name.clone(), Arc::clone(host));
            }
            HostChange::HostGone(name) => self.forget(name),
            HostChange::Ticket(ticket) => {
                self.tickets.insert(ticket.digest, ticket.clone());
            }
            HostChange::TicketGone(digest) => {
                self.tickets.remove(digest);
            }
        }
    }

    fn forget(&mut self, name: &HostName) {
        let Some(host) = self.hosts.remove(name) else { return };
        self.closed.remove(name);
        if let Some(takers) = self.by_intent.get_mut(&host.intent) {
            takers.remove(name);
            if takers.is_empty() {
                self.by_intent.remove(&host.intent);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    pub(crate) fn is_any_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Hosts that were given up.
    pub(crate) fn removing(&self) -> impl Iterator<Item = &Arc<Host>> {
        let closed = self.closed.iter().filter_map(|name| self.hosts.get(name));
        closed.filter(|host| host.state == HostState::Removing)
    }

    /// The hosts that take nodes of this cluster.
    pub fn takers(&self, cluster: &Scope) -> impl Iterator<Item = &Arc<Host>> {
        let mut next = Some(cluster.clone());
        let places = std::iter::from_fn(move || {
            let place = next.take()?;
            next = place.parent();
            Some(place)
        });
        let names = places.filter_map(|place| self.by_intent.get(&place)).flatten();
        names.filter_map(|name| self.hosts.get(name))
    }

    pub fn host(&self, name: &HostName) -> Option<&Arc<Host>> {
        self.hosts.get(name)
    }

    /// All hosts, ordered by name.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &Arc<Host>> {
        self.hosts.values()
    }

    pub fn ticket(&self, digest: &KeyDigest) -> Option<&JoinTokenRecord> {
        self.tickets.get(digest)
    }

    pub fn tickets(&self) -> impl ExactSizeIterator<Item = &JoinTokenRecord> {
        self.tickets.values()
    }

    /// The host that holds this key. Every key is compared, and with the given function, so that the time it takes need
    /// not reveal which one matches.
    pub fn holder_of(
        &self,
        digest: &KeyDigest,
        is_same: impl Fn(&KeyDigest, &KeyDigest) -> bool,
    ) -> Option<&Arc<Host>> {
        let mut found = None;
        for host in self.hosts.values() {
            if host.key.is_some_and(|key| is_same(&key, digest)) {
                found = Some(host);
            }
        }
        found
    }
}
