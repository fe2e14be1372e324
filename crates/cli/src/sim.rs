//! `muster sim`: simulates days of Muster in seconds, to look for violated guarantees.

use std::collections::BTreeMap;

use muster_sim::{BATCH_MAX, Scenario, Summary};
use serde::Serialize;

use crate::failure::{CliResult, Failure};
use crate::output::{self, PrintForPeople};

/// One year; a longer simulation would take very long and show nothing new.
const DAYS_MAX: u32 = 365;

/// Simulate days of users, jobs and faults, and check every guarantee
///
/// The same seed always produces the same event log. A violated guarantee is printed with the command that reproduces
/// it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: everything is simulated; no request is sent to a server.")]
pub struct Args {
    /// Seed of all random decisions
    #[arg(long, value_name = "NUMBER", value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    /// Number of days with users and faults
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = days,
          allow_negative_numbers = true)]
    days: u32,
    /// Maximum number of inputs per step
    #[arg(long, value_name = "COUNT", default_value_t = BATCH_MAX, value_parser = batch,
          allow_negative_numbers = true)]
    batch: usize,
    /// Simulate no faults
    #[arg(long)]
    no_faults: bool,
    #[command(flatten)]
    print: PrintForPeople,
}

/// The summary, for programs.
#[derive(Debug, Serialize)]
struct Document<'a> {
    seed: u64,
    days: u32,
    batch: usize,
    simulated_s: u64,
    jobs_submitted: u64,
    jobs_completed: u64,
    jobs_failed: u64,
    jobs_canceled: u64,
    jobs_retried: u64,
    jobs_forgotten: u64,
    jobs_removed: u64,
    trees_kept: u64,
    requests_refused: u64,
    requests_repeated: u64,
    processes_started: u64,
    node_creates: u64,
    node_creates_failed: u64,
    faults: BTreeMap<String, u64>,
    steps: u64,
    changes: u64,
    ledger: Vec<Category>,
    event_log: &'a str,
}

#[derive(Debug, Serialize)]
struct Category {
    category: &'static str,
    node_s: u64,
    micro_usd: u64,
}

impl Document<'_> {
    fn of(summary: &Summary) -> Document<'_> {
        let category = |sum: &muster_sim::LedgerSum| Category {
            category: sum.category,
            node_s: sum.node_time.as_seconds(),
            micro_usd: sum.micro_usd,
        };
        Document {
            seed: summary.scenario.seed,
            days: summary.scenario.days,
            batch: summary.scenario.batch,
            simulated_s: summary.simulated.as_seconds(),
            jobs_submitted: summary.jobs_submitted,
            jobs_completed: summary.jobs_completed,
            jobs_failed: summary.jobs_failed,
            jobs_canceled: summary.jobs_canceled,
            jobs_retried: summary.jobs_retried,
            jobs_forgotten: summary.jobs_forgotten,
            jobs_removed: summary.jobs_removed,
            trees_kept: summary.trees_kept,
            requests_refused: summary.requests_refused,
            requests_repeated: summary.requests_repeated,
            processes_started: summary.processes_started,
            node_creates: summary.node_creates,
            node_creates_failed: summary.node_creates_failed,
            faults: summary.faults.iter().map(|(fault, it)| (fault.to_string(), it)).collect(),
            steps: summary.steps,
            changes: summary.revisions,
            ledger: summary.ledger.iter().map(category).collect(),
            event_log: &summary.digest,
        }
    }
}

pub fn run(args: &Args) -> CliResult {
    let mut scenario = Scenario::new(args.seed, args.days);
    scenario.batch = args.batch;
    scenario.faults = !args.no_faults;
    let summary = muster_sim::run(&scenario).map_err(|why| Failure::error(why.to_string()))?;
    let document = Document::of(&summary);
    args.print.show(&document, || output::bytes(format!("{summary}\n").as_bytes()))
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("give a whole number from 0 to {}", u64::MAX))
}

fn days(text: &str) -> Result<u32, String> {
    let days = text.parse().ok().filter(|days| (1..=DAYS_MAX).contains(days));
    days.ok_or_else(|| format!("give a whole number from 1 to {DAYS_MAX}"))
}

fn batch(text: &str) -> Result<usize, String> {
    let batch = text.parse().ok().filter(|batch| (1..=BATCH_MAX).contains(batch));
    batch.ok_or_else(|| format!("give a whole number from 1 to {BATCH_MAX}"))
}
