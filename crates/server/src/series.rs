//! Records the history of clusters and nodes for charts. The rows have a writer thread of their own, which nothing
//! waits for: points that cannot be written are lost, and a file that is damaged or missing is replaced by an empty
//! one.

mod sampler;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use muster_core::ErrorChain;
use muster_core::ids::ClusterId;
use muster_store::series::{Retention, Sample, Series as Rows, SeriesReader};
use muster_store::{Durability, SqliteSeries, SqliteSeriesReader, StoreError};
use tracing::{info, warn};

use crate::readers::Readers;
use crate::reserve::{OnReserve, ReserveFile};
pub use sampler::run as run_sampler;

/// Minutes that may wait for a slow disk. Later ones are dropped.
const QUEUE_MAX: usize = 8;

enum Message {
    Add(Minute),
    Stop,
}

/// All samples of a minute, and the clusters that exist after it.
pub struct Minute {
    pub samples: Vec<Sample>,
    pub existing: BTreeSet<ClusterId>,
    pub now_s: u64,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Series {
    sender: SyncSender<Message>,
    pub readers: Readers<dyn SeriesReader>,
}

impl Series {
    /// Starts the writer, which creates the file if it is missing.
    pub fn start(
        path: PathBuf,
        retention: Retention,
        reserve: &ReserveFile,
    ) -> Result<(Series, JoinHandle<()>), StoreError> {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let (log_bytes_max, on_reserve) = (reserve.log_bytes_max(), reserve.used());
        let mut writer = Writer {
            path: path.clone(),
            retention,
            log_bytes_max,
            on_reserve,
            rows: None,
            is_failing: false,
        };
        let thread = std::thread::Builder::new()
            .name("series".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(|source| StoreError::Io { doing: "starting the writer of series", source })?;
        let open = |path: &Path| Ok(Box::new(SqliteSeriesReader::open(path)?) as Box<_>);
        Ok((Series { sender, readers: Readers::new(path, open) }, thread))
    }

    /// Adds a minute. It is dropped if the writer is too slow.
    pub fn add(&self, minute: Minute) {
        if self.sender.try_send(Message::Add(minute)).is_err() {
            warn!("the history of computes is written too slowly; a minute is left out");
        }
    }

    /// Waits for reads in progress for a limited time.
    pub fn stop(&self) {
        self.readers.end();
        let _ = self.sender.send(Message::Stop);
    }
}

struct Writer {
    path: PathBuf,
    retention: Retention,
    log_bytes_max: u64,
    on_reserve: OnReserve,
    /// `None` until the first minute, and after a failure until the next.
    rows: Option<Box<dyn Rows>>,
    /// Whether the last minute could not be written; the log says so once.
    is_failing: bool,
}

impl Writer {
    fn run(&mut self, receiver: &Receiver<Message>) {
        while let Ok(Message::Add(minute)) = receiver.recv() {
            // The space that is left is for what cannot be lost.
            if self.on_reserve.get() {
                continue;
            }
            match self.add(&minute) {
                Ok(()) if self.is_failing => {
                    info!("the history of computes is recorded again");
                    self.is_failing = false;
                }
                Ok(()) => {}
                Err(failed) => {
                    self.rows = None;
                    if !self.is_failing {
                        warn!(error = %ErrorChain(&failed), "cannot record the history of computes");
                    }
                    self.is_failing = true;
                }
            }
        }
    }

    fn add(&mut self, minute: &Minute) -> Result<(), StoreError> {
        let rows = match &mut self.rows {
            Some(rows) => rows,
            None => {
                let mut opened = open(&self.path)?;
                opened.limit_log(self.log_bytes_max);
                self.rows.insert(Box::new(opened))
            }
        };
        rows.add(&minute.samples, &minute.existing, minute.now_s, &self.retention)
    }
}

/// Opens the file. One that cannot be used is renamed and replaced.
fn open(path: &Path) -> Result<SqliteSeries, StoreError> {
    let failed = match SqliteSeries::open(path, Durability::Disk) {
        Err(
            failed @ (StoreError::Damaged { .. }
            | StoreError::TooNew { .. }
            | StoreError::NotOurs { .. }),
        ) => failed,
        opened => return opened,
    };
    let aside = beside(path, ".unusable");
    warn!(
        error = %ErrorChain(&failed), aside = %aside.display(),
        "the history of computes cannot be used; it is renamed, and a new one begins"
    );
    fs::rename(path, &aside)
        .map_err(|source| StoreError::Io { doing: "renaming the history of computes", source })?;
    for companion in ["-wal", "-shm"] {
        let _ = fs::remove_file(beside(path, companion)); // Often there is none.
    }
    SqliteSeries::open(path, Durability::Disk)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
