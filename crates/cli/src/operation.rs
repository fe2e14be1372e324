//! Waiting for long-running operations.

use std::time::{Duration, Instant};

use muster_wire::error::ErrorDetail;
use muster_wire::operation::OperationDocument;
use reqwest::StatusCode;

use crate::client::{ApiResponse, Client};
use crate::failure::{CliResult, Failure, message, printable};
use crate::output;
use crate::progress::Progress;

/// The polling interval if the server does not specify one.
const POLL_DEFAULT: Duration = Duration::from_secs(1);
/// Limits for the server's interval: neither a busy loop nor a wait that looks like a hang.
const POLL_MIN: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_secs(30);
/// A server that restarts is back well within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the operation that `answer` started has ended; `what` describes it in messages, such as "creating cpu".
pub async fn follow(client: &Client, answer: &ApiResponse, what: String) -> CliResult {
    let Some(link) = answer.operation.as_deref() else {
        return match answer.location.as_deref().filter(|_| answer.status == StatusCode::ACCEPTED) {
            Some(link) => follow_location(client, link, what).await,
            // A response without an operation means that the request is already done.
            None => Ok(()),
        };
    };
    let mut progress = Progress::new(what);
    let mut patience = Patience::default();
    loop {
        let (pause, document) = match look(client, link).await {
            Ok(looked) => looked,
            Err(failure) => {
                patience.forgive(failure)?;
                tokio::time::sleep(POLL_DEFAULT).await;
                continue;
            }
        };
        patience.calm();
        if document.is_over() {
            return finish(progress, &document);
        }
        progress.state(&document.status);
        tokio::time::sleep(pause).await;
    }
}

/// The resource manager's own way, as for groups: 202 until it is done.
async fn follow_location(client: &Client, link: &str, what: String) -> CliResult {
    let mut progress = Progress::new(what);
    let mut patience = Patience::default();
    loop {
        let pause = match client.follow(link).await {
            Ok(answer) if answer.status != StatusCode::ACCEPTED => {
                progress.done("Succeeded");
                return Ok(());
            }
            Ok(answer) => {
                patience.calm();
                progress.state("InProgress");
                answer.retry_after.unwrap_or(POLL_DEFAULT).clamp(POLL_MIN, POLL_MAX)
            }
            Err(failure) => {
                patience.forgive(failure)?;
                POLL_DEFAULT
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn look(client: &Client, link: &str) -> CliResult<(Duration, OperationDocument)> {
    let answer = client.follow(link).await?;
    let pause = answer.retry_after.unwrap_or(POLL_DEFAULT).clamp(POLL_MIN, POLL_MAX);
    Ok((pause, answer.document()?))
}

fn finish(progress: Progress, document: &OperationDocument) -> CliResult {
    if document.status == "Succeeded" {
        progress.done("Succeeded");
        return Ok(());
    }
    let silent = ErrorDetail::new("Unknown", "the server gave no reason");
    let why = document.error.as_ref().unwrap_or(&silent);
    Err(Failure::error(format!(
        "the operation ended as {}: ({}) {}",
        printable(&document.status),
        printable(&why.code),
        message(&why.message)
    )))
}

/// Tolerates a server that is unavailable for a moment, as during a restart.
#[derive(Default)]
pub struct Patience {
    away_since: Option<Instant>,
    /// Set if messages would disturb a screen.
    is_silent: bool,
}

impl Patience {
    pub fn silent() -> Patience {
        Patience { away_since: None, is_silent: true }
    }

    fn say(&self, line: &str) {
        if !self.is_silent {
            output::say(line);
        }
    }

    /// Returns the failure if it is permanent or has lasted too long.
    pub fn forgive(&mut self, failure: Failure) -> CliResult {
        if !failure.is_passing() {
            return Err(failure);
        }
        match self.away_since {
            None => {
                self.say(&format!("{failure}; retrying for {} s", PATIENCE.as_secs()));
                self.away_since = Some(Instant::now());
                Ok(())
            }
            Some(since) if since.elapsed() < PATIENCE => Ok(()),
            Some(_) => Err(failure),
        }
    }

    pub fn calm(&mut self) {
        if self.away_since.take().is_some() {
            self.say("the server is responding again");
        }
    }
}
