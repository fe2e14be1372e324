//! The life of an attempt: granted, progressing, decided, over.
//!
//! The first event that decides how an attempt ends sets its verdict; from then on all of its members have to stop.
//! The job moves on (back to the queue, or to its end) only when every member is known to have ended, so two attempts
//! of one job never run at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::agent::{Report, master_port};
use crate::change::{Change, Effect, EffectKind, MemberChange};
use crate::hosts::HostChange;
use crate::ids::{EffectId, Epoch, JobId, NodeId};
use crate::model::{
    Attempt, AttemptOutcome, AttemptRecord, Batch, CancelReason, Category, Cluster, ClusterEvent,
    Exit, Failure, HOST_ENVIRONMENTS_MAX, Host, Job, JobEvent, JobState, Lease, Member,
    MemberPhase, Node, NodeEvent, NodeFailure, NodePhase, NodeState, OnEviction, Part, RecipeMark,
    Served, Spans, TreeEnding, Trouble, Use, Verdict,
};
use crate::planted::{Bug, is_planted};
use crate::step::Transaction;
use crate::time::{Span, Wall};
use crate::world::World;
use crate::{batches, failure, job_trees, meter};

/// Gives the job these nodes, or its share of each, all at once and under a new epoch.
pub(crate) fn grant(tx: &mut Transaction<'_>, job: JobId, nodes: &[NodeId]) {
    let job = tx.world.live_job(job).expect("granted from the queue");
    let mut job = Arc::unwrap_or_clone(job);
    let followers = batches::followers_of(tx.world, &job);
    let (epoch, followers) = draw_epochs(tx, nodes[0], followers);
    let (principal, since) = (job.principal, tx.now.wall);
    let batch =
        (followers > 0).then_some(Batch { followers, principal, since, is_recalled: false });
    let mut members = Vec::with_capacity(nodes.len());
    for (rank, id) in (0..).zip(nodes) {
        let share = job.shape().share;
        members.push(lease(tx, *id, Lease { job: job.id, epoch, rank, share, batch }));
    }
    let predicted = tx.world.prediction(job.cluster, job.principal);
    let charged = use_of(tx, &members, predicted, tx.now.wall);
    let mut account = tx.world.account(job.cluster, job.principal);
    account.used = account.used.plus(charged);
    job.attempts += 1;
    job.state = JobState::Starting(Box::new(Attempt {
        epoch,
        number: job.attempts,
        granted_at: tx.now.wall,
        started_at: None,
        go: nodes.len() == 1 || is_planted(Bug::GoBeforeAllReady),
        members,
        verdict: None,
        notice: None,
        predicted,
        charged,
    }));
    job_trees::put(tx, JobEvent::Granted, job);
    tx.emit(Change::AccountChanged(account));
}

/// How often epochs are drawn for a job with tasks that follow it, and for one without, until their ports do not matter
/// any more: a node with very many leases may have no free ones.
const DRAWS_MAX: (u32, u32) = (16, 20_000);

/// The next epoch whose port no other attempt uses on this node to gather its members, and how many tasks may follow it
/// with epochs for which the same is true.
fn draw_epochs(tx: &mut Transaction<'_>, master: NodeId, followers: u32) -> (Epoch, u32) {
    let masters = tx.world.node(master).map_or(&[][..], Node::leases).iter();
    let epochs = masters
        .filter(|lease| lease.rank == 0)
        .flat_map(|lease| (lease.epoch.0..=lease.last_epoch().0).map(Epoch));
    let taken: BTreeSet<u16> = epochs.map(master_port).collect();
    for draw in 0.. {
        let followers = if draw < DRAWS_MAX.0 { followers } else { 0 };
        let count = u64::from(followers) + 1;
        let first = tx.world.draw_many(count);
        let mut epochs = (first..first + count).map(Epoch);
        if !epochs.any(|epoch| taken.contains(&master_port(epoch))) || draw == DRAWS_MAX.1 {
            return (Epoch(first), followers);
        }
    }
    unreachable!("there is a last draw")
}

fn lease(tx: &mut Transaction<'_>, id: NodeId, lease: Lease) -> Member {
    let mut node = tx.world.node(id).expect("granted from nodes with room").clone();
    let provisioned = match node.state {
        NodeState::Idle { since, has_served: false } => Some((node.requested_at, since)),
        _ => None,
    };
    match &mut node.state {
        NodeState::Leased { leases } => leases.push(lease),
        NodeState::Idle { .. } => node.state = NodeState::Leased { leases: vec![lease] },
        NodeState::Requested
        | NodeState::Booting
        | NodeState::Unusable { .. }
        | NodeState::Leaving
        | NodeState::Gone => unreachable!("only a node that is up has room"),
    }
    meter::switch(tx, &mut node, Some(Category::Idle));
    let mut member = Member {
        node: id,
        price_micro_usd_per_hour: node.price_micro_usd_per_hour,
        part: node.part_of(lease.share),
        phase: MemberPhase::Ordered,
        meter: None,
        spent: Vec::new(),
        provisioned,
        spans: None,
    };
    meter::switch_member(&mut member, Some(Category::Prepare), tx.now.wall);
    tx.emit(Change::NodeChanged { event: NodeEvent::Granted, node: Arc::new(node) });
    member
}

/// What it counts in fair share to hold these members' nodes for this long.
fn use_of(tx: &Transaction<'_>, members: &[Member], span: Span, at: Wall) -> Use {
    let parts: u64 = members.iter().map(|member| u64::from(member.part.0)).sum();
    let amount = u128::from(parts) * u128::from(span.0) / u128::from(Part::WHOLE.0);
    let amount = u64::try_from(amount).unwrap_or(u64::MAX);
    Use::of(amount, at, tx.world.settings.fair_share_half_life)
}

/// What else is known about a member whose phase has changed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told<'a> {
    pub(crate) spans: Option<Spans>,
    /// How long it had its place on the node, if it is part of a batch.
    pub(crate) held: Option<Span>,
    /// The report that says so.
    pub(crate) report: Option<&'a Report>,
}

/// A node reported the phase of its member of the attempt.
pub(crate) fn on_member(
    tx: &mut Transaction<'_>,
    lease: Lease,
    phase: MemberPhase,
    told: &Told<'_>,
) {
    if is_news(tx.world, lease, &phase) {
        let attempt = tx.world.job(lease.job).and_then(Job::attempt).expect("it has news");
        let node = attempt.members[lease.rank as usize].node;
        // The whole attempt ends with the evicted node.
        let evicted = match &phase {
            MemberPhase::Exited(Exit::Evicted) => Some(attempt.notice.unwrap_or(node)),
            MemberPhase::Exited(Exit::Stopped) => attempt.notice,
            _ => None,
        };
        let verdict = match evicted {
            Some(node) => Some(Verdict::Evicted { node }),
            None => verdict_of(node, lease.rank, &phase),
        };
        follow(tx, lease, phase, verdict, told);
    }
}

/// The same for a task that a node was given, which ended without a report of its own.
pub(crate) fn follow_alone(tx: &mut Transaction<'_>, lease: Lease, phase: MemberPhase) {
    follow(tx, lease, phase, None, &Told::default());
}

/// Whether a member has not been in this phase yet.
pub(crate) fn is_news(world: &World, lease: Lease, phase: &MemberPhase) -> bool {
    let job = world.job(lease.job);
    let attempt = job.and_then(Job::attempt).expect("a leased node's job has one");
    match (&attempt.members[lease.rank as usize].phase, phase) {
        (MemberPhase::Ordered, MemberPhase::Ordered)
        | (MemberPhase::Ready, MemberPhase::Ordered | MemberPhase::Ready)
        | (
            MemberPhase::Running,
            MemberPhase::Ordered | MemberPhase::Ready | MemberPhase::Running,
        )
        | (MemberPhase::Exited(_) | MemberPhase::Lost, _) => false,
        (MemberPhase::Ordered, MemberPhase::Ready)
        | (MemberPhase::Ordered | MemberPhase::Ready, MemberPhase::Running)
        | (
            MemberPhase::Ordered | MemberPhase::Ready | MemberPhase::Running,
            MemberPhase::Exited(_) | MemberPhase::Lost,
        ) => true,
    }
}

pub(crate) fn verdict_of(node: NodeId, rank: u32, phase: &MemberPhase) -> Option<Verdict> {
    match phase {
        MemberPhase::Ordered | MemberPhase::Ready | MemberPhase::Running => None,
        // The server did not ask it to stop. The agent stopped it, because its lease was running out.
        MemberPhase::Exited(Exit::Stopped) | MemberPhase::Lost => Some(Verdict::NodeLost { node }),
        MemberPhase::Exited(exit) if exit.is_success() => None,
        MemberPhase::Exited(exit) => Some(Verdict::Failed { node, rank, exit: exit.clone() }),
    }
}

/// Records the new phase of a member, and ends the attempt if this was the last member to end.
fn follow(
    tx: &mut Transaction<'_>,
    lease: Lease,
    phase: MemberPhase,
    verdict: Option<Verdict>,
    told: &Told<'_>,
) {
    let now = tx.now.wall;
    let job = tx.world.job(lease.job).expect("a leased node's job is live");
    let attempt = job.attempt().expect("a leased node's job has an attempt");
    let mut member = attempt.members[lease.rank as usize].clone();
    member.spans = told.spans.or(member.spans);
    match phase {
        MemberPhase::Running => meter::switch_member(&mut member, Some(Category::Run), now),
        // An ended member still holds its part of the node until the whole attempt is over, so it is still billed.
        MemberPhase::Ordered | MemberPhase::Ready | MemberPhase::Exited(_) => {}
        // A lost node no longer belongs to the job, so billing stops now.
        MemberPhase::Lost if is_planted(Bug::LostNodeUnbilled) => member.meter = None,
        MemberPhase::Lost => meter::switch_member(&mut member, None, now),
    }
    let mut verdict_now = attempt.verdict.clone();
    if !member.phase.is_over() {
        member.phase = phase;
        verdict_now = verdict_now.or(verdict);
    }
    let others = || attempt.members.iter().zip(0..).filter(|(_, rank)| *rank != lease.rank);
    let is_over = member.phase.is_over() && others().all(|(other, _)| other.phase.is_over());
    let is_running = matches!(job.state, JobState::Starting(_))
        && member.phase == MemberPhase::Running
        && others().all(|(other, _)| other.phase == MemberPhase::Running);
    // All members may start now. A member that has ended already had no need to wait.
    let is_ready = !attempt.go
        && verdict_now.is_none()
        && member.phase != MemberPhase::Ordered
        && others().all(|(other, _)| other.phase != MemberPhase::Ordered);
    if !is_over && !is_running && !is_ready {
        let change = MemberChange {
            job: lease.job,
            epoch: lease.epoch,
            rank: lease.rank,
            member,
            verdict: verdict_now,
        };
        return tx.emit(Change::MemberChanged(change));
    }
    let mut job = job.clone();
    let attempt = attempt_mut(&mut job);
    attempt.members[lease.rank as usize] = member;
    attempt.verdict = verdict_now;
    if is_over {
        return end(tx, job, told);
    }
    attempt.go = true;
    if !is_running {
        return tx.emit(Change::JobChanged { event: JobEvent::Ready, job: Arc::new(job) });
    }
    attempt.started_at = Some(now);
    let attempt = attempt.clone();
    let first = attempt.members[0].node;
    job.state = JobState::Running(Box::new(attempt));
    let environment = job.environment;
    tx.emit(Change::JobChanged { event: JobEvent::Started, job: Arc::new(job) });
    if let Some(mark) = environment {
        note_environment(tx, first, mark);
    }
}

/// Notes that a host has the environment of a job that started there. All nodes of a job are on one host.
fn note_environment(tx: &mut Transaction<'_>, node: NodeId, mark: RecipeMark) {
    let Some(node) = tx.world.node(node) else { return };
    let Some(host) = tx.world.hosts().host(&node.host) else { return };
    if host.has_environment(mark) {
        return;
    }
    let mut host = Host::clone(host);
    if host.environments.len() >= HOST_ENVIRONMENTS_MAX {
        host.environments.remove(0);
    }
    host.environments.push(mark);
    tx.emit(Change::HostsChanged(HostChange::Host(Arc::new(host))));
}

pub(crate) fn attempt_mut(job: &mut Job) -> &mut Attempt {
    match &mut job.state {
        JobState::Starting(attempt)
        | JobState::Running(attempt)
        | JobState::CancelRequested(attempt) => attempt,
        JobState::Queued
        | JobState::Parent(_)
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => unreachable!("a job that holds nodes has an attempt"),
    }
}

/// Every member has ended: frees the nodes, or passes them on to the next task of a batch.
fn end(tx: &mut Transaction<'_>, job: Job, told: &Told<'_>) {
    let attempt = job.attempt().expect("it has just ended");
    let epoch = attempt.epoch;
    let nodes: Vec<NodeId> = attempt.members.iter().map(|member| member.node).collect();
    let lease = tx.world.node(nodes[0]).and_then(|node| node.lease_of(epoch));
    let is_first = |lease: &Lease| {
        let node = tx.world.node(nodes[0]);
        lease.batch.is_some() && node.is_some_and(|node| node.leases().contains(lease))
    };
    if let Some(lease) = lease.filter(is_first) {
        return batches::pass_on(tx, nodes[0], lease, job, told);
    }
    for node in nodes {
        release(tx, node, epoch);
    }
    conclude(tx, job, tx.now.wall);
}

/// Posts the costs of an attempt that ended at this time, and decides the job's next state.
pub(crate) fn conclude(tx: &mut Transaction<'_>, mut job: Job, at: Wall) {
    let mut attempt = std::mem::replace(&mut job.state, JobState::Queued).into_attempt();
    let all_succeeded = attempt
        .members
        .iter()
        .all(|member| matches!(&member.phase, MemberPhase::Exited(exit) if exit.is_success()));
    // A job that finished before the cancel request reached it has completed.
    let verdict = if all_succeeded { None } else { attempt.verdict.take() };
    job.losses += u32::from(matches!(verdict, Some(Verdict::NodeLost { .. })));
    let is_last = job.losses >= tx.world.settings.attempts_max;
    let is_given_up = is_planted(Bug::EvictionNotRequeued);
    let outcome = AttemptOutcome::of(verdict.as_ref(), is_last);
    job.is_returned = matches!(verdict, Some(Verdict::Evicted { .. }));
    let served =
        Served { job: job.id, parent: job.parent, epoch: attempt.epoch, principal: job.principal };
    for member in &mut attempt.members {
        meter::switch_member(member, None, at);
        meter::post_spent(tx, member, job.cluster, outcome, served);
    }
    settle_account(tx, &job, &attempt, (outcome, at));
    let record = AttemptRecord {
        job: job.id,
        epoch: attempt.epoch,
        number: attempt.number,
        granted_at: attempt.granted_at,
        started_at: attempt.started_at,
        ended_at: at,
        members: attempt.members,
        outcome,
    };
    if is_planted(Bug::CompletionTwice) {
        tx.emit(Change::AttemptEnded(record.clone()));
    }
    tx.emit(Change::AttemptEnded(record));
    let event = match verdict {
        None => {
            job.state = JobState::Completed { at };
            JobEvent::Succeeded
        }
        Some(Verdict::Failed { node, rank, exit }) => {
            job.state = JobState::Failed { at, why: Box::new(Failure::Exit { node, rank, exit }) };
            JobEvent::Failed
        }
        Some(Verdict::NodeLost { .. } | Verdict::Evicted { .. }) if is_given_up => {
            job.state = JobState::Failed {
                at,
                why: Box::new(Failure::NodesLost { attempts: job.attempts }),
            };
            JobEvent::Failed
        }
        Some(Verdict::Evicted { node }) if job.on_eviction == OnEviction::Fail => {
            job.state = JobState::Failed { at, why: Box::new(Failure::Evicted { node }) };
            JobEvent::Failed
        }
        Some(Verdict::NodeLost { .. }) if is_last => {
            job.state = JobState::Failed {
                at,
                why: Box::new(Failure::NodesLost { attempts: job.attempts }),
            };
            JobEvent::Failed
        }
        // After a loss the job returns to its old place in the queue, not to the front: it may be what kills nodes.
        Some(Verdict::NodeLost { .. } | Verdict::Evicted { .. }) => {
            job.state = JobState::Queued;
            JobEvent::Requeued
        }
        Some(Verdict::Canceled { why }) => {
            job.state = JobState::Canceled { at, why };
            JobEvent::Canceled
        }
    };
    job_trees::put(tx, event, job);
}

/// Replaces the charge for the predicted use with one for the actual use, dated to the middle of the attempt.
fn settle_account(
    tx: &mut Transaction<'_>,
    job: &Job,
    attempt: &Attempt,
    (outcome, at): (AttemptOutcome, Wall),
) {
    let held = at - attempt.granted_at;
    let middle = attempt.granted_at + Span(held.0 / 2);
    let used = use_of(tx, &attempt.members, held, middle);
    let mut account = tx.world.account(job.cluster, job.principal);
    account.used = account.used.minus(attempt.charged).plus(used);
    match outcome {
        AttemptOutcome::Succeeded | AttemptOutcome::Failed => account.note_run(held),
        // The job was cut short, so its length predicts nothing about the next run.
        AttemptOutcome::Canceled
        | AttemptOutcome::Evicted
        | AttemptOutcome::Retried
        | AttemptOutcome::None => {}
    }
    tx.emit(Change::AccountChanged(account));
}

/// Takes a node back from its job, unless the node was lost before the attempt was over, or the job is a task whose turn
/// never came.
pub(crate) fn release(tx: &mut Transaction<'_>, node: NodeId, epoch: Epoch) {
    let holds = |node: &&Node| node.leases().iter().any(|lease| lease.epoch == epoch);
    let Some(node) = tx.world.node(node).filter(holds) else { return };
    let mut node = node.clone();
    let NodeState::Leased { leases } = &mut node.state else { unreachable!("it has a lease") };
    leases.retain(|lease| lease.epoch != epoch);
    let is_free = leases.is_empty();
    let event = if is_free {
        node.state = NodeState::Idle { since: tx.now.wall, has_served: true };
        NodeEvent::Released
    } else {
        NodeEvent::PartReleased
    };
    meter::switch(tx, &mut node, Some(Category::Idle));
    let (id, is_going) = (node.id, node.evict_at.is_some());
    tx.emit(Change::NodeChanged { event, node: Arc::new(node) });
    if is_free && is_going {
        lose_node(tx, id, Trouble::Evicted);
    }
}

/// A low-priority node will be evicted. Jobs on it are notified and have some time to end; without a job, it is
/// deleted at once.
pub(crate) fn notice_eviction(tx: &mut Transaction<'_>, node: NodeId) {
    let mut node = tx.world.node(node).expect("looked up by the caller").clone();
    if node.leases().is_empty() {
        return lose_node(tx, node.id, Trouble::Evicted);
    }
    let (id, leases) = (node.id, node.leases().to_vec());
    node.evict_at = Some(tx.now.wall + tx.world.settings.eviction_grace);
    // No other task starts there.
    node.state = NodeState::Leased { leases: batches::recalled(&leases, |_| true) };
    tx.emit(Change::NodeChanged { event: NodeEvent::EvictionNoticed, node: Arc::new(node) });
    for lease in leases {
        notice_attempt(tx, lease.job, id);
    }
}

/// Notifies every member of an attempt that one of its nodes will be evicted, unless the attempt is ending anyway.
fn notice_attempt(tx: &mut Transaction<'_>, job: JobId, node: NodeId) {
    let mut job = tx.world.job(job).expect("a leased node's job is live").clone();
    match &mut job.state {
        JobState::Running(attempt) if attempt.verdict.is_none() && attempt.notice.is_none() => {
            attempt.notice = Some(node);
        }
        // It has hardly run, if at all, so it is stopped without a notice.
        JobState::Starting(attempt) if attempt.verdict.is_none() => {
            attempt.verdict = Some(Verdict::Evicted { node });
        }
        JobState::Running(_)
        | JobState::Starting(_)
        | JobState::CancelRequested(_)
        | JobState::Queued
        | JobState::Parent(_)
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => return,
    }
    tx.emit(Change::JobChanged { event: JobEvent::EvictionNoticed, job: Arc::new(job) });
}

/// Cancels a job: at once if it is queued, otherwise as soon as its members have stopped. A parent is canceled with all
/// of its children.
pub(crate) fn cancel(tx: &mut Transaction<'_>, mut job: Job, why: CancelReason) {
    if job.is_parent() {
        return job_trees::end(tx, job.id, &TreeEnding::Canceled(why));
    }
    // A child that has not started never will if its parent has to end.
    if job_trees::is_void(tx.world, &job) {
        return;
    }
    job = batches::cancel_given(tx, &job).unwrap_or(job);
    let event = match &mut job.state {
        JobState::Queued => {
            job.state = JobState::Canceled { at: tx.now.wall, why };
            JobEvent::Canceled
        }
        JobState::Starting(attempt) | JobState::Running(attempt) => {
            let mut attempt = attempt.clone();
            match attempt.verdict {
                // It failed by itself before the request.
                Some(Verdict::Failed { .. }) => {}
                None
                | Some(
                    Verdict::NodeLost { .. } | Verdict::Evicted { .. } | Verdict::Canceled { .. },
                ) => attempt.verdict = Some(Verdict::Canceled { why }),
            }
            job.state = JobState::CancelRequested(attempt);
            JobEvent::CancelAsked
        }
        JobState::CancelRequested(_)
        | JobState::Parent(_)
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => return,
    };
    job_trees::put(tx, event, job);
}

/// The node can no longer be relied on: it is deleted, and its members of attempts count as lost.
pub(crate) fn lose_node(tx: &mut Transaction<'_>, node: NodeId, why: Trouble) {
    let mut node = tx.world.node(node).expect("only a known node can be lost").clone();
    // A node that was about to be evicted is expected to fall silent.
    let why = if node.evict_at.is_some() { Trouble::Evicted } else { why };
    if why == Trouble::Evicted {
        node.evict_at = Some(node.evict_at.unwrap_or(tx.now.wall));
    }
    let event = match (&why, node.phase()) {
        (Trouble::Evicted, _) => NodeEvent::Evicted,
        (Trouble::CreateFailed { .. }, _) => NodeEvent::CreateFailed,
        (_, NodePhase::Requested | NodePhase::Booting) => NodeEvent::BootTimedOut,
        (_, _) => NodeEvent::Lost,
    };
    let leases = node.leases().to_vec();
    let id = node.id;
    let verdict = match why {
        Trouble::Evicted => Verdict::Evicted { node: id },
        Trouble::LeaseExpired
        | Trouble::Rebooted
        | Trouble::BootTimedOut
        | Trouble::Ended
        | Trouble::CreateFailed { .. } => Verdict::NodeLost { node: id },
    };
    let is_billed = node.meter.is_some() || !leases.is_empty();
    let failure = (why != Trouble::Evicted).then(|| Box::new(failure::of(tx, &node, why.clone())));
    node.state = NodeState::Unusable { why };
    meter::switch(tx, &mut node, is_billed.then_some(Category::Unusable));
    if !is_planted(Bug::LostNodeKept) {
        order_delete(tx, &node, failure);
    }
    tx.emit(Change::NodeChanged { event, node: Arc::new(node) });
    for lease in leases {
        let followers: Vec<Lease> = lease.followers().collect();
        follow(tx, lease, MemberPhase::Lost, Some(verdict.clone()), &Told::default());
        batches::end_canceled(tx, &followers, &MemberPhase::Lost);
    }
}

/// A node did not start: its cluster waits before it tries again.
pub(crate) fn back_off(tx: &mut Transaction<'_>, node: NodeId, message: &str) {
    let node = tx.world.node(node).expect("looked up by the caller");
    let is_paid = node.meter.is_some();
    let cluster = tx.world.cluster(node.cluster).expect("a node's cluster outlives it");
    let backoff = cluster.backoff.after_failure(tx.now.wall, is_paid, message);
    let cluster = Arc::new(Cluster { backoff, ..cluster.clone() });
    tx.emit(Change::ClusterChanged { event: ClusterEvent::BackoffChanged, cluster });
}

/// Puts the request to delete a node into the outbox.
pub(crate) fn order_delete(
    tx: &mut Transaction<'_>,
    node: &Node,
    failure: Option<Box<NodeFailure>>,
) {
    let effect = Effect {
        id: EffectId(tx.world.draw()),
        queued_at: tx.now.wall,
        kind: EffectKind::DeleteNode { node: node.id, name: Arc::clone(&node.name), failure },
    };
    tx.emit(Change::EffectQueued(effect));
}
