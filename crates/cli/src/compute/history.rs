//! `muster compute history`: how a compute or one of its nodes was used over time.

use std::io::IsTerminal as _;

use muster_core::time::Wall;
use muster_wire::Route;
use muster_wire::compute_history::{ComputeHistory, HistorySeries};

use super::Target;
use crate::failure::CliResult;
use crate::output::{self, PrintForPeople};
use crate::values;

const HEADER: [&str; 5] = ["Metric", "Mean", "Max", "Last", "Unit"];
const NOTHING: &str = "no values are recorded for this time";
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The space for the columns of numbers, beside the chart.
const NUMBERS_COLUMNS: usize = 60;
const CHART_COLUMNS_MAX: usize = 80;
const CHART_COLUMNS_MIN: usize = 10;

/// Show how a cluster or compute instance was used over time
///
/// Shows nodes by state, jobs, the price of the nodes by what they were doing, and the use of CPUs, memory and GPUs. On
/// a terminal, each metric has a small chart.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct Args {
    /// Start time: a date, a time (RFC 3339), or a duration before now such as 90m or 7d [default: 24h]
    #[arg(long, value_name = "WHEN", value_parser = values::when, allow_hyphen_values = true)]
    since: Option<Wall>,
    /// Show this node instead of the whole compute
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Show only these metrics, separated by commas
    #[arg(long, value_name = "METRICS")]
    metrics: Option<String>,
    /// Interval of the values in seconds [default: chosen by the server]
    #[arg(long, value_name = "SECONDS")]
    step: Option<u32>,
    #[command(flatten)]
    print: PrintForPeople,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: &Args) -> CliResult {
    let workspace = args.target.scope.workspace()?;
    let route = Route::ComputeHistory { workspace, name: args.target.name.as_str().into() };
    let parameters = [
        ("from", args.since.map(|since| (since.0 / 1_000_000).to_string())),
        ("node", args.node.clone()),
        ("metrics", args.metrics.clone()),
        ("step", args.step.map(|step| step.to_string())),
    ];
    let given = parameters.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?)));
    let query: Vec<(&str, &str)> = given.collect();
    let client = args.target.scope.connect().await?;
    let history: ComputeHistory = client.get_with(&route, &query).await?;
    args.print.show(&history, || {
        let columns = std::io::stdout().is_terminal().then(|| output::width::size().0);
        let (header, rows) = table(&history, columns);
        output::table(&header, rows, NOTHING)
    })
}

/// A row for each metric that was ever above zero. With the width of a terminal, each has a chart.
fn table(
    history: &ComputeHistory,
    columns: Option<usize>,
) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let chart_columns = columns.map(|columns| {
        columns.saturating_sub(NUMBERS_COLUMNS).clamp(CHART_COLUMNS_MIN, CHART_COLUMNS_MAX)
    });
    let mut header = HEADER.to_vec();
    header.extend(chart_columns.map(|_| "History"));
    let is_used = |series: &&HistorySeries| series.max.iter().flatten().any(|value| *value > 0.0);
    let row = |series: &HistorySeries| {
        let known: Vec<f64> = series.mean.iter().flatten().copied().collect();
        let mean = known.iter().sum::<f64>() / count(known.len());
        let max = series.max.iter().flatten().copied().fold(0.0, f64::max);
        let last = series.mean.last().copied().flatten();
        let last = last.map_or("-".to_owned(), |last| figure(&series.unit, last));
        let mut row = vec![
            series.metric.clone(),
            figure(&series.unit, mean),
            figure(&series.unit, max),
            last,
            if series.unit == "bytes" { "GiB".to_owned() } else { series.unit.clone() },
        ];
        row.extend(chart_columns.map(|columns| {
            chart((&history.timestamps, history.step_seconds), &series.mean, columns)
        }));
        row
    };
    (header, history.series.iter().filter(is_used).map(row).collect())
}

fn figure(unit: &str, value: f64) -> String {
    match unit {
        "bytes" => format!("{:.2}", value / f64::from(1 << 30)),
        "USD/hour" => format!("{value:.4}"),
        _ => format!("{value:.2}"),
    }
}

#[allow(clippy::cast_precision_loss, reason = "a figure for a chart")]
fn count(number: usize) -> f64 {
    number as f64
}

/// A bar for each part of the time, relative to the largest mean, and a space where there are no values.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "heights of bars"
)]
fn chart((timestamps, step): (&[u64], u64), values: &[Option<f64>], columns: usize) -> String {
    let (Some(first), Some(last)) = (timestamps.first(), timestamps.last()) else {
        return String::new();
    };
    let intervals = (last - first) / step.max(1) + 1;
    let columns = columns.min(usize::try_from(intervals).unwrap_or(columns));
    let mut parts = vec![(0.0, 0usize); columns];
    for (at, value) in timestamps.iter().zip(values) {
        let Some(value) = value else { continue };
        let interval = u128::from((at - first) / step.max(1));
        let place = (interval * columns as u128 / u128::from(intervals)) as usize;
        let part = &mut parts[place.min(columns - 1)];
        *part = (part.0 + value, part.1 + 1);
    }
    let means: Vec<Option<f64>> =
        parts.into_iter().map(|(sum, number)| (number > 0).then(|| sum / count(number))).collect();
    let most = means.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
    let bar = |mean: &Option<f64>| match mean {
        None => ' ',
        Some(mean) => BARS[((mean / most * 7.0).round() as usize).min(BARS.len() - 1)],
    };
    means.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_shows_heights_and_gaps() {
        let values = [Some(0.0), Some(1.0), None, Some(7.0)];
        let times: &[u64] = &[0, 10, 20, 30];
        assert_eq!(chart((times, 10), &values, 4), "▁▂ █");
        assert_eq!(chart((times, 10), &values, 9), "▁▂ █", "at most one bar for each interval");
        assert_eq!(chart((times, 10), &values, 2), "▂█");
        assert_eq!(chart((&[0, 30], 10), &[Some(1.0), Some(1.0)], 4), "█  █", "a gap");
        assert_eq!(chart((&[5], 10), &[Some(0.0)], 3), "▁");
        assert_eq!(chart((&[], 10), &[], 3), "");
    }

    #[test]
    fn metrics_that_were_never_used_have_no_row() {
        let series = |metric: &str, unit: &str, values: &[Option<f64>]| HistorySeries {
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            mean: values.to_vec(),
            max: values.to_vec(),
        };
        let history = ComputeHistory {
            step_seconds: 600,
            timestamps: vec![0, 600],
            series: vec![
                series("cpu", "cores", &[Some(1.0), Some(2.0)]),
                series("gpu", "GPUs", &[Some(0.0), None]),
                series("memory", "bytes", &[Some(1_073_741_824.0), None]),
            ],
            ..ComputeHistory::default()
        };
        let (header, rows) = table(&history, None);
        assert_eq!(header, HEADER);
        assert_eq!(
            rows,
            [["cpu", "1.50", "2.00", "2.00", "cores"], ["memory", "1.00", "1.00", "-", "GiB"]]
        );
        let (header, rows) = table(&history, Some(70));
        assert_eq!(header.len(), rows[0].len());
        assert_eq!(rows[0][5], "▅█");
    }
}
