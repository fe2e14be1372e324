//! What the trace would need if every job could start at once, and the least that this would cost.

use muster_core::time::Span;

use super::Trace;

/// The number of nodes in use at once if no job ever waited. With this many, the maximum is hardly ever reached.
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

/// The least node time beyond that of the jobs, idle and booting, with which no job ever waits if the future is known:
/// at each level of the demand, a gap is bridged by an idle node or by a boot, whichever is shorter. A setting that
/// lets jobs wait may need less.
pub fn optimum(trace: &Trace, boot: Span) -> Span {
    // Free nodes by when they became free, grouped by equal times. The one that was freed last is used first.
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

/// How many nodes begin or end to be in use, and when. Within one instant ends come first, because their nodes serve
/// the jobs that begin.
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
