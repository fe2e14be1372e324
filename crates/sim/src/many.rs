//! Runs many scenarios at once, on all cores. Each runs on one thread, so its history does not depend on the others.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Failure, Scenario, Summary, run};

/// Simulates all of them, and returns the results in the order of `scenarios`.
pub fn run_many(scenarios: &[Scenario]) -> Vec<Result<Summary, Failure>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(scenario) = scenarios.get(index) else { return results };
            results.push((index, run(scenario)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it returns failures")).collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
