//! The machine's own limits: what no server on it can beat.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::report::Samples;

const APPEND_TIME: Duration = Duration::from_secs(2);
const RECORD: [u8; 256] = [b'x'; 256];

pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A command that leaves the time of its start in a file.
pub fn stamp_command(path: &Path) -> String {
    format!("date +%s%N > {}", path.display())
}

pub fn read_stamp(path: &Path) -> Result<u64> {
    Ok(std::fs::read_to_string(path)?.trim().parse()?)
}

/// The same command started by us, with nothing in between.
pub fn spawn_latency(folder: &Path, runs: usize) -> Result<Samples> {
    let stamp = folder.join("raw-stamp");
    let mut samples = Samples::default();
    for _ in 0..runs {
        let before = unix_ns();
        let status = Command::new("/bin/sh").arg("-c").arg(stamp_command(&stamp)).status()?;
        anyhow::ensure!(status.success(), "sh failed");
        samples.add(Duration::from_nanos(read_stamp(&stamp)?.saturating_sub(before)));
    }
    Ok(samples)
}

/// Records appended and on disk per second, by writers that share nothing but the disk.
pub fn durable_appends_per_second(folder: &Path, writers: usize) -> Result<f64> {
    let total = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut threads = Vec::new();
    for writer in 0..writers {
        let path = folder.join(format!("append-{writers}-{writer}"));
        let total = total.clone();
        threads.push(std::thread::spawn(move || -> Result<()> {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            while started.elapsed() < APPEND_TIME {
                file.write_all(&RECORD)?;
                file.sync_data()?;
                total.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }));
    }
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
    }
    Ok(total.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}
