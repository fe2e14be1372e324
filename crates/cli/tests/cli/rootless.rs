//! A server without any privileges, from its start to its end: its nodes have the sandbox that is possible without
//! root, and it reports what is missing.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::sandbox::{NOT_ENFORCED, cluster, processes, ran, wait_until};
use crate::support::storm::ours;
use crate::support::{self, Site};

/// A UID that is unused on most machines; it needs no name.
const USER: u32 = 23_456;
/// Internet access needs a device that often only root may open.
const FLAGS: [&str; 6] =
    ["up", "--listen", "127.0.0.1:0", "--isolation", "sandbox", "--egress=false"];

/// Starts a server as that user for the first time.
pub fn started() -> Site {
    let mut site = Site::empty_of(USER);
    // Other users may not enter the folder that it was built in.
    let copy = site.folder().join("muster");
    std::fs::copy(env!("CARGO_BIN_EXE_muster"), &copy).expect("copied");
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).expect("ours");
    start(&mut site);
    site
}

/// Starts the server as that user.
fn start(site: &mut Site) {
    let original = site.command(&FLAGS);
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={USER}"), format!("--regid={USER}")]).arg("--clear-groups");
    command.arg(site.folder().join("muster")).args(original.get_args()).current_dir("/");
    for (name, value) in original.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("HOME", site.folder());
    site.start_by(command);
}

#[test]
fn a_server_without_privileges_makes_nodes_finds_them_again_and_leaves_nothing() {
    if !rustix::process::geteuid().is_root() {
        return muster_testing::skip_or_fail(
            "not root: the other tests run without privileges already",
        );
    }
    let mut site = started();
    let status = std::fs::read_to_string(format!("/proc/{}/status", site.server_pid()));
    let status = status.expect("it runs");
    assert!(status.contains(&format!("Uid:\t{USER}\t{USER}")), "{status}");
    assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");

    // What it cannot enforce is reported in the list of hosts and in the log of each job.
    let shown = site.json(&["host", "show", "local"]);
    let missing = shown["not_enforced"].as_array().expect("a list");
    assert!(shown.to_string().contains("separate users for each node"), "{shown}");
    cluster(&site, "cpu", &["--min-instances", "1"]);
    // Environments that were built for the nodes of another cluster, and by an earlier version.
    let environments = site.state().join("environments");
    std::fs::create_dir_all(environments.join("shown/4711/secret")).expect("it may");
    std::fs::create_dir_all(environments.join("ready/secret")).expect("it may");
    let seen = ran(&site, "cpu", "prying", "ls -R /environments; ls /environments/4711 2>&1; true");
    assert!(seen.contains("plain") && !seen.contains("secret"), "{seen}");
    ran(&site, "cpu", "before", "id -u; hostname");
    let before = site.text(&["job", "stream", "-n", "before"]);
    let mut lines = before.lines();
    let warning = lines.next().expect("it said something");
    assert!(warning.starts_with(NOT_ENFORCED), "{before}");
    let is_said = |what: &serde_json::Value| warning.contains(what.as_str().expect("text"));
    assert!(missing.iter().all(is_said), "{warning} {shown}");
    assert_eq!(lines.next(), Some("1000"), "{before}");
    let node = lines.next().expect("its name").to_owned();
    assert!(node.starts_with("cpu-"), "{before}");

    let sleep = format!("sleep 3.{}", std::process::id());
    let command = format!("{sleep}; echo slept on $(hostname)");
    let long = ["job", "create", "--compute", "cpu", "--command", &command, "-n", "long"];
    assert_eq!(site.run(&long).code, 0);
    wait_until("it runs", || !processes(&[&sleep]).is_empty());
    site.kill();
    assert!(!processes(&[&sleep]).is_empty(), "it outlives the server");
    start(&mut site);
    wait_until("it ends", || site.text(&["job", "show", "-n", "long"]).contains("Completed"));
    let log = site.text(&["job", "stream", "-n", "long"]);
    assert!(log.contains(&format!("slept on {node}")), "{log}");
    let attempts = site.json(&["job", "list-attempts", "-n", "long"]);
    assert_eq!(attempts.as_array().map(Vec::len), Some(1), "{attempts}");

    let delete = site.run(&["compute", "delete", "-n", "cpu", "--yes"]);
    assert_eq!(delete.code, 0, "{}", delete.stderr);
    for folder in ["sandboxes", "relays"] {
        let left: Vec<_> =
            std::fs::read_dir(site.state().join(folder)).expect("it exists").collect();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    let mut server = site.take_server();
    support::signal("-TERM", &server);
    assert!(support::ends(&mut server) && server.wait().expect("a child of ours").success());
    let state = site.state();
    wait_until("nothing of it runs", || ours(&state, &sleep).is_empty());
}
