//! `GET {workspace}/providers/Muster.Cost/ledger`: what a workspace's nodes did, and what it cost. Azure has no such
//! resource, so the format is Muster's own. The query may contain `by` (cluster, user, category or tag:KEY) and `since`
//! (a date or time, or microseconds since 1970).

use std::fmt;
use std::str::FromStr;

use muster_core::model::{AttemptOutcome, Category};
use muster_core::time::Wall;
use serde::{Deserialize, Serialize};

use crate::json::shorten;
use crate::{ArmError, Query, timestamp};

/// How lines are grouped, besides by category and outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum By {
    #[default]
    Cluster,
    User,
    Category,
    /// By the value of the tag with this key.
    Tag(Box<str>),
}

/// The spellings of [`By`].
pub const BY_WORDS: &str = "cluster, user, category or tag:KEY";

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<By, String> {
        match text.split_once(':') {
            Some((tag, key)) if tag.eq_ignore_ascii_case("tag") && !key.is_empty() => {
                return Ok(By::Tag(key.into()));
            }
            Some(_) | None => {}
        }
        match text.to_ascii_lowercase().as_str() {
            "cluster" => Ok(By::Cluster),
            "user" => Ok(By::User),
            "category" => Ok(By::Category),
            _ => Err(format!("give {BY_WORDS}")),
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            By::Cluster => f.write_str("cluster"),
            By::User => f.write_str("user"),
            By::Category => f.write_str("category"),
            By::Tag(key) => write!(f, "tag:{key}"),
        }
    }
}

/// The parameters of a request to the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerRequest {
    pub by: By,
    pub since: Option<Wall>,
}

impl LedgerRequest {
    pub fn parse(query: &Query) -> Result<LedgerRequest, ArmError> {
        let by = match query.get("by") {
            None => By::default(),
            Some(text) => text.parse().map_err(|remedy| {
                let message = format!("by is '{}'; {remedy}", shorten(text));
                ArmError::invalid_property("by", message)
            })?,
        };
        let since = match query.get("since") {
            None => None,
            Some(text) => Some(parse_since(text).ok_or_else(|| {
                let message = format!(
                    "since is '{}'; give a time such as 2026-11-15T19:52:12Z, a date such as 2026-11-15, \
                     or microseconds since 1970",
                    shorten(text)
                );
                ArmError::invalid_property("since", message)
            })?),
        };
        Ok(LedgerRequest { by, since })
    }

    /// The query that [`LedgerRequest::parse`] reads back.
    pub fn query(&self) -> Vec<(&'static str, String)> {
        let by = Some(("by", self.by.to_string())).filter(|_| self.by != By::default());
        let since = self.since.map(|since| ("since", since.0.to_string()));
        by.into_iter().chain(since).collect()
    }
}

/// Microseconds since 1970, a time, or the beginning of a day in UTC.
pub fn parse_since(text: &str) -> Option<Wall> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().map(Wall);
    }
    timestamp::parse(text).or_else(|| timestamp::parse(&format!("{text}T00:00:00Z")))
}

/// The sum of the node time of one kind, as the ledger's reader returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerSum<'a> {
    /// `None` if the time served no user, or if the tag is not set.
    pub group: Option<&'a str>,
    pub category: Category,
    pub outcome: AttemptOutcome,
    pub node_us: u64,
    pub micro_usd: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerDocument {
    pub value: Vec<LedgerLine>,
    /// The sum of the lines.
    pub total: LedgerTotal,
    /// Notes that help to interpret the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerLine {
    /// Present if the ledger is grouped by cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Present if the ledger is grouped in any other way: the user, the category or the value of the tag. Absent if the
    /// time served no user, or if the tag is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What the nodes were doing: start, prepare, run, idle, floor, stop or unusable.
    pub category: String,
    /// The outcome of the attempts that were served: succeeded, failed, canceled, evicted, retried or none.
    pub outcome: String,
    /// With six decimals. It is text, because a JSON number would lose some of them.
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

pub fn document(by: &By, sums: &[LedgerSum<'_>], notes: Vec<String>) -> LedgerDocument {
    let group = |sum: &LedgerSum<'_>| sum.group.map(str::to_owned);
    let line = |sum: &LedgerSum<'_>| LedgerLine {
        cluster: group(sum).filter(|_| *by == By::Cluster),
        group: group(sum).filter(|_| *by != By::Cluster),
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
        notes,
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
            group: Some("cpu"),
            category,
            outcome,
            node_us,
            micro_usd,
        };
        let sums = [
            sum(Category::Run, AttemptOutcome::Succeeded, 90_000_001, 7_250),
            sum(Category::Idle, AttemptOutcome::None, 120_500_000, 9_667),
        ];
        let document = document(&By::Cluster, &sums, Vec::new());
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
        let by_user = super::document(
            &By::User,
            &[sums[0], LedgerSum { group: None, ..sums[1] }],
            Vec::new(),
        );
        let groups: Vec<_> = by_user.value.iter().map(|line| line.group.as_deref()).collect();
        assert_eq!((groups, &by_user.value[0].cluster), (vec![Some("cpu"), None], &None));
    }

    fn parse(raw: &str) -> Result<LedgerRequest, ArmError> {
        let path = "/subscriptions/s/resourceGroups/g/providers/\
                    Microsoft.MachineLearningServices/workspaces/w/providers/Muster.Cost/ledger";
        LedgerRequest::parse(&crate::Request::parse(path, Some(raw)).unwrap().query)
    }

    #[test]
    fn a_question_is_read_back_as_it_was_written() {
        for by in [By::Cluster, By::User, By::Category, By::Tag("cost:centre".into())] {
            for since in [None, Some(Wall(1_794_772_332_345_922))] {
                let request = LedgerRequest { by: by.clone(), since };
                let parts =
                    request.query().into_iter().map(|(key, value)| format!("{key}={value}"));
                let raw = parts.collect::<Vec<_>>().join("&");
                assert_eq!(parse(&raw).unwrap(), request, "{raw}");
            }
        }
        let since = |raw: &str| parse(raw).unwrap().since;
        assert_eq!(since("since=2026-11-15T19:52:12Z"), Some(Wall(1_794_772_332_000_000)));
        assert_eq!(since("since=2026-11-15"), Some(Wall(1_794_700_800_000_000)));
    }

    #[test]
    fn a_question_that_makes_no_sense_is_refused_with_the_choices() {
        for raw in ["by=", "by=owner", "by=tag:", "by=tag"] {
            let error = parse(raw).unwrap_err();
            assert_eq!((error.status, error.target()), (400, Some("by")), "{raw}");
            assert!(error.to_string().ends_with(BY_WORDS), "{error}");
        }
        for raw in ["since=", "since=yesterday", "since=-5", "since=99999999999999999999"] {
            let error = parse(raw).unwrap_err();
            assert_eq!((error.status, error.target()), (400, Some("since")), "{raw}");
        }
    }
}
