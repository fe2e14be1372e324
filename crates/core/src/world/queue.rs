//! The waiting jobs of a cluster, in the order in which they are served. They are ordered by priority; within a
//! priority evicted jobs come first, in the order of their arrival, then the users with the least recent use, then
//! arrival order.
//!
//! Jobs are grouped by priority, user and shape. To a decision all jobs of one user and shape are alike, so the search
//! for a job that fits goes through shapes rather than through jobs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::id_set::IdSet;
use crate::ids::{JobId, PrincipalId};
use crate::model::{Capacity, Job, Priority, Shape, Use};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    /// The classes in the order in which they are served.
    classes: BTreeMap<Rank, Class>,
    /// The number of jobs of each shape.
    shapes: BTreeMap<Shape, u32>,
    jobs: usize,
}

/// The highest priority comes first; within a priority, evicted jobs come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    priority: Reverse<Priority>,
    is_new: bool,
}

impl Rank {
    fn of(job: &Job) -> Rank {
        Rank { priority: Reverse(job.priority), is_new: !job.is_returned }
    }

    /// The use by which users are ordered. Evicted jobs had their turn already, so for them only arrival counts.
    fn counted(self, used: Use) -> Use {
        if self.is_new { used } else { Use::default() }
    }
}

/// The jobs of one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Class {
    lines: BTreeMap<PrincipalId, Line>,
    /// The user with the least use comes first; among equals, the one whose first job arrived earlier.
    order: BTreeSet<(Use, JobId, PrincipalId)>,
}

impl Class {
    /// One job of each kind, user by user.
    fn by_share(&self) -> impl Iterator<Item = Candidate> {
        self.order.iter().flat_map(|(_, _, principal)| self.lines[principal].kinds(*principal))
    }

    fn by_arrival(&self) -> Vec<Candidate> {
        let mut kinds: Vec<Candidate> = self.by_share().collect();
        kinds.sort_unstable_by_key(|kind| kind.job);
        kinds
    }
}

/// The jobs of one user. Never empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Line {
    used: Use,
    by_shape: BTreeMap<Shape, IdSet>,
}

impl Line {
    fn first(&self) -> Option<JobId> {
        self.by_shape.values().filter_map(IdSet::first).min()
    }

    /// One job of each shape, by arrival.
    fn kinds(&self, principal: PrincipalId) -> Vec<Candidate> {
        let first = |(shape, jobs): (&Shape, &IdSet)| {
            let (job, shape, count) = (jobs.first()?, *shape, jobs.len());
            Some(Candidate { job, principal, shape, count })
        };
        let mut kinds: Vec<Candidate> = self.by_shape.iter().filter_map(first).collect();
        kinds.sort_unstable_by_key(|kind| kind.job);
        kinds
    }
}

/// The first of several jobs that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub job: JobId,
    pub principal: PrincipalId,
    pub shape: Shape,
    /// The number of jobs that are alike.
    pub count: usize,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.jobs
    }

    pub fn is_empty(&self) -> bool {
        self.jobs == 0
    }

    pub fn contains(&self, job: &Job) -> bool {
        let line = self.classes.get(&Rank::of(job)).and_then(|c| c.lines.get(&job.principal));
        let jobs = line.and_then(|line| line.by_shape.get(&job.shape()));
        jobs.is_some_and(|jobs| jobs.contains(job.id))
    }

    /// The number of jobs of each shape.
    pub fn shapes(&self) -> &BTreeMap<Shape, u32> {
        &self.shapes
    }

    /// Adds jobs with these IDs that are like `job`.
    pub(super) fn insert_range(&mut self, job: &Job, ids: (JobId, JobId), used: Use) {
        let rank = Rank::of(job);
        let (class, used) = (self.classes.entry(rank).or_default(), rank.counted(used));
        let line =
            class.lines.entry(job.principal).or_insert_with(|| Line { used, ..<_>::default() });
        let first = line.first();
        line.by_shape.entry(job.shape()).or_default().insert_range(ids.0, ids.1);
        if first.is_none_or(|first| ids.0 < first) {
            if let Some(first) = first {
                class.order.remove(&(line.used, first, job.principal));
            }
            class.order.insert((line.used, ids.0, job.principal));
        }
        let count = u32::try_from(ids.1.0 - ids.0.0 + 1).unwrap_or(u32::MAX);
        *self.shapes.entry(job.shape()).or_default() += count;
        self.jobs += count as usize;
    }

    /// Removes the jobs with these IDs, which are like `job`.
    pub(super) fn remove_range(&mut self, job: &Job, ids: (JobId, JobId)) -> bool {
        let shape = job.shape();
        let Some(class) = self.classes.get_mut(&Rank::of(job)) else { return false };
        let Some(line) = class.lines.get_mut(&job.principal) else { return false };
        let first = line.first();
        let Some(jobs) = line.by_shape.get_mut(&shape) else { return false };
        if !jobs.remove_range(ids.0, ids.1) {
            return false;
        }
        if jobs.is_empty() {
            line.by_shape.remove(&shape);
        }
        if first == Some(ids.0) {
            class.order.remove(&(line.used, ids.0, job.principal));
            match line.first() {
                Some(first) => {
                    class.order.insert((line.used, first, job.principal));
                }
                None => {
                    class.lines.remove(&job.principal);
                }
            }
        }
        if class.lines.is_empty() {
            self.classes.remove(&Rank::of(job));
        }
        let left = self.shapes.get_mut(&shape).expect("counted when it was queued");
        let count = u32::try_from(ids.1.0 - ids.0.0 + 1).unwrap_or(u32::MAX);
        *left -= count;
        if *left == 0 {
            self.shapes.remove(&shape);
        }
        self.jobs -= count as usize;
        true
    }

    /// The use of a user has changed, or turned out to be less than predicted.
    pub(super) fn set_used(&mut self, principal: PrincipalId, used: Use) {
        for (rank, class) in &mut self.classes {
            let used = rank.counted(used);
            let Some(line) = class.lines.get_mut(&principal) else { continue };
            let first = line.first().expect("a line is never empty");
            class.order.remove(&(line.used, first, principal));
            line.used = used;
            class.order.insert((used, first, principal));
        }
    }

    /// One job of each kind, in the order in which they are served.
    pub fn candidates(&self) -> impl Iterator<Item = Candidate> {
        self.classes.iter().flat_map(|(rank, class)| {
            let returned = (!rank.is_new).then(|| class.by_arrival());
            let new = rank.is_new.then(|| class.by_share());
            returned.into_iter().flatten().chain(new.into_iter().flatten())
        })
    }

    /// Whether a job of another user waits.
    pub fn has_others(&self, principal: PrincipalId) -> bool {
        let mut lines = self.classes.values().flat_map(|class| class.lines.keys().take(2));
        lines.any(|other| *other != principal)
    }

    /// All jobs in the order of their arrival, regardless of rank.
    pub fn ids(&self) -> Vec<JobId> {
        let lines = self.classes.values().flat_map(|class| class.lines.values());
        let mut ids: Vec<JobId> =
            lines.flat_map(|line| line.by_shape.values().flat_map(IdSet::iter)).collect();
        ids.sort_unstable();
        ids
    }

    /// The jobs that would be served before this one: those of higher rank, those of users with less use, and the
    /// user's own earlier ones. Jobs that need more than `nodes_max` do not count.
    pub fn ahead_of(&self, job: &Job, nodes_max: u32, node: Capacity) -> Ahead {
        let mut ahead = Ahead::default();
        let mut shapes = self.shapes_ahead_of(job, nodes_max, &mut ahead);
        *shapes.entry(job.shape()).or_default() += 1;
        ahead.nodes = nodes_for_all(shapes.iter(), node);
        ahead
    }

    /// The number of such jobs by shape. The shares of nodes that they need are combined, as when they are placed.
    fn shapes_ahead_of(
        &self,
        job: &Job,
        nodes_max: u32,
        ahead: &mut Ahead,
    ) -> BTreeMap<Shape, u32> {
        let mut shapes = BTreeMap::new();
        let own = Rank::of(job);
        for (rank, class) in self.classes.range(..=own) {
            for (_, _, principal) in &class.order {
                let is_own = *rank == own && *principal == job.principal;
                // Among evicted jobs, only arrival counts.
                let is_earlier = is_own || (*rank == own && !own.is_new);
                let before = if is_earlier { job.id } else { JobId(u64::MAX) };
                for (shape, ids) in class.lines[principal].by_shape.range(..=widest(nodes_max)) {
                    let jobs = ahead.add(ids, before);
                    if jobs > 0 {
                        *shapes.entry(*shape).or_default() += jobs;
                    }
                }
                if is_own && own.is_new {
                    return shapes;
                }
            }
        }
        shapes
    }
}

fn widest(nodes: u32) -> Shape {
    let share = Some(Capacity { gpus: u32::MAX, vcpus: u32::MAX, memory_mb: u64::MAX });
    Shape { nodes, share }
}

/// The jobs that are served before another, and the number of nodes that they and it will fill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ahead {
    pub jobs: usize,
    /// Includes the nodes of the job itself.
    pub nodes: u64,
    /// The job that is served first.
    pub first: Option<JobId>,
}

impl Ahead {
    /// Adds the jobs that arrived before this one, and returns how many they are.
    fn add(&mut self, ids: &IdSet, before: JobId) -> u32 {
        let Some(first) = ids.first().filter(|first| *first < before) else { return 0 };
        self.first.get_or_insert(first);
        let jobs = ids.count_below(before);
        self.jobs += jobs;
        u32::try_from(jobs).unwrap_or(u32::MAX)
    }
}

/// The number of nodes that all of them fill when they run together. Jobs and clusters use the same sum.
pub(super) fn nodes_for_all<'s>(
    shapes: impl Iterator<Item = (&'s Shape, &'s u32)>,
    node: Capacity,
) -> u64 {
    shapes.map(|(shape, jobs)| nodes_for(*shape, *jobs, node)).sum()
}

/// The number of nodes that this many jobs of a shape fill when they run together.
pub(crate) fn nodes_for(shape: Shape, jobs: u32, node: Capacity) -> u64 {
    let members = u64::from(shape.nodes) * u64::from(jobs);
    match shape.share {
        None => members,
        Some(share) => {
            let full = members.div_ceil(u64::from(node.holds(share).max(1)));
            full.max(u64::from(shape.nodes))
        }
    }
}
