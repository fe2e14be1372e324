//! The ledger: every node-second belongs to exactly one line, and the lines add up to the bill.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Part, Verdict};
use crate::ids::{ClusterId, Epoch, JobId, NodeId, PrincipalId, WorkspaceId};
use crate::time::{Span, Wall};

/// What is billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Resource {
    /// The time of a node.
    #[default]
    Node,
}

impl Resource {
    pub fn as_str(self) -> &'static str {
        match self {
            Resource::Node => "node",
        }
    }
}

/// What a node was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Category {
    /// From the provider's confirmation to the agent's first report.
    Start,
    /// Holding a job that does not run yet.
    Prepare,
    Run,
    /// Waiting for a job; it will be deleted when its idle time is over.
    Idle,
    /// Waiting for a job, and kept by the cluster's minimum.
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

/// How the attempt ended that the time was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AttemptOutcome {
    Succeeded,
    Failed,
    Canceled,
    Evicted,
    /// Its node was lost, and the job returned to the queue.
    Retried,
    /// The time was not spent on an attempt.
    None,
}

impl AttemptOutcome {
    pub const ALL: [AttemptOutcome; 6] = [
        AttemptOutcome::Succeeded,
        AttemptOutcome::Failed,
        AttemptOutcome::Canceled,
        AttemptOutcome::Evicted,
        AttemptOutcome::Retried,
        AttemptOutcome::None,
    ];

    /// The outcome of an attempt with this verdict. `is_last` is whether a lost node ends the job.
    pub fn of(verdict: Option<&Verdict>, is_last: bool) -> AttemptOutcome {
        match verdict {
            None => AttemptOutcome::Succeeded,
            Some(Verdict::Failed { .. }) => AttemptOutcome::Failed,
            Some(Verdict::NodeLost { .. }) if is_last => AttemptOutcome::Failed,
            Some(Verdict::NodeLost { .. }) => AttemptOutcome::Retried,
            Some(Verdict::Evicted { .. }) => AttemptOutcome::Evicted,
            Some(Verdict::Canceled { .. }) => AttemptOutcome::Canceled,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            AttemptOutcome::Succeeded => "succeeded",
            AttemptOutcome::Failed => "failed",
            AttemptOutcome::Canceled => "canceled",
            AttemptOutcome::Evicted => "evicted",
            AttemptOutcome::Retried => "retried",
            AttemptOutcome::None => "none",
        }
    }
}

/// A closed segment of a node's bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerSegment {
    pub category: Category,
    pub from: Wall,
    pub to: Wall,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerLine {
    pub node: NodeId,
    pub workspace: WorkspaceId,
    pub cluster: ClusterId,
    #[serde(default)]
    pub resource: Resource,
    pub category: Category,
    pub outcome: AttemptOutcome,
    pub served: Option<Served>,
    /// The part of the node that it covers. At every moment the lines of a node add up to the whole.
    #[serde(default)]
    pub part: Part,
    pub from: Wall,
    pub to: Wall,
    pub price_micro_usd_per_hour: u64,
    /// The cluster's tags at that time. The job's own tags are in its specification.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub tags: Arc<BTreeMap<String, String>>,
}

fn is_empty(tags: &Arc<BTreeMap<String, String>>) -> bool {
    tags.is_empty()
}

/// The attempt that a line's time was spent on, and its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    pub job: JobId,
    /// The parent of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    pub epoch: Epoch,
    pub principal: PrincipalId,
}

impl LedgerLine {
    pub fn span(&self) -> Span {
        self.to - self.from
    }
}

/// Adds up node time and its cost without losing fractions, by dividing only once, at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Millionths of a node × microseconds.
    parts_us: u128,
    /// `parts_us` × micro-dollars per hour.
    charged: u128,
}

impl Cost {
    const US_PER_HOUR: u128 = 3_600_000_000;

    pub fn add(&mut self, part: Part, span: Span, price_micro_usd_per_hour: u64) {
        let parts_us = u128::from(part.0) * u128::from(span.0);
        self.parts_us += parts_us;
        self.charged += parts_us * u128::from(price_micro_usd_per_hour);
    }

    pub fn merge(&mut self, other: Cost) {
        self.parts_us += other.parts_us;
        self.charged += other.charged;
    }

    /// Microseconds of whole nodes, rounded to the nearest.
    pub fn node_us(self) -> u64 {
        rounded(self.parts_us, u128::from(Part::WHOLE.0))
    }

    /// Rounded to the nearest millionth of a dollar.
    pub fn micro_usd(self) -> u64 {
        rounded(self.charged, u128::from(Part::WHOLE.0) * Self::US_PER_HOUR)
    }
}

fn rounded(value: u128, unit: u128) -> u64 {
    u64::try_from((value + unit / 2) / unit).unwrap_or(u64::MAX)
}
