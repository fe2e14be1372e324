//! A report with nothing new only renews the lease of its node.

use crate::agent::Report;
use crate::attempts;
use crate::batches;
use crate::input::Reply;
use crate::model::{Lease, NodePhase};
use crate::observations::report::{desired_for, is_ended, is_given_up, reported};
use crate::step::is_due;
use crate::time::Now;
use crate::world::World;

/// Renews the lease of a node if a step with its report would change nothing else, and if there is nothing new for the
/// node. Returns the answer, or `None` if the report needs a step.
///
/// A renewal is no change: World remembers when the report arrived, and after a restart every lease counts as just
/// renewed. So there is nothing to write.
pub fn renew_unchanged(world: &mut World, name: &str, report: &Report, now: Now) -> Option<Reply> {
    // A step would also decide.
    if is_due(world, now) {
        return None;
    }
    let node = world.node_by_name(name)?;
    let is_up = matches!(node.phase(), NodePhase::Idle | NodePhase::Leased);
    if !is_up || *node.boot_id != *report.boot_id || is_given_up(world, node) {
        return None;
    }
    let is_news = |lease: &Lease| {
        let reported = reported(*lease, report);
        reported.is_some_and(|(phase, _)| attempts::is_news(world, *lease, &phase))
    };
    let has_ended = report.attempts.iter().any(|attempt| is_ended(&attempt.phase));
    if has_ended || node.leases().iter().any(is_news) || batches::has_returned(node, report) {
        return None;
    }
    let (id, desired) = (node.id, desired_for(world, node.id));
    if desired.is_news_to(report) {
        return None;
    }
    let now = world.advance(now);
    world.volatile.renew(id, now.elapsed);
    Some(Reply::Desired(Box::new(desired)))
}
