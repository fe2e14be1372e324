//! `muster doctor` on the machine that runs this test, whatever it supports.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Instant;

use crate::support::{Done, PATIENCE, Site, done, signal};
use serde_json::Value;

const STATES: [&str; 4] = ["ok", "note", "warning", "failure"];

fn findings(done: &Done) -> Vec<Value> {
    let all: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let all = all.as_array().expect("a list").clone();
    assert!(all.len() > 30, "{}", all.len());
    for finding in &all {
        let text = |key: &str| finding[key].as_str().unwrap_or_default();
        assert!(STATES.contains(&text("state")), "{finding}");
        assert!(!text("id").is_empty() && !text("found").is_empty(), "{finding}");
        assert!(!text("meaning").is_empty(), "{finding}");
        // Every problem comes with a remedy.
        let is_wrong = ["warning", "failure"].contains(&text("state"));
        assert!(!is_wrong || !text("fix").trim().is_empty(), "{finding}");
    }
    let has_failure = all.iter().any(|finding| finding["state"] == "failure");
    assert_eq!(done.code, i32::from(has_failure), "{}", done.stderr);
    all
}

fn state<'a>(findings: &'a [Value], id: &str) -> &'a str {
    let found = findings.iter().find(|finding| finding["id"] == id);
    found.and_then(|found| found["state"].as_str()).unwrap_or_else(|| panic!("no {id}"))
}

#[test]
fn without_a_server_and_a_directory_it_says_all_and_leaves_nothing() {
    let site = Site::empty();
    let started = Instant::now();
    let done = site.run(&["doctor", "-o", "json"]);
    assert!(started.elapsed() < PATIENCE);
    let found = findings(&done);
    assert_eq!(state(&found, "server"), "note");
    assert_eq!(state(&found, "certificate"), "note");
    assert_eq!(std::fs::read_dir(site.folder()).expect("a folder").count(), 0);
    // The documentation lists exactly the checks that exist, by name.
    let page =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/doctor.md");
    let page = std::fs::read_to_string(page).expect("the page");
    for finding in &found {
        let id = finding["id"].as_str().expect("text");
        assert!(page.contains(&format!("\n| `{id}` |")), "{id} is not in docs/reference/doctor.md");
    }
}

#[test]
fn people_get_a_table_and_programs_what_they_ask_for() {
    let site = Site::empty();
    let done = site.run(&["doctor"]);
    let text = String::from_utf8(done.stdout).expect("text");
    assert!(text.starts_with("State "), "{text}");
    assert!(!text.contains('\u{1b}'), "colours are written to a pipe: {text}");
    let done = site.run(&["doctor", "-o", "tsv", "--query", "[?id=='kernel'].state"]);
    let state = String::from_utf8(done.stdout).expect("text");
    assert!(STATES.contains(&state.trim()), "{state:?}");
}

#[test]
fn a_server_that_runs_hangs_or_was_killed_is_seen_so() {
    let mut site = Site::start();
    let found = findings(&site.run(&["doctor", "-o", "json"]));
    for id in ["server", "certificate", "configuration", "state-directory"] {
        assert_eq!(state(&found, id), "ok", "{found:?}");
    }
    // A server that hangs is not waited for.
    let mut server = site.take_server();
    signal("-STOP", &server);
    let found = findings(&site.run(&["doctor", "-o", "json"]));
    assert_eq!(state(&found, "server"), "failure", "{found:?}");
    server.kill().expect("it exists");
    server.wait().expect("it was killed");
    let found = findings(&site.run(&["doctor", "-o", "json"]));
    assert_eq!(state(&found, "server"), "note", "{found:?}");
    std::fs::write(site.state().join("muster.toml"), "lisen = 1\n").expect("written");
    std::fs::write(site.state().join("connection.json"), "{").expect("written");
    std::fs::write(site.state().join("pki/server.pem"), "x").expect("written");
    let done = site.run(&["doctor", "-o", "json"]);
    let found = findings(&done);
    for id in ["server", "certificate", "configuration"] {
        assert_eq!(state(&found, id), "failure", "{found:?}");
        assert!(done.stderr.contains(id), "{}", done.stderr);
    }
}

/// In a namespace of its own, where user namespaces are switched off: the machine's setting is not changed.
#[test]
fn required_isolation_fails_where_it_is_impossible() {
    let site = Site::empty();
    let original = site.command(&[]);
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" doctor -o json";
    let run = |isolation: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", script]);
        command.arg(env!("CARGO_BIN_EXE_muster"));
        as_in(&original, &mut command);
        done(command.env("MUSTER_ISOLATION", isolation).output().expect("unshare runs"))
    };
    let strict = run("sandbox");
    if strict.stdout.is_empty() {
        let why = format!("no user namespace to try it in: {}", strict.stderr);
        return muster_testing::skip_or_fail(&why);
    }
    assert_eq!(strict.code, 1);
    for (done, wanted) in [(strict, "failure"), (run("auto"), "warning"), (run("none"), "note")] {
        let found = findings(&done);
        for id in ["user-namespaces", "namespace-user", "helper"] {
            assert_eq!(state(&found, id), wanted, "{id}: {found:?}");
        }
    }
}

fn as_in(original: &Command, command: &mut Command) {
    for (name, value) in original.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Root becomes another user for this test; any other user already ran the other tests without privileges.
#[test]
fn another_user_gets_a_report_too() {
    if !rustix::process::geteuid().is_root() {
        return muster_testing::skip_or_fail(
            "not root: the other tests already ran without privileges",
        );
    }
    let site = Site::empty();
    // A copy that other users can reach, because they may not enter the folder that it was built in.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(site.folder(), open).expect("ours");
    let copy = site.folder().join("muster");
    std::fs::copy(env!("CARGO_BIN_EXE_muster"), &copy).expect("copied");
    let original = site.command(&[]);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
    command.args(["doctor", "-o", "json"]).current_dir("/");
    as_in(&original, &mut command);
    let found = findings(&done(command.output().expect("setpriv runs")));
    assert_eq!(state(&found, "users"), "note", "{found:?}");
    // It may not write where root's state would be.
    assert_eq!(state(&found, "state-directory"), "failure", "{found:?}");
}
