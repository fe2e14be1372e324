//! `step`: the only way in which the world changes.
//!
//! Requests, node reports and timers all arrive as an [`Input`]. `step` applies the inputs one at a time, decides
//! after each of them, and returns everything that happened as [`Change`]s. It performs no IO. The caller commits the
//! changes first and sends the answers afterwards, so an answer never describes something that a crash could undo.

use std::sync::Arc;

use crate::change::Change;
use crate::decide::{decide_everything_within, decide_within};
use crate::input::{Input, InputResult, Reply};
use crate::model::{Activity, Caller, Job};
use crate::planted::{Bug, is_planted};
use crate::time::{Elapsed, Now, Span, Wall};
use crate::world::World;
use crate::{activity, lease, observations, requests};

/// World together with the time and the changes made so far. Every emitted change is applied to World at once, so
/// the next decision sees it.
pub(crate) struct Transaction<'w> {
    pub(crate) world: &'w mut World,
    pub(crate) now: Now,
    pub(crate) changes: Vec<Change>,
    /// The caller whose request is being processed.
    pub(crate) by: Option<Caller>,
    /// Jobs that ended in this step. World no longer holds them, and the rows that the caller read before the step
    /// still show them as live.
    pub(crate) ended: Vec<Arc<Job>>,
}

impl<'w> Transaction<'w> {
    pub(crate) fn new(world: &'w mut World, now: Now) -> Transaction<'w> {
        let now = world.advance(now);
        Transaction { world, now, changes: Vec::new(), by: None, ended: Vec::new() }
    }

    pub(crate) fn emit(&mut self, change: Change) {
        self.world.apply(&change);
        if let Change::JobChanged { job, .. } | Change::ChildCreated { job, .. } = &change
            && job.phase().is_terminal()
        {
            self.ended.push(Arc::clone(job));
        }
        self.changes.push(change);
    }
}

/// The result of a step. None of it may become visible outside before `changes` are on disk.
#[derive(Debug)]
pub struct Output {
    pub changes: Vec<Change>,
    /// One per input, in order.
    pub answers: Vec<InputResult>,
    pub wake: Wake,
    /// The wall time that the decisions were based on. The store keeps the latest.
    pub wall: Wall,
}

/// When to step again even if no input arrives: at the earlier of the two times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wake {
    pub wall: Option<Wall>,
    pub elapsed: Option<Elapsed>,
}

/// Processes a batch of inputs that arrived at `now`.
///
/// It decides after every single input, so the changes do not depend on how the inputs were batched; a batch only
/// shares one commit.
pub fn step(world: &mut World, inputs: &[Input], now: Now) -> Output {
    step_with(world, inputs, now, decide_within)
}

/// `step` with the slow decider, for tests that compare the two.
#[doc(hidden)]
pub fn step_deciding_everything(world: &mut World, inputs: &[Input], now: Now) -> Output {
    step_with(world, inputs, now, decide_everything_within)
}

fn step_with(
    world: &mut World,
    inputs: &[Input],
    now: Now,
    decide: fn(&mut Transaction<'_>),
) -> Output {
    let mut tx = Transaction::new(world, now);
    let mut answers = Vec::with_capacity(inputs.len());
    for input in inputs {
        let mut answer = take_in(&mut tx, input);
        decide(&mut tx);
        // This decision may have changed what the node should do. Tell it now rather than after its next report.
        if let (Input::Report { node, .. }, Ok(Reply::Desired(desired))) = (input, &mut answer) {
            observations::bring_up_to_date(tx.world, node, desired);
        }
        answers.push(answer);
    }
    let (changes, wall) = (tx.changes, tx.now.wall);
    Output { changes, answers, wake: next_wake(world), wall }
}

pub(crate) fn take_in(tx: &mut Transaction<'_>, input: &Input) -> InputResult {
    match input {
        Input::Asked { by, activity_request, input } => {
            activity::take_in(tx, by, activity_request, input)
        }
        Input::NoteActivity(activity) => {
            let activity = Activity { at: tx.now.wall, ..(**activity).clone() };
            tx.emit(Change::ActivityNoted(Box::new(activity)));
            Ok(Reply::Noted)
        }
        Input::PutWorkspace { key, wanted, by } => requests::workspace::put(tx, key, wanted, by),
        Input::PatchWorkspace { key, wanted } => requests::workspace::patch(tx, key, wanted),
        Input::DeleteWorkspace { key } => requests::workspace::delete(tx, key),
        Input::PutCluster { workspace, name, wanted, by } => {
            requests::cluster::put(tx, workspace, name, wanted, by)
        }
        Input::PatchCluster { workspace, name, wanted } => {
            requests::cluster::patch(tx, workspace, name, wanted)
        }
        Input::DeleteCluster { workspace, name } => requests::cluster::delete(tx, workspace, name),
        Input::PowerInstance { workspace, name, power } => {
            requests::instance::power(tx, workspace, name, *power)
        }
        Input::SubmitJob(request) => requests::job::submit(tx, request),
        Input::CheckJob(request) => requests::job::check(tx, request),
        Input::CancelJob { workspace, name, known } => {
            requests::job::cancel(tx, workspace, name, known.as_deref())
        }
        Input::EditJob(edit) => requests::job_life::edit(tx, edit),
        Input::RemoveExpired(expired) => requests::expired::remove(tx, expired),
        Input::Report { node, report } => observations::on_report(tx, node, report),
        Input::SaveTree(request) => observations::on_tree(tx, request),
        Input::EffectDone { effect, result } => observations::on_effect_done(tx, *effect, result),
        Input::NodeEvicted { node } => observations::on_evicted(tx, node),
        Input::NodeEnded { node } => observations::on_ended(tx, node),
        Input::EvictNode { workspace, cluster, node } => {
            requests::evict::evict(tx, workspace, cluster, node)
        }
        Input::SetQuota { scope, limits } => requests::quota::set(tx, scope, limits),
        Input::ChangeAccess(request) => requests::access::change(tx, request),
        Input::ChangeGovernance(request) => requests::governance::change(tx, request),
        Input::ChangeHosts(request) => requests::host::change(tx, request),
        Input::Deploy(request) => requests::deployment::deploy(tx, request),
        Input::DeleteDeployment { group, name } => requests::deployment::delete(tx, group, name),
        Input::PutDatastore { workspace, name, wanted, by } => {
            requests::datastore::put(tx, workspace, name, wanted, by)
        }
        Input::DeleteDatastore { workspace, name } => {
            requests::datastore::delete(tx, workspace, name)
        }
        Input::ChangeAsset(request) => requests::asset::change(tx, request),
        Input::Tick => Ok(Reply::Noted),
    }
}

/// When to step again after this World.
pub fn next_wake(world: &World) -> Wake {
    let timers =
        [world.volatile.next_wake(), world.next_boot_deadline(), world.next_tree_deadline()];
    Wake {
        wall: timers.into_iter().flatten().min(),
        elapsed: world.volatile.next_silence(patience(world)),
    }
}

/// Whether something is left to decide at this time, even without an input.
pub(crate) fn is_due(world: &World, now: Now) -> bool {
    let (wake, wall) = (next_wake(world), world.last_wall().max(now.wall));
    world.volatile.is_touched()
        || wake.wall.is_some_and(|at| at <= wall)
        || wake.elapsed.is_some_and(|at| at <= now.elapsed)
}

/// How long a node may be silent before it counts as lost.
pub(crate) fn patience(world: &World) -> Span {
    if is_planted(Bug::ControllerImpatient) {
        return Span(world.settings.lease.0 / 2);
    }
    lease::patience(world.settings.lease)
}
