//! Restarts of the server and of the agent.

use std::time::{Duration, Instant};

use muster_agent::identity::Identity;
use muster_core::agent::Record;
use muster_core::ids::Epoch;
use muster_core::model::Exit;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Harness, eventually, is_alive, is_running, timing};

fn journal_of(harness: &Harness) -> Vec<Record> {
    let text = std::fs::read_to_string(harness.home.journal()).unwrap_or_default();
    // The first line names the boot.
    text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn end_of(agent: &mut std::process::Child) -> std::process::ExitStatus {
    eventually("the agent ends", || agent.try_wait().unwrap().is_some()).await;
    agent.try_wait().unwrap().unwrap()
}

#[tokio::test]
async fn an_agent_waits_for_its_server() {
    let mut harness = Harness::without_server().await;
    let epoch = harness.assignment(1, "echo hello");
    let agent = harness.agent();
    eventually("the agent is running", || harness.home.agent_pid().exists()).await;
    harness.server.start().await;
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    assert_eq!(harness.log(epoch), "hello\n");
    agent.abort();
}

#[tokio::test]
async fn a_job_goes_on_while_the_server_restarts() {
    let mut harness = Harness::new().await;
    let agent = harness.agent();
    let epoch =
        harness.assignment(1, "echo $$; until test -e go; do sleep 0.02; done; echo on; exit 7");
    harness.until_log_has(epoch, "\n").await;
    harness.until("it runs", |book| is_running(book, epoch).then_some(())).await;
    harness.server.stop().await;
    std::fs::write(harness.home.work(epoch).join("go"), "").unwrap();
    // The job ends while the server is down.
    eventually("it ends", || journal_of(&harness).len() == 2).await;
    assert_eq!(journal_of(&harness)[1], Record::Ended { epoch, exit: Exit::Code(7) });
    harness.server.start().await;
    assert_eq!(harness.ending(epoch).await, Exit::Code(7));
    assert!(harness.log(epoch).ends_with("\non\n"));
    agent.abort();
}

#[tokio::test]
async fn a_killed_agent_takes_its_jobs_along_and_the_next_one_knows() {
    let harness = Harness::new().await;
    let mut first = harness.agent_process();
    let epoch = harness.assignment(1, "echo $$; sleep 1000 & echo $!; seq 100000; wait");
    harness.until_log_has(epoch, "\n100000\n").await;
    harness.until("it runs", |book| is_running(book, epoch).then_some(())).await;
    let log = harness.log(epoch);
    let pids: Vec<&str> = log.lines().take(2).collect();
    let boot_id = harness.server.look().reports[0].boot_id.clone();
    first.kill().unwrap();
    first.wait().unwrap();
    eventually("the shell dies with its agent", || !is_alive(pids[0])).await;
    assert!(is_alive(pids[1]), "its child does not");
    // Simulate that a part of the output was never sent.
    harness.server.change(|book| {
        book.reports.clear();
        book.logs.get_mut(&epoch).unwrap().truncate(1000);
    });
    let mut second = harness.agent_process();
    assert_eq!(harness.ending(epoch).await, Exit::Stopped);
    assert!(!is_alive(pids[1]), "the next agent ends what is left");
    assert!(harness.log(epoch) == log, "the next agent sends what is missing");
    assert_ne!(harness.server.look().reports[0].boot_id, boot_id);
    assert_eq!(harness.server.look().reports[0].floor, Epoch(1));
    eventually("it is forgotten", || journal_of(&harness).contains(&Record::Forgotten(epoch)))
        .await;
    // The same assignment is not accepted a second time.
    let next = harness.assignment(2, "exit 8");
    assert_eq!(harness.ending(next).await, Exit::Code(8));
    second.kill().unwrap();
    second.wait().unwrap();
}

#[tokio::test]
async fn a_terminated_agent_stops_its_jobs_and_says_nothing_more() {
    let harness = Harness::new().await;
    let mut agent = harness.agent_process();
    let command = "trap '' TERM; sleep 1000 & trap 'echo bye' TERM; echo $!; wait; wait";
    let epoch = harness.assignment(1, command);
    harness.until_log_has(epoch, "\n").await;
    harness.until("it runs", |book| is_running(book, epoch).then_some(())).await;
    let asked = Instant::now();
    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
    assert!(end_of(&mut agent).await.success());
    assert!(asked.elapsed() >= Duration::from_micros(timing().stop_grace.0));
    let log = harness.log(epoch);
    assert!(log.ends_with("bye\n"), "{log}");
    assert!(!is_alive(log.lines().next().unwrap()));
    assert_eq!(crate::harness::endings(&harness.server.look(), epoch), []);
}

#[tokio::test]
async fn a_second_agent_for_the_same_node_leaves_quietly() {
    let harness = Harness::new().await;
    let mut first = harness.agent_process();
    harness.until("the first report", |book| book.reports.first().map(drop)).await;
    let mut second = harness.agent_process();
    assert!(end_of(&mut second).await.success());
    let recorded = Identity::read(&harness.home.agent_pid()).unwrap().unwrap();
    assert_eq!(recorded.pid, first.id());
    assert_eq!(harness.server.look().reports.len(), 1);
    first.kill().unwrap();
    first.wait().unwrap();
}
