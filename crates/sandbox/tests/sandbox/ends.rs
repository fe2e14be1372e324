//! How jobs end, and that nothing of them is left behind.

use std::io::BufRead;
use std::process::{Child, Command, Stdio};

use muster_sandbox::job::{Ending, Event, Signal};

use crate::harness::{eventually, node, odd_seconds, processes_with};

#[test]
fn every_way_to_end_is_reported_correctly() {
    let Some(node) = node() else { return };
    let cases = [
        ("exit 0", Ending::Code(0)),
        ("exit 3", Ending::Code(3)),
        ("kill -9 $$", Ending::Signal(9)),
        ("kill -15 $$", Ending::Signal(15)),
        ("exec >&- 2>&-; exit 4", Ending::Code(4)),
        ("no-such-program-here", Ending::Code(127)),
    ];
    for (index, (command, ending)) in cases.into_iter().enumerate() {
        let outcome = node.run(&index.to_string(), command);
        assert_eq!(outcome.events, [Event::Started, Event::Ended(ending)], "{command}");
    }
}

#[test]
fn a_failed_start_is_explained() {
    let Some(node) = node() else { return };
    let why = |launch| {
        let outcome = node.start_as("a", launch).outcome();
        match &outcome.events[..] {
            [Event::NotStarted { message }] => message.clone(),
            events => panic!("{events:?}"),
        }
    };
    let mut launch = node.launch("a", "true\0");
    assert!(why(launch.clone()).contains("the command contains a zero byte"));
    launch.command = "true".into();
    launch.variables.insert("LONG".into(), "x".repeat(200_000));
    assert!(why(launch.clone()).contains("execve /bin/sh"));
    launch.variables.remove("LONG");
    std::fs::remove_dir(launch.own_dir.join("tmp")).unwrap();
    assert!(why(launch).contains("open_tree"));
    // The spawner still works.
    node.said("b", "true");
}

#[test]
fn a_large_environment_arrives() {
    let Some(node) = node() else { return };
    let mut launch = node.launch("a", "env | wc -c");
    for index in 0..10 {
        launch.variables.insert(format!("LONG_{index}"), "x".repeat(100_000));
    }
    let outcome = node.start_as("a", launch).outcome();
    assert!(outcome.log.trim().parse::<u32>().unwrap() > 1_000_000, "{outcome:?}");
}

#[test]
fn whatever_a_job_leaves_behind_ends_with_it() {
    let Some(node) = node() else { return };
    let seconds = odd_seconds(node.dir.path());
    let hidden = format!(
        "(setsid sh -c 'trap \"\" TERM HUP; env -i setsid sleep {seconds} & exec sleep {seconds}' &) ;\
         sleep {seconds} & until [ $(grep -la {seconds} /proc/[0-9]*/cmdline | wc -l) -ge 3 ]; do :; done"
    );
    node.said("a", &hidden);
    // The end is reported only when every process has ended.
    assert_eq!(processes_with(&format!("sleep {seconds}")), Vec::<String>::new());
}

#[test]
fn a_termination_reaches_all_and_a_kill_ends_all() {
    let Some(node) = node() else { return };
    let polite = node.start(
        "a",
        "trap 'wait; echo near; exit 5' TERM; \
        setsid sh -c 'trap \"echo far; exit\" TERM; echo up; while :; do sleep 0.01; done' & \
        while :; do sleep 0.01; done",
    );
    polite.until_said("up");
    polite.line.signal(Signal::Terminate).unwrap();
    let outcome = polite.outcome();
    assert_eq!(outcome.events, [Event::Started, Event::Ended(Ending::Code(5))]);
    assert!(outcome.log.contains("far") && outcome.log.contains("near"), "{}", outcome.log);
    polite.line.signal(Signal::Kill).unwrap();

    let seconds = odd_seconds(node.dir.path());
    let rude = node
        .start("b", &format!("trap '' TERM; setsid sleep {seconds} & echo up; sleep {seconds}"));
    rude.until_started();
    rude.until_said("up");
    rude.line.signal(Signal::Terminate).unwrap();
    rude.line.signal(Signal::Kill).unwrap();
    assert_eq!(rude.outcome().events, [Event::Killed], "the init could not report an ending");
    assert_eq!(processes_with(&format!("sleep {seconds}")), Vec::<String>::new());
}

#[test]
fn a_dropped_line_and_a_dropped_spawner_end_their_jobs() {
    let Some(node) = node() else { return };
    let seconds = odd_seconds(node.dir.path());
    let command = format!("setsid sleep {seconds} & echo up; sleep {seconds}");
    let [first, second] = ["a", "b"].map(|name| node.start(name, &command));
    first.until_said("up");
    second.until_said("up");
    drop(first);
    // The second job consists of the shell and two more processes.
    eventually("the first ends", || processes_with(&seconds).len() <= 3);
    assert!(!processes_with(&seconds).is_empty());
    drop(node.spawner);
    eventually("the second ends", || processes_with(&seconds).is_empty());
}

/// Not a test itself, but an agent that can be killed.
#[test]
fn agent_process() {
    if std::env::var_os("MUSTER_TEST_AGENT").is_none() {
        return;
    }
    let node = node().unwrap();
    let seconds = odd_seconds(node.dir.path());
    let job = node.start("a", &format!("setsid sleep {seconds} & echo up; exec sleep {seconds}"));
    job.until_said("up");
    println!("\n{seconds}");
    std::thread::sleep(crate::harness::PATIENCE * 10);
}

#[test]
fn a_killed_agent_takes_its_jobs_along() {
    if node().is_none() {
        return;
    }
    let agent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ends::agent_process", "--nocapture", "--test-threads=1"])
        .env("MUSTER_TEST_AGENT", "1")
        .stdout(Stdio::piped())
        .spawn();
    let mut agent = Killed(agent.unwrap());
    let mut lines = std::io::BufReader::new(agent.0.stdout.take().unwrap()).lines();
    let seconds =
        lines.find_map(|line| line.ok().filter(|line| line.starts_with("1000."))).unwrap();
    // A new shell execs the other program a little later.
    eventually("its jobs run", || processes_with(&format!("sleep {seconds}")).len() == 2);
    drop(agent);
    eventually("its jobs end", || processes_with(&seconds).is_empty());
}

/// Ensures that the process does not outlive a failed test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
