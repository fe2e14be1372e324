//! Metering: closes one piece of a node's bill and opens the next, so that pieces neither overlap nor gap.

use crate::change::Change;
use crate::ids::{ClusterId, NodeId};
use crate::model::{Category, LedgerLine, Member, Meter, Node, Outcome, Segment, Served};
use crate::planted::{Bug, is_planted};
use crate::step::Turn;
use crate::time::Wall;

/// From now on the node is in `category`. Time spent on an attempt is handed back, to be kept with the
/// attempt until its outcome is known; any other time is posted at once.
#[must_use]
pub(crate) fn switch(
    turn: &mut Turn<'_>,
    node: &mut Node,
    category: Option<Category>,
) -> Option<Segment> {
    let now = turn.now.wall;
    let closed = node.meter.take().filter(|meter| meter.since < now);
    node.meter = category.map(|category| Meter { category, since: now });
    if let Some(meter) = node.meter.as_mut().filter(|_| is_planted(Bug::IdleSecondTwice)) {
        meter.since = Wall(now.0.saturating_sub(1_000_000));
    }
    let meter = closed?;
    let segment = Segment { category: meter.category, from: meter.since, to: now };
    match meter.category {
        Category::Prepare | Category::Run => Some(segment),
        Category::Start
        | Category::Idle
        | Category::Floor
        | Category::Stop
        | Category::Unusable => {
            let price = node.price_micro_usd_per_hour;
            post(turn, node.id, node.cluster, price, segment, (Outcome::None, None));
            None
        }
    }
}

/// Like [`switch`] for a node that holds no job: there is nothing to hand back.
pub(crate) fn switch_free(turn: &mut Turn<'_>, node: &mut Node, category: Option<Category>) {
    let spent = switch(turn, node, category);
    debug_assert!(spent.is_none(), "a free node spends no time on an attempt");
}

/// Posts what a member's node spent on its attempt, now that the outcome is known.
pub(crate) fn post_spent(
    turn: &mut Turn<'_>,
    member: &Member,
    cluster: ClusterId,
    outcome: Outcome,
    served: Served,
) {
    for segment in &member.spent {
        let price = member.price_micro_usd_per_hour;
        post(turn, member.node, cluster, price, *segment, (outcome, Some(served)));
    }
}

fn post(
    turn: &mut Turn<'_>,
    node: NodeId,
    cluster: ClusterId,
    price_micro_usd_per_hour: u64,
    segment: Segment,
    (outcome, served): (Outcome, Option<Served>),
) {
    let workspace = turn.world.cluster(cluster).expect("a cluster outlives its nodes").workspace;
    let Segment { category, from, to } = segment;
    turn.emit(Change::LedgerPosted(LedgerLine {
        node,
        workspace,
        cluster,
        category,
        outcome,
        served,
        from,
        to,
        price_micro_usd_per_hour,
    }));
}
