//! Jobs through the real binary: submitted, streamed byte by byte, canceled, listed.

use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{CLUSTER, PATIENCE, Site, done, ends, settled, signal};

#[test]
fn a_job_is_submitted_streamed_and_shown() {
    let site = Site::start();
    site.text(&CLUSTER);
    let command = r#"printf 'one\n\000\377'; echo "$GREETING" >&2; sleep 0.3; printf 'no newline'"#;
    let submitted = site.json(&[
        "job",
        "create",
        "--name",
        "first",
        "--compute",
        "cpu",
        "--command",
        command,
        "--display-name",
        "The first",
        "--experiment-name",
        "trials",
        "--env",
        "GREETING=a b",
        "OTHER=x=y",
        "--timeout",
        "90",
        "--tags",
        "team=blue",
    ]);
    assert_eq!(submitted["name"], "first");
    assert_eq!(submitted["limits"]["timeout"], 90);
    assert_eq!(
        submitted["environment_variables"].to_string(),
        r#"{"GREETING":"a b","OTHER":"x=y"}"#
    );
    let streamed = site.run(&["job", "stream", "-n", "first"]);
    assert_eq!(streamed.code, 0, "{}", streamed.stderr);
    assert_eq!(streamed.stdout, b"one\n\0\xffa b\nno newline");
    assert!(streamed.stderr.ends_with("first: Completed\n"), "{}", streamed.stderr);
    let again = site.run(&["job", "stream", "-n", "first"]);
    assert_eq!(again.stdout, streamed.stdout, "the log of an ended job is kept");
    assert_eq!(again.stderr, "first: Completed\n");

    let shown = settled(&site.text(&["job", "show", "-n", "first"]));
    for line in [
        r#"  "attempts": 1,"#,
        r#"  "compute": "azureml:cpu","#,
        r#"  "display_name": "The first","#,
        r#"  "experiment_name": "trials","#,
        r#"  "name": "first","#,
        r#"  "resourceGroup": "default","#,
        r#"  "status": "Completed","#,
        r#"  "type": "command""#,
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    let table = site.text(&["job", "list", "-o", "table"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "Name   Status     Experiment  Compute target  Job type  Created on");
    assert!(lines[2].starts_with("first  Completed  trials      cpu             command   2"));
    assert_eq!(lines.len(), 3);
    let nodes = site.text(&["compute", "list-nodes", "-n", "cpu", "-o", "table"]);
    assert!(nodes.lines().nth(2).is_some_and(|line| line.contains("idle")), "{nodes}");
}

#[test]
fn a_job_that_fails_ends_its_stream_with_1_and_the_reason() {
    let site = Site::start();
    site.text(&CLUSTER);
    let failed =
        site.run(&["job", "create", "--compute", "cpu", "--command", "echo bye; exit 7", "-s"]);
    assert_eq!((failed.code, failed.stdout.as_slice()), (1, b"bye\n".as_slice()));
    assert!(
        failed.stderr.contains("failed: the command ended with exit code 7"),
        "{}",
        failed.stderr
    );
    let jobs = site.json(&["job", "list"]);
    let name = jobs[0]["name"].as_str().expect("a name");
    assert_eq!(name.split('_').count(), 3, "a generated name: {name}");
    assert_eq!(jobs[0]["status"], "Failed");
    assert!(jobs[0]["failure"].as_str().expect("a reason").contains("exit code 7"));
}

#[test]
fn a_job_is_canceled() {
    let site = Site::start();
    site.text(&CLUSTER);
    let create = |name: &'static str, command| {
        ["job", "create", "--compute", "cpu", "-n", name, "--command", command]
    };
    site.text(&create("long", "echo up; exec sleep 600"));
    site.wait_for_job("long", |job| job["status"] == "Running");
    let canceled = site.run(&["job", "cancel", "-n", "long"]);
    assert_eq!((canceled.code, canceled.stdout.len()), (0, 0), "{}", canceled.stderr);
    assert!(canceled.stderr.ends_with("canceling long: Canceled\n"), "{}", canceled.stderr);
    let streamed = site.run(&["job", "stream", "-n", "long"]);
    assert_eq!((streamed.code, streamed.stdout.as_slice()), (1, b"up\n".as_slice()));
    assert!(streamed.stderr.contains("job 'long' was canceled"), "{}", streamed.stderr);

    site.text(&create("later", "sleep 600"));
    assert_eq!(site.run(&["job", "cancel", "-n", "later", "--no-wait"]).code, 0);
    site.wait_for_job("later", |job| job["status"] == "Canceled");
}

#[test]
fn nodes_are_counted_by_what_they_do() {
    let site = Site::start();
    site.text(&["compute", "create", "-n", "cpu", "--min-instances", "2", "--max-instances", "2"]);
    site.text(&["job", "create", "--compute", "cpu", "-n", "long", "--command", "exec sleep 600"]);
    site.wait_for_job("long", |job| job["status"] == "Running");
    let wait_for = |wanted: [u64; 6]| {
        let started = Instant::now();
        loop {
            let shown = site.json(&["compute", "show", "-n", "cpu"]);
            let counts = STATES.map(|state| shown["node_state_counts"][state].as_u64());
            if counts == wanted.map(Some) {
                assert_eq!(shown["current_node_count"], 2);
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{shown}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait_for([0, 1, 1, 0, 0, 0]);
    site.text(&["job", "cancel", "-n", "long"]);
    wait_for([0, 2, 0, 0, 0, 0]);
}

const STATES: [&str; 6] = [
    "preparing_node_count",
    "idle_node_count",
    "running_node_count",
    "unusable_node_count",
    "leaving_node_count",
    "preempted_node_count",
];

#[test]
fn a_list_of_jobs_goes_on_over_its_pages() {
    let site = Site::start();
    site.text(&["compute", "create", "-n", "none", "--max-instances", "0"]);
    for number in 0..60 {
        let name = format!("job-{number:02}");
        site.text(&["job", "create", "--compute", "none", "-n", &name, "--command", "true"]);
    }
    let count = |arguments: &[&str]| site.json(arguments).as_array().map(Vec::len);
    assert_eq!(count(&["job", "list"]), Some(50));
    assert_eq!(count(&["job", "list", "-r", "3"]), Some(3));
    assert_eq!(count(&["job", "list", "--max-results", "1000"]), Some(60));
    let reasons = site.json(&["job", "show", "-n", "job-00"])["wait_reasons"].clone();
    assert!(reasons[0].as_str().is_some_and(|reason| reason.contains("none")), "{reasons}");
}

#[test]
fn a_stream_outlives_its_server() {
    let mut site = Site::start();
    site.text(&CLUSTER);
    let command = "echo before; sleep 3; echo after";
    site.text(&["job", "create", "--compute", "cpu", "-n", "steady", "--command", command]);
    site.wait_for_job("steady", |job| job["status"] == "Running");
    let (stream, first) = stream_begun(&site, "steady");
    site.kill();
    site.up();
    let streamed = done(stream.wait_with_output().expect("a child of ours"));
    assert_eq!(streamed.code, 0, "{}", streamed.stderr);
    let whole = [first.as_bytes(), &streamed.stdout].concat();
    assert_eq!(whole, b"before\nafter\n", "{}", streamed.stderr);
}

/// A stream that has printed its first line, and that line.
fn stream_begun(site: &Site, job: &str) -> (Child, String) {
    let mut stream = site.command(&["job", "stream", "-n", job]);
    let stream = stream.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut stream = stream.expect("the binary starts");
    let mut first = Vec::new();
    let output = stream.stdout.as_mut().expect("piped");
    // Byte by byte, so that what follows the line is left in the pipe.
    while first.last() != Some(&b'\n') {
        let mut byte = [0];
        output.read_exact(&mut byte).expect("a line");
        first.extend(byte);
    }
    (stream, String::from_utf8(first).expect("text"))
}

#[test]
fn leaving_a_stream_leaves_the_job_alone() {
    let site = Site::start();
    site.text(&CLUSTER);
    site.text(&[
        "job",
        "create",
        "--compute",
        "cpu",
        "-n",
        "mine",
        "--command",
        "echo up; sleep 600",
    ]);
    site.wait_for_job("mine", |job| job["status"] == "Running");
    let (mut stream, _) = stream_begun(&site, "mine");
    signal("-INT", &stream);
    assert!(ends(&mut stream));
    let left = done(stream.wait_with_output().expect("a child of ours"));
    assert_eq!(left.code, 130);
    assert!(left.stderr.contains("the job keeps running"), "{}", left.stderr);
    assert_eq!(site.json(&["job", "show", "-n", "mine"])["status"], "Running");
}
