//! An agent reported everything it knows.

use std::sync::Arc;

use crate::agent::{ArrayTask, Assignment, AttemptPhase, Desired, Report};
use crate::attempts::{self, Told};
use crate::batches;
use crate::change::Change;
use crate::ids::{Epoch, NodeId};
use crate::input::{InputResult, Reply};
use crate::meter;
use crate::model::{
    Attempt, Backoff, Category, Cluster, ClusterEvent, Exit, HostState, Job, Lease, MemberPhase,
    Node, NodeEvent, NodePhase, NodeState, Spans, Trouble, Verdict,
};
use crate::planted::{Bug, is_planted};
use crate::step::Transaction;
use crate::world::World;

pub(crate) fn on_report(tx: &mut Transaction<'_>, name: &str, report: &Report) -> InputResult {
    // An ended attempt without a live epoch was superseded, so the agent may forget it.
    let ended = report.attempts.iter().filter(|attempt| is_ended(&attempt.phase));
    let ended: Vec<Epoch> = ended.map(|attempt| attempt.epoch).collect();
    let Some(node) = tx.world.node_by_name(name) else {
        return Ok(dismissed(tx.world, ended));
    };
    let id = node.id;
    match node.phase() {
        NodePhase::Requested | NodePhase::Booting => join(tx, node.clone(), report),
        NodePhase::Idle | NodePhase::Leased
            if *node.boot_id != *report.boot_id || is_given_up(tx.world, node) =>
        {
            // The node was rebooted, or this is a delayed report from before a reboot: boot IDs do not tell which. In
            // both cases a journalled ending counts. But only such an ending proves that nothing runs there any more;
            // without it, the node is given up when its lease is over, as if it had not reported. The same applies to
            // everything that runs on a host that was given up.
            let leases = node.leases().to_vec();
            for lease in leases.iter().filter(|lease| ended.contains(&lease.epoch)) {
                follow_attempt(tx, *lease, report);
            }
            // A node under eviction is deleted together with the end of its last job.
            if tx.world.node(id).is_some_and(|node| batches::has_ended_all(node, report)) {
                let is_given_up = tx.world.node(id).is_some_and(|node| is_given_up(tx.world, node));
                let why = if is_given_up { Trouble::LeaseExpired } else { Trouble::Rebooted };
                attempts::lose_node(tx, id, why);
            }
            return Ok(dismissed(tx.world, ended));
        }
        NodePhase::Idle => tx.world.volatile.renew(id, tx.now.elapsed),
        NodePhase::Leased => {
            tx.world.volatile.renew(id, tx.now.elapsed);
            batches::take_back(tx, id, report);
            follow_all(tx, id, report);
        }
        NodePhase::Unusable | NodePhase::Leaving | NodePhase::Gone => {
            return Ok(dismissed(tx.world, ended));
        }
    }
    // What the node should hold is filled in after the next decision, which may concern it.
    Ok(Reply::Desired(Box::new(Desired { acknowledged: ended, ..nothing(tx.world) })))
}

pub(crate) fn is_given_up(world: &World, node: &Node) -> bool {
    let host = world.hosts().host(&node.host);
    host.is_some_and(|host| host.state == HostState::Removing)
}

/// A lease and nothing else.
fn nothing(world: &World) -> Desired {
    Desired {
        lease: world.settings.lease,
        assignments: Vec::new(),
        as_of: Epoch(0),
        floor: Epoch(0),
        acknowledged: Vec::new(),
        end: false,
    }
}

/// Replaces what was desired when the report arrived with what is desired now.
pub(crate) fn bring_up_to_date(world: &World, name: &str, desired: &mut Desired) {
    // A dismissed agent remains dismissed, whatever the node with this name should do now.
    if !desired.end
        && let Some(node) = world.node_by_name(name)
    {
        let acknowledged = std::mem::take(&mut desired.acknowledged);
        *desired = Desired { acknowledged, ..desired_for(world, node.id) };
    }
}

pub(super) fn is_ended(phase: &AttemptPhase) -> bool {
    match phase {
        AttemptPhase::Ended(_) => true,
        AttemptPhase::Preparing
        | AttemptPhase::Ready
        | AttemptPhase::Running
        | AttemptPhase::Evicting => false,
    }
}

/// The answer to a node that is unknown, lost or being deleted: it has to stop everything and end.
fn dismissed(world: &World, acknowledged: Vec<Epoch>) -> Reply {
    let (as_of, floor) = (Epoch(u64::MAX), Epoch(u64::MAX));
    Reply::Desired(Box::new(Desired { as_of, floor, acknowledged, end: true, ..nothing(world) }))
}

fn join(tx: &mut Transaction<'_>, mut node: Node, report: &Report) {
    node.state = NodeState::Idle { since: tx.now.wall, has_served: false };
    meter::switch(tx, &mut node, Some(Category::Idle));
    node.boot_id = report.boot_id.as_ref().into();
    node.address = report.address.as_ref().into();
    let (id, cluster) = (node.id, node.cluster);
    let took = tx.now.wall - node.requested_at;
    tx.emit(Change::NodeChanged { event: NodeEvent::Joined, node: Arc::new(node) });
    tx.world.volatile.renew(id, tx.now.elapsed);
    // The cluster can create nodes again, so whatever was wrong is over.
    let cluster = tx.world.cluster(cluster).expect("a node's cluster outlives it");
    let boot = Some(cluster.boot_after(took));
    if cluster.boot != boot || cluster.backoff != Backoff::default() {
        let backoff = Backoff::default();
        let cluster = Arc::new(Cluster { boot, backoff, ..cluster.clone() });
        tx.emit(Change::ClusterChanged { event: ClusterEvent::BootMeasured, cluster });
    }
}

/// Updates all attempts that were granted to this node to what it reports about them.
fn follow_all(tx: &mut Transaction<'_>, id: NodeId, report: &Report) {
    let leases = tx.world.node(id).map_or(&[][..], Node::leases).to_vec();
    for lease in leases {
        follow_attempt(tx, lease, report);
        // The next task of a batch may have taken its place.
        let node = tx.world.node(id);
        let mut now = node.map_or(&[][..], Node::leases).iter();
        let next = now.find(|now| now.epoch > lease.epoch && now.epoch <= lease.last_epoch());
        if let Some(next) = next.copied() {
            follow_attempt(tx, next, report);
        }
    }
}

/// Updates an attempt that was granted to this node to what the node reports about it.
fn follow_attempt(tx: &mut Transaction<'_>, lease: Lease, report: &Report) {
    if let Some((phase, spans)) = reported(lease, report) {
        let held = report.attempt(lease.epoch).and_then(|attempt| attempt.held);
        attempts::on_member(tx, lease, phase, &Told { spans, held, report: Some(report) });
    }
}

/// What a node reports about an attempt that was granted to it, if anything.
pub(super) fn reported(lease: Lease, report: &Report) -> Option<(MemberPhase, Option<Spans>)> {
    let is_its_own = |held: Epoch| held == lease.epoch || is_planted(Bug::OldEpochAccepted);
    match report.attempts.iter().find(|attempt| is_its_own(attempt.epoch)) {
        Some(attempt) => {
            let phase = match &attempt.phase {
                AttemptPhase::Preparing => return None,
                AttemptPhase::Ready => MemberPhase::Ready,
                AttemptPhase::Running | AttemptPhase::Evicting => MemberPhase::Running,
                AttemptPhase::Ended(exit) => MemberPhase::Exited(exit.clone()),
            };
            Some((phase, attempt.spans))
        }
        // The node accepted this epoch once, or was told never to, and does not hold it: so nothing runs there.
        None if report.floor >= lease.epoch && !report.is_waiting(lease.epoch) => {
            Some((MemberPhase::Exited(Exit::Stopped), None))
        }
        None => None,
    }
}

/// What a node should hold: its members of attempts that have no verdict yet.
pub fn desired_for(world: &World, node: NodeId) -> Desired {
    let node = world.node(node);
    let leases = node.map_or(&[][..], Node::leases);
    let mut assignments = Vec::with_capacity(leases.len());
    // The leases are in the order of their grants. What is held but no longer assigned must never be started.
    let mut floor = Epoch(0);
    for lease in leases {
        match order_for(world, lease) {
            Some(assignment) => {
                if lease.batch.is_some_and(|batch| batch.is_recalled) {
                    floor = floor.max(lease.last_epoch());
                }
                assignments.push(assignment);
            }
            None => floor = floor.max(lease.last_epoch()),
        }
    }
    let end = node.is_none_or(|node| match node.phase() {
        NodePhase::Unusable | NodePhase::Leaving | NodePhase::Gone => true,
        NodePhase::Requested | NodePhase::Booting | NodePhase::Idle | NodePhase::Leased => false,
    });
    let as_of = world.next_epoch();
    let lease = world.settings.lease;
    Desired { lease, floor, assignments, as_of, acknowledged: Vec::new(), end }
}

fn order_for(world: &World, lease: &Lease) -> Option<Assignment> {
    let job = world.job(lease.job)?;
    let attempt = job.attempt().filter(|attempt| is_wanted(attempt))?;
    let member = attempt.members.get(lease.rank as usize)?;
    (!member.phase.is_over()).then(|| Assignment {
        epoch: lease.epoch,
        job_name: job.name.clone(),
        attempt: attempt.number,
        spec: job.spec,
        rank: lease.rank,
        nodes: job.nodes,
        share: job.share.clone(),
        go: attempt.go,
        addresses: addresses(world, attempt, &member.phase),
        evict: attempt.notice.map(|_| world.settings.eviction_grace),
        task: task_of(world, job),
        followers: followers_of(world, job, lease),
        is_recalled: lease.batch.is_some_and(|batch| batch.is_recalled),
    })
}

/// The indices of the tasks that the node starts by itself after this one.
fn followers_of(world: &World, job: &Job, lease: &Lease) -> Vec<u32> {
    let parent = job.parent.and_then(|parent| world.job(parent));
    let Some(parent) = parent else { return Vec::new() };
    lease.followers().filter_map(|lease| parent.child_index(lease.job)).collect()
}

fn task_of(world: &World, job: &Job) -> Option<Box<ArrayTask>> {
    let parent = world.job(job.parent?)?;
    let index = parent.child_index(job.id)?;
    Some(Box::new(ArrayTask { array: parent.name.clone(), index, count: parent.children() }))
}

/// Whether the members should keep running: they should until a verdict is set. After an eviction notice, the first
/// member to end sets the verdict, and the others still have their time.
fn is_wanted(attempt: &Attempt) -> bool {
    match attempt.verdict {
        None => true,
        Some(Verdict::Evicted { .. }) => attempt.notice.is_some(),
        Some(Verdict::Failed { .. } | Verdict::NodeLost { .. } | Verdict::Canceled { .. }) => false,
    }
}

/// The addresses of the members, for one that still has to be prepared. All nodes are up: a lost one sets the verdict.
fn addresses(world: &World, attempt: &Attempt, phase: &MemberPhase) -> Vec<Box<str>> {
    if attempt.members.len() == 1 || *phase != MemberPhase::Ordered {
        return Vec::new();
    }
    let nodes = attempt.members.iter().map(|member| world.node(member.node));
    nodes.map(|node| host(node.map_or("", |node| &node.address))).collect()
}

/// An address without its port, if it has one.
fn host(address: &str) -> Box<str> {
    match address.parse::<std::net::SocketAddr>() {
        Ok(socket) => socket.ip().to_string().into(),
        Err(_) => address.into(),
    }
}
