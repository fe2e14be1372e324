//! Internet access of jobs that share a node: each has a network of its own, and all of them have access.
//!
//! The test runs in a network of its own, with an address that nodes do not have.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use crate::support::sandbox::wait_until;
use crate::support::{Site, run_apart};

/// Set for the run that is alone in its namespaces.
const INSIDE: &str = "MUSTER_WAYS_OUT_INSIDE";
/// An address for documentation, which is never in use.
const OUTSIDE: &str = "198.51.100.7";
const JOBS: [&str; 3] = ["one", "two", "three"];

#[test]
fn jobs_that_share_a_node_all_have_internet_access() {
    if !rustix::process::geteuid().is_root() {
        return muster_testing::skip_or_fail(
            "not root: only root can make a network with an address of its own",
        );
    }
    if Command::new("slirp4netns").arg("--version").output().is_err() {
        return muster_testing::skip_or_fail("no slirp4netns, so nodes have no internet access");
    }
    if std::env::var_os(INSIDE).is_none() {
        let setup = format!("ip link set lo up; ip addr add {OUTSIDE}/32 dev lo");
        return run_apart(
            "internet_access::jobs_that_share_a_node_all_have_internet_access",
            &setup,
            INSIDE,
        );
    }
    let door = TcpListener::bind((OUTSIDE, 80)).expect("the port is free");
    std::thread::spawn(move || answer_all_at_once(&door));
    let mut site = Site::empty();
    site.start_with(&["--isolation", "sandbox", "--egress=true"]);
    let size = ["--size", "Standard_DS3_v2", "--max-instances", "1", "-d", "600"];
    site.text(&[&["compute", "create", "-n", "cpu"][..], &size].concat());
    for name in JOBS {
        let command = format!("curl -sS --max-time 50 http://{OUTSIDE}/{name}");
        let create = ["job", "create", "-n", name, "--compute", "cpu", "--command", &command];
        let done = site.run(&[&create[..], &["--cpus", "1", "-o", "none"]].concat());
        assert_eq!(done.code, 0, "{}", done.stderr);
    }
    for name in JOBS {
        let shown = || site.text(&["job", "show", "-n", name]);
        wait_until(name, || shown().contains("Completed") || shown().contains("Failed"));
        let said = site.text(&["job", "stream", "-n", name]);
        assert!(shown().contains("Completed") && said.contains("you asked for /"), "{said}");
        assert!(said.contains(&format!("/{name}.")), "its own response: {said}");
    }
    let nodes = site.json(&["compute", "list-nodes", "-n", "cpu"]);
    assert_eq!(nodes.as_array().map(Vec::len), Some(1), "they shared one node: {nodes}");
}

/// Responds when all jobs have asked, so that they were on the node at the same time.
fn answer_all_at_once(door: &TcpListener) {
    let mut asked = Vec::new();
    while asked.len() < JOBS.len() {
        let (mut caller, _) = door.accept().expect("it listens");
        caller.set_read_timeout(Some(Duration::from_secs(10))).expect("it is a socket");
        let mut request = [0; 1024];
        let length = caller.read(&mut request).expect("it sends its request at once");
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        let path = request.split(' ').nth(1).expect("a path").to_owned();
        asked.push((caller, path));
    }
    for (mut caller, path) in asked {
        let body = format!("you asked for {path}.\n");
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        caller.write_all((head + &body).as_bytes()).expect("it reads the response");
    }
}
