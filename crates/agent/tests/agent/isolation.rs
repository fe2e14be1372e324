//! Sandboxed jobs, run by an agent in a separate process, because it forks before it has threads.

use std::process::{Child, Command};

use muster_core::model::{Exit, JobSpec};
use muster_core::time::Span;

use crate::harness::{Harness, SANDBOX_VARIABLE, endings, eventually, is_running, spec};

/// An agent that is killed at the end of its test.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns `None`, and reports the reason, if sandboxes cannot be created here.
fn agent(harness: &Harness) -> Option<Agent> {
    let can = Command::new("unshare").args(["--user", "--map-root-user", "true"]).output();
    if !can.as_ref().is_ok_and(|output| output.status.success()) {
        muster_testing::skip_or_fail(&format!("no user namespaces here: {can:?}"));
        return None;
    }
    Some(Agent(harness.agent_command().env(SANDBOX_VARIABLE, "1").spawn().unwrap()))
}

#[tokio::test]
async fn every_way_to_end_in_a_sandbox_is_reported_correctly() {
    let harness = Harness::new().await;
    let Some(_agent) = agent(&harness) else { return };
    let cases = [
        ("echo one; echo two >&2; exit 3", Exit::Code(3)),
        ("kill -9 $$", Exit::Signal(9)),
        ("no-such-program-here", Exit::Code(127)),
    ];
    for (index, (command, exit)) in cases.into_iter().enumerate() {
        let epoch = harness.assignment(index as u64 + 1, command);
        assert_eq!(harness.ending(epoch).await, exit, "{command}");
    }
    assert_eq!(harness.log(muster_core::ids::Epoch(1)), "one\ntwo\n");
    let timeout = Some(Span::milliseconds(200));
    let epoch = harness.assign_with(8, JobSpec { timeout, ..spec("trap '' TERM; sleep 1000") });
    assert_eq!(harness.ending(epoch).await, Exit::TimedOut);
    let epoch = harness.assignment(9, "echo \0");
    let exit = harness.ending(epoch).await;
    let Exit::NotStarted { message } = &exit else { panic!("{exit:?}") };
    assert!(message.contains("the command contains a zero byte"), "{message}");
    eventually("the jobs' files are removed", || !harness.home.own(epoch).exists()).await;
}

#[tokio::test]
async fn a_sandboxed_job_finds_its_own_files_and_nothing_of_the_node() {
    let harness = Harness::new().await;
    let Some(_agent) = agent(&harness) else { return };
    let dir = harness.home.dir().display();
    let command = format!(
        "id -u; pwd; echo $HOME $TMPDIR $USER $MUSTER_NODE ${{MUSTER_NODE_DIR-none}}; touch $TMPDIR/x /tmp/y; \
         ls ../tmp; cat {dir}/secret {dir}/journal {dir}/logs/* 2>/dev/null; ls -A {dir} 2>/dev/null; :"
    );
    let epoch = harness.assignment(1, &command);
    assert_eq!(harness.ending(epoch).await, Exit::Code(0));
    assert_eq!(harness.log(epoch), "1000\n/job/wd\n/job/wd /job/tmp job pool-1 none\nx\ny\n");
}

#[tokio::test]
async fn a_cancelled_job_in_a_sandbox_is_asked_to_end_and_then_killed() {
    let harness = Harness::new().await;
    let Some(mut agent) = agent(&harness) else { return };
    let marked = |what: &str| {
        let line = format!("{what} {}", harness.home.dir().display());
        format!("sh -c 'trap \"\" TERM; while :; do sleep 0.01; done' {line}")
    };
    let command = format!("setsid {} & trap 'echo bye; wait' TERM; echo up; wait", marked("far"));
    let epoch = harness.assignment(1, &command);
    harness.until_log_has(epoch, "up").await;
    harness.server.change(|book| book.assignments.clear());
    assert_eq!(harness.ending(epoch).await, Exit::Stopped);
    assert!(harness.log(epoch).ends_with("bye\n"), "{}", harness.log(epoch));
    assert!(!is_anywhere(&marked("far")));

    let epoch = harness.assignment(2, &format!("{} & echo up; wait", marked("killed")));
    harness.until_log_has(epoch, "up").await;
    harness.until("it runs", |book| is_running(book, epoch).then_some(())).await;
    eventually("it is found", || is_anywhere(&marked("killed"))).await;
    agent.0.kill().unwrap();
    agent.0.wait().unwrap();
    eventually("it dies with its agent", || !is_anywhere(&marked("killed"))).await;
}

#[tokio::test]
async fn an_agent_without_its_spawner_ends_and_blames_no_job() {
    for is_busy in [true, false] {
        let harness = Harness::new().await;
        let Some(mut agent) = agent(&harness) else { return };
        let epoch = harness.assignment(1, if is_busy { "echo up; sleep 1000" } else { "echo up" });
        harness.until_log_has(epoch, "up").await;
        if !is_busy {
            assert_eq!(harness.ending(epoch).await, Exit::Code(0));
        }
        let spawner = child_of(agent.0.id());
        rustix::process::kill_process(spawner, rustix::process::Signal::KILL).unwrap();
        if !is_busy {
            harness.assignment(2, "echo never");
        }
        let mut ended = None;
        eventually("the agent ends", || {
            ended = agent.0.try_wait().unwrap();
            ended.is_some()
        })
        .await;
        assert!(ended.is_some_and(|status| !status.success()), "{ended:?}");
        let last = if is_busy { epoch } else { muster_core::ids::Epoch(2) };
        assert_eq!(endings(&harness.server.look(), last), [], "it was not the job's fault");
    }
}

fn child_of(pid: u32) -> rustix::process::Pid {
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let child = pids.find(|child| parent(*child) == Some(pid)).unwrap();
    rustix::process::Pid::from_raw(child.cast_signed()).unwrap()
}

/// Returns true if any process of this host has this command line, without its quotes.
fn is_anywhere(command: &str) -> bool {
    let wanted = command.replace('\'', "");
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.trim_end() == wanted
    })
}
