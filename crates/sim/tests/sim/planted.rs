//! The checks can fail: ordinary seeds find every planted bug, without a scenario made for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use muster_core::planted::{Bug, plant};
use muster_sim::{Scenario, run};

/// This many ordinary seeds of this many days must be enough.
const SEEDS: u64 = 100;
const DAYS: u32 = 30;

/// The first seed that finds the bug, the day, and the promise that it breaks.
fn hunt(bug: Bug) -> Result<String, String> {
    plant(Some(bug));
    let found = (0..SEEDS).find_map(|seed| run(&Scenario::new(seed, DAYS)).err());
    plant(None);
    let Some(failure) = found else { return Err(format!("{bug:?} was not found")) };
    let promise: String = failure.promise.chars().take(120).collect();
    Ok(format!("{bug:?}: seed {}, {}: {promise}", failure.scenario.seed, failure.at))
}

/// Takes 40 s: each bug is searched for in up to a hundred simulated months.
#[test]
fn every_planted_bug_is_found() {
    // Some are found by the core's own assertions, whose messages need not be shown.
    std::panic::set_hook(Box::new(|_| {}));
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(bug) = Bug::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = hunt(*bug);
                    found.lock().expect("no thread panics with it").push(result);
                }
            });
        }
    });
    let _ = std::panic::take_hook();
    let mut found = found.into_inner().expect("no thread panics with it");
    found.sort();
    for result in found.iter().flatten() {
        println!("{result}");
    }
    let missed: Vec<&String> = found.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(missed.is_empty(), "{missed:?}");
    assert!(found.len() >= 15);
}
