//! Which hosts take the nodes of a cluster, and how much is left on them.

use std::sync::Arc;

use super::World;
use crate::model::{Capacity, Cluster, Host, HostName};

impl World {
    /// Whether the server's own host takes nodes beyond its capacity.
    pub fn is_boundless(&self) -> bool {
        self.settings.over_commit && self.is_open(&HostName::local())
    }

    /// Whether this host takes new nodes, and its nodes new jobs. The server's own host does even before it has been
    /// measured.
    pub fn is_open(&self, host: &HostName) -> bool {
        !self.hosts.is_any_closed() || self.hosts.host(host).is_none_or(|host| host.state.is_open())
    }

    /// The hosts that take new nodes of this cluster: joined hosts, then the server's own.
    pub fn takers(&self, cluster: &Cluster) -> Vec<&Arc<Host>> {
        if self.hosts.is_empty() {
            return Vec::new();
        }
        let mut takers: Vec<&Arc<Host>> = self.hosts.takers(&self.scope_of(cluster)).collect();
        takers.retain(|host| host.takes_nodes());
        takers.sort_unstable_by_key(|host| (host.name.is_local(), &host.name));
        takers
    }

    /// The remaining capacity of a host, counting nodes in flight as used.
    pub fn room_on(&self, host: &Host) -> Capacity {
        let used =
            self.host_nodes(&host.name).map_or(Capacity::default(), |host_nodes| host_nodes.used);
        host.capacity.without(used)
    }

    /// How many more nodes of this cluster the hosts, or this one, have room for now.
    pub(crate) fn room_for(&self, cluster: &Cluster, on: Option<&HostName>) -> u32 {
        if self.is_boundless() && on.is_none_or(HostName::is_local) {
            return u32::MAX;
        }
        let takers = self.takers(cluster).into_iter();
        let there = takers.filter(|host| on.is_none_or(|on| host.name == *on));
        let rooms = there.map(|host| self.room_on(host).holds(cluster.capacity));
        rooms.fold(0, u32::saturating_add)
    }

    /// The most nodes of this cluster that the hosts can hold, no matter how many nodes other clusters have there.
    /// Existing nodes on hosts that take no new ones are included.
    pub(super) fn hosts_ceiling(&self, cluster: &Cluster) -> u32 {
        if self.is_boundless() {
            return u32::MAX;
        }
        let takers = self.takers(cluster);
        let elsewhere = self.cluster_index(cluster.id).into_iter().flat_map(|index| &index.hosts);
        let is_elsewhere = |host: &HostName| takers.iter().all(|taker| taker.name != *host);
        let elsewhere: u32 =
            elsewhere.filter(|(host, _)| is_elsewhere(host)).map(|(_, nodes)| *nodes).sum();
        let most = takers.iter().map(|host| host.capacity.holds(cluster.capacity));
        most.fold(elsewhere, u32::saturating_add)
    }

    /// The most nodes that one job on this cluster can ever have: all of them must be on one host, because nodes on
    /// different hosts cannot reach each other. A job that needs more does not hold back others.
    pub fn reach(&self, cluster: &Cluster) -> u32 {
        let ceiling = self.ceiling(cluster);
        if self.is_boundless() {
            return ceiling;
        }
        let takers = self.takers(cluster);
        let most = takers.iter().map(|host| host.capacity.holds(cluster.capacity)).max();
        ceiling.min(most.unwrap_or(0))
    }
}
