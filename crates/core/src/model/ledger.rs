//! The ledger: every node-second belongs to exactly one line, and the lines add up to the bill.

use serde::{Deserialize, Serialize};

use super::Verdict;
use crate::ids::{ClusterId, Epoch, JobId, NodeId, PrincipalId, WorkspaceId};
use crate::time::{Span, Wall};

/// What a node was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Category {
    /// From the provider's "yes" to the agent's first report.
    Start,
    /// Holding a job that does not run yet.
    Prepare,
    Run,
    /// Waiting for work, and free to go when its timer ends.
    Idle,
    /// Waiting for work because the cluster's minimum keeps it.
    Floor,
    /// Being deleted.
    Stop,
    /// Lost or broken, and not deleted yet.
    Unusable,
}

impl Category {
    pub const ALL: [Category; 7] = [
        Category::Start,
        Category::Prepare,
        Category::Run,
        Category::Idle,
        Category::Floor,
        Category::Stop,
        Category::Unusable,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Category::Start => "start",
            Category::Prepare => "prepare",
            Category::Run => "run",
            Category::Idle => "idle",
            Category::Floor => "floor",
            Category::Stop => "stop",
            Category::Unusable => "unusable",
        }
    }
}

/// What became of the attempt that the time was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Outcome {
    Succeeded,
    Failed,
    Canceled,
    Evicted,
    /// Its node was lost and the job went back to the queue.
    Retried,
    /// No attempt was served.
    None,
}

impl Outcome {
    /// What an attempt with this verdict comes to. `is_last` is whether a lost node ends the job.
    pub fn of(verdict: Option<&Verdict>, is_last: bool) -> Outcome {
        match verdict {
            None => Outcome::Succeeded,
            Some(Verdict::Failed { .. }) => Outcome::Failed,
            Some(Verdict::NodeLost { .. }) if is_last => Outcome::Failed,
            Some(Verdict::NodeLost { .. }) => Outcome::Retried,
            Some(Verdict::Canceled { .. }) => Outcome::Canceled,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::Canceled => "canceled",
            Outcome::Evicted => "evicted",
            Outcome::Retried => "retried",
            Outcome::None => "none",
        }
    }
}

/// A closed piece of a node's bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    pub category: Category,
    pub from: Wall,
    pub to: Wall,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerLine {
    pub node: NodeId,
    pub workspace: WorkspaceId,
    pub cluster: ClusterId,
    pub category: Category,
    pub outcome: Outcome,
    pub served: Option<Served>,
    pub from: Wall,
    pub to: Wall,
    pub price_micro_usd_per_hour: u64,
}

/// The attempt that a line's time was spent on, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    pub job: JobId,
    pub epoch: Epoch,
    pub principal: PrincipalId,
}

impl LedgerLine {
    pub fn span(&self) -> Span {
        self.to - self.from
    }
}

/// Adds up node time at a price without losing a fraction: divide once, at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    micro_usd_us_per_hour: u128,
}

impl Cost {
    const US_PER_HOUR: u128 = 3_600_000_000;

    pub fn add(&mut self, span: Span, price_micro_usd_per_hour: u64) {
        self.micro_usd_us_per_hour += u128::from(span.0) * u128::from(price_micro_usd_per_hour);
    }

    /// Rounded to the nearest millionth of a dollar.
    pub fn micro_usd(self) -> u64 {
        let rounded = (self.micro_usd_us_per_hour + Self::US_PER_HOUR / 2) / Self::US_PER_HOUR;
        u64::try_from(rounded).unwrap_or(u64::MAX)
    }
}
