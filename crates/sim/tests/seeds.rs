//! Thirty simulated days on each of five hundred seeds: no promise is broken, and enough has happened to tell.

use std::sync::atomic::{AtomicU64, Ordering};

use muster_sim::{Failure, FaultCounts, Scenario, Summary, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SEEDS: u64 = 500;
const DAYS: u32 = 30;

fn simulate_all() -> Vec<Result<Summary, Failure>> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= SEEDS {
                return results;
            }
            results.push(run(&Scenario::new(seed, DAYS)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it returns failures")).collect()
    })
}

#[test]
fn five_hundred_seeds_of_thirty_days_keep_every_promise() {
    let results = simulate_all();
    let failures: Vec<String> =
        results.iter().filter_map(|result| Some(result.as_ref().err()?.to_string())).collect();
    assert!(failures.is_empty(), "{} of {SEEDS} failed; {}", failures.len(), failures[0]);
    let mut faults = FaultCounts::default();
    for summary in results.into_iter().flatten() {
        let kills: u64 =
            summary.faults.iter().filter(|(fault, _)| fault.is_kill()).map(|(_, n)| n).sum();
        let ended = summary.jobs_completed + summary.jobs_failed + summary.jobs_canceled;
        assert!(summary.jobs_submitted + summary.jobs_forgotten >= 1_000, "{summary}");
        assert!(summary.node_creates >= 200, "{summary}");
        assert!(summary.faults.total() >= 100 && kills >= 10, "{summary}");
        assert!(summary.trees_kept > 0, "{summary}");
        assert!(summary.jobs_retried > 0 && summary.requests_refused > 0, "{summary}");
        assert_eq!(summary.jobs_submitted, ended, "{summary}");
        faults.add(&summary.faults);
    }
    let missing: Vec<String> = faults.missing().iter().map(ToString::to_string).collect();
    assert!(missing.is_empty(), "never came: {missing:?}");
}

#[test]
fn without_faults_nobody_has_to_try_again() {
    for seed in 0..2 {
        let scenario = Scenario { faults: false, ..Scenario::new(seed, 3) };
        let summary = run(&scenario).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(summary.faults.total(), 0, "{summary}");
        assert_eq!((summary.jobs_retried, summary.requests_repeated), (0, 0), "{summary}");
        assert!(summary.jobs_completed >= 60, "{summary}");
    }
}
