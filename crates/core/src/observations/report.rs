//! An agent said everything it knows.

use crate::agent::{AttemptPhase, Desired, Order, Report};
use crate::attempts;
use crate::change::Change;
use crate::ids::{Epoch, NodeId};
use crate::input::{Answer, Reply};
use crate::meter;
use crate::model::{
    Category, Exit, Member, MemberPhase, Node, NodeEvent, NodePhase, NodeState, Trouble,
};
use crate::planted::{Bug, is_planted};
use crate::step::Turn;
use crate::world::World;

pub(crate) fn on_report(turn: &mut Turn<'_>, name: &str, report: &Report) -> Answer {
    // Whatever has no live epoch here has been superseded: the agent may forget it.
    let ended = report.attempts.iter().filter(|attempt| is_ended(&attempt.phase));
    let ended: Vec<Epoch> = ended.map(|attempt| attempt.epoch).collect();
    let Some(node) = turn.world.node_by_name(name) else {
        return Ok(dismissed(turn.world, ended));
    };
    let id = node.id;
    match node.phase() {
        NodePhase::Requested | NodePhase::Booting => join(turn, node.clone(), report),
        NodePhase::Idle | NodePhase::Leased if node.boot_id != report.boot_id => {
            // A later boot, or a report of an earlier one that was long on its way: boot ids do not say which.
            // Either way an end that it journalled counts. But only that proves that nothing runs there any
            // more; without it the node is given up when its lease is over, as if nobody had reported.
            let lease = node.lease().map(|(_, epoch)| epoch);
            let is_over = lease.is_none_or(|lease| ended.contains(&lease));
            if is_over {
                follow_attempt(turn, id, report);
                attempts::lose_node(turn, id, Trouble::Rebooted);
            }
            return Ok(dismissed(turn.world, ended));
        }
        NodePhase::Idle | NodePhase::Leased => {
            turn.world.volatile.renew(id, turn.now.elapsed);
            follow_attempt(turn, id, report);
        }
        NodePhase::Unusable | NodePhase::Leaving | NodePhase::Gone => {
            return Ok(dismissed(turn.world, ended));
        }
    }
    let mut desired = desired_for(turn.world, id);
    desired.acknowledged = ended;
    Ok(Reply::Desired(Box::new(desired)))
}

/// Replaces what was desired when the report came in by what is desired now.
pub(crate) fn bring_up_to_date(world: &World, name: &str, desired: &mut Desired) {
    // Whoever was dismissed stays dismissed, whatever the node of that name is to do.
    if !desired.end
        && let Some(node) = world.node_by_name(name)
    {
        let acknowledged = std::mem::take(&mut desired.acknowledged);
        *desired = Desired { acknowledged, ..desired_for(world, node.id) };
    }
}

fn is_ended(phase: &AttemptPhase) -> bool {
    match phase {
        AttemptPhase::Ended(_) => true,
        AttemptPhase::Preparing | AttemptPhase::Running => false,
    }
}

/// Unknown, lost or on its way out: it is to stop everything and end.
fn dismissed(world: &World, acknowledged: Vec<Epoch>) -> Reply {
    Reply::Desired(Box::new(Desired {
        lease: world.settings.lease,
        orders: Vec::new(),
        as_of: Epoch(u64::MAX),
        floor: Epoch(u64::MAX),
        acknowledged,
        end: true,
    }))
}

fn join(turn: &mut Turn<'_>, mut node: Node, report: &Report) {
    meter::switch_free(turn, &mut node, Some(Category::Idle));
    node.state = NodeState::Idle { since: turn.now.wall, awaited: false };
    node.boot_id = report.boot_id.clone();
    node.address = report.address.clone();
    let id = node.id;
    turn.emit(Change::NodeChanged { event: NodeEvent::Joined, node });
    turn.world.volatile.renew(id, turn.now.elapsed);
}

/// Brings the attempt that we gave this node up to what the node says of it.
fn follow_attempt(turn: &mut Turn<'_>, id: NodeId, report: &Report) {
    let node = turn.world.node(id).expect("looked up by the caller");
    let Some((job, epoch)) = node.lease() else { return };
    let is_its_own = |held: Epoch| held == epoch || is_planted(Bug::OldEpochAccepted);
    match report.attempts.iter().find(|attempt| is_its_own(attempt.epoch)) {
        Some(attempt) => {
            let phase = match &attempt.phase {
                AttemptPhase::Preparing => return,
                AttemptPhase::Running => MemberPhase::Running,
                AttemptPhase::Ended(exit) => MemberPhase::Exited(exit.clone()),
            };
            attempts::on_member(turn, job, id, phase);
        }
        // It took this epoch on once, or was told never to, and does not hold it: nothing runs there.
        None if report.floor >= epoch => {
            attempts::on_member(turn, job, id, MemberPhase::Exited(Exit::Stopped));
        }
        None => {}
    }
}

/// What a node should hold: its member of an attempt that nothing has decided yet.
pub fn desired_for(world: &World, node: NodeId) -> Desired {
    let node = world.node(node);
    let order = node.and_then(|node| order_for(world, node));
    let leased = node.and_then(Node::lease).map_or(Epoch(0), |(_, epoch)| epoch);
    let end = node.is_none_or(|node| match node.phase() {
        NodePhase::Unusable | NodePhase::Leaving | NodePhase::Gone => true,
        NodePhase::Requested | NodePhase::Booting | NodePhase::Idle | NodePhase::Leased => false,
    });
    Desired {
        lease: world.settings.lease,
        floor: if order.is_some() { Epoch(0) } else { leased },
        orders: order.into_iter().collect(),
        as_of: world.next_epoch(),
        acknowledged: Vec::new(),
        end,
    }
}

fn order_for(world: &World, node: &Node) -> Option<Order> {
    let (job, epoch) = node.lease()?;
    let job = world.job(job)?;
    let attempt = job.attempt().filter(|attempt| attempt.verdict.is_none())?;
    let is_mine = |member: &Member| member.node == node.id && !member.phase.is_over();
    let rank = attempt.members.iter().position(is_mine)?;
    Some(Order {
        epoch,
        job_name: job.name.clone(),
        attempt: attempt.number,
        spec: job.spec.clone(),
        rank: u32::try_from(rank).expect("a job has far fewer than 2^32 members"),
        nodes: job.nodes,
    })
}
