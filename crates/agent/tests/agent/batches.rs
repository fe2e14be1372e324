//! Short tasks that a node is given together, and short logs that travel with reports.

use std::time::Duration;

use muster_core::agent::{ArrayTask, Assignment, AttemptPhase};
use muster_core::ids::Epoch;
use muster_core::model::{Exit, SpecHash};

use crate::harness::{Harness, end_of, endings, spec};
use crate::server::Book;

const COMMAND: &str =
    "echo task $MUSTER_ARRAY_INDEX of $MUSTER_JOB_NAME; test $MUSTER_ARRAY_INDEX != 6";

/// Task 4 of an array, with others that follow it.
fn assign(harness: &Harness, command: &str, followers: &[u32]) -> Epoch {
    let first = harness.assign_with(1, spec(command));
    harness.server.change(|book| {
        let Assignment { spec: hash, .. } = book.assignments[0].clone();
        assert_eq!(hash, SpecHash::made_up(&first.to_string()));
        let assignment = &mut book.assignments[0];
        let array = "sweep".into();
        assignment.task = Some(Box::new(ArrayTask { array, index: 4, count: 40 }));
        (assignment.attempt, assignment.job_name) = (1, "sweep_4".into());
        assignment.followers = followers.to_vec();
    });
    first
}

fn text(book: &Book, epoch: Epoch) -> String {
    String::from_utf8(book.logs.get(&epoch).cloned().unwrap_or_default()).unwrap()
}

fn check_all_tasks(book: &Book, first: Epoch) {
    let exits: Vec<Option<Exit>> =
        (0..5).map(|place| endings(book, Epoch(first.0 + place)).pop()).collect();
    assert_eq!(exits[1], Some(Exit::Code(1)), "a failure does not hold up the others");
    assert!([0, 2, 3, 4].iter().all(|place| exits[*place] == Some(Exit::Code(0))), "{exits:?}");
    for (place, index) in (0..).zip([4, 6, 8, 10, 12]) {
        let log = text(book, Epoch(first.0 + place));
        assert_eq!(log, format!("task {index} of sweep_{index}\n"));
    }
    assert_eq!(book.logs_with_reports.len(), 5, "each log came with a report");
    assert_eq!(book.specs_asked_for, 0, "the specification came with the assignment");
    let held = book.reports.last().map(|report| report.attempts.iter().all(|it| it.held.is_some()));
    assert_eq!(held, Some(true), "the node measured each task");
}

#[tokio::test]
async fn tasks_that_follow_run_one_after_the_other_without_asking() {
    let harness = Harness::new().await;
    harness.server.change(|book| {
        (book.takes_logs, book.gives_specs, book.acknowledges) = (true, true, false);
    });
    let agent = harness.agent();
    // The first report shows that the server takes logs.
    harness.until("a report", |book| (!book.reports.is_empty()).then_some(())).await;
    let first = assign(&harness, COMMAND, &[6, 8, 10, 12]);
    let last = Epoch(first.0 + 4);
    assert_eq!(harness.ending(last).await, Exit::Code(0));
    check_all_tasks(&harness.server.look(), first);
    harness.server.change(|book| book.end = true);
    end_of(agent).await;
}

#[tokio::test]
async fn tasks_that_are_taken_back_never_start() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let first = assign(&harness, "until test -e go; do sleep 0.02; done", &[6, 8]);
    harness
        .until("the first task", |book| crate::harness::is_running(book, first).then_some(()))
        .await;
    harness.server.change(|book| {
        book.assignments[0].followers.clear();
        book.is_restless = true;
    });
    let is_returned = |book: &Book| book.reports.last().is_some_and(|it| it.waiting.is_empty());
    harness.until("what it returns", |book| is_returned(book).then_some(())).await;
    harness.server.change(|book| book.is_restless = false);
    std::fs::write(harness.home.work(first).join("go"), "").unwrap();
    assert_eq!(harness.ending(first).await, Exit::Code(0));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let book = harness.server.look();
    let mut all = book.reports.iter().flat_map(|report| &report.attempts);
    assert!(all.all(|attempt| attempt.epoch == first));
    drop(book);
    agent.abort();
}

/// Otherwise its output would be lost with the node.
#[tokio::test]
async fn a_short_log_that_is_refused_is_sent_by_itself_before_the_end_counts() {
    let harness = Harness::new().await;
    harness.server.change(|book| (book.takes_logs, book.logs_to_refuse) = (true, 1));
    let agent = harness.agent();
    harness.until("a report", |book| (!book.reports.is_empty()).then_some(())).await;
    let first = assign(&harness, "echo hello", &[]);
    harness.until_log_has(first, "hello").await;
    assert!(harness.server.look().logs_with_reports.is_empty());
    let is_forgotten = |book: &Book| {
        book.reports
            .last()
            .is_some_and(|report| report.attempts.is_empty() && report.floor >= first)
    };
    harness.until("the end is acknowledged", |book| is_forgotten(book).then_some(())).await;
    agent.abort();
}

#[tokio::test]
async fn a_server_that_does_not_take_logs_gets_them_as_before() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let first = assign(&harness, COMMAND, &[8]);
    assert_eq!(harness.ending(Epoch(first.0 + 1)).await, Exit::Code(0));
    let book = harness.server.look();
    assert_eq!(text(&book, first), "task 4 of sweep_4\n");
    assert!(book.logs_with_reports.is_empty());
    let ended = |attempt: &muster_core::agent::AttemptReport| {
        matches!(attempt.phase, AttemptPhase::Ended(_))
    };
    assert!(book.reports.iter().flat_map(|report| &report.attempts).any(ended));
    drop(book);
    agent.abort();
}
