//! The machine's own limits, which no server on it can beat.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;

const APPEND_TIME: Duration = Duration::from_secs(2);
const RECORD: [u8; 256] = [b'x'; 256];

pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Records appended and synced per second, by writers that share nothing but the disk.
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
