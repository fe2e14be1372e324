//! `--dry-run` of every change: it prints what would happen, and changes nothing.

use crate::support::{CLUSTER, Site};

/// Everything that a server shows, and the file of defaults.
fn whole_state(site: &Site) -> String {
    let mut state = String::new();
    for command in [
        &["workspace", "list"][..],
        &["resource", "list"],
        &["group", "list"],
        &["lock", "list"],
        &["compute", "list"],
        &["compute", "list-usage", "-l", "eastus"],
        &["job", "list"],
        &["user", "list"],
        &["role", "assignment", "list"],
        &["quota", "list", "-l", "eastus"],
        &["cost", "-o", "json"],
    ] {
        state.push_str(&site.text(command));
    }
    let defaults = std::fs::read_to_string(site.config().join("defaults.json"));
    state.push_str(&defaults.unwrap_or_default());
    state
}

/// Every change that has a dry run.
const CHANGES: [&[&str]; 27] = [
    &["compute", "create", "-n", "new", "--max-instances", "3"],
    &["compute", "create", "-n", "cpu", "--max-instances", "3"],
    &["compute", "create", "-n", "new", "-w", "fresh"],
    &["compute", "update", "-n", "cpu", "--set", "tags.x=y"],
    &["compute", "delete", "-n", "cpu"],
    &["compute", "delete", "-n", "none-such"],
    &["compute", "start", "-n", "cpu"],
    &["compute", "stop", "-n", "cpu"],
    &["compute", "restart", "-n", "cpu"],
    &["workspace", "create", "-n", "fresh"],
    &["workspace", "update", "-n", "default", "--tags", "a=b"],
    &["workspace", "delete", "-n", "default"],
    &["group", "create", "-n", "fresh", "-l", "eastus"],
    &["group", "update", "-n", "default", "--tags", "a=b"],
    &["group", "delete", "-n", "default"],
    &["lock", "create", "-n", "new", "-t", "ReadOnly", "-g", "default"],
    &["lock", "update", "-n", "keep", "-g", "default", "--notes", "other"],
    &["lock", "delete", "-n", "keep", "-g", "default"],
    &["job", "create", "--compute", "cpu", "--command", "true"],
    &["job", "cancel", "-n", "done"],
    &["user", "create", "-n", "bob"],
    &["user", "rotate-key", "-n", "ada"],
    &["user", "revoke-key", "-n", "ada"],
    &["user", "delete", "-n", "ada"],
    &["role", "assignment", "create", "--assignee", "ada", "--role", "Owner", "--scope", "/"],
    &["role", "assignment", "delete", "--assignee", "ada", "--role", "Reader", "--scope", "/"],
    &["quota", "update", "-n", "TotalDedicatedCores", "--limit", "8", "-l", "eastus"],
];

#[test]
fn nothing_changes() {
    let site = Site::start();
    site.text(&CLUSTER);
    site.text(&["user", "create", "-n", "ada"]);
    let reader = ["--assignee", "ada", "--role", "Reader", "--scope", "/"];
    site.text(&[&["role", "assignment", "create"], &reader[..]].concat());
    site.text(&["configure", "--defaults", "location=eastus"]);
    site.text(&["compute", "create", "-n", "run", "-d", "1"]);
    site.text(&[
        "job",
        "create",
        "-n",
        "done",
        "--compute",
        "run",
        "--command",
        "true",
        "--stream",
    ]);
    site.text(&["compute", "delete", "-n", "run", "--yes"]);
    site.text(&["lock", "create", "-n", "keep", "-t", "CanNotDelete", "-g", "default"]);
    let before = whole_state(&site);
    for change in CHANGES {
        let done = site.run(&[change, &["--dry-run"]].concat());
        assert_eq!(done.code, 0, "{change:?}: {}", done.stderr);
        assert!(done.stderr.contains("is not sent"), "{change:?}: {}", done.stderr);
        let shown: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
        assert_eq!(shown["dry_run"], true, "{change:?}");
        assert!(whole_state(&site) == before, "{change:?} changed something");
    }
    let configure = ["configure", "--defaults", "group=other", "--dry-run"];
    assert_eq!(site.json(&configure)["group"], "other");
    assert!(whole_state(&site) == before, "configure changed something");
}

#[test]
fn it_shows_the_request_the_difference_and_the_price() {
    let site = Site::start();
    let new = site.run(&[&CLUSTER[..], &["--dry-run"]].concat());
    assert!(new.stderr.contains("at most 0.58 USD per hour"), "{}", new.stderr);
    let new: serde_json::Value = serde_json::from_slice(&new.stdout).expect("JSON");
    assert_eq!((&new["is_there"], &new["method"]), (&false.into(), &"PUT".into()));
    assert_eq!(new["body"]["tags"]["team"], "blue");
    assert_eq!(new["usd_per_hour_max"], "0.58");

    site.text(&CLUSTER);
    let update = ["compute", "update", "-n", "cpu", "--max-instances", "3", "--dry-run"];
    let shown = site.json(&update);
    assert_eq!(shown["is_there"], true);
    let changes = shown["changes"].as_array().expect("a list");
    assert_eq!(changes.len(), 1, "{shown}");
    let field = "properties.properties.scaleSettings.maxNodeCount";
    assert_eq!(changes[0], serde_json::json!({"field": field, "now": 2, "then": 3}));
    assert_eq!(shown["usd_per_hour_max"], "0.87");
    let table = site.text(&[&update[..], &["-o", "table"]].concat());
    assert!(table.contains(&format!("{field}  2    3")), "{table}");
    let nothing = site.run(&["compute", "update", "-n", "cpu", "--dry-run", "-o", "table"]);
    assert!(nothing.stderr.contains("no changes"), "{}", nothing.stderr);
    let secret =
        ["compute", "create", "-n", "s", "--admin-username", "ada", "--admin-password", "hush"];
    let secret = site.run(&[&secret[..], &["--dry-run"]].concat());
    let shown = String::from_utf8(secret.stdout).expect("text");
    assert!(shown.contains("***") && !shown.contains("hush"), "{shown}");
}
