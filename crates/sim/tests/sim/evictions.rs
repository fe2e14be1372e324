//! Low-priority machines are evicted at any time, with notice and without, and the promises hold.

use muster_sim::{Fault, Scenario, run};

#[test]
fn evictions_come_with_and_without_notice_and_no_job_is_lost() {
    // The run itself checks every promise after each step, and fails at the first that is broken.
    let summary = run(&Scenario::new(12, 20)).unwrap_or_else(|failure| panic!("{failure}"));
    let came = |wanted| summary.faults.iter().any(|(fault, count)| fault == wanted && count > 0);
    assert!(came(Fault::EvictionNoticed), "{summary}");
    assert!(came(Fault::EvictionUnnoticed), "{summary}");
    assert!(came(Fault::EvictionRehearsed), "{summary}");
    let ended = summary.jobs_completed + summary.jobs_failed + summary.jobs_canceled;
    assert_eq!(summary.jobs_submitted, ended, "{summary}");
    assert!(summary.jobs_retried > 0, "{summary}");
}
