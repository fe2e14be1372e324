//! Nodes that failed or were lost: `muster compute list-post-mortems` and `show-post-mortem`.

use muster_wire::Route;
use muster_wire::post_mortem::{Findings, PostMortem};
use serde::Serialize;

use super::Target;
use crate::failure::CliResult;
use crate::output::{self, Print};
use crate::values;

const HEADER: [&str; 6] = ["Node", "Cause", "Given up on", "Host", "Ended by", "Jobs"];

/// List nodes that failed or were lost, newest first
///
/// A node that did not start, ended unexpectedly or stopped responding leaves a post-mortem, which is kept after the
/// node is deleted. The newest 20 of each compute are kept, until the compute is deleted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ListArgs {
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

/// Show why a node failed or was lost
///
/// Shows what happened and when, what the node ran, how its first process ended, its cgroup statistics, and the end of
/// its agent's log.
#[derive(Debug, clap::Args)]
#[command(after_help = "Read-only: changes nothing.")]
pub struct ShowArgs {
    /// Name of the node, from list-post-mortems
    #[arg(long, value_parser = values::name)]
    node: String,
    #[command(flatten)]
    print: Print,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    node: &'a str,
    compute: &'a str,
    host: &'a str,
    size: &'a str,
    cause: &'a str,
    message: &'a str,
    was: &'a str,
    requested_on: &'a str,
    given_up_on: &'a str,
    jobs: Vec<Job<'a>>,
    findings: Option<Found>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_log: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Job<'a> {
    name: &'a str,
    epoch: &'a str,
    rank: u32,
}

#[derive(Debug, Serialize)]
struct Found {
    exit_code: Option<i32>,
    signal: Option<i32>,
    memory_limit_bytes: Option<u64>,
    memory_peak_bytes: Option<u64>,
    memory_bytes: Option<u64>,
    memory_high: Option<u64>,
    memory_max: Option<u64>,
    oom_kills: Option<u64>,
    processes_peak: Option<u64>,
    processes_denied: Option<u64>,
    cpu_microseconds: Option<u64>,
    disk_free_bytes: Option<u64>,
}

pub async fn list(args: &ListArgs) -> CliResult {
    let compute = args.target.name.as_str().into();
    let route = Route::PostMortems { workspace: args.target.scope.workspace()?, compute };
    let client = args.target.scope.connect().await?;
    let found: Vec<PostMortem> = client.list(&route, None).await?;
    let all: Vec<Shown<'_>> = found.iter().map(shown).collect();
    args.print.show(&all, || {
        let rows = all.iter().map(row).collect();
        output::table(&HEADER, rows, "no failed nodes")
    })
}

pub async fn show(args: &ShowArgs) -> CliResult {
    let (compute, node) = (args.target.name.as_str().into(), args.node.as_str().into());
    let route = Route::PostMortem { workspace: args.target.scope.workspace()?, compute, node };
    let client = args.target.scope.connect().await?;
    let found: PostMortem = client.get(&route).await?;
    let one = shown(&found);
    args.print.show(&one, || output::table(&HEADER, vec![row(&one)], ""))
}

fn shown(found: &PostMortem) -> Shown<'_> {
    let jobs = found.jobs.iter();
    Shown {
        node: &found.node,
        compute: &found.compute,
        host: &found.host,
        size: &found.vm_size,
        cause: &found.cause,
        message: &found.message,
        was: &found.was,
        requested_on: &found.requested_on,
        given_up_on: &found.given_up_on,
        jobs: jobs.map(|job| Job { name: &job.name, epoch: &job.epoch, rank: job.rank }).collect(),
        findings: found.findings.as_ref().map(findings),
        agent_log: found.agent_log.as_deref(),
    }
}

fn findings(found: &Findings) -> Found {
    Found {
        exit_code: found.exit_code,
        signal: found.signal,
        memory_limit_bytes: found.memory_limit_bytes,
        memory_peak_bytes: found.memory_peak_bytes,
        memory_bytes: found.memory_bytes,
        memory_high: found.memory_high,
        memory_max: found.memory_max,
        oom_kills: found.oom_kills,
        processes_peak: found.processes_peak,
        processes_denied: found.processes_denied,
        cpu_microseconds: found.cpu_microseconds,
        disk_free_bytes: found.disk_free_bytes,
    }
}

fn row(shown: &Shown<'_>) -> Vec<String> {
    let end = shown.findings.as_ref().map(|found| (found.exit_code, found.signal));
    let ended_by = match end {
        Some((_, Some(signal))) => format!("signal {signal}"),
        Some((Some(code), None)) => format!("exit code {code}"),
        Some((None, None)) | None => "-".to_owned(),
    };
    let jobs: Vec<&str> = shown.jobs.iter().map(|job| job.name).collect();
    vec![
        shown.node.to_owned(),
        shown.cause.to_owned(),
        shown.given_up_on.to_owned(),
        shown.host.to_owned(),
        ended_by,
        if jobs.is_empty() { "-".to_owned() } else { jobs.join(", ") },
    ]
}
