//! Batches: short tasks of an array that a node is given together, so that it starts the next one without asking.
//!
//! The first task of a batch holds a lease like any other job; the lease also names the tasks that follow it in the same
//! place ([`Batch`]). These have no record yet: they are counted as waiting, but are not in the queue. When the node
//! reports that tasks have ended, those get their records with the times that the node measured, and the lease passes to
//! the task that it runs now. Tasks that the node will not start return to the queue.
//!
//! A batch is *recalled* when the task before it takes longer than was predicted, or when somebody else waits. The node
//! then returns what it has not started. Until it has said so, or is lost, its tasks run nowhere else.

use std::sync::Arc;

use crate::agent::{AttemptPhase, Report};
use crate::attempts::{self, Told};
use crate::change::{Change, MemberChange};
use crate::ids::{ClusterId, Epoch, JobId, NodeId};
use crate::model::{
    Attempt, Batch, Category, Exit, Job, JobEvent, JobState, Lease, Member, MemberPhase, Node,
    NodeEvent, NodePhase, NodeState, Use, Verdict,
};
use crate::step::Transaction;
use crate::time::{Span, Wall};
use crate::world::World;
use crate::{job_trees, meter};

/// The most tasks that follow the first one of a batch.
const FOLLOWERS_MAX: u64 = 63;
/// So many tasks of an array must have ended before it is known how long they take: a prediction is the mean of two.
const KNOWN_TASKS_MIN: u32 = 2;
/// No prediction is shorter than this.
const TASK_MIN: Span = Span::milliseconds(1);

/// How many tasks a node is given together with this one: as many as it will probably finish soon, and at most half of
/// its share of those that wait, so that all nodes finish at about the same time. A task that was lost before runs alone,
/// because it may be what kills nodes.
pub(crate) fn followers_of(world: &World, job: &Job) -> u32 {
    let tree = job.parent.and_then(|parent| world.tree(parent)).filter(|_| job.attempts == 0);
    let predicted = world.account(job.cluster, job.principal).prediction();
    let (Some(tree), Some(predicted)) = (tree, predicted) else { return 0 };
    // The last runs of the user may have been those of something else.
    let counts = tree.counts();
    if counts.completed + counts.failed < KNOWN_TASKS_MIN {
        return 0;
    }
    let is_alone = world
        .cluster_index(job.cluster)
        .is_some_and(|index| !index.queue.has_others(job.principal));
    if !is_alone || world.record_of(job.id).is_none_or(|record| record.nodes != 1) {
        return 0;
    }
    let soon = (world.settings.batch.0 / predicted.max(TASK_MIN).0).saturating_sub(1);
    let share = tree.queued().len() / (2 * (tree.live().len() + 1));
    let next = tree.queued().count_after(job.id);
    let most = soon.min(share as u64).min(next).min(FOLLOWERS_MAX);
    u32::try_from(most).expect("it is small")
}

/// How many of the tasks that follow a lease the node still has, according to its report. It starts them in their order,
/// so those that it does not have are the last ones.
fn kept(lease: Lease, report: &Report) -> u32 {
    let has = |lease: &Lease| {
        let epoch = lease.epoch;
        epoch > report.floor || report.is_waiting(epoch) || report.attempt(epoch).is_some()
    };
    let count = lease.followers().take_while(has).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Whether the node has returned tasks.
pub(crate) fn has_returned(node: &Node, report: &Report) -> bool {
    let followers = |lease: &Lease| lease.batch.map_or(0, |batch| batch.followers);
    node.leases().iter().any(|lease| kept(*lease, report) < followers(lease))
}

/// Takes back the tasks that the node will not start.
pub(crate) fn take_back(tx: &mut Transaction<'_>, node: NodeId, report: &Report) {
    let Some(found) = tx.world.node(node) else { return };
    let kept: Vec<Lease> =
        found.leases().iter().map(|lease| lease.cut(kept(*lease, report))).collect();
    if kept == found.leases() {
        return;
    }
    let returned = returned(found.leases(), &kept);
    let mut found = found.clone();
    found.state = NodeState::Leased { leases: kept };
    tx.emit(Change::NodeChanged { event: NodeEvent::BatchChanged, node: Arc::new(found) });
    end_canceled(tx, &returned, &MemberPhase::Exited(Exit::Stopped));
}

/// The leases of tasks that are in the first list and not in the second.
fn returned(before: &[Lease], after: &[Lease]) -> Vec<Lease> {
    let pairs = before.iter().zip(after);
    pairs
        .flat_map(|(before, after)| {
            let last = after.last_epoch();
            before.followers().filter(move |lease| lease.epoch > last)
        })
        .collect()
}

/// Tasks that have returned wait again, except those that were canceled in the meantime: these end.
pub(crate) fn end_canceled(tx: &mut Transaction<'_>, returned: &[Lease], phase: &MemberPhase) {
    for lease in returned {
        if tx.world.job(lease.job).and_then(Job::attempt).is_some() {
            attempts::follow_alone(tx, *lease, phase.clone());
        }
    }
}

/// The first task of a batch has ended: records its end and those of all tasks after it that the node has reported, and
/// passes the lease on to the task that it runs now.
pub(crate) fn pass_on(
    tx: &mut Transaction<'_>,
    node: NodeId,
    lease: Lease,
    mut job: Job,
    told: &Told<'_>,
) {
    let now = tx.now.wall;
    let mut at = job.attempt().map_or(now, |attempt| {
        let began = attempt.started_at.unwrap_or(attempt.granted_at);
        ended_at(attempt.granted_at, told.held, (began, now))
    });
    attempts::conclude(tx, job, at);
    let mut next = lease.next();
    while let Some(lease) = next {
        let reported = told.report.and_then(|report| report.attempt(lease.epoch));
        let ended = reported.and_then(|reported| match &reported.phase {
            AttemptPhase::Ended(exit) => Some((exit, reported)),
            AttemptPhase::Preparing
            | AttemptPhase::Ready
            | AttemptPhase::Running
            | AttemptPhase::Evicting => None,
        });
        let Some((exit, reported)) = ended else { break };
        let phase = MemberPhase::Exited(exit.clone());
        // The place is free only now.
        let end = match lease.batch {
            Some(_) => ended_at(at, reported.held, (at, now)),
            None => now,
        };
        job = attempt_of(tx, node, lease, at);
        let verdict = attempts::verdict_of(node, lease.rank, &phase);
        let attempt = attempts::attempt_mut(&mut job);
        attempt.started_at = Some(at);
        attempt.members[0].spans = reported.spans;
        attempt.members[0].phase = phase;
        attempt.verdict = attempt.verdict.take().or(verdict);
        meter::switch_member(&mut attempt.members[0], Some(Category::Run), at);
        attempts::conclude(tx, job, end);
        at = end;
        next = lease.next();
    }
    let next = next.map(|lease| {
        let batch = lease.batch.map(|batch| Batch { since: at, ..batch });
        Lease { batch, ..lease }
    });
    match next {
        Some(next) => {
            begin(tx, node, next, at);
            replace(tx, node, lease, next);
        }
        None => attempts::release(tx, node, lease.epoch),
    }
}

/// When an attempt ended that had its place from `began` on, for as long as its node says.
fn ended_at(began: Wall, held: Option<Span>, (earliest, latest): (Wall, Wall)) -> Wall {
    held.map_or(latest, |held| (began + held).clamp(earliest, latest))
}

fn replace(tx: &mut Transaction<'_>, node: NodeId, old: Lease, new: Lease) {
    let Some(node) = tx.world.node(node) else { return };
    let leases = node.leases().iter();
    let leases = leases.map(|lease| if lease.epoch == old.epoch { new } else { *lease }).collect();
    let node = Node { state: NodeState::Leased { leases }, ..node.clone() };
    tx.emit(Change::NodeChanged { event: NodeEvent::BatchChanged, node: Arc::new(node) });
}

/// The record of a task that a node was given, as it is when its turn comes. Only one that was canceled has a record
/// already.
fn attempt_of(tx: &Transaction<'_>, node: NodeId, lease: Lease, at: Wall) -> Job {
    if let Some(job) = tx.world.job(lease.job) {
        let mut job = job.clone();
        attempts::attempt_mut(&mut job).granted_at = at;
        return job;
    }
    let job = tx.world.live_job(lease.job).expect("a task that was given to a node is waiting");
    let mut job = Arc::unwrap_or_clone(job);
    let node = tx.world.node(node).expect("it holds the lease");
    let member = Member {
        node: node.id,
        price_micro_usd_per_hour: node.price_micro_usd_per_hour,
        part: node.part_of(lease.share),
        phase: MemberPhase::Ordered,
        meter: None,
        spent: Vec::new(),
        provisioned: None,
        spans: None,
    };
    job.attempts = 1;
    job.state = JobState::Starting(Box::new(Attempt {
        epoch: lease.epoch,
        number: 1,
        granted_at: at,
        started_at: None,
        go: true,
        members: vec![member],
        verdict: None,
        notice: None,
        predicted: tx.world.prediction(job.cluster, job.principal),
        charged: Use::ZERO,
    }));
    job
}

/// It is this task's turn.
fn begin(tx: &mut Transaction<'_>, node: NodeId, lease: Lease, at: Wall) {
    let mut job = attempt_of(tx, node, lease, at);
    let is_known = tx.world.job(lease.job).is_some();
    let is_going = tx.world.node(node).is_some_and(|node| node.evict_at.is_some());
    let attempt = attempts::attempt_mut(&mut job);
    meter::switch_member(&mut attempt.members[0], Some(Category::Prepare), at);
    if is_known {
        let (member, verdict) = (attempt.members.remove(0), attempt.verdict.clone());
        let (job, epoch, rank) = (lease.job, lease.epoch, lease.rank);
        return tx.emit(Change::MemberChanged(MemberChange { job, epoch, rank, member, verdict }));
    }
    if is_going {
        attempt.verdict = Some(Verdict::Evicted { node });
    }
    job_trees::put(tx, JobEvent::Granted, job.clone());
    // Its parent may have been canceled since the node was given the task.
    let parent = job.parent.and_then(|parent| tx.world.job(parent));
    if let Some(JobState::Parent(state)) = parent.map(|parent| &parent.state)
        && let Some(ending) = &state.ending
    {
        let why = ending.reason_for_children();
        attempts::cancel(tx, job, why);
    }
}

/// Cancels a task that a node was given, and may be about to start. Returns whether it is one.
pub(crate) fn cancel_given(tx: &mut Transaction<'_>, job: &Job) -> Option<Job> {
    if tx.world.job(job.id).is_some() || !tx.world.is_given(job.id) {
        return None;
    }
    let (node, lease) = holder_of(tx.world, job)?;
    let granted = attempt_of(tx, node, lease, tx.now.wall);
    job_trees::put(tx, JobEvent::Granted, granted.clone());
    recall(tx, node, |lease| lease.followers().any(|follower| follower.job == job.id));
    Some(granted)
}

/// The node that was given a task, and the lease of the task.
pub(crate) fn holder_of(world: &World, job: &Job) -> Option<(NodeId, Lease)> {
    let tree = world.tree(job.parent?)?;
    tree.live().iter().find_map(|sibling| {
        let attempt = world.job(*sibling)?.attempt()?;
        let node = world.node(attempt.members.first()?.node)?;
        let mut leases = node.leases().iter().flat_map(|lease| lease.followers());
        leases.find(|lease| lease.job == job.id).map(|lease| (node.id, lease))
    })
}

/// Asks a node to return those of these batches that it has not started.
pub(crate) fn recall(tx: &mut Transaction<'_>, node: NodeId, is_meant: impl Fn(&Lease) -> bool) {
    let Some(node) = tx.world.node(node) else { return };
    let is_open = |lease: &Lease| lease.batch.is_some_and(|batch| !batch.is_recalled);
    if !node.leases().iter().any(|lease| is_open(lease) && is_meant(lease)) {
        return;
    }
    let leases = recalled(node.leases(), is_meant);
    let node = Node { state: NodeState::Leased { leases }, ..node.clone() };
    tx.emit(Change::NodeChanged { event: NodeEvent::BatchChanged, node: Arc::new(node) });
}

pub(crate) fn recalled(leases: &[Lease], is_meant: impl Fn(&Lease) -> bool) -> Vec<Lease> {
    let recalled = |lease: &Lease| match lease.batch {
        Some(batch) if is_meant(lease) => {
            Lease { batch: Some(Batch { is_recalled: true, ..batch }), ..*lease }
        }
        _ => *lease,
    };
    leases.iter().map(recalled).collect()
}

/// Recalls the batches of a parent that has to end.
pub(crate) fn recall_of(tx: &mut Transaction<'_>, live: impl Iterator<Item = JobId>) {
    let attempts = live.filter_map(|child| tx.world.job(child).and_then(Job::attempt));
    let places =
        attempts.filter_map(|attempt| Some((attempt.members.first()?.node, attempt.epoch)));
    recall_all(tx, places.collect());
}

/// Recalls batches with one change of each node.
fn recall_all(tx: &mut Transaction<'_>, mut places: Vec<(NodeId, Epoch)>) {
    places.sort_unstable();
    for of_node in places.chunk_by(|one, other| one.0 == other.0) {
        let is_meant = |lease: &Lease| of_node.iter().any(|(_, epoch)| *epoch == lease.epoch);
        recall(tx, of_node[0].0, is_meant);
    }
}

/// Recalls the batches of a cluster that take longer than was predicted, those of one user while another waits, and those
/// on nodes whose host is not open any more.
pub(crate) fn recall_due(tx: &mut Transaction<'_>, cluster: ClusterId) {
    let Some(index) = tx.world.cluster_index(cluster).filter(|index| !index.batches.is_empty())
    else {
        return;
    };
    let now = tx.now.wall;
    let patience = tx.world.settings.batch;
    let all_open = index.hosts.keys().all(|host| tx.world.is_open(host));
    let mut due = Vec::new();
    for (principal, batches) in &index.batches {
        let has_others = index.queue.has_others(*principal);
        for (since, node, epoch) in batches {
            let is_late = *since + patience <= now;
            if !is_late && !has_others && all_open {
                break;
            }
            let on_open = || tx.world.node(*node).is_some_and(|node| tx.world.is_open(&node.host));
            if is_late || has_others || !on_open() {
                due.push((*node, *epoch));
            }
        }
    }
    recall_all(tx, due);
}

/// When the next batch of a cluster is recalled if nothing happens before.
pub(crate) fn next_recall(world: &World, cluster: ClusterId) -> Option<Wall> {
    let batches = world.cluster_index(cluster)?.batches.values();
    let first = batches.filter_map(|batches| batches.first()).map(|(since, _, _)| *since).min()?;
    Some(first + world.settings.batch)
}

/// Whether all that a node was given has ended, according to the epochs that it reports as ended.
pub(crate) fn has_ended_all(node: &Node, report: &Report) -> bool {
    let is_over = |lease: &Lease| {
        let ended = report.attempt(lease.epoch).map(|attempt| &attempt.phase);
        lease.batch.is_none() && matches!(ended, Some(AttemptPhase::Ended(_)))
    };
    matches!(node.phase(), NodePhase::Idle | NodePhase::Leased) && node.leases().iter().all(is_over)
}
