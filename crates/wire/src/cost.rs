//! `GET {workspace}/providers/Muster.Cost/ledger`: what a workspace's nodes did, and what it cost. Azure
//! has nothing like it, so the form is ours.

use muster_core::model::{Category, Outcome};
use serde::{Deserialize, Serialize};

/// Node time of one kind, added up, as the reader of the ledger has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerSum<'a> {
    pub cluster: &'a str,
    pub category: Category,
    pub outcome: Outcome,
    pub node_us: u64,
    pub micro_usd: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerDocument {
    pub value: Vec<LedgerLine>,
    /// The sum of the lines.
    pub total: LedgerTotal,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerLine {
    pub cluster: String,
    /// What the nodes were doing: start, prepare, run, idle, floor, stop or unusable.
    pub category: String,
    /// What became of the attempts served: succeeded, failed, canceled, evicted, retried or none.
    pub outcome: String,
    /// With six decimals. Text, because a JSON number would lose some of them.
    pub node_seconds: String,
    /// Millionths of a US dollar.
    pub micro_usd: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerTotal {
    pub node_seconds: String,
    pub micro_usd: u64,
}

pub fn document(sums: &[LedgerSum<'_>]) -> LedgerDocument {
    let line = |sum: &LedgerSum<'_>| LedgerLine {
        cluster: sum.cluster.to_owned(),
        category: sum.category.as_str().to_owned(),
        outcome: sum.outcome.as_str().to_owned(),
        node_seconds: seconds(sum.node_us),
        micro_usd: sum.micro_usd,
    };
    let add = |part: fn(&LedgerSum<'_>) -> u64| sums.iter().map(part).fold(0, u64::saturating_add);
    LedgerDocument {
        value: sums.iter().map(line).collect(),
        total: LedgerTotal {
            node_seconds: seconds(add(|sum| sum.node_us)),
            micro_usd: add(|sum| sum.micro_usd),
        },
    }
}

fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_to_the_total_to_the_last_microsecond() {
        let sum = |category, outcome, node_us, micro_usd| LedgerSum {
            cluster: "cpu",
            category,
            outcome,
            node_us,
            micro_usd,
        };
        let document = document(&[
            sum(Category::Run, Outcome::Succeeded, 90_000_001, 7_250),
            sum(Category::Idle, Outcome::None, 120_500_000, 9_667),
        ]);
        let text = crate::to_json(&document);
        assert_eq!(
            text,
            concat!(
                r#"{"value":[{"cluster":"cpu","category":"run","outcome":"succeeded","#,
                r#""nodeSeconds":"90.000001","microUsd":7250},{"cluster":"cpu","category":"idle","#,
                r#""outcome":"none","nodeSeconds":"120.500000","microUsd":9667}],"#,
                r#""total":{"nodeSeconds":"210.500001","microUsd":16917}}"#
            )
        );
        assert_eq!(crate::from_json::<LedgerDocument>(text.as_bytes()).unwrap(), document);
    }
}
