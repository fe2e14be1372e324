//! The figures of a replay, added up from the ledger lines that the core posts and from its grants.

use muster_core::model::{Category, Cost, LedgerLine};
use muster_core::time::Span;

use super::driver::IDLE_MIN;
use super::{Setting, Trace, optimum};
use crate::clock::Moment;

/// The figures of a setting. Times are exact sums. A job's queue time is from its submit until it holds its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    pub jobs: usize,
    queue_total_us: u128,
    pub queue_p50: Span,
    pub queue_p95: Span,
    pub queue_p99: Span,
    /// Jobs that had to wait. If the maximum is not reached, they waited for a node to boot.
    pub jobs_that_waited: usize,
    pub busy: Span,
    pub idle: Span,
    pub boot: Span,
    pub micro_usd: u64,
    /// Idle and boot time of the clairvoyant optimum in which no job waits, to be compared with `idle` + `boot`.
    pub optimum: Span,
}

impl Figures {
    pub fn queue_mean_s(&self) -> f64 {
        self.queue_total_us as f64 / 1e6 / self.jobs.max(1) as f64
    }

    /// The share of jobs that found no free node.
    pub fn cold_share(&self) -> f64 {
        self.jobs_that_waited as f64 / self.jobs.max(1) as f64
    }

    /// Everything that is billed.
    pub fn billed(&self) -> Span {
        Span(self.busy.0 + self.idle.0 + self.boot.0)
    }

    pub fn idle_share(&self) -> f64 {
        self.idle.0 as f64 / self.billed().0.max(1) as f64
    }
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    waits: Vec<Span>,
    busy: Span,
    idle: Span,
    boot: Span,
    cost: Cost,
}

impl Tally {
    pub(super) fn new(jobs: usize) -> Tally {
        Tally { waits: Vec::with_capacity(jobs), ..Tally::default() }
    }

    pub(super) fn start(&mut self, submitted: Moment, granted: Moment) {
        self.waits.push(granted - submitted);
    }

    pub(super) fn post(&mut self, line: &LedgerLine) {
        let sum = match line.category {
            Category::Run => &mut self.busy,
            Category::Start => &mut self.boot,
            Category::Idle | Category::Floor if line.span() <= IDLE_MIN => return,
            Category::Idle | Category::Floor => &mut self.idle,
            Category::Prepare | Category::Stop | Category::Unusable => {
                unreachable!("jobs start and nodes end at once, and no node is lost: {line:?}")
            }
        };
        sum.0 += line.span().0;
        self.cost.add(line.part, line.span(), line.price_micro_usd_per_hour);
    }

    pub(super) fn figures(mut self, trace: &Trace, setting: &Setting) -> Figures {
        assert_eq!(self.waits.len(), trace.jobs().len(), "every job starts once");
        self.waits.sort_unstable();
        Figures {
            jobs: self.waits.len(),
            queue_total_us: self.waits.iter().map(|wait| u128::from(wait.0)).sum(),
            queue_p50: nearest_rank(&self.waits, 50),
            queue_p95: nearest_rank(&self.waits, 95),
            queue_p99: nearest_rank(&self.waits, 99),
            jobs_that_waited: self.waits.iter().filter(|wait| **wait > Span::ZERO).count(),
            busy: self.busy,
            idle: self.idle,
            boot: self.boot,
            micro_usd: self.cost.micro_usd(),
            optimum: optimum(trace, setting.boot),
        }
    }
}

/// The smallest value that at least this many percent do not exceed.
fn nearest_rank(sorted: &[Span], percent: usize) -> Span {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied().unwrap_or(Span::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<Span> = (1..=20).map(Span).collect();
        let ranks = [50, 95, 99].map(|percent| nearest_rank(&sorted, percent).0);
        assert_eq!(ranks, [10, 19, 20]);
        assert_eq!(nearest_rank(&sorted[..1], 50), Span(1));
        assert_eq!(nearest_rank(&[], 50), Span::ZERO);
    }
}
