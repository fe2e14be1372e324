//! The children of live parents: which have no record yet, which of these are in the queue, and how the others ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::World;
use super::id_set::IdSet;
use crate::ids::{JobId, WorkspaceId};
use crate::model::{ChildCounts, Job, JobPhase, JobState, Node, parent_and_index};
use crate::planted::{Bug, is_planted};
use crate::time::Wall;

/// The children of one live parent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Children without a record that are in the queue of their cluster.
    pub(super) queued: IdSet,
    /// Children without a record that the parent's own limit keeps out of the queue.
    pub(super) held: IdSet,
    /// Children without a record that a node has been given as part of a batch.
    given: IdSet,
    /// Children with a record that have not ended.
    live: BTreeSet<JobId>,
    completed: u32,
    failed: u32,
    canceled: u32,
    first_failed: Option<JobId>,
}

/// The children of a live parent that have a record in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeRows {
    pub parent: JobId,
    pub children: Vec<(JobId, JobPhase)>,
}

impl Tree {
    pub(super) fn new(parent: &Job) -> Tree {
        let mut tree = Tree::default();
        if let Some(first) = parent.child_at(0) {
            tree.held.insert_range(first, parent.last_id());
        }
        tree
    }

    pub fn counts(&self) -> ChildCounts {
        let small = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        ChildCounts {
            waiting: small(self.queued.len() + self.held.len() + self.given.len()),
            live: small(self.live.len()),
            completed: self.completed,
            failed: self.failed,
            canceled: self.canceled,
        }
    }

    pub fn first_failed(&self) -> Option<JobId> {
        self.first_failed
    }

    /// The children with a record that have not ended, by ID.
    pub fn live(&self) -> &BTreeSet<JobId> {
        &self.live
    }

    /// The children without a record that are in the queue.
    pub fn queued(&self) -> &IdSet {
        &self.queued
    }

    /// The children that the parent's own limit keeps out of the queue.
    pub fn held(&self) -> &IdSet {
        &self.held
    }

    /// The children without a record that a node has been given as part of a batch.
    pub fn given(&self) -> &IdSet {
        &self.given
    }

    pub(crate) fn is_waiting(&self, child: JobId) -> bool {
        self.queued.contains(child) || self.held.contains(child) || self.given.contains(child)
    }

    /// Removes a child that gets a record, and returns whether it was in the queue.
    pub(super) fn leave_waiting(&mut self, child: JobId) -> bool {
        self.held.remove(child);
        self.given.remove(child);
        self.queued.remove(child)
    }

    /// Notes the phase of a child with a record.
    pub(super) fn put(&mut self, child: JobId, phase: JobPhase) {
        if !phase.is_terminal() {
            self.live.insert(child);
            return;
        }
        self.live.remove(&child);
        match phase {
            JobPhase::Completed => self.completed += 1,
            JobPhase::Failed => {
                self.failed += 1;
                self.first_failed = Some(self.first_failed.map_or(child, |first| first.min(child)));
            }
            JobPhase::Canceled => self.canceled += 1,
            JobPhase::Queued
            | JobPhase::Starting
            | JobPhase::Running
            | JobPhase::CancelRequested => unreachable!("it has ended"),
        }
    }

    /// How many of the children without a record may be in the queue.
    pub(super) fn allowed(&self, parent: &Job) -> usize {
        match &parent.state {
            JobState::Parent(state) if state.ending.is_some() => return 0,
            _ => {}
        }
        let limit = parent.array().and_then(|plan| plan.concurrency);
        let limit = limit.filter(|_| !is_planted(Bug::ArrayLimitIgnored));
        limit.map_or(usize::MAX, |limit| (limit as usize).saturating_sub(self.live.len()))
    }
}

/// All trees, and when their parents' time limits are reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Trees {
    by_parent: BTreeMap<JobId, Tree>,
    deadlines: BTreeSet<(Wall, JobId)>,
}

impl Trees {
    pub(super) fn get(&self, parent: JobId) -> Option<&Tree> {
        self.by_parent.get(&parent)
    }

    pub(super) fn get_mut(&mut self, parent: JobId) -> Option<&mut Tree> {
        self.by_parent.get_mut(&parent)
    }

    pub(super) fn parents(&self) -> impl Iterator<Item = JobId> {
        self.by_parent.keys().copied()
    }

    /// The parent whose range of IDs may contain this one.
    pub(super) fn parent_before(&self, id: JobId) -> Option<JobId> {
        self.by_parent.range(..id).next_back().map(|(parent, _)| *parent)
    }

    /// A parent is new, or its state has changed.
    pub(super) fn put(&mut self, old: Option<&Job>, parent: &Job) {
        self.by_parent.entry(parent.id).or_insert_with(|| Tree::new(parent));
        self.forget_deadline(old);
        if let Some(at) = deadline(parent) {
            self.deadlines.insert((at, parent.id));
        }
    }

    pub(super) fn remove(&mut self, old: &Job) -> Option<Tree> {
        self.forget_deadline(Some(old));
        self.by_parent.remove(&old.id)
    }

    fn forget_deadline(&mut self, parent: Option<&Job>) {
        if let Some(parent) = parent
            && let Some(at) = deadline(parent)
        {
            self.deadlines.remove(&(at, parent.id));
        }
    }

    pub(super) fn due(&self, now: Wall) -> impl Iterator<Item = JobId> {
        self.deadlines.iter().take_while(move |(at, _)| *at <= now).map(|(_, parent)| *parent)
    }

    pub(super) fn next_deadline(&self) -> Option<Wall> {
        self.deadlines.first().map(|(at, _)| *at)
    }
}

/// The tasks that a node starts by itself.
fn followers(node: &Node) -> BTreeSet<JobId> {
    node.leases().iter().flat_map(|lease| lease.followers()).map(|lease| lease.job).collect()
}

/// When the children of a parent have to have ended.
fn deadline(parent: &Job) -> Option<Wall> {
    let timeout = parent.array()?.timeout?;
    match &parent.state {
        JobState::Parent(state) if state.ending.is_none() => Some(state.since + timeout),
        _ => None,
    }
}

impl World {
    /// Adds live jobs and trees as the store returns them.
    pub(super) fn put_jobs(&mut self, jobs: Vec<Job>, trees: Vec<TreeRows>) {
        let (parents, others): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(Job::is_parent);
        for parent in parents {
            let cluster = self.index.clusters.entry(parent.cluster).or_default();
            cluster.parents.insert(parent.id);
            self.index.trees.put(None, &parent);
            self.index.insert_name(&parent);
            self.jobs.insert(parent.id, Arc::new(parent));
        }
        for TreeRows { parent, children } in trees {
            let Some(tree) = self.index.trees.get_mut(parent) else { continue };
            for (child, phase) in children {
                tree.leave_waiting(child);
                if phase.is_terminal() && !is_planted(Bug::EndedChildrenForgotten) {
                    tree.put(child, phase);
                }
            }
        }
        for job in others {
            if let Some(tree) = job.parent.and_then(|parent| self.index.trees.get_mut(parent)) {
                tree.put(job.id, job.phase());
            }
            self.put_command(Arc::new(job));
        }
        let nodes: Vec<Arc<Node>> = self.nodes.values().cloned().collect();
        for node in nodes {
            self.give_followers(None, &node);
        }
        let parents: Vec<JobId> = self.index.trees.parents().collect();
        for parent in parents {
            self.release_children(parent);
        }
    }

    /// Children that a node is given as part of a batch leave the queue, and those that it no longer has return to it.
    pub(super) fn give_followers(&mut self, old: Option<&Node>, node: &Node) {
        let before: BTreeSet<JobId> = old.map(followers).unwrap_or_default();
        let now = followers(node);
        let mut parents = BTreeSet::new();
        for child in before.difference(&now) {
            let Some(parent) = self.index.trees.parent_before(*child) else { continue };
            let Some(tree) = self.index.trees.get_mut(parent) else { continue };
            if tree.given.remove(*child) {
                tree.held.insert(*child);
                parents.insert(parent);
            }
        }
        for child in now.difference(&before) {
            let Some(parent) = self.index.trees.parent_before(*child) else { continue };
            let Some(tree) = self.index.trees.get_mut(parent) else { continue };
            // One that was canceled by itself has a record already.
            if !tree.is_waiting(*child) {
                continue;
            }
            if is_planted(Bug::GivenTaskQueued) {
                continue;
            }
            if tree.leave_waiting(*child) {
                let parent = Arc::clone(&self.jobs[&parent]);
                self.index.dequeue(&parent, (*child, *child));
            }
            let tree = self.index.trees.get_mut(parent).expect("looked up above");
            tree.given.insert(*child);
        }
        for parent in parents {
            self.hold_queued(parent);
            self.release_children(parent);
        }
    }

    /// Takes the children of a parent with a limit out of the queue, because others that come before them have returned.
    fn hold_queued(&mut self, parent: JobId) {
        let Some(job) = self.jobs.get(&parent).cloned() else { return };
        if self.index.trees.get(parent).is_none_or(|tree| tree.allowed(&job) == usize::MAX) {
            return;
        }
        while let Some(tree) = self.index.trees.get_mut(parent) {
            let Some(ids) = tree.queued.take_last(usize::MAX) else { return };
            tree.held.insert_range(ids.0, ids.1);
            self.index.dequeue(&job, ids);
        }
    }

    /// Whether a node has been given this child, which has no record, as part of a batch.
    pub(crate) fn is_given(&self, child: JobId) -> bool {
        let parent = self.index.trees.parent_before(child);
        parent
            .and_then(|parent| self.index.trees.get(parent))
            .is_some_and(|tree| tree.given.contains(child))
    }

    pub(super) fn put_parent(&mut self, parent: Arc<Job>) {
        let id = parent.id;
        self.volatile.touch(parent.cluster);
        let cluster = self.index.clusters.entry(parent.cluster).or_default();
        if !parent.phase().is_terminal() {
            cluster.parents.insert(id);
            let old = self.jobs.insert(id, Arc::clone(&parent));
            if old.is_none() {
                self.index.insert_name(&parent);
            }
            self.index.trees.put(old.as_deref(), &parent);
            return self.release_children(id);
        }
        cluster.parents.remove(&id);
        let Some(old) = self.jobs.remove(&id) else { return };
        self.index.remove_name(&old);
        // Children without a record end together with their parent.
        let tree = self.index.trees.remove(&old);
        for ids in tree.iter().flat_map(|tree| tree.queued.ranges()) {
            self.index.dequeue(&old, ids);
        }
        self.volatile.settle_tree(id);
    }

    /// A child gets a record of its own.
    pub(super) fn admit_child(&mut self, child: &Job) {
        let parent = child.parent.expect("only a child is created by its parent");
        let tree = self.index.trees.get_mut(parent).expect("a parent outlives its children");
        if tree.leave_waiting(child.id) {
            let parent = Arc::clone(&self.jobs[&parent]);
            self.index.dequeue(&parent, (child.id, child.id));
        }
    }

    /// Keeps as many children in the queue as the limit of their parent allows.
    pub(super) fn release_children(&mut self, parent: JobId) {
        self.volatile.touch_tree(parent);
        let Some(job) = self.jobs.get(&parent).cloned() else { return };
        let used = self.used(job.cluster, job.principal);
        loop {
            let Some(tree) = self.index.trees.get_mut(parent) else { return };
            let (queued, allowed) = (tree.queued.len(), tree.allowed(&job));
            if queued < allowed {
                let Some(ids) = tree.held.take_first(allowed - queued) else { return };
                tree.queued.insert_range(ids.0, ids.1);
                self.index.enqueue(&job, ids, used);
            } else if queued > allowed {
                let Some(ids) = tree.queued.take_last(queued - allowed) else { return };
                tree.held.insert_range(ids.0, ids.1);
                self.index.dequeue(&job, ids);
            } else {
                return;
            }
            self.volatile.touch(job.cluster);
        }
    }

    /// The children of a live parent.
    pub fn tree(&self, parent: JobId) -> Option<&Tree> {
        self.index.trees.get(parent)
    }

    /// Jobs that consist of other jobs and have not ended.
    pub fn parents(&self) -> impl Iterator<Item = JobId> {
        self.index.trees.parents()
    }

    /// The parents to decide about now: those whose children have changed, and those whose time limit is reached.
    pub(crate) fn due_trees(&self, now: Wall) -> Vec<JobId> {
        let touched = self.volatile.touched_trees();
        let mut due: Vec<JobId> = self.index.trees.due(now).chain(touched).collect();
        due.sort_unstable();
        due.dedup();
        due
    }

    pub(crate) fn is_tree_overdue(&self, parent: JobId, now: Wall) -> bool {
        self.job(parent).and_then(deadline).is_some_and(|at| at <= now)
    }

    pub(crate) fn next_tree_deadline(&self) -> Option<Wall> {
        self.index.trees.next_deadline()
    }

    /// The parent of a child that has no record.
    fn parent_of_waiting(&self, child: JobId) -> Option<&Arc<Job>> {
        let parent = self.index.trees.parent_before(child)?;
        let is_there = self.index.trees.get(parent).is_some_and(|tree| tree.is_waiting(child));
        self.jobs.get(&parent).filter(|_| is_there)
    }

    /// The record of a live job, or that of its parent if it has none yet. It has everything that the children of a
    /// parent have in common.
    pub fn record_of(&self, id: JobId) -> Option<&Job> {
        self.job(id).or_else(|| self.parent_of_waiting(id).map(|parent| &**parent))
    }

    /// A live job, also if it is a child that has no record yet.
    pub fn live_job(&self, id: JobId) -> Option<Arc<Job>> {
        let known = self.jobs.get(&id).cloned();
        known.or_else(|| self.parent_of_waiting(id)?.child(id).map(Arc::new))
    }

    /// The same by name, ignoring case.
    pub fn live_job_by_name(&self, workspace: WorkspaceId, name: &str) -> Option<Arc<Job>> {
        if let Some(job) = self.job_by_name(workspace, name) {
            return self.jobs.get(&job.id).cloned();
        }
        let (parent, _) = parent_and_index(name)?;
        self.live_job(self.job_by_name(workspace, parent)?.child_named(name)?)
    }
}
