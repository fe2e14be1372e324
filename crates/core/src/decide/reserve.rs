//! The reservation of the first job that has to wait.
//!
//! It tells when the job will be able to start if every prediction holds, and which of the nodes that have room now it
//! will need by then. A later job may use one of these nodes only if it will be done by that time. So with exact
//! predictions the first job is never delayed, and small jobs cannot starve a multi-node job.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::NodeId;
use crate::model::{Capacity, Cluster, HostName, Lease, RecipeMark, Shape};
use crate::time::{Span, Wall};
use crate::world::{ClusterIndex, World};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) at: Wall,
    /// Nodes with room now that the job will need at that time.
    pub(crate) nodes: BTreeSet<NodeId>,
}

/// The reservation for a job of this shape, which does not fit now. The forecast must be up to date. A multi-node job
/// gets all of its nodes on one host: the one that will have them first.
pub(crate) fn reserve(
    world: &World,
    cluster: &Cluster,
    index: &ClusterIndex,
    shape: Shape,
    now: Wall,
) -> Reservation {
    let mut hosts: BTreeSet<HostName> =
        index.hosts.keys().filter(|host| world.is_open(host)).cloned().collect();
    if shape.nodes > 1 {
        hosts.extend(world.takers(cluster).into_iter().map(|host| host.name.clone()));
        hosts.extend(world.is_boundless().then(HostName::local));
    }
    if shape.nodes == 1 || hosts.len() < 2 {
        return reserve_on(world, cluster, index, shape, now, None);
    }
    let each = hosts.iter().map(|host| reserve_on(world, cluster, index, shape, now, Some(host)));
    each.min_by_key(|reservation| reservation.at).expect("there are two hosts or more")
}

/// The reservation on one host, or on any if `on` is `None`.
fn reserve_on(
    world: &World,
    cluster: &Cluster,
    index: &ClusterIndex,
    shape: Shape,
    now: Wall,
    on: Option<&HostName>,
) -> Reservation {
    let needed = shape.nodes as usize;
    let mut fitting = Vec::new();
    visit_room(world, index, shape, &BTreeSet::new(), |node| {
        if is_on(world, node, on) {
            fitting.push(node);
        }
        fitting.len() == needed
    });
    let mut coming = Coming::new(world, cluster, index, shape, now, on);
    let mut later = 0;
    let mut at = now;
    while fitting.len() + later < needed {
        let Some((time, nodes)) = coming.next() else {
            at = Wall(u64::MAX);
            break;
        };
        at = time;
        later += nodes;
    }
    // Other nodes that will be available by then need not be kept free now.
    later += coming.by(at);
    let kept = needed.saturating_sub(later).min(fitting.len());
    Reservation { at, nodes: fitting[fitting.len() - kept..].iter().copied().collect() }
}

fn is_on(world: &World, node: NodeId, host: Option<&HostName>) -> bool {
    host.is_none_or(|host| world.node(node).is_some_and(|node| node.host == *host))
}

/// The nodes that could run a job of this shape now: the best first, at most as many as it needs, and all on one host.
/// A host that already has the job's environment is preferred; otherwise it is the first host with enough nodes, or the
/// one with the most.
pub(crate) fn nodes_with_room(
    world: &World,
    index: &ClusterIndex,
    shape: Shape,
    environment: Option<RecipeMark>,
    avoided: &BTreeSet<NodeId>,
) -> Vec<NodeId> {
    if let Some(mark) = environment.filter(|_| index.hosts.len() > 1) {
        let has_it = |host: &&HostName| has_environment(world, host, mark);
        let hosts: BTreeSet<&HostName> = index.hosts.keys().filter(has_it).collect();
        if !hosts.is_empty() && hosts.len() < index.hosts.len() {
            let nodes = nodes_on(world, index, shape, avoided, |host| hosts.contains(host));
            if nodes.len() == shape.nodes as usize {
                return nodes;
            }
        }
    }
    nodes_on(world, index, shape, avoided, |_| true)
}

pub(super) fn has_environment(world: &World, host: &HostName, mark: RecipeMark) -> bool {
    world.hosts().host(host).is_some_and(|host| host.has_environment(mark))
}

fn nodes_on(
    world: &World,
    index: &ClusterIndex,
    shape: Shape,
    avoided: &BTreeSet<NodeId>,
    is_good: impl Fn(&HostName) -> bool,
) -> Vec<NodeId> {
    let needed = shape.nodes as usize;
    let is_one_host = needed == 1 || index.hosts.len() < 2;
    let mut by_host: BTreeMap<Option<&HostName>, Vec<NodeId>> = BTreeMap::new();
    let mut whole = None;
    visit_room(world, index, shape, avoided, |id| {
        let host = world.node(id).map(|node| &node.host);
        if !host.is_some_and(&is_good) {
            return false;
        }
        let host = host.filter(|_| !is_one_host);
        let nodes = by_host.entry(host).or_default();
        nodes.push(id);
        if nodes.len() == needed {
            whole = Some(host);
        }
        whole.is_some()
    });
    if let Some(host) = whole {
        return by_host.remove(&host).unwrap_or_default();
    }
    // Among hosts with equally many nodes, the first is chosen.
    by_host.into_values().rev().max_by_key(Vec::len).unwrap_or_default()
}

/// Visits every node that could run a job of this shape now, until `is_enough` returns true. Partly used nodes come
/// first, those with the least room before the others; then idle ones, the most recently used first.
fn visit_room(
    world: &World,
    index: &ClusterIndex,
    shape: Shape,
    avoided: &BTreeSet<NodeId>,
    mut is_enough: impl FnMut(NodeId) -> bool,
) {
    if let Some(share) = shape.share {
        let mut from = (Capacity { gpus: share.gpus, ..Capacity::default() }, NodeId(0));
        while let Some((room, node)) = index.partial.range(from..).next().copied() {
            if share.fits_into(room) {
                if !avoided.contains(&node) && is_enough(node) {
                    return;
                }
                from = (room, NodeId(node.0 + 1));
            } else {
                // It does not fit on any node with exactly this room: skip to the next amount of room.
                from = (room, NodeId(u64::MAX));
            }
        }
    }
    let fits = shape.share.is_none_or(|share| {
        index.idle.first().and_then(|(_, node)| world.node(*node)).is_none_or(|node| {
            // All nodes of a cluster are alike.
            share.fits_into(node.capacity)
        })
    });
    let mut idle = index.reuse.iter().rev().map(|(_, _, node)| *node);
    if fits {
        idle.find(|node| !avoided.contains(node) && is_enough(*node));
    }
}

/// Nodes that will be able to run a job of a certain shape, in the order of time.
struct Coming<'w> {
    pending: std::iter::Peekable<Box<dyn Iterator<Item = Wall> + 'w>>,
    releases: std::iter::Peekable<Box<dyn Iterator<Item = (Wall, usize)> + 'w>>,
    /// When new nodes would be up if they were requested now, and how many.
    new: Option<(Wall, usize)>,
}

impl<'w> Coming<'w> {
    fn new(
        world: &'w World,
        cluster: &'w Cluster,
        index: &'w ClusterIndex,
        shape: Shape,
        now: Wall,
        on: Option<&'w HostName>,
    ) -> Coming<'w> {
        let boot = cluster.boot.unwrap_or(world.settings.boot);
        // An overdue node keeps its place in time, so that a decision does not change merely because time passes.
        let pending = index.pending.iter().filter(move |(_, node)| is_on(world, *node, on));
        let pending = pending.map(move |(requested_at, _)| *requested_at + boot);
        let more = world.ceiling(cluster).saturating_sub(index.alive());
        let more = more.min(world.room_for(cluster, on)) as usize;
        let new = (more > 0).then(|| (now.max(cluster.backoff.until) + boot, more));
        let mut freed: BTreeMap<NodeId, Freed> = BTreeMap::new();
        let releases = world.releases(cluster.id).map(move |(end, attempt)| {
            let nodes = attempt.members.iter().filter_map(|member| world.node(member.node));
            let there = nodes.filter(|node| on.is_none_or(|on| node.host == *on));
            let able = there.filter(|node| world.is_open(&node.host)).filter(|node| {
                let Some(lease) = node.lease_of(attempt.epoch) else { return false };
                match lease.share {
                    None => true,
                    Some(_) => freed.entry(node.id).or_default().add(
                        &lease,
                        node.room(),
                        shape,
                        node.leases(),
                    ),
                }
            });
            (end, able.count())
        });
        Coming {
            pending: (Box::new(pending) as Box<dyn Iterator<Item = Wall>>).peekable(),
            releases: (Box::new(releases) as Box<dyn Iterator<Item = (Wall, usize)>>).peekable(),
            new,
        }
    }

    fn next_time(&mut self) -> Option<Wall> {
        let pending = self.pending.peek().copied();
        let release = self.releases.peek().map(|(end, _)| *end);
        let new = self.new.map(|(at, _)| at);
        [pending, release, new].into_iter().flatten().min()
    }

    fn next(&mut self) -> Option<(Wall, usize)> {
        let at = self.next_time()?;
        if self.pending.peek() == Some(&at) {
            self.pending.next();
            return Some((at, 1));
        }
        if self.releases.peek().is_some_and(|(end, _)| *end == at) {
            return self.releases.next();
        }
        self.new.take()
    }

    /// How many more become available by `at`.
    fn by(&mut self, at: Wall) -> usize {
        let mut nodes = 0;
        while self.next_time().is_some_and(|next| next <= at) {
            nodes += self.next().map_or(0, |(_, more)| more);
        }
        nodes
    }
}

/// What the attempts that end before a certain time will have freed on a shared node.
#[derive(Default)]
struct Freed {
    share: Capacity,
    leases: usize,
    is_counted: bool,
}

impl Freed {
    /// Adds a lease that ends, and returns whether this makes the node able to run the shape.
    fn add(&mut self, lease: &Lease, room: Capacity, shape: Shape, leases: &[Lease]) -> bool {
        self.share = self.share.with(lease.share.unwrap_or_default());
        self.leases += 1;
        let is_able = match shape.share {
            None => self.leases == leases.len(),
            // A node on which it fits already is counted among those with room.
            Some(share) => !share.fits_into(room) && share.fits_into(room.with(self.share)),
        };
        let becomes_able = is_able && !self.is_counted;
        self.is_counted |= is_able;
        becomes_able
    }
}

/// Whether a job with this predicted duration would be done by `at` if it started now.
pub(super) fn is_done_by(at: Wall, now: Wall, prediction: Span) -> bool {
    now + prediction <= at
}
