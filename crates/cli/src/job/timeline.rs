//! `job timeline`: how a job spent its time, from submission to end.

use muster_wire::job::{Attempts, Phases};
use serde::Serialize;

use super::{Target, attempts};
use crate::failure::{CliResult, printable};
use crate::output::{self, Print};

const HEADER: [&str; 5] = ["Attempt", "Phase", "Seconds", "Share", ""];
const BAR_CHARS: u64 = 40;

/// Show how a job spent its time: queue, provision, prepare, fetch, run and finalise of each attempt
///
/// The phases of all attempts add up to the time from submission to the end of the job, or to now.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct Args {
    #[command(flatten)]
    print: Print<true>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Serialize)]
struct Timeline {
    name: String,
    status: Option<String>,
    submitted_at: Option<String>,
    /// The end of the job, or now.
    until: Option<String>,
    /// The sum of the phases of all attempts.
    wall_seconds: String,
    attempts: Vec<Tried>,
}

#[derive(Debug, Serialize)]
struct Tried {
    /// `None` for the time after the last attempt, when the job was queued again.
    attempt: Option<u32>,
    outcome: String,
    /// The phase in which it failed, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_in: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    total_seconds: String,
    phases: Vec<Phase>,
}

#[derive(Debug, Serialize)]
struct Phase {
    phase: &'static str,
    seconds: String,
    #[serde(skip)]
    microseconds: u64,
}

pub async fn run(args: &Args) -> CliResult {
    let name = args.target.name.as_str();
    let workspace = args.target.scope.workspace()?;
    let client = args.target.scope.connect().await?;
    let timeline = of(name.to_owned(), attempts::fetch(&client, workspace, name).await?);
    args.print.show(&timeline, || print_table(&timeline))
}

fn of(name: String, all: Attempts) -> Timeline {
    let status = all.status.clone().unwrap_or_default();
    let tried = all.value.iter().map(|it| Tried {
        failed_in: it.failed_in.clone(),
        failure: it.failure.clone(),
        ..tried_of(Some(it.number), it.outcome.clone(), it.phases)
    });
    let waiting = all.waiting.iter().map(|phases| tried_of(None, status.clone(), *phases));
    let attempts: Vec<Tried> = tried.chain(waiting).collect();
    let phases = attempts.iter().flat_map(|it| &it.phases);
    let wall = phases.map(|phase| phase.microseconds).sum();
    Timeline {
        name,
        status: all.status,
        submitted_at: all.submitted_at,
        until: all.until,
        wall_seconds: seconds(wall),
        attempts,
    }
}

fn tried_of(attempt: Option<u32>, outcome: String, phases: Phases) -> Tried {
    let of = |(phase, microseconds)| Phase { phase, seconds: seconds(microseconds), microseconds };
    let total_seconds = seconds(phases.total());
    let phases = phases.named().map(of).into();
    Tried { attempt, outcome, failed_in: None, failure: None, total_seconds, phases }
}

/// With all digits, so that the numbers add up exactly.
fn seconds(microseconds: u64) -> String {
    format!("{}.{:06}", microseconds / 1_000_000, microseconds % 1_000_000)
}

fn print_table(timeline: &Timeline) -> CliResult {
    let all = timeline.attempts.iter().flat_map(|it| &it.phases);
    let wall: u64 = all.map(|phase| phase.microseconds).sum();
    let mut rows = Vec::new();
    let mut before = 0;
    for tried in &timeline.attempts {
        for (index, phase) in tried.phases.iter().enumerate() {
            let number = match (index, tried.attempt) {
                (0, Some(number)) => format!("{number} ({})", tried.outcome),
                (0, None) => format!("- ({})", tried.outcome),
                _ => String::new(),
            };
            let share = share_of(phase.microseconds, wall);
            let bar = bar(before, phase.microseconds, wall);
            let has_failed = tried.failed_in.as_deref() == Some(phase.phase);
            let name = format!("{}{}", phase.phase, if has_failed { " (failed)" } else { "" });
            rows.push(vec![number, name, phase.seconds.clone(), share, bar]);
            before += phase.microseconds;
        }
    }
    let total = vec!["total".to_owned(), String::new(), timeline.wall_seconds.clone()];
    rows.push([total, vec![String::new(), String::new()]].concat());
    output::table(&HEADER, rows, "nothing has happened yet")?;
    let why = timeline.attempts.iter().filter_map(|tried| {
        let (phase, why) = (tried.failed_in.as_ref()?, tried.failure.as_ref()?);
        Some(printable(&format!("failed in phase {phase}: {why}")) + "\n")
    });
    output::bytes(why.collect::<String>().as_bytes())
}

fn share_of(part: u64, whole: u64) -> String {
    let thousandths = u128::from(part) * 1_000 / u128::from(whole.max(1));
    format!("{}.{}%", thousandths / 10, thousandths % 10)
}

/// Draws the position within the whole; every phase that took any time has at least a dot.
fn bar(before: u64, part: u64, whole: u64) -> String {
    let at = |time: u64| {
        let chars = u128::from(time) * u128::from(BAR_CHARS) / u128::from(whole.max(1));
        usize::try_from(chars).unwrap_or(0)
    };
    let (from, to) = (at(before), at(before + part));
    match (to > from, part) {
        (true, _) => format!("{}{}", " ".repeat(from), "█".repeat(to - from)),
        (false, 0) => String::new(),
        (false, _) => format!("{}·", " ".repeat(from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stand_where_the_time_was() {
        assert_eq!(bar(0, 50, 100), "█".repeat(20));
        assert_eq!(bar(50, 50, 100), format!("{}{}", " ".repeat(20), "█".repeat(20)));
        assert_eq!((bar(50, 0, 100), bar(80, 1, 1_000)), (String::new(), "   ·".to_owned()));
        assert_eq!((share_of(1, 3), share_of(0, 0)), ("33.3%".to_owned(), "0.0%".to_owned()));
    }
}
