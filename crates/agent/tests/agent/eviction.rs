//! A node that is evicted: its job is notified, can save its work, and is killed if it does not end.

use muster_core::ids::Epoch;
use muster_core::model::Exit;
use muster_core::time::Span;

use crate::harness::Harness;

fn evict(harness: &Harness, within: Span) {
    harness.server.change(|book| book.assignments[0].evict = Some(within));
}

async fn begun(harness: &Harness, command: &str) -> Epoch {
    let epoch = harness.assignment(7, command);
    harness.until_log_has(epoch, "begun").await;
    epoch
}

#[tokio::test]
async fn a_job_that_heeds_the_notice_saves_its_work_and_is_done() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let command = "trap '. $MUSTER_EVICTION_NOTICE; test $MUSTER_EVICTION_DEADLINE -gt $(date +%s) && echo saved; exit 0' TERM; \
                   echo begun; while :; do sleep 0.05; done";
    let epoch = begun(&harness, command).await;
    evict(&harness, Span::seconds(60));
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    // The shell may add its own message about the interrupted sleep.
    assert!(harness.log(epoch).ends_with("saved\n"), "{}", harness.log(epoch));
    agent.abort();
}

#[tokio::test]
async fn a_job_that_does_not_end_in_time_is_killed() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let epoch = begun(&harness, "trap '' TERM; echo begun; while :; do sleep 0.05; done").await;
    evict(&harness, Span::milliseconds(300));
    assert_eq!(harness.ending(epoch).await, Exit::Evicted);
    agent.abort();
}
