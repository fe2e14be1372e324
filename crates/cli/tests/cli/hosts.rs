//! Hosts through the real binary: the resources of the server's own machine, jobs that wait for room, and join tokens.

use crate::support::Site;

#[test]
fn the_machine_is_a_host_that_is_shown_closed_and_opened() {
    let site = Site::start();
    let hosts = site.json(&["host", "list"]);
    let [local] = hosts.as_array().expect("a list").as_slice() else { panic!("{hosts}") };
    assert_eq!((&local["name"], &local["state"]), (&"local".into(), &"open".into()));
    assert_eq!((&local["over_commit"], &local["pool"]), (&true.into(), &"/".into()));
    assert!(local["cores"].as_u64() > Some(0) && local["memory_mb"].as_u64() > Some(0), "{local}");
    let table = site.text(&["host", "list", "-o", "table"]);
    assert!(table.contains("open, over-commit"), "{table}");
    for (verb, state) in [("cordon", "cordoned"), ("drain", "drained"), ("uncordon", "open")] {
        assert_eq!(site.json(&["host", verb, "local"])["state"], state);
        assert_eq!(site.json(&["host", "show", "local"])["state"], state);
    }
    let removed = site.run(&["host", "remove", "local", "--yes"]);
    assert_eq!(removed.code, 2, "{}", removed.stderr);
    assert!(removed.stderr.contains("muster host drain local"), "{}", removed.stderr);
    assert_eq!(site.run(&["host", "show", "nowhere"]).code, 3);
    assert_eq!(site.run(&["host", "show", "no_name"]).code, 2);
}

#[test]
fn without_over_commit_a_node_that_is_too_large_waits_and_why_says_so() {
    let mut site = Site::empty();
    site.start_with(&["--over-commit=false", "--isolation", "none"]);
    // No machine that runs tests has this much.
    let create = ["compute", "create", "-n", "huge", "--size", "Standard_M128s"];
    let made = site.run(&[&create[..], &["--max-instances", "1"]].concat());
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stderr.contains("fits on no host"), "{}", made.stderr);
    site.text(&["job", "create", "--name", "waits", "--compute", "huge", "--command", "true"]);
    let why = site.json(&["why", "waits", "-o", "json"]);
    assert!(why.to_string().contains("HostsTooSmall"), "{why}");
    assert!(why.to_string().contains("muster host token"), "{why}");
    let gpus = site.run(&["compute", "create", "-n", "gpu", "--size", "Standard_ND96asr_v4"]);
    assert_eq!(gpus.code, 2, "{}", gpus.stderr);
    assert!(gpus.stderr.contains("GPUs"), "{}", gpus.stderr);
}

#[test]
fn a_token_says_what_to_run_and_is_for_whom_it_says() {
    let site = Site::start();
    let made = site.json(&["host", "token", "--name", "box", "--compute", "cpu"]);
    let command = made["command"].as_str().expect("text");
    assert!(command.starts_with("muster agent --join https://localhost:"), "{command}");
    assert!(command.contains(" --token mjt_") && command.ends_with(" --name box"), "{command}");
    let pool = made["pool"].as_str().expect("text");
    assert!(pool.ends_with("/workspaces/default/computes/cpu"), "{pool}");
    let refused = site.run(&["host", "token", "--expires-in", "60d"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert_eq!(site.run(&["host", "token", "--scope", "nowhere"]).code, 2);
}
