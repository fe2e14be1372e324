//! Jobs: how they start, what they find, and how they end.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use muster_core::model::{Exit, JobSpec};
use muster_core::time::Span;

use crate::harness::{Harness, endings, eventually, is_alive, is_running, mode_of, spec, timing};

#[tokio::test]
async fn a_command_runs_and_its_log_arrives_complete_and_in_order() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let epoch = harness.assignment(1, "for i in $(seq 2000); do echo line $i; done; echo oops >&2");
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    // The log is complete before the ending is reported.
    let expected: String = (1..=2000).map(|i| format!("line {i}\n")).collect();
    assert_eq!(harness.log(epoch), expected + "oops\n");
    eventually("the job's files are removed once its ending is acknowledged", || {
        !harness.home.own(epoch).exists() && !harness.home.job_log(epoch).exists()
    })
    .await;
    assert!(!harness.home.job_pid(epoch).exists());
    agent.abort();
}

#[tokio::test]
async fn jobs_do_not_cost_connections_and_specifications_come_with_their_assignments() {
    let harness = Harness::new().await;
    harness.server.change(|book| book.gives_specs = true);
    let agent = harness.agent();
    for round in 1..=10 {
        let epoch = harness.assignment(round, "true");
        assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    }
    let book = harness.server.look();
    assert!(book.reports.len() > 20, "each job has at least started, run and ended");
    // Reports that replace each other alternate between two connections; logs and the first calls have their own.
    assert!(book.connections <= 6, "{}", book.connections);
    assert_eq!(book.specs_asked_for, 0);
    agent.abort();
}

#[tokio::test]
async fn a_job_finds_what_it_was_given_and_nothing_of_the_agent() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let given = [("GREETING", "hello there"), ("LANG", "en_GB.UTF-8"), ("MUSTER_NODE", "liar")];
    let environment_variables =
        given.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let command =
        "cat /proc/self/environ | tr '\\0' '\\n'; touch $TMPDIR/x; test \"$PWD\" = \"$HOME\"";
    let epoch = harness.assign_with(7, JobSpec { environment_variables, ..spec(command) });
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let log = harness.log(epoch);
    let found: BTreeMap<&str, &str> = log.lines().filter_map(|line| line.split_once('=')).collect();
    let work = harness.home.work(epoch).display().to_string();
    let dir = harness.home.dir().display().to_string();
    let expected = [
        ("GREETING", "hello there"),
        ("LANG", "en_GB.UTF-8"),
        ("HOME", &work),
        ("TMPDIR", &harness.home.tmp(epoch).display().to_string()),
        ("MUSTER_NODE", "pool-1"),
        ("MUSTER_NODE_DIR", &dir),
        ("MUSTER_JOB_NAME", "a-job"),
        ("MUSTER_ATTEMPT", "2"),
        ("MUSTER_EVICTION_NOTICE", &format!("{work}/.muster-eviction")),
        ("MUSTER_EPOCH", "a0000000000000007"),
        ("AZUREML_RUN_ID", "a-job"),
        ("AZUREML_NODE_COUNT", "1"),
        ("NODE_RANK", "0"),
        ("MLFLOW_TRACKING_URI", &format!("file://{work}/outputs/mlruns")),
        ("MLFLOW_ALLOW_FILE_STORE", "true"),
        ("MLFLOW_RUN_ID", ""),
    ];
    for (name, value) in expected {
        assert_eq!(found.get(name), Some(&value), "{name}");
    }
    // Besides these there are the variables that a shell sets itself.
    let names: BTreeSet<&str> = expected.iter().map(|(name, _)| *name).collect();
    let known = ["PATH", "PWD", "OLDPWD", "SHLVL", "_"];
    let others: Vec<_> =
        found.keys().filter(|name| !names.contains(*name) && !known.contains(name)).collect();
    assert_eq!(others, Vec::<&&str>::new());
    agent.abort();
}

#[tokio::test]
async fn every_way_to_end_is_reported_correctly() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let cases = [
        ("exit 3", Exit::Code(3)),
        ("kill -9 $$", Exit::Signal(9)),
        // A job may close its output without ending, and must not be taken for ended.
        ("exec >&- 2>&-; sleep 0.2; exit 4", Exit::Code(4)),
        ("no-such-program-here", Exit::Code(127)),
    ];
    for (index, (command, exit)) in cases.into_iter().enumerate() {
        let epoch = harness.assignment(index as u64 + 1, command);
        assert_eq!(harness.ending(epoch).await, exit, "{command}");
    }
    agent.abort();
}

#[tokio::test]
async fn a_failed_start_is_reported_with_its_reason() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let not_started = async |epoch, part: &str| {
        let exit = harness.ending(epoch).await;
        let Exit::NotStarted { message } = &exit else { panic!("{exit:?}") };
        assert!(message.contains(part), "{message}");
    };
    not_started(harness.assignment(1, "echo \0"), "cannot start the job").await;
    let mut odd = spec("true");
    odd.environment_variables.insert("A=B".into(), "C".into());
    not_started(harness.assign_with(2, odd), "\"A=B\" cannot be the name").await;
    harness.server.change(|book| book.spec_status = Some(StatusCode::NOT_FOUND));
    not_started(harness.assignment(3, "true"), "cannot fetch the job's specification").await;
    agent.abort();
}

#[tokio::test]
async fn an_ending_is_reported_until_it_is_acknowledged() {
    let harness = Harness::new().await;
    harness.server.change(|book| (book.acknowledges, book.is_restless) = (false, true));
    let agent = harness.agent();
    let epoch = harness.assignment(1, "exit 5");
    let reported = harness
        .until("a few repetitions", |book| Some(endings(book, epoch)).filter(|e| e.len() > 3))
        .await;
    assert!(reported.iter().all(|exit| *exit == Exit::Code(5)));
    harness.server.change(|book| (book.acknowledges, book.is_restless) = (true, false));
    harness
        .until("a report without it", |book| {
            book.reports.last().filter(|report| report.attempts.is_empty()).map(drop)
        })
        .await;
    agent.abort();
}

#[tokio::test]
async fn an_unwanted_job_is_asked_to_stop_and_then_made_to() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let polite = harness
        .assignment(1, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done");
    harness.until_log_has(polite, "up").await;
    let rude = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    let rude = harness.assignment(2, rude);
    assert_eq!(harness.ending(polite).await, Exit::Stopped);
    assert!(harness.log(polite).ends_with("bye\n"), "{}", harness.log(polite));
    harness.until_log_has(rude, "up").await;
    let asked = std::time::Instant::now();
    harness.server.change(|book| book.assignments.clear());
    assert_eq!(harness.ending(rude).await, Exit::Stopped);
    assert!(asked.elapsed().as_micros() >= u128::from(timing().stop_grace.0));
    agent.abort();
}

#[tokio::test]
async fn a_job_that_takes_too_long_is_stopped() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let timeout = Some(Span::milliseconds(200));
    let epoch = harness.assign_with(1, JobSpec { timeout, ..spec("sleep 1000") });
    assert_eq!(harness.ending(epoch).await, Exit::TimedOut);
    agent.abort();
}

#[tokio::test]
async fn a_job_that_is_unwanted_while_it_is_prepared_never_starts() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    harness.server.change(|book| book.spec_status = Some(StatusCode::SERVICE_UNAVAILABLE));
    let epoch = harness.assignment(1, "echo ran");
    harness.until("a few attempts", |book| (book.specs_asked_for > 2).then_some(())).await;
    harness.server.change(|book| book.assignments.clear());
    assert_eq!(harness.ending(epoch).await, Exit::Stopped);
    assert!(!harness.home.own(epoch).exists());
    agent.abort();
}

#[tokio::test]
async fn what_a_job_leaves_in_its_group_ends_with_it() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let epoch =
        harness.assignment(1, "sleep 1000 & echo $!; (trap '' TERM HUP; sleep 1000) & exit 0");
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    let pid = harness.log(epoch);
    assert!(!is_alive(&pid));
    agent.abort();
}

#[tokio::test]
async fn a_nodes_files_are_its_own() {
    let harness = Harness::new().await;
    let agent = harness.agent();
    let epoch = harness.assignment(1, "echo up; sleep 1000");
    harness.until_log_has(epoch, "up").await;
    assert_eq!(mode_of(&harness.home.own(epoch)), 0o700);
    assert_eq!(mode_of(&harness.home.work(epoch)), 0o700);
    assert_eq!(mode_of(&harness.home.job_log(epoch)), 0o600);
    assert_eq!(mode_of(&harness.home.journal()), 0o600);
    assert!(harness.home.job_pid(epoch).exists());
    harness.until("it runs", |book| is_running(book, epoch).then_some(())).await;
    agent.abort();
}
