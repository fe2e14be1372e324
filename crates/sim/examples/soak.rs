//! Simulates many seeds on every core: `soak FIRST LAST DAYS`. Prints each failure with the command that reproduces it,
//! and at the end how often each fault occurred.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_sim::{FaultCounts, Scenario, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let &[first, last, days] = &numbers[..] else {
        eprintln!("usage: soak FIRST LAST DAYS");
        std::process::exit(2);
    };
    let days = u32::try_from(days).unwrap_or(30);
    let next = AtomicU64::new(first);
    let (failed, faults) = (AtomicU64::new(0), Mutex::new(FaultCounts::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last {
                        return;
                    }
                    match run(&Scenario::new(seed, days)) {
                        Ok(summary) => {
                            println!(
                                "seed {seed}: {} jobs, {} creates, {} faults, {} steps, {} changes",
                                summary.jobs_submitted + summary.jobs_forgotten,
                                summary.node_creates,
                                summary.faults.total(),
                                summary.steps,
                                summary.revisions,
                            );
                            faults.lock().expect("no thread panics with it").add(&summary.faults);
                        }
                        Err(failure) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("seed {seed} FAILED {failure}\n");
                        }
                    }
                }
            });
        }
    });
    let faults = faults.into_inner().expect("no thread panics with it");
    for (fault, count) in faults.iter() {
        println!("{count:>10} {fault}");
    }
    for fault in faults.missing() {
        println!("     never {fault}");
    }
    println!("{} of {} failed", failed.into_inner(), last - first + 1);
}
