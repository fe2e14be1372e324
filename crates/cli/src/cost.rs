//! `muster cost`: how a workspace used its node time, and what it cost.

use muster_core::time::Wall;
use muster_wire::Route;
use muster_wire::cost::{By, LedgerDocument, LedgerLine, LedgerRequest};
use serde::Serialize;

use crate::failure::{CliResult, Failure, quoted};
use crate::output::{self, PrintForPeople};
use crate::scope::Scope;
use crate::values;

/// Categories that are paid for without a job; always listed, even if they are zero.
const WITHOUT_WORK: [&str; 2] = ["idle", "floor"];
/// The first column of their rows, below the total.
const INCLUDING: &str = "including";

/// Show how a workspace used its node time, and what it cost
///
/// Every second of every node is in exactly one line: by cluster, by what the node was doing, and by the outcome of its
/// job. "idle" are nodes without a job, "floor" are idle nodes that --min-instances keeps. Time without a job, or
/// without the given tag, is in the group "-".
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct Args {
    /// Group by cluster, user, category or tag:KEY
    ///
    /// The tag is that of the job if it has one, else that of the cluster at that time.
    #[arg(long, value_name = "WHAT", default_value = "cluster")]
    by: By,
    /// Include only costs since then: a date, a time (RFC 3339), or a duration such as 90m, 24h or 7d
    #[arg(long, value_name = "WHEN", value_parser = values::when, allow_hyphen_values = true)]
    since: Option<Wall>,
    #[command(flatten)]
    print: PrintForPeople,
    #[command(flatten)]
    scope: Scope,
}

#[derive(Serialize)]
struct CostDocument {
    lines: Vec<CostLine>,
    total: CostTotal,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

#[derive(Serialize)]
struct CostLine {
    /// If grouped by cluster.
    cluster: Option<String>,
    /// If grouped by anything else.
    group: Option<String>,
    category: String,
    outcome: String,
    #[serde(flatten)]
    sum: CostTotal,
}

#[derive(Serialize)]
struct CostTotal {
    node_seconds: String,
    /// Dollars as a string with six decimals: a JSON number would not preserve them.
    usd: String,
}

pub async fn run(args: &Args) -> CliResult {
    let route = Route::Ledger(args.scope.workspace()?);
    let query = LedgerRequest { by: args.by.clone(), since: args.since }.query();
    let query: Vec<_> = query.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let client = args.scope.connect().await?;
    let ledger: LedgerDocument = client.get_with(&route, &query).await?;
    let nothing = match args.since {
        None => "no nodes have run yet",
        Some(_) => "no nodes have run since then",
    };
    for note in &ledger.notes {
        output::say(&format!("note: {note}"));
    }
    args.print.show(&document(&ledger), || {
        let first = heading(&args.by);
        let mut header = vec![&*first, "Category", "Outcome", "Node time", "USD"];
        let mut rows = rows(&ledger)?;
        if args.by == By::Category {
            header.remove(0);
            rows = rows.into_iter().map(without_group).collect();
        }
        output::table(&header, rows, nothing)
    })
}

fn heading(by: &By) -> String {
    match by {
        By::Cluster => "Cluster".to_owned(),
        By::User => "User".to_owned(),
        By::Category => "Category".to_owned(),
        By::Tag(key) => format!("Tag {key}"),
    }
}

/// If grouped by category, the group column repeats the category column and is removed.
fn without_group(mut row: Vec<String>) -> Vec<String> {
    let group = row.remove(0);
    match row.first_mut() {
        Some(category) if category.is_empty() => *category = group,
        Some(category) if group == INCLUDING => *category = format!("{INCLUDING} {category}"),
        Some(_) | None => {}
    }
    row
}

fn document(ledger: &LedgerDocument) -> CostDocument {
    let total = |node_seconds: &String, micro_usd| CostTotal {
        node_seconds: node_seconds.clone(),
        usd: usd(micro_usd),
    };
    let line = |line: &LedgerLine| CostLine {
        cluster: line.cluster.clone(),
        group: line.group.clone(),
        category: line.category.clone(),
        outcome: line.outcome.clone(),
        sum: total(&line.node_seconds, line.micro_usd),
    };
    CostDocument {
        lines: ledger.value.iter().map(line).collect(),
        total: total(&ledger.total.node_seconds, ledger.total.micro_usd),
        notes: ledger.notes.clone(),
    }
}

fn rows(ledger: &LedgerDocument) -> CliResult<Vec<Vec<String>>> {
    if ledger.value.is_empty() {
        return Ok(Vec::new());
    }
    let row = |first: &str, category: &str, outcome: &str, us, micro_usd| {
        let [first, category, outcome] = [first, category, outcome].map(str::to_owned);
        vec![first, category, outcome, clock(us), usd(micro_usd)]
    };
    let mut rows = Vec::new();
    for line in &ledger.value {
        let us = microseconds(&line.node_seconds)?;
        let group = line.cluster.as_deref().or(line.group.as_deref()).unwrap_or("-");
        rows.push(row(group, &line.category, &line.outcome, us, line.micro_usd));
    }
    let total_us = microseconds(&ledger.total.node_seconds)?;
    rows.push(row("total", "", "", total_us, ledger.total.micro_usd));
    for category in WITHOUT_WORK {
        let (mut us, mut micro_usd) = (0u64, 0u64);
        for line in ledger.value.iter().filter(|line| line.category == category) {
            us = us.saturating_add(microseconds(&line.node_seconds)?);
            micro_usd = micro_usd.saturating_add(line.micro_usd);
        }
        rows.push(row(INCLUDING, category, "", us, micro_usd));
    }
    Ok(rows)
}

/// `90.000001` → 90000001.
fn microseconds(seconds: &str) -> CliResult<u64> {
    let parse = || {
        let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let fraction = format!("{fraction:0<6}");
        let whole: u64 = whole.parse().ok()?;
        let fraction: u64 = fraction.get(..6)?.parse().ok()?;
        whole.checked_mul(1_000_000)?.checked_add(fraction)
    };
    parse().ok_or_else(|| {
        Failure::error(format!("the server's ledger contains {} seconds", quoted(seconds)))
    })
}

/// `h:mm:ss.mmm`: nodes start within milliseconds, so a span of the ledger can be that short.
fn clock(us: u64) -> String {
    let ms = us.saturating_add(500) / 1_000;
    let seconds = ms / 1_000;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{hours}:{minutes:02}:{:02}.{:03}", seconds % 60, ms % 1_000)
}

fn usd(micro_usd: u64) -> String {
    format!("{}.{:06}", micro_usd / 1_000_000, micro_usd % 1_000_000)
}

#[cfg(test)]
mod tests {
    use muster_wire::cost::LedgerTotal;

    use super::*;

    fn line(category: &str, outcome: &str, node_seconds: &str, micro_usd: u64) -> LedgerLine {
        LedgerLine {
            cluster: Some("cpu".to_owned()),
            group: None,
            category: category.to_owned(),
            outcome: outcome.to_owned(),
            node_seconds: node_seconds.to_owned(),
            micro_usd,
        }
    }

    #[test]
    fn time_without_a_job_has_its_own_lines() {
        let ledger = LedgerDocument {
            notes: Vec::new(),
            value: vec![
                line("run", "succeeded", "3661.499999", 294_950),
                line("idle", "none", "120.000000", 9_667),
            ],
            total: LedgerTotal { node_seconds: "3781.499999".to_owned(), micro_usd: 304_617 },
        };
        let rows = rows(&ledger).unwrap();
        let text: Vec<String> = rows.iter().map(|row| row.join("|")).collect();
        assert_eq!(
            text,
            [
                "cpu|run|succeeded|1:01:01.500|0.294950",
                "cpu|idle|none|0:02:00.000|0.009667",
                "total|||1:03:01.500|0.304617",
                "including|idle||0:02:00.000|0.009667",
                "including|floor||0:00:00.000|0.000000",
            ]
        );
        let by_category: Vec<_> = rows.into_iter().map(without_group).collect();
        assert_eq!(by_category[0][0], "run");
        assert_eq!([&by_category[2][0], &by_category[3][0]], ["total", "including idle"]);
        let json = serde_json::to_string(&document(&ledger)).unwrap();
        assert!(json.contains(r#""outcome":"none","node_seconds":"120.000000","usd":"0.009667""#));
    }

    #[test]
    fn an_empty_ledger_has_no_rows() {
        let total = LedgerTotal { node_seconds: "0.000000".to_owned(), micro_usd: 0 };
        assert!(
            rows(&LedgerDocument { value: Vec::new(), total, notes: Vec::new() })
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn seconds_are_read_to_the_last_digit() {
        assert_eq!(microseconds("90.000001").unwrap(), 90_000_001);
        assert_eq!(microseconds("90").unwrap(), 90_000_000);
        for bad in ["", "x", "1.x", "-1", "99999999999999999999"] {
            assert!(microseconds(bad).is_err(), "{bad}");
        }
    }
}
