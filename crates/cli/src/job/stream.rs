//! Streaming a job's log: its bytes go to standard output as they arrive, everything else to standard error.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::model::WorkspaceKey;
use muster_wire::event::{EventDocument, EventKind};
use muster_wire::job::{JobStatus, RunDetails, property};
use muster_wire::{HistoryRoute, Route};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::{attempts, ended_badly};
use crate::client::{Changes, Client};
use crate::failure::{CliResult, Failure, printable};
use crate::operation::Patience;
use crate::output;

/// Short enough to feel live; each request is a small response from memory. Logs are read this often, and without a
/// stream of events also the status.
const POLL: Duration = Duration::from_millis(200);
/// The status is read this often even if no event announces a change: why a job waits may change with time alone.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(5);
/// The log of a job with one process; if there are several, each has a log with its number.
const LOG_NAME: &str = "user_logs/std_log.txt";

/// The log that Azure's clients stream: that of the job's first process.
pub async fn run(client: &Client, workspace: WorkspaceKey, name: &str) -> CliResult {
    follow(client, workspace, name, 0, None).await
}

/// Streams the log of one process, from an offset in a log that was printed already.
pub async fn follow(
    client: &Client,
    workspace: WorkspaceKey,
    name: &str,
    rank: u32,
    begun: Option<(String, u64)>,
) -> CliResult {
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|why| Failure::error(format!("cannot listen for signals: {why}")))?;
    let log = begun.map_or_else(Log::default, |(url, offset)| Log {
        address: address_of(&url).to_owned(),
        offset,
        ..Log::default()
    });
    let mut stream = Stream { client, name, rank, log, last_line: String::new() };
    let followed = async {
        let mut changes = client.changes(workspace.clone()).await;
        let route = Route::History(HistoryRoute::RunDetails { workspace, run: name.into() });
        stream.follow(&route, &mut changes).await
    };
    tokio::select! {
        outcome = followed => outcome,
        _ = interrupt.recv() => {
            output::say(&format!(
                "stopped streaming; the job keeps running. To stream it again: muster job stream -n {name}; to cancel it: \
                 muster job cancel -n {name}"
            ));
            Err(Failure::Interrupted)
        }
    }
}

struct Stream<'a> {
    client: &'a Client,
    name: &'a str,
    rank: u32,
    log: Log,
    /// The last message about the job's status.
    last_line: String,
}

/// How far the log has been printed.
#[derive(Default)]
struct Log {
    /// The address without its signature. Each attempt has another one.
    address: String,
    offset: u64,
    out: output::Raw,
}

impl Stream<'_> {
    async fn follow(&mut self, route: &Route, changes: &mut Changes<'_>) -> CliResult {
        let mut patience = Patience::default();
        loop {
            match self.look(route).await {
                Ok(details) => {
                    patience.calm();
                    if details.status.is_terminal() {
                        return self.end(&details);
                    }
                    let url = log_of(&details.log_files, self.rank);
                    match self.wait(url, changes).await {
                        Ok(()) => {}
                        Err(failure) => patience.forgive(failure)?,
                    }
                }
                Err(failure) => {
                    patience.forgive(failure)?;
                    tokio::time::sleep(POLL).await;
                }
            }
        }
    }

    /// Waits until the status may have changed. Meanwhile the log is copied, which is not part of the events.
    async fn wait(&mut self, log: Option<&str>, changes: &mut Changes<'_>) -> CliResult {
        let until = Instant::now() + LOOK_AT_LEAST_EVERY;
        let Some(url) = log else {
            // Any change of a compute or of another job may be why this one waits.
            changes.wait(|_| true, LOOK_AT_LEAST_EVERY, POLL).await;
            return Ok(());
        };
        loop {
            let name = self.name;
            let is_own = |event: &EventDocument| {
                event.kind == EventKind::Job && event.name.eq_ignore_ascii_case(name)
            };
            if changes.wait(is_own, POLL, POLL).await || Instant::now() >= until {
                return Ok(());
            }
            self.copy(url).await?;
        }
    }

    /// Requests the status first, then the log: if the status is final, the log is complete.
    async fn look(&mut self, route: &Route) -> CliResult<RunDetails> {
        let details: RunDetails = self.client.get(route).await?;
        if !details.status.is_terminal() {
            self.report(&details);
        }
        if let Some(url) = log_of(&details.log_files, self.rank) {
            self.copy(url).await?;
        }
        Ok(details)
    }

    fn report(&mut self, details: &RunDetails) {
        let mut line = format!("{}: {}", self.name, details.status.as_str());
        if let Some(progress) = progress(&details.properties) {
            line.push_str(": ");
            line.push_str(&progress);
        }
        for reason in details.properties.get(property::WAIT_REASON).iter().flat_map(|r| r.lines()) {
            line.push_str(": ");
            line.push_str(&printable(reason));
        }
        if line != self.last_line {
            output::say(&line);
            self.last_line = line;
        }
    }

    async fn copy(&mut self, url: &str) -> CliResult {
        let address = address_of(url);
        if address != self.log.address {
            if self.log.offset > 0 {
                output::say(&format!(
                    "{}: restarted; the log of the new attempt follows",
                    self.name
                ));
            }
            self.log = Log { address: address.to_owned(), ..Log::default() };
        }
        let log = &mut self.log;
        log.offset = attempts::copy(self.client, url, log.offset, &mut log.out).await?;
        Ok(())
    }

    fn end(&mut self, details: &RunDetails) -> CliResult {
        self.log.out.end()?;
        let said = |key: &str| details.properties.get(key).map(String::as_str);
        let error = details.error.as_ref().map(|error| error.error.message.as_str());
        match details.status {
            JobStatus::Completed => {
                output::say(&format!("{}: Completed", self.name));
                Ok(())
            }
            JobStatus::Canceled => {
                Err(ended_badly(self.name, "was canceled", said(property::CANCEL_REASON)))
            }
            _ => Err(ended_badly(self.name, "failed", error.or(said(property::FAILURE)))),
        }
    }
}

/// How far the children of a job are. It changes with every hundredth of them, so that even many do not fill the screen.
fn progress(properties: &BTreeMap<String, String>) -> Option<String> {
    let count = |key: &str| -> Option<u64> { properties.get(key)?.parse().ok() };
    let running = count(property::CHILDREN_RUNNING)?;
    let (failed, waiting) = (count(property::CHILDREN_FAILED)?, count(property::CHILDREN_WAITING)?);
    let ended = count(property::CHILDREN_COMPLETED)? + failed + count(property::CHILDREN_CANCELED)?;
    let all = (waiting + running + ended).max(1);
    let percent = ended * 100 / all;
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    Some(format!("{percent}% of {all} tasks have ended{failed}"))
}

/// An address without its signature.
fn address_of(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

/// The log of one of the job's processes.
pub fn log_of(logs: &BTreeMap<String, String>, rank: u32) -> Option<&str> {
    let numbered = || logs.get(&format!("user_logs/std_log_process_{rank}.txt"));
    let only = logs.get(LOG_NAME).filter(|_| rank == 0);
    only.or_else(numbered).map(String::as_str)
}
