//! The attempts of a job: a list with their costs, and the log of one of them.

use muster_core::model::WorkspaceKey;
use muster_wire::Route;
use muster_wire::job::{AttemptEntry, Attempts};
use serde::Serialize;

use super::Target;
use crate::client::Client;
use crate::failure::{CliResult, Failure};
use crate::output::{self, Print};

const HEADER: [&str; 6] = ["Attempt", "Outcome", "Started", "Ended", "Node seconds", "USD"];

/// List the attempts of a job, oldest first, with their times, outcomes and costs
///
/// A job has another attempt when its node is lost or evicted. The costs of all attempts add up to the cost of the job.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct Args {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Serialize)]
struct Attempt {
    attempt: u32,
    outcome: String,
    granted_on: String,
    started_on: Option<String>,
    ended_on: Option<String>,
    node_seconds: String,
    cost_usd: String,
    /// The files that the attempt left and that were kept.
    kept_files: Option<u32>,
    kept_bytes: Option<u64>,
}

pub async fn run(args: &Args) -> CliResult {
    let workspace = args.target.scope.workspace()?;
    let client = args.target.scope.connect().await?;
    let all = fetch(&client, workspace, &args.target.name).await?;
    let shown: Vec<Attempt> = all.value.iter().map(|entry| entity(entry, &all)).collect();
    args.print.show(&shown, || {
        let mut rows: Vec<Vec<String>> = shown.iter().map(row).collect();
        if rows.len() > 1 {
            let total = [millionths(all.node_microseconds), millionths(all.micro_usd)];
            let [seconds, usd] = total;
            let dash = || "-".to_owned();
            rows.push(vec!["all".to_owned(), dash(), dash(), dash(), seconds, usd]);
        }
        output::table(&HEADER, rows, "no attempts yet")
    })
}

pub async fn fetch(client: &Client, workspace: WorkspaceKey, name: &str) -> CliResult<Attempts> {
    client.get(&Route::JobAttempts { workspace, name: name.into() }).await
}

/// Prints the current log of one attempt.
pub async fn log(client: &Client, workspace: WorkspaceKey, name: &str, attempt: u32) -> CliResult {
    let all = fetch(client, workspace, name).await?;
    let Some(found) = all.value.iter().find(|entry| entry.number == attempt) else {
        let text = format!("job {name} has no attempt {attempt}; it has {}", all.value.len());
        return Err(Failure::not_found(text));
    };
    for (name, url) in &found.log_files {
        if found.log_files.len() > 1 {
            output::say(&format!("{name}:"));
        }
        let mut out = output::Raw::default();
        copy(client, url, 0, &mut out).await?;
        out.end()?;
    }
    Ok(())
}

/// Prints a log from `offset` to its current end, and returns the offset of the end.
pub async fn copy(
    client: &Client,
    url: &str,
    mut offset: u64,
    out: &mut output::Raw,
) -> CliResult<u64> {
    loop {
        let piece = client.log(url, offset).await?;
        out.write(&piece.bytes)?;
        offset += piece.bytes.len() as u64;
        if piece.bytes.is_empty() || piece.total.is_none_or(|total| offset >= total) {
            return Ok(offset);
        }
    }
}

fn entity(entry: &AttemptEntry, all: &Attempts) -> Attempt {
    let left = || all.saved.iter().filter(|saved| saved.attempt == entry.number);
    let is_kept = left().next().is_some();
    Attempt {
        attempt: entry.number,
        outcome: entry.outcome.clone(),
        granted_on: entry.granted_at.clone(),
        started_on: entry.started_at.clone(),
        ended_on: entry.ended_at.clone(),
        node_seconds: millionths(entry.node_microseconds),
        cost_usd: millionths(entry.micro_usd),
        kept_files: is_kept.then(|| left().map(|saved| saved.files).sum()),
        kept_bytes: is_kept.then(|| left().map(|saved| saved.bytes).sum()),
    }
}

fn row(attempt: &Attempt) -> Vec<String> {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    vec![
        attempt.attempt.to_string(),
        attempt.outcome.clone(),
        or_dash(&attempt.started_on),
        or_dash(&attempt.ended_on),
        attempt.node_seconds.clone(),
        attempt.cost_usd.clone(),
    ]
}

/// Seconds or dollars, with all six digits so that they add up.
fn millionths(count: u64) -> String {
    format!("{}.{:06}", count / 1_000_000, count % 1_000_000)
}
