//! Parents and their children: children get a record when they start, and a parent begins and ends with them.

use std::sync::Arc;

use crate::attempts;
use crate::batches;
use crate::change::Change;
use crate::ids::{Epoch, JobId};
use crate::model::{
    AttemptOutcome, AttemptRecord, Job, JobEvent, JobPhase, JobState, TreeEnding, next_parent_state,
};
use crate::planted::{Bug, is_planted};
use crate::step::Transaction;
use crate::world::World;

/// Emits a change of a job. A child that has no record yet gets one.
pub(crate) fn put(tx: &mut Transaction<'_>, event: JobEvent, job: Job) {
    let is_new = job.parent.is_some() && tx.world.job(job.id).is_none();
    let job = Arc::new(job);
    tx.emit(match is_new {
        true => Change::ChildCreated { event, job },
        false => Change::JobChanged { event, job },
    });
}

/// Decides whether a parent begins or ends, and whether its time limit is reached.
pub(crate) fn decide(tx: &mut Transaction<'_>, parent: JobId) {
    tx.world.volatile.settle_tree(parent);
    if tx.world.is_tree_overdue(parent, tx.now.wall) {
        end(tx, parent, &TreeEnding::TimedOut);
    }
    let (Some(job), Some(tree)) = (tx.world.job(parent), tx.world.tree(parent)) else { return };
    let (counts, first_failed) = (tree.counts(), tree.first_failed());
    let next = next_parent_state(job, counts, first_failed, tx.now.wall);
    let Some((event, state)) = next else { return };
    let since = match &job.state {
        JobState::Parent(state) => Some(state.since),
        _ => None,
    };
    let mut job = job.clone();
    job.state = state;
    let outcome = match job.phase() {
        JobPhase::Completed => Some(AttemptOutcome::Succeeded),
        JobPhase::Failed => Some(AttemptOutcome::Failed),
        JobPhase::Canceled => Some(AttemptOutcome::Canceled),
        JobPhase::Queued | JobPhase::Starting | JobPhase::Running | JobPhase::CancelRequested => {
            None
        }
    };
    if let (Some(since), Some(outcome)) = (since, outcome) {
        // It shows when the parent began and ended. The node time is recorded with the children.
        tx.emit(Change::AttemptEnded(AttemptRecord {
            job: job.id,
            epoch: Epoch(job.id.0),
            number: 1,
            granted_at: since,
            started_at: Some(since),
            ended_at: tx.now.wall,
            members: Vec::new(),
            outcome,
        }));
    }
    tx.emit(Change::JobChanged { event, job: Arc::new(job) });
}

/// Whether the job is a child without a record, and its parent has to end.
pub(crate) fn is_void(world: &World, job: &Job) -> bool {
    let parent = job.parent.filter(|_| world.job(job.id).is_none());
    let parent = parent.and_then(|parent| world.job(parent));
    parent.is_some_and(|parent| parent.phase() == JobPhase::CancelRequested)
}

/// All children of a parent have to end: those without a record never start, and the others are canceled.
pub(crate) fn end(tx: &mut Transaction<'_>, parent: JobId, ending: &TreeEnding) {
    let Some(job) = tx.world.job(parent) else { return };
    let mut job = job.clone();
    let why = ending.reason_for_children();
    match &mut job.state {
        JobState::Queued => {
            job.state = JobState::Canceled { at: tx.now.wall, why };
            return tx.emit(Change::JobChanged { event: JobEvent::Canceled, job: Arc::new(job) });
        }
        JobState::Parent(state) if state.ending.is_none() => state.ending = Some(ending.clone()),
        _ => return,
    }
    tx.emit(Change::JobChanged { event: JobEvent::CancelAsked, job: Arc::new(job) });
    let live = tx.world.tree(parent).map(|tree| tree.live().clone()).unwrap_or_default();
    batches::recall_of(tx, live.iter().copied());
    for child in live {
        let Some(child) = tx.world.job(child).cloned() else { continue };
        if !is_planted(Bug::ChildNotCanceled) {
            attempts::cancel(tx, child, why.clone());
        }
    }
}
