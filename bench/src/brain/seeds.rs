//! How long simulated days take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use muster_sim::{Scenario, run};

use crate::report::Report;

/// The goal is for this many seeds; fewer are measured, and the rest is extrapolated.
const SEEDS: u64 = 500;
const MEASURED: u64 = 40;
const DAYS: u32 = 30;
const THREADS: usize = 2;
const GOAL: Duration = Duration::from_secs(300);

pub fn measure(report: &mut Report) -> Result<()> {
    eprintln!("{MEASURED} seeds of {DAYS} days …");
    let next = AtomicU64::new(0);
    let started = Instant::now();
    let failed = std::thread::scope(|scope| {
        let work = || {
            let mut failed = 0;
            while let seed @ ..MEASURED = next.fetch_add(1, Ordering::Relaxed) {
                failed += u64::from(run(&Scenario::new(seed, DAYS)).is_err());
            }
            failed
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(1)).sum::<u64>()
    });
    anyhow::ensure!(failed == 0, "{failed} seeds broke a promise: run `make test`");
    let all = started.elapsed() * u32::try_from(SEEDS / MEASURED)?;
    let took = format!("{:.0} s", all.as_secs_f64());
    let what = format!("{SEEDS} seeds of {DAYS} days, {THREADS} threads (from {MEASURED})");
    report.goal(&what, took, "300 s", all <= GOAL);
    Ok(())
}
