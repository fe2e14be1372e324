//! The book of hosts and of tickets to join, and the questions asked of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{Host, HostName, JoinTicket, KeyDigest};

/// World holds it; the server reads it in a copy that is renewed after every commit that changes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts {
    hosts: BTreeMap<HostName, Arc<Host>>,
    tickets: BTreeMap<KeyDigest, JoinTicket>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostChange {
    Host(Arc<Host>),
    HostGone(HostName),
    Ticket(JoinTicket),
    TicketGone(KeyDigest),
}

impl Hosts {
    pub(crate) fn apply(&mut self, change: &HostChange) {
        match change {
            HostChange::Host(host) => {
                self.hosts.insert(host.name.clone(), Arc::clone(host));
            }
            HostChange::HostGone(name) => {
                self.hosts.remove(name);
            }
            HostChange::Ticket(ticket) => {
                self.tickets.insert(ticket.digest, ticket.clone());
            }
            HostChange::TicketGone(digest) => {
                self.tickets.remove(digest);
            }
        }
    }

    pub fn host(&self, name: &HostName) -> Option<&Arc<Host>> {
        self.hosts.get(name)
    }

    /// By name.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &Arc<Host>> {
        self.hosts.values()
    }

    pub fn ticket(&self, digest: &KeyDigest) -> Option<&JoinTicket> {
        self.tickets.get(digest)
    }

    pub fn tickets(&self) -> impl ExactSizeIterator<Item = &JoinTicket> {
        self.tickets.values()
    }

    /// Which host has this key. Every key is compared with the given function, so that it can take the same
    /// time whichever matches.
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
