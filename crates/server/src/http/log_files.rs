//! Serves logs by signed URL: one file, read only, for at most an hour.
//!
//! The URL is its own authorization, as Azure's clients expect. Users write these files, so they are served as plain
//! text to every browser, and on the second listener.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use muster_core::ErrorChain;
use muster_core::ids::{Epoch, JobId, WorkspaceId};
use serde::Deserialize;

use super::respond::with_retry_after;
use crate::app::App;
use crate::clock;
use crate::logs::{LogKey, Piece};
use crate::retention;
use crate::tokens::LOG_URL_LIFETIME_MAX_S;

/// Slightly less than the checked maximum, so that a clock step does not make a new URL too long.
pub const LIFETIME_S: u64 = LOG_URL_LIFETIME_MAX_S - 60;

/// The text in place of a log that was removed before its job.
const REMOVED: &str = "The log of this job was removed, because the server keeps logs for a limited time after the end of \
                       their job (its setting log-days).\n";

/// The signed URL of one log.
pub fn url(app: &App, job: JobId, epoch: Epoch, rank: usize) -> String {
    let path = path(job, epoch, rank);
    let expires = clock::stamp() + LIFETIME_S;
    let signature = app.keyring.sign_log_url(&path, expires);
    format!("{}{path}?se={expires}&sig={signature}", app.files_url)
}

fn path(job: JobId, epoch: Epoch, rank: usize) -> String {
    format!("/logs/{job}/{epoch}.{rank}.log")
}

#[derive(Deserialize)]
pub struct Signed {
    pub se: u64,
    pub sig: String,
}

/// The status and the message of a refusal.
pub struct NotServed(pub StatusCode, pub String);

impl IntoResponse for NotServed {
    fn into_response(self) -> Response {
        let is_busy =
            matches!(self.0, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let response = (self.0, self.1).into_response();
        if is_busy { with_retry_after(response) } else { response }
    }
}

/// Counts one more request for the files and logs of a workspace.
pub fn keep_pace(app: &App, workspace: WorkspaceId) -> Result<(), NotServed> {
    let paced = app.rates.of_files(workspace);
    paced.map_err(|fast| NotServed(StatusCode::TOO_MANY_REQUESTS, fast.files_words()))
}

pub async fn get(
    State(app): State<Arc<App>>,
    Path((job, file)): Path<(String, String)>,
    Query(Signed { se, sig }): Query<Signed>,
    headers: HeaderMap,
) -> Response {
    let Some((job, epoch, rank)) = parse(&job, &file) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let checked =
        app.keyring.check_log_url(&path(job, epoch, rank), se, &sig, clock::unix_seconds());
    if let Err(rejected) = checked {
        return (StatusCode::FORBIDDEN, rejected.to_string()).into_response();
    }
    // The log of a deleted job is not served.
    let is_removed = match app.readers.look_up(|reader| reader.job_by_id(job)) {
        Ok(Some(found)) => {
            if let Err(refused) = keep_pace(&app, found.workspace) {
                return refused.into_response();
            }
            retention::has_no_logs(&app, &found, clock::now().wall).unwrap_or(false)
        }
        Ok(None) => return StatusCode::NOT_FOUND.into_response(),
        Err(failed) => {
            tracing::error!(error = %ErrorChain(&failed), "cannot look up the job of a log");
            let words = "the server cannot read its store; see its log".to_owned();
            return NotServed(StatusCode::SERVICE_UNAVAILABLE, words).into_response();
        }
    };
    let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let from = range.and_then(start_of_range);
    let logs = app.logs.clone();
    let read = tokio::task::spawn_blocking(move || {
        let from = from.unwrap_or(0);
        match logs.read(LogKey { job, epoch, rank }, from) {
            Ok(piece) if piece.total == 0 && is_removed => Ok(substitute(from)),
            read => read,
        }
    });
    let Ok(Ok(piece)) = read.await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    if from.is_some_and(|from| from > 0 && from >= piece.total) {
        let total = HeaderValue::from_str(&format!("bytes */{}", piece.total));
        let total = total.expect("digits are a header value");
        return (StatusCode::RANGE_NOT_SATISFIABLE, [(header::CONTENT_RANGE, total)])
            .into_response();
    }
    let end = piece.from + piece.bytes.len() as u64;
    let is_part = from.is_some() || end < piece.total;
    let mut response = piece.bytes.into_response();
    if is_part && end > piece.from {
        let range = format!("bytes {}-{}/{}", piece.from, end - 1, piece.total);
        let range = HeaderValue::from_str(&range).expect("digits are a header value");
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

/// What is served in place of a log that was removed before its job.
fn substitute(from: u64) -> Piece {
    let text = REMOVED.as_bytes();
    let start = usize::try_from(from).unwrap_or(usize::MAX).min(text.len());
    Piece { bytes: text[start..].to_vec(), from, total: text.len() as u64 }
}

/// Parses `a0123….0.log` of job `j0123…`.
fn parse(job: &str, file: &str) -> Option<(JobId, Epoch, usize)> {
    let (epoch, rank) = file.strip_suffix(".log")?.split_once('.')?;
    Some((job.parse().ok()?, epoch.parse().ok()?, rank.parse().ok()?))
}

/// `bytes=5-` → 5. Other forms are answered with the whole file, as HTTP allows.
fn start_of_range(range: &str) -> Option<u64> {
    range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}
