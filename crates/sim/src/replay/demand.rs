//! What the trace would need if every job could start at once, and what that would cost at the least.

use muster_core::time::Span;

use super::Trace;

/// The nodes in use at once if no job ever waited: with this many the maximum does not bind for long.
pub fn peak(trace: &Trace) -> u32 {
    let mut busy = 0i64;
    let mut peak = 0;
    for (_, nodes) in ups_and_downs(trace) {
        busy += nodes;
        peak = peak.max(busy);
    }
    // A job that takes no time still needs its nodes.
    let largest = trace.jobs().iter().map(|job| job.nodes).max().unwrap_or(0);
    u32::try_from(peak).unwrap_or(u32::MAX).max(largest)
}

/// The least node time beyond the jobs' own, idle and booting, at which no job ever waits, for someone who
/// knows the future: level by level of the demand, a gap is bridged by an idle node or by a boot, whichever
/// is shorter. A setting that lets jobs wait may come below it.
pub fn optimum(trace: &Trace, boot: Span) -> Span {
    // Free nodes by since when, the last freed last, in runs of equal times: the last is used first.
    let mut free: Vec<(u64, i64)> = Vec::new();
    let mut spent = 0u128;
    for (at, nodes) in ups_and_downs(trace) {
        if nodes < 0 {
            free.push((at, -nodes));
            continue;
        }
        let mut needed = nodes;
        while needed > 0 {
            let Some((since, count)) = free.last_mut() else {
                spent += u128::from(needed.unsigned_abs()) * u128::from(boot.0);
                break;
            };
            let taken = needed.min(*count);
            spent += u128::from(taken.unsigned_abs()) * u128::from((at - *since).min(boot.0));
            needed -= taken;
            *count -= taken;
            if *count == 0 {
                free.pop();
            }
        }
    }
    Span(u64::try_from(spent).unwrap_or(u64::MAX))
}

/// When how many nodes come into use, or out of it. At one instant those that end come first: their nodes
/// serve those that begin.
fn ups_and_downs(trace: &Trace) -> Vec<(u64, i64)> {
    let lasting = trace.jobs().iter().filter(|job| job.duration > Span::ZERO);
    let mut moves: Vec<(u64, i64)> = lasting
        .flat_map(|job| {
            let nodes = i64::from(job.nodes);
            [(job.submit.0, nodes), (job.submit.0 + job.duration.0, -nodes)]
        })
        .collect();
    moves.sort_by_key(|(at, nodes)| (*at, *nodes > 0));
    moves
}
