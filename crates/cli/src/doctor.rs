//! `muster doctor`: whether this machine can run a server and its nodes well, and what to do where it cannot.
//!
//! Every part looks first (`look`, which asks the machine and judges nothing) and then judges what it saw (`check`,
//! which asks nothing): so each finding can be shown without a machine that is as bad.

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

/// Milliseconds where all is well. Each part is given up after its own time, so that nothing can hang.
const PROBE_WITHIN: Duration = Duration::from_millis(1200);
const DISK_WITHIN: Duration = Duration::from_millis(700);
const SERVER_WITHIN: Duration = Duration::from_millis(700);
const PROGRAMS_WITHIN: Duration = Duration::from_millis(1000);

/// Say whether this machine can run a server and its nodes well
///
/// Looks at the kernel, tries every wall of a node in a process of its own, and looks at limits, disk, clock,
/// certificates, the server of the state directory and programs that jobs may want. Each finding is ok, a note, a
/// warning (works, but not as well as it could) or a failure (nodes or the server cannot work), with what to do about
/// it. No server has to run, and no state directory has to be there.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 no failure found, 1 at least one failure.\n\n\
                        Read-only: makes namespaces and processes that are gone when it ends, and no file.")]
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
            "this machine cannot run a server and its nodes as it is: {}",
            failures.join(", ")
        ))),
    }
}

fn examine(state_dir: &Path) -> Vec<Finding> {
    // It forks, and so comes before whatever has threads.
    let probe = muster_sandbox::probe::run(PROBE_WITHIN);
    let mut asked = programs::ask(PROGRAMS_WITHIN);
    let now = SystemTime::now();
    let disk = disk::look(state_dir, DISK_WITHIN);
    // A directory that does not answer would keep us too.
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
    // One that is not ours tells nothing.
    if let Some(config) = config.filter(|_| disk.is_ok_and(|disk| disk.writable.is_ok())) {
        findings.extend(server::check(&server::look(state_dir, &config, SERVER_WITHIN), now));
    }
    findings.extend(programs::check(&asked.answers()));
    findings
}
