//! Logs: large, resumed and refused ones.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use muster_agent::FullServer;
use muster_core::model::{Carrying, Exit};

use crate::harness::{Harness, eventually, is_running, timing};

#[tokio::test]
async fn a_hundred_megabytes_without_a_newline_arrive() {
    const LENGTH: usize = 100_000_000;
    let harness = Harness::new().await;
    let agent = harness.agent();
    let epoch = harness.assignment(1, &format!("head -c {LENGTH} /dev/zero | tr '\\0' x"));
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let book = harness.server.look();
    assert_eq!(book.logs[&epoch].len(), LENGTH);
    assert!(book.logs[&epoch].iter().all(|byte| *byte == b'x'));
    agent.abort();
}

#[tokio::test]
async fn what_the_server_has_does_not_fill_the_disk() {
    const LENGTH: u64 = 60_000_000;
    let harness = Harness::new().await;
    let agent = harness.agent();
    let command = format!(
        "head -c {LENGTH} /dev/zero | tr '\\0' x; until test -e go; do sleep 0.02; done; echo end"
    );
    let epoch = harness.assignment(1, &command);
    let arrived = |book: &crate::server::Book| book.logs.get(&epoch).map(|log| log.len() as u64);
    harness.until("all of it", |book| arrived(book).filter(|length| *length == LENGTH)).await;
    let path = harness.home.job_log(epoch);
    eventually("its space is freed", || {
        std::fs::metadata(&path).unwrap().blocks() * 512 < 20_000_000
    })
    .await;
    assert_eq!(std::fs::metadata(&path).unwrap().len(), LENGTH);
    std::fs::write(harness.home.work(epoch).join("go"), "").unwrap();
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    assert!(harness.server.look().logs[&epoch].ends_with(b"xxxend\n"));
    agent.abort();
}

#[tokio::test]
async fn a_full_log_says_that_it_is_and_takes_no_more_room() {
    const MOST: u64 = 3_000_000;
    const LINE: &[u8] = b"\nmuster: output beyond 3000000 bytes is dropped\n";
    let harness = Harness::new().await;
    let config = muster_agent::AgentConfig { log_bytes: MOST, ..harness.config() };
    let agent = tokio::spawn(muster_agent::run_with_timing(config, None, timing()));
    // A log of exactly the maximum size is accepted completely.
    let epoch = harness.assignment(1, &format!("head -c {MOST} /dev/zero | tr '\\0' x"));
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let log = harness.server.look().logs[&epoch].clone();
    assert!(log.len() as u64 == MOST && log.iter().all(|byte| *byte == b'x'));

    let command =
        "head -c 9000000 /dev/zero | tr '\\0' x; until test -e go; do sleep 0.02; done; echo more";
    let epoch = harness.assignment(2, command);
    let is_full = |book: &crate::server::Book| {
        book.logs.get(&epoch).filter(|log| log.len() as u64 == MOST).map(|_| ())
    };
    harness.until("a full log", is_full).await;
    let path = harness.home.job_log(epoch);
    eventually("its space is freed", || std::fs::metadata(&path).unwrap().len() == MOST + 1).await;
    std::fs::write(harness.home.work(epoch).join("go"), "").unwrap();
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let log = harness.server.look().logs[&epoch].clone();
    let rest = log.strip_suffix(LINE).expect("it ends with the line");
    assert!(log.len() as u64 == MOST && rest.iter().all(|byte| *byte == b'x'));
    agent.abort();
}

#[tokio::test]
async fn output_shows_up_while_the_job_runs() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let epoch = harness.assignment(1, "echo one; sleep 0.3; date +%s%N; sleep 1000");
    harness.until_log_has(epoch, "one").await;
    let written = harness
        .until("the time", |book| {
            let log = String::from_utf8_lossy(&book.logs[&epoch]).into_owned();
            log.lines().nth(1).map(|line| line.parse::<u128>().unwrap())
        })
        .await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let delay = Duration::from_nanos(u64::try_from(now.as_nanos() - written).unwrap());
    // The log is checked every 80 ms; the rest is a margin for a busy host.
    assert!(delay < Duration::from_millis(500), "{delay:?}");
    agent.abort();
}

#[tokio::test]
async fn sending_goes_on_from_where_the_server_says() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    // The server loses a part of what it had.
    harness.server.change(|book| book.forget_log_beyond = Some(300_000));
    let epoch = harness.assignment(1, "seq 200000");
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let expected: String = (1..=200_000).map(|i| format!("{i}\n")).collect();
    assert!(harness.log(epoch) == expected);
    // The server has more than we think.
    harness.server.change(|book| {
        book.log_offsets.clear();
        book.logs.insert(muster_core::ids::Epoch(2), b"1\n2\n3\n4\n".to_vec());
    });
    let epoch = harness.assignment(2, "seq 9; sleep 0.3; seq 10 12");
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let expected: String = (1..=12).map(|i| format!("{i}\n")).collect();
    assert_eq!(harness.log(epoch), expected);
    agent.abort();
}

#[tokio::test]
async fn a_log_that_the_server_has_moved_on_from_is_not_sent() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    harness.server.change(|book| book.log_status = Some(StatusCode::GONE));
    let epoch = harness.assignment(1, "echo one; sleep 0.3; echo two");
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    assert_eq!(harness.server.look().log_offsets, [0]);
    agent.abort();
}

/// Takes 11 s, because an agent tries for that long to send the rest of a log.
#[tokio::test]
async fn an_ending_does_not_wait_for_ever_for_its_log() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    harness.server.change(|book| book.log_status = Some(StatusCode::INTERNAL_SERVER_ERROR));
    let began = Instant::now();
    let epoch = harness.assignment(1, "echo one");
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    assert!(began.elapsed() >= Duration::from_secs(10));
    agent.abort();
}

/// Takes 12 s, which is longer than an agent waits for a server that does not respond.
#[tokio::test]
async fn a_log_outlives_a_full_server() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    harness.server.change(|book| book.log_status = Some(StatusCode::INSUFFICIENT_STORAGE));
    let epoch = harness.assignment(1, "seq 1000");
    tokio::time::sleep(Duration::from_secs(12)).await;
    harness.server.change(|book| book.log_status = None);
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let expected: String = (1..=1_000).map(|i| format!("{i}\n")).collect();
    assert_eq!(harness.log(epoch), expected);
    agent.abort();
}

#[tokio::test]
async fn a_log_that_is_cut_says_what_is_missing() {
    let harness = Harness::new().await;
    let full_server = FullServer { log_waits: Duration::from_millis(500), ..FullServer::default() };
    let config = muster_agent::AgentConfig { full_server, ..harness.config() };
    let agent = tokio::spawn(muster_agent::run_with_timing(config, None, timing()));
    harness.server.change(|book| book.log_piece_max = Some(1_000));
    let command = "echo begin; sleep 0.5; echo second; head -c 9000 /dev/zero | tr '\\0' x";
    let epoch = harness.assignment(1, command);
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    // Lines that fit precede the one that says what is missing.
    let line = "muster: the last 9000 bytes of this log are missing: there is no room\n";
    assert_eq!(harness.log(epoch), format!("begin\nsecond\n\n{line}"));
    agent.abort();
}

#[tokio::test]
async fn a_server_whose_room_becomes_free_slowly_does_not_hold_up_the_end() {
    let harness = Harness::new().await;
    let full_server = FullServer { log_waits: Duration::from_millis(500), ..FullServer::default() };
    let config = muster_agent::AgentConfig { full_server, ..harness.config() };
    let agent = tokio::spawn(muster_agent::run_with_timing(config, None, timing()));
    harness.server.change(|book| {
        book.log_piece_max = Some(1_000);
        book.log_room_trickles = true;
    });
    let epoch = harness.assignment(1, "head -c 9000 /dev/zero | tr '\\0' x");
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let log = harness.log(epoch);
    let taken = log.find('\n').expect("it was cut");
    assert!(taken > 1, "some of it was accepted after the end: {log}");
    let missing = 9_000 - taken;
    let line =
        format!("muster: the last {missing} bytes of this log are missing: there is no room");
    assert!(log.contains(&line), "{log}");
    agent.abort();
}

/// Such a log once ended with a line that said that 0 bytes were missing.
#[tokio::test]
async fn a_log_whose_rest_fits_into_its_last_lines_is_whole() {
    let harness = Harness::new().await;
    let full_server = FullServer { log_waits: Duration::from_millis(500), ..FullServer::default() };
    let config = muster_agent::AgentConfig { full_server, ..harness.config() };
    let agent = tokio::spawn(muster_agent::run_with_timing(config, None, timing()));
    harness.server.change(|book| book.log_takes_last = true);
    let epoch = harness.assignment(1, "seq 100");
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let expected: String = (1..=100).map(|i| format!("{i}\n")).collect();
    assert_eq!(harness.log(epoch), expected);
    agent.abort();
}

/// The two waits once followed each other.
#[tokio::test]
async fn a_full_server_is_waited_for_once_with_files_and_log() {
    const WAITS: Duration = Duration::from_secs(6);
    let harness = Harness::new().await;
    let full_server = FullServer { outputs_wait: WAITS, log_waits: WAITS };
    let config = muster_agent::AgentConfig { full_server, ..harness.config() };
    let agent = tokio::spawn(muster_agent::run_with_timing(config, None, timing()));
    harness.server.change(|book| {
        book.log_takes_last = true;
        book.is_full_of_files = true;
    });
    let epoch = harness.assignment(1, "echo said; echo left > outputs/file");
    harness.until("it runs", |book| is_running(book, epoch).then_some(())).await;
    let began = Instant::now();
    let ended = harness.ending(epoch).await;
    let Exit::Data { doing: Carrying::Save, message } = ended else { panic!("{ended:?}") };
    assert!(message.contains("disk is full"), "{message}");
    let took = began.elapsed();
    assert!(WAITS <= took + Duration::from_secs(2) && took < WAITS * 2, "{took:?}");
    agent.abort();
}
