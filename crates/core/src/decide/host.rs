//! Which hosts new nodes go to.
//!
//! A host that has what the waiting job's environment is made of comes first. Joined hosts come before the server's own
//! machine, and of those with room the one that is left with least: so large nodes find a place for longer. The nodes of one job are all on one host, as nodes of different
//! hosts do not reach each other.

use std::collections::{BTreeMap, BTreeSet};

use super::reserve::has_environment;
use crate::ids::NodeId;
use crate::model::{Capacity, Cluster, HostName, RecipeMark, ScaleUp};
use crate::world::{ClusterIndex, World, nodes_for};

/// What a plan may use.
pub(super) struct Bounds<'a> {
    /// Nodes to place now.
    pub(super) nodes: u32,
    /// Of these, nodes that the minimum calls for, whoever waits.
    pub(super) floor: u32,
    /// What the maximum and the quota leave room for: half a job is of no use.
    pub(super) room: u32,
    /// Hosts that are kept for others.
    pub(super) closed: &'a BTreeSet<HostName>,
}

/// A host with what is left of it, and with the nodes of the pool there that hold no job.
struct Berth {
    host: HostName,
    /// `None` has no bound.
    room: Option<Capacity>,
    free: u32,
    /// It has the environment of the job that is dealt with.
    has_environment: bool,
}

impl Berth {
    fn holds(&self, node: Capacity) -> u32 {
        self.room.map_or(u32::MAX, |room| room.holds(node))
    }

    fn take(&mut self, nodes: u32, node: Capacity) {
        for _ in 0..nodes {
            self.room = self.room.map(|room| room.without(node));
        }
    }
}

/// The host of each new node, as many as there is room for; and whether the hosts, and nothing else, kept some
/// from being placed.
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
        berths: berths(world, cluster, index, bounds.closed, None),
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

fn berths(
    world: &World,
    cluster: &Cluster,
    index: &ClusterIndex,
    closed: &BTreeSet<HostName>,
    environment: Option<RecipeMark>,
) -> Vec<Berth> {
    let mut free: BTreeMap<&HostName, u32> = BTreeMap::new();
    let spare = index.idle.iter().chain(&index.pending).filter_map(|(_, node)| world.node(*node));
    for node in spare {
        *free.entry(&node.host).or_default() += 1;
    }
    let is_boundless = world.is_boundless();
    let local = HostName::local();
    let mut berths: Vec<Berth> = Vec::new();
    for host in world.takers(cluster).into_iter().filter(|host| !closed.contains(&host.name)) {
        let room = (!(is_boundless && host.name.is_local())).then(|| world.room_on(host));
        let free = free.get(&host.name).copied().unwrap_or(0);
        berths.push(Berth { host: host.name.clone(), room, free, has_environment: false });
    }
    if is_boundless && berths.iter().all(|berth| berth.host != local) {
        let free = free.get(&local).copied().unwrap_or(0);
        berths.push(Berth { host: local, room: None, free, has_environment: false });
    }
    mark(world, &mut berths, environment);
    berths
}

fn mark(world: &World, berths: &mut [Berth], environment: Option<RecipeMark>) {
    for berth in berths {
        let has = |mark| has_environment(world, &berth.host, mark);
        berth.has_environment = environment.is_some_and(has);
    }
}

struct Plan {
    /// Joined hosts, then the server's own machine.
    berths: Vec<Berth>,
    node: Capacity,
    /// Nodes that may still be placed.
    left: u32,
    room: u32,
    chosen: Vec<HostName>,
    is_full: bool,
}

impl Plan {
    /// Deals out the waiting jobs to nodes that are free and to new ones, in their order. `false` if the very
    /// first cannot have all its nodes: then nobody behind it gets any.
    fn serve_queue(&mut self, world: &World, cluster: &Cluster, index: &ClusterIndex) -> bool {
        let reach = world.reach(cluster);
        let kinds = index.queue.candidates().filter(|kind| kind.shape.nodes <= reach);
        let mut is_first = true;
        for kind in kinds {
            let environment = world.job(kind.job).and_then(|job| job.environment);
            mark(world, &mut self.berths, environment);
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
        for berth in &mut self.berths {
            let more = berth.free.min(nodes - used);
            berth.free -= more;
            used += more;
        }
        used
    }

    /// Up to so many nodes, each wherever it leaves least.
    fn add_single(&mut self, nodes: u32) {
        for _ in 0..nodes.min(self.left) {
            let node = self.node;
            let fitting = self.berths.iter_mut().filter(|berth| berth.holds(node) > 0);
            let best = fitting.min_by_key(|berth| {
                let place = (berth.host.is_local(), berth.room.is_none(), berth.room);
                (!berth.has_environment, place, berth.host.clone())
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

    /// The nodes of one job, on the host where fewest have to be made.
    fn add_gang(&mut self, nodes: u32) -> bool {
        let Some(best) = gang_berth(&self.berths, nodes, self.node) else {
            self.is_full = true;
            return false;
        };
        let berth = &mut self.berths[best];
        let missing = nodes.saturating_sub(berth.free);
        if missing > self.room {
            return false;
        }
        berth.free -= berth.free.min(nodes);
        let made = missing.min(self.left);
        berth.take(missing, self.node);
        self.chosen.extend((0..made).map(|_| berth.host.clone()));
        self.left -= made;
        self.room -= missing;
        true
    }
}

fn gang_berth(berths: &[Berth], nodes: u32, node: Capacity) -> Option<usize> {
    let holding = berths
        .iter()
        .enumerate()
        .filter(|(_, berth)| nodes.saturating_sub(berth.free) <= berth.holds(node));
    let best = holding.min_by_key(|(_, berth)| {
        let missing = nodes.saturating_sub(berth.free);
        let place = (berth.host.is_local(), berth.room.is_none(), berth.room, &berth.host);
        (missing, !berth.has_environment, place)
    });
    best.map(|(place, _)| place)
}

/// How many nodes the first waiting job needs, if these must be on one of several hosts.
pub(super) fn first_gang(world: &World, cluster: &Cluster, index: &ClusterIndex) -> Option<u32> {
    first_of_several(world, cluster, index).map(|(nodes, _)| nodes)
}

/// With its environment.
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
    let environment = world.job(first.job).and_then(|job| job.environment);
    (first.shape.nodes > 1).then_some((first.shape.nodes, environment))
}

/// Idle nodes that stand in the way of the first waiting job: it needs all its nodes on one host, and these
/// are elsewhere, while the maximum or the quota leaves no room for those that are missing. Without them there
/// would be: otherwise none is named.
pub(super) fn in_the_way(world: &World, cluster: &Cluster, index: &ClusterIndex) -> Vec<NodeId> {
    let Some((nodes, environment)) = first_of_several(world, cluster, index) else {
        return Vec::new();
    };
    let berths = berths(world, cluster, index, &BTreeSet::new(), environment);
    let Some(best) = gang_berth(&berths, nodes, cluster.capacity) else { return Vec::new() };
    let missing = nodes.saturating_sub(berths[best].free);
    let room =
        world.ceiling(cluster).saturating_sub(index.existing()).min(world.quota_room(cluster));
    let short = missing.saturating_sub(room) as usize;
    let elsewhere = index
        .idle
        .iter()
        .map(|(_, node)| *node)
        .filter(|node| world.node(*node).is_some_and(|node| node.host != berths[best].host));
    // Those that are on their way out make room by themselves.
    let going = index.going.len();
    let elsewhere: Vec<NodeId> = elsewhere.take(short.saturating_sub(going)).collect();
    if elsewhere.len() + going < short { Vec::new() } else { elsewhere }
}

/// Nodes that the first waiting job still needs on its host, where free nodes on others are of no use to it.
pub(super) fn missing_on_one(world: &World, cluster: &Cluster, index: &ClusterIndex) -> u32 {
    // What is busy now may do: a pool that grows by prediction waits for it.
    let waits = cluster.spec.scale.scale_up == ScaleUp::Predictive && !index.leased.is_empty();
    if index.hosts.len() < 2 || waits {
        return 0;
    }
    let Some((nodes, environment)) = first_of_several(world, cluster, index) else { return 0 };
    let berths = berths(world, cluster, index, &BTreeSet::new(), environment);
    let best = gang_berth(&berths, nodes, cluster.capacity);
    best.map_or(0, |best| nodes.saturating_sub(berths[best].free))
}

/// Hosts that could have a node of this cluster if they were empty: kept for it once it is its turn.
pub(super) fn kept_for(world: &World, cluster: &Cluster) -> Vec<HostName> {
    let takers = world.takers(cluster).into_iter();
    let able = takers.filter(|host| cluster.capacity.fits_into(host.capacity));
    able.map(|host| host.name.clone()).collect()
}
