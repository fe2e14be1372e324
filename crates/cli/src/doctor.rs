//! `muster doctor`: whether this machine is ready to run a server and its nodes, and what to do if it is not.
//!
//! Each part first collects facts (`look`, which queries the machine and judges nothing) and then judges them (`check`,
//! which queries nothing). So every finding can be tested without a machine that has the problem.

mod bad_nodes;
mod clock;
mod disk;
mod finding;
mod isolation;
mod kernel;
mod programs;
mod resources;
mod server;

use std::path::Path;
use std::time::{Duration, SystemTime};

use muster_server::Isolation;

use crate::config::{Config, Flags};
use crate::failure::{CliResult, Failure};
use crate::output::{self, PrintForPeople};
use crate::server_location::StateDirArg;
use finding::{Finding, State};

/// On a healthy machine this takes milliseconds. Each part has its own time limit, so that nothing can hang.
const PROBE_WITHIN: Duration = Duration::from_millis(1200);
const DISK_WITHIN: Duration = Duration::from_millis(700);
const SERVER_WITHIN: Duration = Duration::from_millis(700);
const PROGRAMS_WITHIN: Duration = Duration::from_millis(1000);

/// Check whether this machine is ready to run Muster
///
/// Checks the kernel, every part of a node's sandbox (in a separate process), limits, disk, clock, certificates, the
/// server of the state directory, and programs that jobs may need. Each finding is ok, a note, a warning (works, but
/// not as well as it could) or a failure (nodes or the server cannot work), with a remedy. Neither a running server nor
/// a state directory is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 no failures, 1 at least one failure.\n\n\
                        Read-only: creates only temporary namespaces and processes, and no files.")]
pub struct Args {
    #[command(flatten)]
    print: PrintForPeople,
    #[command(flatten)]
    place: StateDirArg,
}

pub fn run(args: &Args) -> CliResult {
    let findings = examine(&args.place.path()?);
    args.print.show(&findings, || {
        output::bytes(finding::text(&findings, output::is_coloured()).as_bytes())
    })?;
    let failures: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.state == State::Failure)
        .map(|finding| finding.id)
        .collect();
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::error(format!(
            "this machine is not ready to run a server and its nodes: {}",
            failures.join(", ")
        ))),
    }
}

fn examine(state_dir: &Path) -> Vec<Finding> {
    // This forks, so it comes before anything that starts threads.
    let probe = muster_sandbox::probe::run(PROBE_WITHIN);
    let mut asked = programs::ask(PROGRAMS_WITHIN);
    let now = SystemTime::now();
    let disk = disk::look(state_dir, DISK_WITHIN);
    // A directory that does not respond would block this process too.
    let config = disk.is_ok().then(|| Config::gather(&Flags::default(), state_dir, "warn"));
    let isolation = match &config {
        Some(Ok(config)) => config.isolation(),
        _ => Isolation::Auto,
    };
    let uv = config.as_ref().and_then(|config| config.as_ref().ok()?.path("uv"));
    asked.ask_uv(uv.as_deref());
    let newest = disk.as_ref().ok().and_then(|disk| disk.newest.clone());

    let mut findings = kernel::check(&kernel::look(), isolation);
    findings.extend(isolation::check(&probe, isolation));
    findings.extend(resources::check(&resources::look(), isolation));
    findings.push(resources::host(
        matches!(&config, Some(Ok(config)) if config.switch("over-commit") == Some(false)),
    ));
    findings.extend(disk::check(&disk));
    if disk.is_ok() {
        findings.push(bad_nodes::check(&bad_nodes::look(state_dir, now)));
    }
    findings.extend(clock::check(&clock::look(now, newest)));
    // A directory of another user gives no reliable information.
    if let Some(config) = config.filter(|_| disk.is_ok_and(|disk| disk.writable.is_ok())) {
        findings.extend(server::check(&server::look(state_dir, &config, SERVER_WITHIN), now));
    }
    findings.extend(programs::check(&asked.answers()));
    findings
}
