//! A member of a job on several nodes: it waits until all are ready, and knows where they are.

use muster_core::agent::AttemptPhase;
use muster_core::ids::Epoch;
use muster_core::model::Exit;

use crate::harness::{Harness, endings};
use crate::server::Book;

/// Assigns an attempt on two nodes, of which this is the second. It may not start yet.
fn assignment(harness: &Harness, epoch: u64, command: &str) -> Epoch {
    let epoch = harness.assignment(epoch, command);
    harness.server.change(|book| {
        let assignment = &mut book.assignments[0];
        (assignment.rank, assignment.nodes, assignment.go) = (1, 2, false);
        assignment.addresses = vec!["10.9.0.4".into(), "10.9.0.5".into()];
    });
    epoch
}

async fn until_ready(harness: &Harness, epoch: Epoch) {
    let is_ready = |book: &Book| {
        let mut said = book.reports.iter().flat_map(|report| &report.attempts);
        said.any(|held| held.epoch == epoch && held.phase == AttemptPhase::Ready).then_some(())
    };
    harness.until("it is ready", is_ready).await;
}

#[tokio::test]
async fn it_starts_when_all_are_ready_and_knows_where_they_are() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let epoch = assignment(&harness, 7, "echo $MASTER_ADDR:$MASTER_PORT $RANK $AZ_BATCH_NODE_LIST");
    until_ready(&harness, epoch).await;
    assert!(!harness.home.job_log(epoch).exists(), "the user's command has not started");
    harness.server.change(|book| book.assignments[0].go = true);
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    assert_eq!(harness.log(epoch), "10.9.0.4:20007 1 10.9.0.4;10.9.0.5\n");
    agent.abort();
}

#[tokio::test]
async fn it_never_starts_if_it_is_not_wanted_before_all_are_ready() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let epoch = assignment(&harness, 7, "echo started");
    until_ready(&harness, epoch).await;
    harness.server.change(|book| book.assignments.clear());
    assert_eq!(harness.ending(epoch).await, Exit::Stopped);
    assert_eq!(endings(&harness.server.look(), epoch)[0], Exit::Stopped);
    assert!(!harness.home.job_log(epoch).exists());
    agent.abort();
}
