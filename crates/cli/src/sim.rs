//! `muster sim`: days of Muster in seconds, to look for broken promises.

use muster_sim::{BATCH_MAX, Scenario};

use crate::failure::{Failure, Outcome};
use crate::output;

/// A year; more would only be more of the same, and take very long.
const DAYS_MAX: u32 = 365;

/// Simulate days of users, jobs and faults, and check every promise on the way
///
/// The same seed always comes to the same event log. A broken promise is printed with the command that shows
/// it again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: all of it is made up; no server is asked.")]
pub struct Args {
    /// What everything random comes from
    #[arg(long, value_name = "NUMBER", value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    /// How many days have users and faults
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = days,
          allow_negative_numbers = true)]
    days: u32,
    /// How many inputs may share a step
    #[arg(long, value_name = "COUNT", default_value_t = BATCH_MAX, value_parser = batch,
          allow_negative_numbers = true)]
    batch: usize,
    /// Let everything work
    #[arg(long)]
    no_faults: bool,
}

pub fn run(args: &Args) -> Outcome {
    let mut scenario = Scenario::new(args.seed, args.days);
    scenario.batch = args.batch;
    scenario.faults = !args.no_faults;
    let summary = muster_sim::run(&scenario).map_err(|why| Failure::error(why.to_string()))?;
    output::bytes(format!("{summary}\n").as_bytes())
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
