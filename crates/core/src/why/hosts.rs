//! Why hosts keep a pool from growing.

use super::Reason;
use crate::model::{Capacity, Cluster, ClusterName, HostName, HostState};
use crate::world::{ClusterIndex, World};

/// What is said of no more hosts than this: the ones with most room.
const SHOWN: usize = 3;

/// What keeps nodes of a size from being made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostsShort {
    pub cluster: ClusterName,
    pub size: Box<str>,
    /// What one node takes.
    pub node: Capacity,
    /// What the hosts have, or have left; the largest first, and only some of many.
    pub hosts: Vec<(HostName, Capacity)>,
    /// How many nodes would find a place now, and how many are needed.
    pub room: u32,
    pub needed: u32,
    /// How many nodes one job needs on one host, where no host has room for them.
    pub gang: Option<u32>,
}

/// Nodes that nobody starts on, as their host is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostClosed {
    pub cluster: ClusterName,
    pub host: HostName,
    pub state: HostState,
    pub nodes: u32,
}

/// The hosts could not have `nodes` nodes of one job even if they were empty.
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

/// The hosts have no room for `nodes` more nodes, or not on one host for a job of `gang` nodes.
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

/// Hosts of the pool that are not open.
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
        let has = if is_ever { "has" } else { "has left" };
        let hosts: Vec<String> = self
            .hosts
            .iter()
            .map(|(host, capacity)| format!("host '{host}' {has} {}", amount(*capacity)))
            .collect();
        let hosts =
            if hosts.is_empty() { "no host takes its nodes".to_owned() } else { hosts.join(", ") };
        let (cluster, size, needed) = (&self.cluster, &self.size, self.needed);
        if let Some(gang) = self.gang {
            let now = if is_ever { "" } else { " now" };
            return format!(
                "All nodes of a job must be on one host; no host has room for {gang} × {size} ({node} each){now}: {hosts}"
            );
        }
        if is_ever {
            return format!("{needed} of {size} ({node}) for '{cluster}' fit on no host: {hosts}");
        }
        format!("'{cluster}' needs {needed} more of {size} ({node}), and {hosts}")
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
