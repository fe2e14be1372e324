//! The lease: what happens when the server does not respond, or sends invalid responses.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use muster_core::agent::Timing;
use muster_core::model::Exit;
use muster_core::time::Span;

use crate::harness::{Harness, end_of, eventually, is_alive, timing};

#[tokio::test]
async fn a_job_stops_before_its_lease_is_over_and_the_node_ends() {
    let harness = Harness::new().await;
    harness.server.change(|book| book.lease = Span::seconds(2));
    let agent = harness.agent();
    let epoch = harness.assignment(1, "echo $$; sleep 1000");
    harness.until_log_has(epoch, "\n").await;
    let pid = harness.log(epoch);
    // From here on the agent is on its own.
    let cut_off = Instant::now();
    harness.server.change(|book| book.sync_status = Some(StatusCode::SERVICE_UNAVAILABLE));
    eventually("the job stops", || !is_alive(&pid)).await;
    assert!(cut_off.elapsed() < Duration::from_secs(2), "{:?}", cut_off.elapsed());
    end_of(agent).await;
}

#[tokio::test]
async fn an_ending_from_a_lost_lease_is_reported_when_the_server_is_back() {
    let mut harness = Harness::new().await;
    harness.server.change(|book| book.lease = Span::seconds(1));
    let agent = harness.agent_with(Timing { alone_max: Span::seconds(60), ..timing() });
    let epoch = harness.assignment(1, "echo $$; sleep 1000");
    harness.until_log_has(epoch, "\n").await;
    let pid = harness.log(epoch);
    harness.server.stop().await;
    eventually("the job stops", || !is_alive(&pid)).await;
    harness.server.start().await;
    assert_eq!(harness.ending(epoch).await, Exit::Stopped);
    agent.abort();
}

#[tokio::test]
async fn an_unwanted_node_ends_by_itself() {
    for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN] {
        let harness = Harness::new().await;
        harness.server.change(|book| book.sync_status = Some(status));
        end_of(harness.agent()).await;
        assert!(!harness.server.look().reports.is_empty());
    }
}

#[tokio::test]
async fn a_server_with_a_certificate_of_another_ca_is_not_trusted() {
    let harness = Harness::new().await;
    let other = Harness::without_server().await;
    let mut config = harness.config();
    config.ca_file = other.config().ca_file;
    muster_agent::run_with_timing(config, None, timing()).await.unwrap();
    assert_eq!(harness.server.look().reports, []);
}

#[tokio::test]
async fn a_dismissed_node_stops_its_job_and_ends() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let epoch = harness.assignment(1, "echo $$; sleep 1000");
    harness.until_log_has(epoch, "\n").await;
    let pid = harness.log(epoch);
    harness.server.change(|book| (book.end, book.assignments) = (true, Vec::new()));
    end_of(agent).await;
    assert!(!is_alive(&pid));
    assert!(harness.home.secret().exists(), "the provider removes what is left");
}

#[tokio::test]
async fn a_server_that_always_answers_at_once_is_not_asked_without_end() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    harness.server.change(|book| book.is_restless = true);
    let epoch = harness.assignment(1, "sleep 1; exit 6");
    assert_eq!(harness.ending(epoch).await, Exit::Code(6));
    // 50 ms, 100 ms, 200 ms, … : a handful of reports a second, although each could have followed its reply at once.
    let reports = harness.server.look().reports.len();
    assert!(reports < 30, "{reports}");
    agent.abort();
}
