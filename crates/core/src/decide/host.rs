//! Which hosts new nodes are created on.
//!
//! A host that already has the environment of the waiting job is preferred. Joined hosts are preferred to the server's
//! own host, and among those with room the one that will have the least room left, so that large nodes find a place for
//! longer. All nodes of one job are on one host, because nodes on different hosts cannot reach each other.

use std::collections::{BTreeMap, BTreeSet};

use super::reserve::has_environment;
use crate::ids::NodeId;
use crate::model::{Capacity, Cluster, HostName, RecipeMark, ScaleUp};
use crate::world::{ClusterIndex, World, nodes_for};

/// The limits within which a plan must stay.
pub(super) struct Bounds<'a> {
    /// How many nodes to place now.
    pub(super) nodes: u32,
    /// How many of these the minimum requires, whether or not any job waits.
    pub(super) floor: u32,
    /// How many nodes the maximum and the quota leave room for. A multi-node job needs all of its nodes.
    pub(super) room: u32,
    /// Hosts that are kept for other clusters.
    pub(super) closed: &'a BTreeSet<HostName>,
}

/// A host with its remaining capacity and the number of the cluster's nodes there that hold no job.
struct HostSpace {
    host: HostName,
    /// `None` means unlimited.
    room: Option<Capacity>,
    free: u32,
    /// Whether it has the environment of the job being placed.
    has_environment: bool,
}

impl HostSpace {
    fn holds(&self, node: Capacity) -> u32 {
        self.room.map_or(u32::MAX, |room| room.holds(node))
    }

    fn take(&mut self, nodes: u32, node: Capacity) {
        for _ in 0..nodes {
            self.room = self.room.map(|room| room.without(node));
        }
    }
}

/// The host of each new node, for as many as there is room for, and whether a lack of room on hosts was the only
/// reason why some could not be placed.
pub(super) fn plan(
    world: &World,
    cluster: &Cluster,
    index: &ClusterIndex,
    bounds: &Bounds<'_>,
) -> (Vec<HostName>, bool) {
    let takers = world.takers(cluster);
    if world.is_boundless() && takers.iter().all(|host| host.name.is_local()) {
        return (vec![HostName::local(); bounds.nodes as usize], false);
    }
    let mut plan = Plan {
        spaces: spaces(world, cluster, index, bounds.closed, None),
        node: cluster.capacity,
        left: bounds.nodes,
        room: bounds.room,
        chosen: Vec::new(),
        is_full: false,
    };
    let is_whole = plan.serve_queue(world, cluster, index);
    let rest = if is_whole {
        plan.left
    } else {
        bounds.floor.saturating_sub(u32::try_from(plan.chosen.len()).unwrap_or(u32::MAX))
    };
    plan.add_single(rest);
    (plan.chosen, plan.is_full)
}

fn spaces(
    world: &World,
    cluster: &Cluster,
    index: &ClusterIndex,
    closed: &BTreeSet<HostName>,
    environment: Option<RecipeMark>,
) -> Vec<HostSpace> {
    let mut free: BTreeMap<&HostName, u32> = BTreeMap::new();
    let spare = index.idle.iter().chain(&index.pending).filter_map(|(_, node)| world.node(*node));
    for node in spare {
        *free.entry(&node.host).or_default() += 1;
    }
    let is_boundless = world.is_boundless();
    let local = HostName::local();
    let mut spaces: Vec<HostSpace> = Vec::new();
    for host in world.takers(cluster).into_iter().filter(|host| !closed.contains(&host.name)) {
        let room = (!(is_boundless && host.name.is_local())).then(|| world.room_on(host));
        let free = free.get(&host.name).copied().unwrap_or(0);
        spaces.push(HostSpace { host: host.name.clone(), room, free, has_environment: false });
    }
    if is_boundless && spaces.iter().all(|space| space.host != local) {
        let free = free.get(&local).copied().unwrap_or(0);
        spaces.push(HostSpace { host: local, room: None, free, has_environment: false });
    }
    mark(world, &mut spaces, environment);
    spaces
}

fn mark(world: &World, spaces: &mut [HostSpace], environment: Option<RecipeMark>) {
    for space in spaces {
        let has = |mark| has_environment(world, &space.host, mark);
        space.has_environment = environment.is_some_and(has);
    }
}

struct Plan {
    /// Joined hosts, then the server's own.
    spaces: Vec<HostSpace>,
    node: Capacity,
    /// Nodes that may still be placed.
    left: u32,
    room: u32,
    chosen: Vec<HostName>,
    is_full: bool,
}

impl Plan {
    /// Assigns the waiting jobs, in queue order, to free nodes and to new ones. Returns `false` if the first job cannot
    /// have all of its nodes; no later job gets any then.
    fn serve_queue(&mut self, world: &World, cluster: &Cluster, index: &ClusterIndex) -> bool {
        let reach = world.reach(cluster);
        let kinds = index.queue.candidates().filter(|kind| kind.shape.nodes <= reach);
        let mut is_first = true;
        for kind in kinds {
            let environment = world.record_of(kind.job).and_then(|job| job.environment);
            mark(world, &mut self.spaces, environment);
            let jobs = u32::try_from(kind.count).unwrap_or(u32::MAX);
            let nodes = u32::try_from(nodes_for(kind.shape, jobs, self.node)).unwrap_or(u32::MAX);
            if kind.shape.nodes == 1 {
                let used = self.use_free(nodes);
                self.add_single(nodes - used);
            } else {
                for _ in 0..nodes.div_ceil(kind.shape.nodes) {
                    if self.left == 0 {
                        break;
                    }
                    if !self.add_gang(kind.shape.nodes) {
                        if is_first {
                            return false;
                        }
                        break;
                    }
                    is_first = false;
                }
            }
            is_first = false;
            if self.left == 0 {
                break;
            }
        }
        true
    }

    fn use_free(&mut self, nodes: u32) -> u32 {
        let mut used = 0;
        for space in &mut self.spaces {
            let more = space.free.min(nodes - used);
            space.free -= more;
            used += more;
        }
        used
    }

    /// Adds up to this many nodes, each on the host that it leaves with the least room.
    fn add_single(&mut self, nodes: u32) {
        for _ in 0..nodes.min(self.left) {
            let node = self.node;
            let fitting = self.spaces.iter_mut().filter(|space| space.holds(node) > 0);
            let best = fitting.min_by_key(|space| {
                let place = (space.host.is_local(), space.room.is_none(), space.room);
                (!space.has_environment, place, space.host.clone())
            });
            let Some(best) = best else {
                self.is_full = true;
                return;
            };
            best.take(1, node);
            self.chosen.push(best.host.clone());
            self.left -= 1;
        }
    }

    /// Adds the nodes of one job, on the host that needs the fewest new ones.
    fn add_gang(&mut self, nodes: u32) -> bool {
        let Some(best) = gang_space(&self.spaces, nodes, self.node) else {
            self.is_full = true;
            return false;
        };
        let space = &mut self.spaces[best];
        let missing = nodes.saturating_sub(space.free);
        if missing > self.room {
            return false;
        }
        space.free -= space.free.min(nodes);
        let made = missing.min(self.left);
        space.take(missing, self.node);
        self.chosen.extend((0..made).map(|_| space.host.clone()));
        self.left -= made;
        self.room -= missing;
        true
    }
}

fn gang_space(spaces: &[HostSpace], nodes: u32, node: Capacity) -> Option<usize> {
    let holding = spaces
        .iter()
        .enumerate()
        .filter(|(_, space)| nodes.saturating_sub(space.free) <= space.holds(node));
    let best = holding.min_by_key(|(_, space)| {
        let missing = nodes.saturating_sub(space.free);
        let place = (space.host.is_local(), space.room.is_none(), space.room, &space.host);
        (missing, !space.has_environment, place)
    });
    best.map(|(place, _)| place)
}

/// How many nodes the first waiting job needs, if they must all be on one of several hosts.
pub(super) fn first_gang(world: &World, cluster: &Cluster, index: &ClusterIndex) -> Option<u32> {
    first_of_several(world, cluster, index).map(|(nodes, _)| nodes)
}

/// The same together with the environment of the job.
fn first_of_several(
    world: &World,
    cluster: &Cluster,
    index: &ClusterIndex,
) -> Option<(u32, Option<RecipeMark>)> {
    if index.hosts.len() < 2 && world.takers(cluster).len() < 2 {
        return None;
    }
    let reach = world.reach(cluster);
    let first = index.queue.candidates().find(|kind| kind.shape.nodes <= reach)?;
    let environment = world.record_of(first.job).and_then(|job| job.environment);
    (first.shape.nodes > 1).then_some((first.shape.nodes, environment))
}

/// Idle nodes that block the first waiting job: it needs all of its nodes on one host, these nodes are on others, and
/// the maximum or the quota leaves no room for the missing ones. Empty if deleting them would not make enough room.
pub(super) fn blocking_nodes(
    world: &World,
    cluster: &Cluster,
    index: &ClusterIndex,
) -> Vec<NodeId> {
    let Some((nodes, environment)) = first_of_several(world, cluster, index) else {
        return Vec::new();
    };
    let spaces = spaces(world, cluster, index, &BTreeSet::new(), environment);
    let Some(best) = gang_space(&spaces, nodes, cluster.capacity) else { return Vec::new() };
    let missing = nodes.saturating_sub(spaces[best].free);
    let room =
        world.ceiling(cluster).saturating_sub(index.existing()).min(world.quota_room(cluster));
    let short = missing.saturating_sub(room) as usize;
    let elsewhere = index
        .idle
        .iter()
        .map(|(_, node)| *node)
        .filter(|node| world.node(*node).is_some_and(|node| node.host != spaces[best].host));
    // Nodes that are being deleted already make room by themselves.
    let going = index.going.len();
    let elsewhere: Vec<NodeId> = elsewhere.take(short.saturating_sub(going)).collect();
    if elsewhere.len() + going < short { Vec::new() } else { elsewhere }
}

/// How many nodes the first waiting job still needs on its host. Free nodes on other hosts are of no use to it.
pub(super) fn missing_on_one(world: &World, cluster: &Cluster, index: &ClusterIndex) -> u32 {
    // A node that is busy now may become free in time: a predictive cluster waits for that.
    let waits = cluster.spec.scale.scale_up == ScaleUp::Predictive && !index.leased.is_empty();
    if index.hosts.len() < 2 || waits {
        return 0;
    }
    let Some((nodes, environment)) = first_of_several(world, cluster, index) else { return 0 };
    let spaces = spaces(world, cluster, index, &BTreeSet::new(), environment);
    let best = gang_space(&spaces, nodes, cluster.capacity);
    best.map_or(0, |best| nodes.saturating_sub(spaces[best].free))
}

/// Hosts that could hold a node of this cluster if they were empty. They are kept for it when it is its turn.
pub(super) fn kept_for(world: &World, cluster: &Cluster) -> Vec<HostName> {
    let takers = world.takers(cluster).into_iter();
    let able = takers.filter(|host| cluster.capacity.fits_into(host.capacity));
    able.map(|host| host.name.clone()).collect()
}
