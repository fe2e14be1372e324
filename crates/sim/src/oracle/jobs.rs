//! Promises about jobs: none is lost, none ends twice, no two attempts overlap.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::Settings;
use muster_core::agent::Assignment;
use muster_core::ids::{Epoch, JobId, NodeId, WorkspaceId};
use muster_core::model::{
    ArrayIndices, AttemptOutcome, AttemptRecord, Failure, Job, JobEvent, JobPhase, JobState, Node,
    SavedTree, SpecHash, TreeId, child_name,
};
use muster_core::time::Wall;

use crate::controller::KEPT;
use crate::failure::{Broken, Held, promise};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) canceled: u64,
    /// Returned to the queue after a node was lost.
    pub(crate) retried: u64,
    /// Files that attempts saved for the next one.
    pub(crate) trees: u64,
    /// Were removed some time after they had ended. Children do not count.
    pub(crate) removed: u64,
    /// Were submitted, but are not in a restored backup.
    pub(crate) forgotten: u64,
}

#[derive(Clone)]
struct Track {
    workspace: WorkspaceId,
    name: Box<str>,
    spec: SpecHash,
    nodes: u32,
    attempts: u32,
    /// The attempt that is not over.
    live: Option<Epoch>,
    last: Epoch,
    /// Attempts that ended because a node was lost, not counting evictions.
    lost: u32,
    is_canceling: bool,
    ended: Option<JobPhase>,
    ended_at: Wall,
    /// The files that are kept for the next attempt, by rank.
    left: BTreeMap<u32, TreeId>,
    parent: Option<JobId>,
    /// A node was given it as part of a batch, and it has no record yet.
    is_given: bool,
    family: Option<Family>,
}

/// What is known about the children of a parent.
#[derive(Clone)]
struct Family {
    indices: ArrayIndices,
    size: u32,
    limit: u32,
    live: BTreeSet<JobId>,
    placeless: BTreeSet<JobId>,
    completed: u32,
    /// Children with a record that have ended.
    ended: u32,
}

#[derive(Clone, Default)]
pub(super) struct Jobs {
    tracks: BTreeMap<JobId, Track>,
    names: BTreeMap<(WorkspaceId, String), JobId>,
    acknowledged: BTreeSet<JobId>,
    /// The tasks that each node was given as part of a batch.
    given: BTreeMap<NodeId, BTreeMap<Epoch, JobId>>,
    removed: BTreeSet<JobId>,
    pub(super) counts: Counts,
}

impl Jobs {
    pub(super) fn on_submitted(&mut self, job: &Job) -> Held {
        let name = (job.workspace, job.name.to_ascii_lowercase());
        if let Some(other) = self.names.insert(name, job.id) {
            return Err(Broken(format!("'{}' is the name of {other} and of {}", job.name, job.id)));
        }
        self.counts.submitted += 1;
        let track = Track {
            workspace: job.workspace,
            name: job.name.clone(),
            spec: job.spec,
            nodes: job.nodes,
            attempts: 0,
            live: None,
            last: Epoch(0),
            lost: 0,
            is_canceling: false,
            ended: None,
            ended_at: Wall(0),
            left: BTreeMap::new(),
            parent: job.parent,
            is_given: false,
            family: job.array().map(|plan| Family {
                indices: plan.indices.clone(),
                size: plan.indices.len(),
                limit: plan.concurrency.unwrap_or(u32::MAX),
                live: BTreeSet::new(),
                placeless: BTreeSet::new(),
                completed: 0,
                ended: 0,
            }),
        };
        let before = self.tracks.insert(job.id, track);
        promise(before.is_none(), || format!("{} was used twice", job.id))
    }

    /// A node is given tasks ahead, or returns some. Calls `given` for each that is new.
    pub(super) fn on_node(&mut self, node: &Node, mut given: impl FnMut(Epoch, JobId)) -> Held {
        let followers = node.leases().iter().flat_map(|lease| lease.followers());
        let now: BTreeMap<Epoch, JobId> = followers.map(|lease| (lease.epoch, lease.job)).collect();
        let before = match now.is_empty() {
            true => self.given.remove(&node.id).unwrap_or_default(),
            false => self.given.insert(node.id, now.clone()).unwrap_or_default(),
        };
        for job in before.iter().filter(|(epoch, _)| !now.contains_key(epoch)).map(|(_, job)| job) {
            if self.tracks.get(job).is_some_and(|track| track.is_given)
                && let Some(track) = self.tracks.remove(job)
            {
                self.names.remove(&(track.workspace, track.name.to_ascii_lowercase()));
                self.counts.submitted -= 1;
            }
        }
        for (epoch, job) in now.iter().filter(|(epoch, _)| !before.contains_key(epoch)) {
            self.give(*epoch, *job)?;
            given(*epoch, *job);
        }
        Ok(())
    }

    fn give(&mut self, epoch: Epoch, job: JobId) -> Held {
        let mut before = self.tracks.range(..job).rev();
        let parent = before.find(|(_, track)| track.family.is_some());
        let Some((id, parent)) = parent else {
            return Err(Broken(format!("{job} was given to a node and has no parent")));
        };
        promise(!self.tracks.contains_key(&job), || format!("{job} was given away twice"))?;
        let is_ending = parent.is_canceling || parent.ended.is_some();
        promise(!is_ending, || format!("{job} is given to a node after its parent was to end"))?;
        let position = u32::try_from(job.0 - id.0 - 1).unwrap_or(u32::MAX);
        let index = parent.family.as_ref().and_then(|family| family.indices.at(position));
        let Some(index) = index else {
            return Err(Broken(format!("{job} is no task of {}", parent.name)));
        };
        let track = Track {
            name: child_name(&parent.name, index),
            attempts: 1,
            live: Some(epoch),
            last: epoch,
            parent: Some(*id),
            is_given: true,
            family: None,
            left: BTreeMap::new(),
            ..parent.clone()
        };
        self.names.insert((track.workspace, track.name.to_ascii_lowercase()), job);
        self.counts.submitted += 1;
        self.tracks.insert(job, track);
        Ok(())
    }

    /// A child gets a record: only of a parent that neither ends nor has as many children as it may.
    pub(super) fn on_child(&mut self, job: &Job) -> Held {
        let was_given = self
            .tracks
            .get_mut(&job.id)
            .is_some_and(|track| std::mem::replace(&mut track.is_given, false));
        let parent = job.parent.and_then(|parent| self.tracks.get_mut(&parent));
        let Some(parent) = parent else {
            return Err(Broken(format!("{} has no parent", job.name)));
        };
        let (is_ending, name) = (parent.is_canceling || parent.ended.is_some(), &parent.name);
        // A node may have started it before it heard of that.
        promise(!is_ending || was_given, || {
            format!("{} starts after {name} was to end", job.name)
        })?;
        let Some(family) = &mut parent.family else {
            return Err(Broken(format!("{} cannot have children", parent.name)));
        };
        // One that is canceled before it starts takes no place, nor does one that was canceled while it waited on a node.
        if !job.phase().is_terminal() {
            family.live.insert(job.id);
            let attempt = job.attempt();
            let members = attempt.into_iter().flat_map(|attempt| &attempt.members);
            if was_given && members.map(|member| member.meter).all(|meter| meter.is_none()) {
                family.placeless.insert(job.id);
            }
        }
        let live = family.live.difference(&family.placeless).count();
        promise(live <= family.limit as usize, || {
            format!("{} is one of {live}, but {} are allowed", job.name, family.limit)
        })?;
        if was_given { Ok(()) } else { self.on_submitted(job) }
    }

    /// A child has ended, or a parent: the parent must be the last.
    fn on_ended(&mut self, job: &Job) -> Held {
        let (phase, id) = (job.phase(), job.id);
        if let Some(family) = self.tracks.get(&id).and_then(|track| track.family.as_ref()) {
            promise(family.live.is_empty(), || {
                format!("{} is {phase:?}, but {:?} have not ended", job.name, family.live)
            })?;
            let is_whole = family.ended == family.size && family.completed > 0;
            return promise(phase != JobPhase::Completed || is_whole, || {
                format!("{} is {phase:?} after {} of {}", job.name, family.ended, family.size)
            });
        }
        let parent = job.parent.and_then(|parent| self.tracks.get_mut(&parent));
        if let Some(family) = parent.and_then(|parent| parent.family.as_mut()) {
            family.live.remove(&id);
            family.ended += 1;
            family.completed += u32::from(phase == JobPhase::Completed);
        }
        Ok(())
    }

    /// The children of a parent whose cancel was accepted have ended, or are about to.
    fn is_reached(&self, parent: &Track) -> bool {
        let live = parent.family.iter().flat_map(|family| &family.live);
        live.filter_map(|child| self.tracks.get(child)).all(|child| child.is_canceling)
    }

    /// Returns the epoch that was granted, if any.
    pub(super) fn on_changed(&mut self, event: JobEvent, job: &Job) -> Held<Option<Epoch>> {
        let Some(track) = self.tracks.get_mut(&job.id) else {
            return Err(Broken(format!("{} changed before it was submitted", job.id)));
        };
        if let Some(ended) = track.ended {
            return Err(Broken(format!("{} was {ended:?} and then {event:?}", job.id)));
        }
        if event == JobEvent::Requeued {
            self.counts.retried += 1;
        }
        let granted = (event == JobEvent::Granted).then(|| track.on_granted(job)).transpose()?;
        let phase = job.phase();
        match phase {
            JobPhase::Completed => self.counts.completed += 1,
            JobPhase::Failed => self.counts.failed += 1,
            JobPhase::Canceled => self.counts.canceled += 1,
            JobPhase::Queued
            | JobPhase::Starting
            | JobPhase::Running
            | JobPhase::CancelRequested => {}
        }
        if phase.is_terminal() || phase == JobPhase::Queued {
            promise(track.live.is_none(), || {
                format!("{} is {phase:?} with an attempt that is not over", job.id)
            })?;
        }
        if let JobState::Failed { why, .. } = &job.state
            && matches!(**why, Failure::NodesLost { .. })
        {
            let least = Settings::default().attempts_max;
            promise(track.lost >= least, || {
                format!("{} was given up after {} lost attempts of {least}", job.id, track.lost)
            })?;
        }
        track.is_canceling |= matches!(phase, JobPhase::CancelRequested | JobPhase::Canceled);
        track.ended = phase.is_terminal().then_some(phase);
        if let JobState::Completed { at }
        | JobState::Failed { at, .. }
        | JobState::Canceled { at, .. } = &job.state
        {
            track.ended_at = *at;
            self.on_ended(job)?;
        }
        Ok(granted)
    }

    /// A job is removed with its children: only when all of them have ended, and not before its time.
    pub(super) fn on_gone(&mut self, job: JobId, last: JobId, wall: Wall) -> Held {
        let kept = KEPT.jobs.unwrap_or_default();
        let Some(whole) = self.tracks.get(&job) else {
            return Err(Broken(format!("{job} was removed before it was submitted")));
        };
        promise(whole.parent.is_none() && whole.ended_at + kept <= wall, || {
            format!("{job} ended at {:?} and was removed at {wall:?}", whole.ended_at)
        })?;
        for (id, track) in self.tracks.range(job..=last) {
            promise(track.ended.is_some(), || format!("{id} was removed before it ended"))?;
            self.acknowledged.remove(id);
            self.removed.insert(*id);
        }
        self.names.retain(|_, id| !(job..=last).contains(id));
        self.counts.removed += 1;
        Ok(())
    }

    pub(super) fn removed(&self) -> impl Iterator<Item = JobId> {
        self.removed.iter().copied()
    }

    pub(super) fn on_attempt_ended(&mut self, record: &AttemptRecord) -> Held {
        let mut track = self.tracks.get_mut(&record.job);
        if track.as_ref().is_some_and(|track| track.family.is_some()) {
            return promise(record.members.is_empty(), || format!("{} holds nodes", record.job));
        }
        if let Some(track) = &mut track
            && record.outcome != AttemptOutcome::Evicted
        {
            track.lost += 1;
        }
        let live = track.and_then(|track| track.live.take());
        promise(live == Some(record.epoch), || {
            format!("{} ended, but the live one of {} is {live:?}", record.epoch, record.job)
        })
    }

    /// Only the live attempt saves files: those of an older one never replace them.
    pub(super) fn on_saved(&mut self, saved: &SavedTree) -> Held {
        let Some(track) = self.tracks.get_mut(&saved.job) else {
            return Err(Broken(format!("{saved:?} belongs to no job")));
        };
        let is_live = track.live == Some(saved.epoch)
            && track.attempts == saved.attempt
            && saved.rank < track.nodes;
        promise(is_live, || format!("{saved:?}; the live attempt is {:?}", track.live))?;
        self.counts.trees += 1;
        track.left.insert(saved.rank, saved.tree);
        Ok(())
    }

    pub(super) fn left_by(&self, job: JobId) -> &BTreeMap<u32, TreeId> {
        static NOTHING: BTreeMap<u32, TreeId> = BTreeMap::new();
        self.tracks.get(&job).map_or(&NOTHING, |track| &track.left)
    }

    /// The epoch of the last attempt, for a job that has ended.
    pub(super) fn ended_with(&self, job: JobId) -> Option<Epoch> {
        self.tracks.get(&job).filter(|track| track.ended.is_some()).map(|track| track.last)
    }

    /// A process may run only for an attempt that is not over, and only as assigned.
    pub(super) fn check_assignment(&self, job: JobId, assignment: &Assignment) -> Held {
        let Some(track) = self.tracks.get(&job) else {
            return Err(Broken(format!("{} runs for no job", assignment.epoch)));
        };
        promise(track.live == Some(assignment.epoch), || {
            format!("{} of {job} started; the live attempt is {:?}", assignment.epoch, track.live)
        })?;
        let is_as_assigned = track.name == assignment.job_name
            && track.spec == assignment.spec
            && track.nodes == assignment.nodes
            && track.attempts == assignment.attempt
            && assignment.rank < assignment.nodes;
        promise(is_as_assigned, || format!("{job} was assigned as {assignment:?}"))
    }

    pub(super) fn by_name(&self, workspace: WorkspaceId, name: &str) -> Option<(JobId, &SpecHash)> {
        let id = self.names.get(&(workspace, name.to_ascii_lowercase()))?;
        self.tracks.get(id).map(|track| (*id, &track.spec))
    }

    /// The store is back to the state when `then` was copied.
    pub(super) fn roll_back(&mut self, then: &Jobs) {
        let forgotten = self.counts.submitted + self.counts.forgotten - then.counts.submitted;
        *self = then.clone();
        self.counts.forgotten = forgotten;
    }

    /// Whether an accepted cancel is, or was, under way.
    pub(super) fn is_canceling(&self, job: JobId) -> bool {
        let track = self.tracks.get(&job);
        track.is_some_and(|track| {
            track.ended.is_some() || (track.is_canceling && self.is_reached(track))
        })
    }

    /// A child that never ended although its parent did.
    pub(super) fn orphan(&self) -> Option<&str> {
        let is_ended = |id| self.tracks.get(&id).is_none_or(|track| track.ended.is_some());
        let mut children = self.tracks.values().filter(|track| track.ended.is_none());
        children.find(|track| track.parent.is_some_and(is_ended)).map(|track| &*track.name)
    }

    pub(super) fn acknowledge(&mut self, job: JobId) {
        self.acknowledged.insert(job);
    }

    /// Every acknowledged job, and how it ended if it has.
    pub(super) fn acknowledged(&self) -> impl Iterator<Item = (JobId, Option<JobPhase>)> {
        let ended = |id| self.tracks.get(id).and_then(|track| track.ended);
        self.acknowledged.iter().map(move |id| (*id, ended(id)))
    }
}

impl Track {
    fn on_granted(&mut self, job: &Job) -> Held<Epoch> {
        let Some(attempt) = job.attempt() else {
            return Err(Broken(format!("{} was granted nothing", job.id)));
        };
        // A node had been given it under this epoch.
        if self.live == Some(attempt.epoch) && self.attempts == 1 && attempt.number == 1 {
            return Ok(attempt.epoch);
        }
        let is_new = self.live.is_none() && attempt.epoch > self.last;
        promise(is_new, || {
            format!(
                "{} follows {} of {}, live is {:?}",
                attempt.epoch, self.last, job.id, self.live
            )
        })?;
        self.attempts += 1;
        let nodes: BTreeSet<NodeId> = attempt.members.iter().map(|member| member.node).collect();
        let is_whole = nodes.len() == self.nodes as usize && attempt.number == self.attempts;
        promise(is_whole, || format!("{} was granted {attempt:?}", job.id))?;
        self.live = Some(attempt.epoch);
        self.last = attempt.epoch;
        Ok(attempt.epoch)
    }
}
