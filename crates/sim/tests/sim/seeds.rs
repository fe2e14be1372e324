//! Thirty simulated days on each of a hundred seeds: no promise is broken, and every kind of fault has occurred.
//! `make soak` draws new seeds. A seed that fails is added to `FOUND`, together with the fix.

use muster_sim::{FaultCounts, Scenario, run, run_many};

const DAYS: u32 = 30;
/// Enough to show every kind of fault.
const FIRST: std::ops::Range<u64> = 0..99;
/// Each of these seeds once exposed a bug, within this many days.
const FOUND: [(u64, u32); 1] = [(373, DAYS)];

/// Takes a minute and a half on two cores: eight simulated years.
#[test]
fn a_hundred_seeds_of_thirty_days_keep_every_promise() {
    let scenarios: Vec<Scenario> = FIRST
        .map(|seed| (seed, DAYS))
        .chain(FOUND)
        .map(|(seed, days)| Scenario::new(seed, days))
        .collect();
    let results = run_many(&scenarios);
    let failures: Vec<String> =
        results.iter().filter_map(|result| Some(result.as_ref().err()?.to_string())).collect();
    assert!(failures.is_empty(), "{} of {} failed; {}", failures.len(), results.len(), failures[0]);
    let mut faults = FaultCounts::default();
    for summary in results.into_iter().flatten() {
        let kills: u64 =
            summary.faults.iter().filter(|(fault, _)| fault.is_kill()).map(|(_, n)| n).sum();
        let ended = summary.jobs_completed + summary.jobs_failed + summary.jobs_canceled;
        assert!(summary.jobs_submitted + summary.jobs_forgotten >= 1_000, "{summary}");
        assert!(summary.node_creates >= 200, "{summary}");
        assert!(summary.faults.total() >= 100 && kills >= 10, "{summary}");
        assert!(summary.trees_kept > 0 && summary.jobs_removed >= 100, "{summary}");
        assert!(summary.jobs_retried > 0 && summary.requests_refused > 0, "{summary}");
        assert_eq!(summary.jobs_submitted, ended, "{summary}");
        faults.add(&summary.faults);
    }
    let missing: Vec<String> = faults.missing().iter().map(ToString::to_string).collect();
    assert!(missing.is_empty(), "never occurred: {missing:?}");
}

#[test]
fn without_faults_no_client_has_to_retry() {
    for seed in 0..2 {
        let scenario = Scenario { faults: false, ..Scenario::new(seed, 3) };
        let summary = run(&scenario).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(summary.faults.total(), 0, "{summary}");
        assert_eq!((summary.jobs_retried, summary.requests_repeated), (0, 0), "{summary}");
        assert!(summary.jobs_completed >= 60, "{summary}");
    }
}
