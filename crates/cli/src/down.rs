//! `muster down`: asks the server of a state directory to stop, and waits until it has.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::failure::{CliResult, Failure};
use crate::output;
use crate::progress::Progress;
use crate::server_location::StateDirArg;
use crate::server_process::{self, Figures, Running};

const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Between two progress messages.
const TOLD_EVERY: Duration = Duration::from_secs(1);
/// The kernel ends the process at once, unless it waits for a disk that does not respond.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// Longer than a server usually needs (`drain-seconds` is 10).
const TIMEOUT_DEFAULT: &str = "60";
const TIMEOUT_S_MAX: i64 = 24 * 3_600;

/// Stop a server
///
/// Asks the server of the state directory to stop, as Ctrl-C does, and waits until it has. Requests in progress are
/// finished first; what was acknowledged is on disk. Nodes and their jobs keep running for a while, and the next start
/// takes them over again. If no server is running, nothing is done.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 no server is running any more, 1 the server is still running.\n\n\
                        Mutating: stops the server. Clusters, jobs and all data are kept."
)]
pub struct Args {
    /// How long to wait for the server to stop
    #[arg(short, long, value_name = "SECONDS", default_value = TIMEOUT_DEFAULT,
          value_parser = clap::value_parser!(u32).range(0..=TIMEOUT_S_MAX))]
    timeout: u32,
    /// Kill the server if it has not stopped by then
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    place: StateDirArg,
}

pub async fn run(args: &Args) -> CliResult {
    let path = args.place.path()?;
    let start = server_process::start_command(&path);
    let nothing = || {
        output::say(&format!(
            "no server is running for the state directory {}; nothing to stop",
            path.display()
        ));
        Ok(())
    };
    let Some((server, pid)) = args.place.find_running()? else { return nothing() };
    let figures = server_process::figures(&server, ANSWER_WITHIN).await.ok();
    let dir = server.dir.as_ref().expect("it was found by its directory");
    let Some(running) = Running::open(dir, pid)? else { return nothing() };
    running.signal(Signal::TERM)?;
    let mut progress =
        Progress::new(format!("stopping the server at {} (process {pid})", server.url));
    let timeout = Duration::from_secs(args.timeout.into());
    if !waited(&running, timeout, &mut progress).await {
        if !args.force {
            return Err(Failure::error(format!(
                "the server (process {pid}) has not stopped within {} seconds; it stops when it has finished its current work",
                args.timeout
            ))
            .hint("wait longer with --timeout, or kill it with --force: what was acknowledged is on disk"));
        }
        running.signal(Signal::KILL)?;
        progress.state("killed");
        if !running.ends(KILLED_WITHIN).await {
            return Err(Failure::error(format!("process {pid} was killed but has not ended yet")));
        }
    }
    progress.done("stopped");
    if let Some(words) = figures.as_ref().and_then(|figures| left_behind(figures, &start)) {
        output::say(&words);
    }
    Ok(())
}

/// Whether the server has stopped in time.
async fn waited(running: &Running, timeout: Duration, progress: &mut Progress) -> bool {
    let started = Instant::now();
    progress.state("asked to stop");
    loop {
        let left = timeout.saturating_sub(started.elapsed());
        if running.ends(left.min(TOLD_EVERY)).await {
            return true;
        }
        if started.elapsed() >= timeout {
            return false;
        }
        progress.state("finishing requests in progress");
    }
}

/// What keeps running without the server, and how to start the server again.
fn left_behind(figures: &Figures, start: &str) -> Option<String> {
    let Figures { nodes, jobs_running, jobs_queued, .. } = figures;
    let counted = |count: &u64, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let queued = match jobs_queued {
        0 => String::new(),
        count => format!("Queued until the next start: {}. ", counted(count, "job")),
    };
    if *nodes == 0 {
        return Some(queued.trim_end().to_owned()).filter(|text| !text.is_empty());
    }
    Some(format!(
        "{queued}Still running without the server: {}, {}. They stop when their leases end, a minute from now unless \
         lease-seconds is set; to keep them, start the server again before that: {start}",
        counted(nodes, "node"),
        counted(jobs_running, "job")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_running_is_reported() {
        let message = |nodes, jobs_running, jobs_queued| {
            let figures = Figures { nodes, jobs_running, jobs_queued, ..Figures::default() };
            left_behind(&figures, "muster up --state-dir /srv/muster")
        };
        assert_eq!(message(0, 0, 0), None);
        assert_eq!(message(0, 0, 2).as_deref(), Some("Queued until the next start: 2 jobs."));
        let words = message(1, 2, 0).expect("something keeps running");
        assert!(words.starts_with("Still running without the server: 1 node, 2 jobs."), "{words}");
        assert!(words.ends_with(": muster up --state-dir /srv/muster"), "{words}");
    }
}
