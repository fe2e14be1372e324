//! Why hosts prevent a cluster from growing.

use super::Reason;
use crate::model::{Capacity, Cluster, ClusterName, HostName, HostState};
use crate::world::{ClusterIndex, World};

/// At most this many hosts are listed: those with the most room.
const SHOWN: usize = 3;

/// Why there is no room for nodes of a size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostsShort {
    pub cluster: ClusterName,
    pub size: Box<str>,
    /// The capacity that one node needs.
    pub node: Capacity,
    /// The total or remaining capacity of the hosts with the most of it, in descending order.
    pub hosts: Vec<(HostName, Capacity)>,
    /// How many nodes there is room for now; `needed` is how many there should be room for.
    pub room: u32,
    pub needed: u32,
    /// The number of nodes of one job, if no host has room for all of them.
    pub gang: Option<u32>,
}

/// Nodes on which no job starts, because their host is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostClosed {
    pub cluster: ClusterName,
    pub host: HostName,
    pub state: HostState,
    pub nodes: u32,
}

/// The reason if no host could hold `nodes` nodes of one job even if it were empty.
pub(super) fn too_small(world: &World, cluster: &Cluster, nodes: u32) -> Option<Reason> {
    if world.is_boundless() {
        return None;
    }
    let takers = world.takers(cluster);
    let most = takers.iter().map(|host| host.capacity.holds(cluster.capacity)).max().unwrap_or(0);
    let hosts = takers.iter().map(|host| (host.name.clone(), host.capacity)).collect();
    let gang = Some(nodes).filter(|nodes| *nodes > 1);
    (most < nodes).then(|| Reason::HostsTooSmall(short(cluster, hosts, (most, nodes), gang)))
}

/// The reason if the hosts have no room for `nodes` more nodes, or no single host has room for a job of `gang` nodes.
pub(super) fn full(world: &World, cluster: &Cluster, nodes: u32, gang: u32) -> Option<Reason> {
    if nodes == 0 || world.is_boundless() || too_small(world, cluster, gang).is_some() {
        return None;
    }
    let takers = world.takers(cluster);
    let room = world.room_for(cluster, None);
    let there = world.cluster_index(cluster.id).map(|index| &index.hosts);
    let is_whole = takers.iter().any(|host| {
        let own = there.and_then(|hosts| hosts.get(&host.name)).copied().unwrap_or(0);
        world.room_on(host).holds(cluster.capacity).saturating_add(own) >= gang
    });
    let hosts = takers.iter().map(|host| (host.name.clone(), world.room_on(host))).collect();
    let whole = Some(gang).filter(|gang| *gang > 1 && !is_whole);
    (room < nodes || !is_whole)
        .then(|| Reason::HostsFull(short(cluster, hosts, (room, nodes), whole)))
}

fn short(
    cluster: &Cluster,
    mut hosts: Vec<(HostName, Capacity)>,
    (room, needed): (u32, u32),
    gang: Option<u32>,
) -> Box<HostsShort> {
    hosts.sort_by(|(_, one), (_, other)| other.cmp(one));
    hosts.truncate(SHOWN);
    Box::new(HostsShort {
        cluster: cluster.name.clone(),
        size: (&*cluster.spec.vm_size).into(),
        node: cluster.capacity,
        hosts,
        room,
        needed,
        gang,
    })
}

/// One reason for each of the cluster's hosts that is not open.
pub(super) fn closed(world: &World, cluster: &Cluster, index: &ClusterIndex) -> Vec<Reason> {
    let hosts = index.hosts.iter().filter_map(|(name, nodes)| {
        let host = world.hosts().host(name).filter(|host| !host.state.is_open())?;
        Some(Reason::HostClosed(HostClosed {
            cluster: cluster.name.clone(),
            host: name.clone(),
            state: host.state,
            nodes: *nodes,
        }))
    });
    hosts.collect()
}

impl HostsShort {
    pub(super) fn words(&self, is_ever: bool) -> String {
        let node = amount(self.node);
        let left = if is_ever { "" } else { " left" };
        let hosts: Vec<String> = self
            .hosts
            .iter()
            .map(|(host, capacity)| format!("host '{host}' has {}{left}", amount(*capacity)))
            .collect();
        let hosts = if hosts.is_empty() {
            "no host is open for its nodes".to_owned()
        } else {
            hosts.join(", ")
        };
        let (cluster, size, needed) = (&self.cluster, &self.size, self.needed);
        if let Some(gang) = self.gang {
            let now = if is_ever { "" } else { " now" };
            return format!(
                "all nodes of a job must be on one host; no host has room for {gang} × {size} ({node} each){now}: \
                 {hosts}"
            );
        }
        if is_ever {
            return format!(
                "no host has room for {needed} × {size} ({node}) of '{cluster}': {hosts}"
            );
        }
        format!("'{cluster}' needs {needed} more × {size} ({node}), but {hosts}")
    }
}

fn amount(capacity: Capacity) -> String {
    let Capacity { gpus, vcpus, memory_mb } = capacity;
    let gpus = match gpus {
        0 => String::new(),
        1 => ", 1 GPU".to_owned(),
        more => format!(", {more} GPUs"),
    };
    let s = if vcpus == 1 { "" } else { "s" };
    format!("{vcpus} core{s}, {memory_mb} MB{gpus}")
}
