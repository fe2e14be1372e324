//! The life of an attempt: granted, progressing, decided, over.
//!
//! The first thing that decides how an attempt ends sets its verdict; from then on no member is wanted any
//! more. The job goes on (to the queue or to its end) only when every member is known to be over, so no two
//! attempts of one job ever run at once.

use crate::change::{Change, Effect, EffectKind};
use crate::ids::{EffectId, Epoch, JobId, NodeId};
use crate::meter;
use crate::model::{
    Attempt, AttemptRecord, CancelReason, Category, Exit, Failure, Job, JobEvent, JobState, Member,
    MemberPhase, Node, NodeEvent, NodePhase, NodeState, Outcome, Segment, Served, Trouble, Verdict,
};
use crate::planted::{Bug, is_planted};
use crate::step::Turn;

/// Gives the job these nodes, all at once, under a new epoch.
pub(crate) fn grant(turn: &mut Turn<'_>, job: JobId, nodes: &[NodeId]) {
    let epoch = Epoch(turn.world.draw());
    let mut job = turn.world.job(job).expect("granted from the queue").clone();
    let mut members = Vec::with_capacity(nodes.len());
    for id in nodes {
        let mut node = turn.world.node(*id).expect("granted from the idle nodes").clone();
        meter::switch_free(turn, &mut node, Some(Category::Prepare));
        node.state = NodeState::Leased { job: job.id, epoch };
        members.push(Member {
            node: *id,
            price_micro_usd_per_hour: node.price_micro_usd_per_hour,
            phase: MemberPhase::Ordered,
            spent: Vec::new(),
        });
        turn.emit(Change::NodeChanged { event: NodeEvent::Granted, node });
    }
    job.attempts += 1;
    job.state = JobState::Starting(Attempt {
        epoch,
        number: job.attempts,
        granted_at: turn.now.wall,
        started_at: None,
        members,
        verdict: None,
    });
    turn.emit(Change::JobChanged { event: JobEvent::Granted, job });
}

/// A node said how its member of the attempt is doing.
pub(crate) fn on_member(turn: &mut Turn<'_>, job: JobId, node: NodeId, phase: MemberPhase) {
    let attempt = turn.world.job(job).and_then(Job::attempt).expect("a leased node's job has one");
    let member = attempt.members.iter().find(|member| member.node == node);
    let is_news = match (&member.expect("the leased node is a member").phase, &phase) {
        (MemberPhase::Ordered, MemberPhase::Ordered)
        | (MemberPhase::Running, MemberPhase::Ordered | MemberPhase::Running)
        | (MemberPhase::Exited(_) | MemberPhase::Lost, _) => false,
        (MemberPhase::Ordered, MemberPhase::Running)
        | (
            MemberPhase::Ordered | MemberPhase::Running,
            MemberPhase::Exited(_) | MemberPhase::Lost,
        ) => true,
    };
    if is_news {
        let spent = if phase == MemberPhase::Running { on_started(turn, node) } else { None };
        follow(turn, job, node, phase, spent);
    }
}

/// Records what became of a member and what its node has spent on it.
fn follow(
    turn: &mut Turn<'_>,
    job: JobId,
    node: NodeId,
    phase: MemberPhase,
    spent: Option<Segment>,
) {
    let mut job = turn.world.job(job).expect("a leased node's job is live").clone();
    let attempt = attempt_mut(&mut job);
    let member = attempt.member_mut(node).expect("the leased node is a member");
    member.spent.extend(spent);
    if !member.phase.is_over() {
        member.phase = phase.clone();
        if attempt.verdict.is_none() {
            attempt.verdict = verdict_of(node, &phase);
        }
    }
    progress(turn, job);
}

fn attempt_mut(job: &mut Job) -> &mut Attempt {
    match &mut job.state {
        JobState::Starting(attempt)
        | JobState::Running(attempt)
        | JobState::CancelRequested(attempt) => attempt,
        JobState::Queued
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => unreachable!("a job that holds nodes has an attempt"),
    }
}

fn verdict_of(node: NodeId, phase: &MemberPhase) -> Option<Verdict> {
    match phase {
        MemberPhase::Ordered | MemberPhase::Running => None,
        // Nobody here asked it to stop: the agent did, because its lease was running out.
        MemberPhase::Exited(Exit::Stopped) | MemberPhase::Lost => Some(Verdict::NodeLost { node }),
        MemberPhase::Exited(exit) if exit.is_success() => None,
        MemberPhase::Exited(exit) => Some(Verdict::Failed { node, exit: exit.clone() }),
    }
}

fn on_started(turn: &mut Turn<'_>, node: NodeId) -> Option<Segment> {
    let mut node = turn.world.node(node).expect("it just reported").clone();
    let spent = meter::switch(turn, &mut node, Some(Category::Run));
    turn.emit(Change::NodeChanged { event: NodeEvent::Started, node });
    spent
}

/// Records a job whose attempt changed, and ends the attempt if that was the last word.
fn progress(turn: &mut Turn<'_>, mut job: Job) {
    let event = match &mut job.state {
        JobState::Starting(attempt)
            if attempt.members.iter().all(|member| member.phase == MemberPhase::Running) =>
        {
            attempt.started_at = Some(turn.now.wall);
            job.state = JobState::Running(attempt.clone());
            JobEvent::Started
        }
        _ => JobEvent::Progressed,
    };
    let is_over = job.attempt().is_some_and(Attempt::is_over);
    if is_over {
        end(turn, job);
    } else {
        turn.emit(Change::JobChanged { event, job });
    }
}

/// Every member is over: frees the nodes, closes the books, and decides where the job goes.
fn end(turn: &mut Turn<'_>, mut job: Job) {
    let mut attempt = attempt_mut(&mut job).clone();
    let served = Served { job: job.id, epoch: attempt.epoch, principal: job.principal };
    let all_succeeded = attempt
        .members
        .iter()
        .all(|member| matches!(&member.phase, MemberPhase::Exited(exit) if exit.is_success()));
    // Finished before the cancel reached it: then it did finish.
    let verdict = if all_succeeded { None } else { attempt.verdict.clone() };
    let is_last =
        job.attempts >= turn.world.settings.attempts_max || is_planted(Bug::EvictionNotRequeued);
    let outcome = Outcome::of(verdict.as_ref(), is_last);
    for member in &mut attempt.members {
        member.spent.extend(release(turn, member.node, attempt.epoch));
        meter::post_spent(turn, member, job.cluster, outcome, served);
    }
    let at = turn.now.wall;
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
        turn.emit(Change::AttemptEnded(record.clone()));
    }
    turn.emit(Change::AttemptEnded(record));
    let event = match verdict {
        None => {
            job.state = JobState::Completed { at };
            JobEvent::Succeeded
        }
        Some(Verdict::Failed { node, exit }) => {
            job.state = JobState::Failed { at, why: Failure::Exit { node, exit } };
            JobEvent::Failed
        }
        Some(Verdict::NodeLost { .. }) if is_last => {
            job.state = JobState::Failed { at, why: Failure::NodesLost { attempts: job.attempts } };
            JobEvent::Failed
        }
        Some(Verdict::NodeLost { .. }) => {
            job.state = JobState::Queued;
            JobEvent::Requeued
        }
        Some(Verdict::Canceled { why }) => {
            job.state = JobState::Canceled { at, why };
            JobEvent::Canceled
        }
    };
    turn.emit(Change::JobChanged { event, job });
}

/// Frees a node of its job, unless it was lost before the attempt was over.
fn release(turn: &mut Turn<'_>, node: NodeId, epoch: Epoch) -> Option<Segment> {
    let node = turn.world.node(node)?;
    node.lease().filter(|(_, held)| *held == epoch)?;
    let mut node = node.clone();
    let spent = meter::switch(turn, &mut node, Some(Category::Idle));
    node.state = NodeState::Idle { since: turn.now.wall, awaited: false };
    turn.emit(Change::NodeChanged { event: NodeEvent::Released, node });
    spent
}

/// Ends a job before its time: at once if it only waits, else as soon as its members have stopped.
pub(crate) fn cancel(turn: &mut Turn<'_>, mut job: Job, why: CancelReason) {
    let event = match &mut job.state {
        JobState::Queued => {
            job.state = JobState::Canceled { at: turn.now.wall, why };
            JobEvent::Canceled
        }
        JobState::Starting(attempt) | JobState::Running(attempt) => {
            let mut attempt = attempt.clone();
            match attempt.verdict {
                // It failed by itself before anyone asked.
                Some(Verdict::Failed { .. }) => {}
                None | Some(Verdict::NodeLost { .. } | Verdict::Canceled { .. }) => {
                    attempt.verdict = Some(Verdict::Canceled { why });
                }
            }
            job.state = JobState::CancelRequested(attempt);
            JobEvent::CancelAsked
        }
        JobState::CancelRequested(_)
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => return,
    };
    turn.emit(Change::JobChanged { event, job });
}

/// The node is not to be counted on any more: it is deleted, and what it ran is over.
pub(crate) fn lose_node(turn: &mut Turn<'_>, node: NodeId, why: Trouble) {
    let mut node = turn.world.node(node).expect("only a known node can be lost").clone();
    let lease = node.lease();
    let event = match (&why, node.phase()) {
        (Trouble::CreateFailed { .. }, _) => NodeEvent::CreateFailed,
        (_, NodePhase::Requested | NodePhase::Booting) => NodeEvent::BootTimedOut,
        (_, _) => NodeEvent::Lost,
    };
    let next = node.meter.map(|_| Category::Unusable);
    let spent = meter::switch(turn, &mut node, next);
    node.state = NodeState::Unusable { why };
    let id = node.id;
    if !is_planted(Bug::LostNodeKept) {
        order_delete(turn, &node);
    }
    turn.emit(Change::NodeChanged { event, node });
    if let Some((job, _)) = lease {
        let spent = spent.filter(|_| !is_planted(Bug::LostNodeUnbilled));
        follow(turn, job, id, MemberPhase::Lost, spent);
    }
}

/// Puts the delete call into the outbox.
pub(crate) fn order_delete(turn: &mut Turn<'_>, node: &Node) {
    let effect = Effect {
        id: EffectId(turn.world.draw()),
        queued_at: turn.now.wall,
        kind: EffectKind::DeleteNode { node: node.id, name: node.name.clone() },
    };
    turn.emit(Change::EffectQueued(effect));
}
