//! The reservation of the first job that has to wait.
//!
//! It says when the job will be able to start if every prediction holds, and which of the nodes that have
//! room now it will need then. Nobody behind it may take one of those, unless done by that time; so with
//! exact predictions it is never delayed, and no gang is starved by small jobs.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::NodeId;
use crate::model::{Capacity, Cluster, Lease, Shape};
use crate::time::{Span, Wall};
use crate::world::{Pool, World};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) at: Wall,
    /// Nodes with room now that it will need then.
    pub(crate) nodes: BTreeSet<NodeId>,
}

/// For a job of this shape that does not fit now. The forecast must be up to date.
pub(crate) fn reserve(
    world: &World,
    cluster: &Cluster,
    pool: &Pool,
    shape: Shape,
    now: Wall,
) -> Reservation {
    let fitting = nodes_with_room(world, pool, shape, &BTreeSet::new());
    let needed = shape.nodes as usize;
    let mut coming = Coming::new(world, cluster, pool, shape, now);
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
    // Whatever else comes by then need not be kept free now.
    later += coming.by(at);
    let kept = needed.saturating_sub(later).min(fitting.len());
    Reservation { at, nodes: fitting[fitting.len() - kept..].iter().copied().collect() }
}

/// The nodes that could take a job of this shape now, the best first, at most as many as it needs. Nodes that
/// are partly used come first, the tightest before the others; then idle ones, the most recently used first.
pub(crate) fn nodes_with_room(
    world: &World,
    pool: &Pool,
    shape: Shape,
    avoided: &BTreeSet<NodeId>,
) -> Vec<NodeId> {
    let needed = shape.nodes as usize;
    let mut chosen = Vec::new();
    if let Some(share) = shape.share {
        let mut from = (Capacity { gpus: share.gpus, ..Capacity::default() }, NodeId(0));
        while chosen.len() < needed
            && let Some((room, node)) = pool.partial.range(from..).next().copied()
        {
            if share.fits_into(room) {
                if !avoided.contains(&node) {
                    chosen.push(node);
                }
                from = (room, NodeId(node.0 + 1));
            } else {
                // No node with exactly this room fits: on to the next kind.
                from = (room, NodeId(u64::MAX));
            }
        }
    }
    let idle = pool.reuse.iter().rev().map(|(_, _, node)| *node);
    let idle = idle.filter(|node| !avoided.contains(node));
    let fits = shape.share.is_none_or(|share| {
        pool.idle.first().and_then(|(_, node)| world.node(*node)).is_none_or(|node| {
            // Nodes of a pool are alike.
            share.fits_into(node.capacity)
        })
    });
    if fits {
        chosen.extend(idle.take(needed - chosen.len()));
    }
    chosen
}

/// Nodes that will be able to take a job of some shape, in the order of time.
struct Coming<'w> {
    pending: std::iter::Peekable<Box<dyn Iterator<Item = Wall> + 'w>>,
    releases: std::iter::Peekable<Box<dyn Iterator<Item = (Wall, usize)> + 'w>>,
    /// Nodes that can still be asked for, and when they would be up.
    new: Option<(Wall, usize)>,
}

impl<'w> Coming<'w> {
    fn new(
        world: &'w World,
        cluster: &'w Cluster,
        pool: &'w Pool,
        shape: Shape,
        now: Wall,
    ) -> Coming<'w> {
        let boot = cluster.boot.unwrap_or(world.settings.boot);
        // One that is overdue keeps its place in time, so that mere waiting changes nothing.
        let pending = pool.pending.iter().map(move |(requested_at, _)| *requested_at + boot);
        let more = world.ceiling(cluster).saturating_sub(pool.alive()) as usize;
        let new = (more > 0).then(|| (now.max(cluster.backoff.until) + boot, more));
        let mut freed: BTreeMap<NodeId, Freed> = BTreeMap::new();
        let releases = world.releases(cluster.id).map(move |(end, attempt)| {
            let nodes = attempt.members.iter().filter_map(|member| world.node(member.node));
            let able = nodes.filter(|node| {
                let Some(lease) = node.lease_of(attempt.epoch) else { return false };
                match lease.share {
                    None => true,
                    Some(_) => freed.entry(node.id).or_default().add(
                        lease,
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

    /// How many more come by `at`.
    fn by(&mut self, at: Wall) -> usize {
        let mut nodes = 0;
        while self.next_time().is_some_and(|next| next <= at) {
            nodes += self.next().map_or(0, |(_, more)| more);
        }
        nodes
    }
}

/// What the attempts that end before a moment will have freed on a node that is held in parts.
#[derive(Default)]
struct Freed {
    share: Capacity,
    leases: usize,
    is_counted: bool,
}

impl Freed {
    /// One more lease ends: whether the node becomes able to take the shape by this.
    fn add(&mut self, lease: &Lease, room: Capacity, shape: Shape, leases: &[Lease]) -> bool {
        self.share = self.share.with(lease.share.unwrap_or_default());
        self.leases += 1;
        let is_able = match shape.share {
            None => self.leases == leases.len(),
            // One that fits already is counted among those with room.
            Some(share) => !share.fits_into(room) && share.fits_into(room.with(self.share)),
        };
        let becomes_able = is_able && !self.is_counted;
        self.is_counted |= is_able;
        becomes_able
    }
}

/// Whether a job that is thought to take `prediction` would be done by `at` if it started now.
pub(super) fn is_done_by(at: Wall, now: Wall, prediction: Span) -> bool {
    now + prediction <= at
}
