//! Metering: closes one segment of a node's bill and opens the next, so that segments neither overlap nor leave gaps.
//!
//! The part of a node that a job holds is metered with the job, and posted when its outcome is known. The rest is
//! metered with the node and posted at once. At every moment the open meters of a node add up to the whole node.

use std::sync::Arc;

use crate::change::Change;
use crate::ids::{ClusterId, NodeId};
use crate::model::{
    AttemptOutcome, Category, LedgerLine, LedgerSegment, Member, Meter, Node, Part, Resource,
    Served,
};
use crate::planted::{Bug, is_planted};
use crate::step::Transaction;
use crate::time::Wall;

/// From now on, the part of the node that no job holds is in `category`.
pub(crate) fn switch(tx: &mut Transaction<'_>, node: &mut Node, category: Option<Category>) {
    let now = tx.now.wall;
    let spare = node.spare_part();
    let next = category.filter(|_| spare > Part::NONE);
    if let Some(meter) = node.meter
        && Some(meter.category) == next
        && meter.part == spare
    {
        return;
    }
    let closed = node.meter.take().filter(|meter| meter.since < now);
    node.meter = next.map(|category| Meter { category, since: now, part: spare });
    if let Some(meter) = node.meter.as_mut().filter(|_| is_planted(Bug::IdleSecondTwice)) {
        meter.since = Wall(now.0.saturating_sub(1_000_000));
    }
    if let Some(Meter { category, since, part }) = closed {
        let price = node.price_micro_usd_per_hour;
        let segment = LedgerSegment { category, from: since, to: now };
        post(tx, (node.id, node.cluster), (part, price), segment, (AttemptOutcome::None, None));
    }
}

/// From now on, the member's part of its node is in `category`.
pub(crate) fn switch_member(member: &mut Member, category: Option<Category>, now: Wall) {
    if let Some(meter) = member.meter.take().filter(|meter| meter.since < now) {
        let Meter { category, since, .. } = meter;
        member.spent.push(LedgerSegment { category, from: since, to: now });
    }
    let part = member.part;
    member.meter = category.map(|category| Meter { category, since: now, part });
}

/// Posts the time that a member's node spent on its attempt, now that the outcome is known.
pub(crate) fn post_spent(
    tx: &mut Transaction<'_>,
    member: &Member,
    cluster: ClusterId,
    outcome: AttemptOutcome,
    served: Served,
) {
    let rate = (member.part, member.price_micro_usd_per_hour);
    for segment in &member.spent {
        post(tx, (member.node, cluster), rate, *segment, (outcome, Some(served)));
    }
}

fn post(
    tx: &mut Transaction<'_>,
    (node, cluster): (NodeId, ClusterId),
    (part, price_micro_usd_per_hour): (Part, u64),
    segment: LedgerSegment,
    (outcome, served): (AttemptOutcome, Option<Served>),
) {
    let cluster = tx.world.cluster(cluster).expect("a cluster outlives its nodes");
    let LedgerSegment { category, from, to } = segment;
    let line = LedgerLine {
        node,
        workspace: cluster.workspace,
        cluster: cluster.id,
        resource: Resource::Node,
        category,
        outcome,
        served,
        part,
        from,
        to,
        price_micro_usd_per_hour,
        tags: Arc::clone(&cluster.spec.tags),
    };
    tx.emit(Change::LedgerPosted(line));
}
