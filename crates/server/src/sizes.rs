//! How much space everything takes that the server stores, for operators.
//!
//! Readers measure, so neither a decision nor a write waits. It is done once at a time and remembered for a while, so
//! that many requests take no more than one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_core::ErrorChain;
use muster_core::time::Span;
use muster_store::StoreError;
use muster_store::size::{Content, ContentSize, DatabaseSize};
use muster_wire::storage_size::{SettingValue, StorageSize};
use muster_wire::timestamp;
use tokio::sync::Mutex;
use tracing::debug;

use crate::app::App;
use crate::blobs::BlobError;
use crate::config::Kept;

/// How long a result is used for further requests.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The last result.
#[derive(Default)]
pub struct Sizes(Mutex<Option<(Instant, Arc<[StorageSize]>)>>);

#[derive(Debug, thiserror::Error)]
pub enum SizeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Blobs(#[from] BlobError),
    #[error("a folder cannot be read")]
    Io(#[from] std::io::Error),
    #[error("the measurement panicked")]
    Panicked,
}

/// Everything that is stored, in the order in which it is shown.
pub async fn sizes(app: &Arc<App>) -> Result<Arc<[StorageSize]>, SizeError> {
    let mut last = app.sizes.0.lock().await;
    if let Some((at, sizes)) = &*last
        && at.elapsed() < REMEMBERED
    {
        return Ok(sizes.clone());
    }
    let mut sizes = Vec::new();
    sizes.extend(of_database(&app.readers.read(|reader| reader.size()).await?, &app.kept));
    sizes.extend(of_database(&app.storage.readers.read(|reader| reader.size()).await?, &app.kept));
    // The file of the history is created with its first minute, and one that cannot be used is replaced.
    match app.series.readers.read(|reader| reader.size()).await {
        Ok(series) => sizes.extend(of_database(&series, &app.kept)),
        Err(failed) => debug!(error = %ErrorChain(&failed), "the history of computes has no size"),
    }
    let for_files = app.clone();
    let files = tokio::task::spawn_blocking(move || of_files(&for_files)).await;
    sizes.extend(files.map_err(|_| SizeError::Panicked)??);
    let sizes: Arc<[StorageSize]> = sizes.into();
    *last = Some((Instant::now(), sizes.clone()));
    Ok(sizes)
}

fn of_database<'d>(
    database: &'d DatabaseSize,
    kept: &'d Kept,
) -> impl Iterator<Item = StorageSize> + use<'d> {
    let of_content = |size: &ContentSize| StorageSize {
        content: words(size.content).to_owned(),
        location: database.file.clone(),
        bytes: size.bytes,
        entries: size.entries,
        oldest: size.oldest.map(timestamp::format),
        settings: settings(size.content, kept),
    };
    let rest = [
        ("unused pages", database.file.clone(), database.unused_bytes),
        ("write-ahead log", format!("{}-wal", database.file), database.log_bytes),
    ];
    let rest = rest.map(|(content, location, bytes)| plain(content, &location, bytes));
    database.contents.iter().map(of_content).chain(rest)
}

fn plain(content: &str, location: &str, bytes: u64) -> StorageSize {
    StorageSize {
        content: content.to_owned(),
        location: location.to_owned(),
        bytes,
        entries: None,
        oldest: None,
        settings: Vec::new(),
    }
}

/// The calling thread may block.
fn of_files(app: &App) -> Result<Vec<StorageSize>, SizeError> {
    let (log_bytes, jobs) = app.logs.size()?;
    let logs = StorageSize {
        entries: Some(jobs),
        settings: vec![days("log-days", app.kept.jobs.logs), days("job-days", app.kept.jobs.jobs)],
        ..plain("job logs", "logs", log_bytes)
    };
    let mut blob_bytes = 0;
    for workspace in app.readers.look_up(|reader| reader.workspace_ids())? {
        let figures = app.blobs.figures(workspace)?;
        blob_bytes += figures.bytes.saturating_sub(figures.also_bytes);
    }
    let grace = app.retention.grace.as_secs();
    let blobs = StorageSize {
        settings: vec![setting("blob-grace-seconds", grace)],
        ..plain("blobs and files of jobs", "blobs", blob_bytes)
    };
    let environments = plain("environments", "environments", app.environments.bytes()?);
    Ok(vec![logs, blobs, environments])
}

fn words(content: Content) -> &'static str {
    match content {
        Content::Jobs => "jobs",
        Content::Tasks => "tasks of arrays",
        Content::Attempts => "attempts",
        Content::Ledger => "ledger",
        Content::Activity => "activity log",
        Content::Events => "event log",
        Content::Assets => "assets",
        Content::Other => "everything else",
        Content::Blobs => "names of blobs",
        Content::History => "history of computes",
    }
}

fn settings(content: Content, kept: &Kept) -> Vec<SettingValue> {
    match content {
        Content::Jobs | Content::Tasks | Content::Attempts => {
            vec![days("job-days", kept.jobs.jobs)]
        }
        Content::Activity => vec![days("activity-days", Some(kept.activity))],
        Content::Events => vec![
            days("event-days", Some(kept.events.age)),
            setting("events-max", kept.events.entries),
        ],
        Content::History => vec![
            setting("history-days", kept.history.kept_s / 86_400),
            setting("history-mb-per-compute", kept.history.cluster_bytes_max / 1_000_000),
        ],
        Content::Ledger | Content::Assets | Content::Other | Content::Blobs => Vec::new(),
    }
}

fn days(name: &str, span: Option<Span>) -> SettingValue {
    setting(name, span.map_or(0, |span| span.as_seconds() / 86_400))
}

fn setting(name: &str, value: u64) -> SettingValue {
    SettingValue { name: name.to_owned(), value }
}
