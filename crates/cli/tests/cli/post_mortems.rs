//! Post-mortems of failed nodes, from the real binary, after the node was deleted.

use std::io::Write as _;
use std::process::Command;

use crate::support::Site;
use crate::support::sandbox::{cluster, processes, sandboxed, wait_until};
use muster_sandbox::identity::Identity;
use serde_json::Value;

const LIST: [&str; 4] = ["compute", "list-post-mortems", "-n", "cpu"];

fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.expect("kill is installed").success());
}

/// The node that this job runs on, as soon as it is a different one.
fn node_of(site: &Site, job: &str, before: &str) -> String {
    let mut node = String::new();
    wait_until("it runs", || {
        let nodes = site.json(&["compute", "list-nodes", "-n", "cpu"]);
        let runs = |node: &&Value| node["run_id"] == job && node["node_state"] == "running";
        let found = nodes.as_array().expect("a list").iter().find(runs).cloned();
        node = found
            .map(|node| node["node_id"].as_str().expect("text").to_owned())
            .unwrap_or_default();
        !node.is_empty() && node != before
    });
    node
}

/// Waits until there are this many.
fn post_mortems(site: &Site, count: usize) -> Vec<Value> {
    let mut all = Vec::new();
    wait_until("a post-mortem", || {
        all = site.json(&LIST).as_array().expect("a list").clone();
        all.len() >= count
    });
    all
}

#[test]
fn a_bad_node_leaves_a_post_mortem_that_outlives_it() {
    let mut site = sandboxed();
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2"]);
    assert_eq!(site.json(&LIST), Value::Array(Vec::new()));
    let job = ["job", "create", "-n", "train", "--compute", "cpu", "-o", "none"];
    site.text(&[&job[..], &["--command", "while :; do sleep 1; done"]].concat());

    let first = node_of(&site, "train", "");
    let folder = site.state().join("sandboxes").join(&first);
    let (record, log) = (folder.join("init"), folder.join("agent.log"));
    // Agents log little while all is well.
    let mut log = std::fs::OpenOptions::new().append(true).open(log).expect("it exists");
    log.write_all(b"last \x1b[31mwords\n").expect("it is a file");
    kill(Identity::read(&record).expect("readable").expect("it lives").pid);
    let told = &post_mortems(&site, 1)[0];
    assert_eq!((&told["node"], &told["cause"]), (&first.as_str().into(), &"Ended".into()));
    assert_eq!((&told["was"], &told["host"]), (&"Leased".into(), &"local".into()));
    assert_eq!(told["jobs"][0]["name"], "train");
    assert_eq!(told["findings"]["signal"], 9);
    assert!(told["findings"]["disk_free_bytes"].as_u64() > Some(0), "{told}");
    assert!(told.get("agent_log").is_none(), "not in a list: {told}");
    let show = ["compute", "show-post-mortem", "-n", "cpu", "--node", &first];
    let one = site.json(&show);
    assert!(one["agent_log"].as_str().expect("text").ends_with("last [31mwords\n"), "{one}");
    wait_until("the node is deleted", || !record.exists());
    assert_eq!(site.json(&show), one, "it outlives its node");

    // Kills only its agent, as the kernel would for memory.
    let second = node_of(&site, "train", &first);
    let agents = processes(&["agent", "--sandboxed", &format!("--node {second} ")]);
    kill(*agents.iter().min().expect("it lives"));
    let all = post_mortems(&site, 2);
    assert_eq!(
        (&all[0]["node"], &all[1]["node"]),
        (&second.as_str().into(), &first.as_str().into())
    );
    assert_eq!(all[0]["findings"]["exit_code"], 128 + 9, "{}", all[0]);
    let table = site.text(&[&LIST[..], &["-o", "table"]].concat());
    assert!(table.contains("signal 9") && table.contains("exit code 137"), "{table}");
    site.text(&["job", "cancel", "-n", "train"]);

    // A killed server forgets none of it, and a node that cannot be created has a post-mortem, too.
    site.kill();
    site.start_with(&["--isolation", "sandbox"]);
    assert_eq!(site.json(&show), one);
    let (relays, away) = (site.state().join("relays"), site.state().join("away"));
    std::fs::rename(&relays, &away).expect("our own");
    std::fs::write(&relays, "no folder").expect("our own");
    cluster(&site, "never", &["--size", "Standard_DS1_v2"]);
    let job = ["job", "create", "-n", "waits", "--compute", "never", "--command", "true"];
    site.text(&[&job[..], &["-o", "none"]].concat());
    let never = ["compute", "list-post-mortems", "-n", "never"];
    let mut told = Value::Null;
    wait_until("a post-mortem", || {
        told = site.json(&never)[0].clone();
        !told.is_null()
    });
    assert_eq!((&told["cause"], &told["was"]), (&"CreateFailed".into(), &"Requested".into()));
    assert!(told["message"].as_str().expect("text").contains("cannot listen for node"), "{told}");
    std::fs::remove_file(&relays).expect("our own");
    std::fs::rename(&away, &relays).expect("our own");

    let missing = site.run(&["compute", "show-post-mortem", "-n", "cpu", "--node", "no-such"]);
    assert_eq!(missing.code, 3, "{}", missing.stderr);
    assert_eq!(site.run(&["compute", "list-post-mortems", "-n", "nothing"]).code, 3);
}

/// The log is outside of the node's disk, so the node must not be able to fill the machine's disk with it.
#[test]
fn the_log_of_an_agent_keeps_its_end_and_no_more() {
    const MOST: u64 = 2 << 20;
    let site = sandboxed();
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2", "--min-instances", "1"]);
    let job = ["job", "create", "-n", "train", "--compute", "cpu", "-o", "none"];
    site.text(&[&job[..], &["--command", "while :; do sleep 1; done"]].concat());
    let node = node_of(&site, "train", "");
    let folder = site.state().join("sandboxes").join(&node);
    let log = folder.join("agent.log");
    let agents = processes(&["agent", "--sandboxed", &format!("--node {node} ")]);
    let agent = agents.iter().min().expect("it lives");
    // As if the agent had gone mad, or were malicious.
    let said = std::fs::OpenOptions::new().append(true).open(format!("/proc/{agent}/fd/2"));
    let mut said = said.expect("it is ours");
    let line = [&[b'x'; 1023][..], b"\n"].concat();
    let length = || std::fs::metadata(&log).expect("it exists").len();
    for _ in 0..8 * 1024 {
        said.write_all(&line).expect("it is written");
        assert!(length() <= MOST, "{} bytes", length());
    }
    said.write_all(b"the last words\n").expect("it is written");
    let text = || std::fs::read_to_string(&log).expect("it is text");
    wait_until("its last words", || text().ends_with("the last words\n"));
    assert!(text().len() >= 1 << 20, "{} bytes", text().len());
    assert!(text().lines().all(|line| line.len() == 1023 || line.len() == 14), "whole lines");
    kill(Identity::read(&folder.join("init")).expect("readable").expect("it lives").pid);
    post_mortems(&site, 1);
    let show = ["compute", "show-post-mortem", "-n", "cpu", "--node", &node];
    let one = site.json(&show);
    assert!(one["agent_log"].as_str().expect("text").ends_with("the last words\n"), "{one}");
}

#[test]
fn the_log_of_a_plain_agent_keeps_its_end_and_no_more() {
    let site = Site::start_plain();
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2", "--min-instances", "1"]);
    let logs = || {
        let nodes = std::fs::read_dir(site.state().join("nodes")).into_iter().flatten().flatten();
        nodes.map(|node| node.path().join("agent.log")).filter(|log| log.exists())
    };
    wait_until("a node", || logs().next().is_some());
    let log = logs().next().expect("as seen");
    let said = std::fs::OpenOptions::new().append(true).open(&log);
    let line = [&[b'x'; 1023][..], b"\n"].concat();
    said.expect("it is ours").write_all(&line.repeat(3 << 10)).expect("there is space");
    let length = || std::fs::metadata(&log).expect("it exists").len();
    wait_until("it is cut", || length() <= 1 << 20);
    assert!(length() > 1 << 19, "its end is kept: {} bytes", length());
}
