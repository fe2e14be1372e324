//! Why things wait, and that the command in a reason lifts it.

use std::process::Command;

use crate::support::{CLUSTER, Site, done};
use serde_json::Value;

const FAMILY: &str = "standardDSv2Family";

/// Runs a command as a person would paste it.
fn paste(site: &Site, command: &str) {
    let arguments = command.strip_prefix("muster ").expect("the command is muster's");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec \"$0\" {arguments}"), env!("CARGO_BIN_EXE_muster")]);
    let shell = shell.env("MUSTER_STATE_DIR", site.state()).env("MUSTER_CONFIG_DIR", site.config());
    let pasted = done(shell.output().expect("sh runs"));
    assert_eq!(pasted.code, 0, "{command}: {}", pasted.stderr);
}

fn submit(site: &Site, name: &str, nodes: &str) {
    let job = ["job", "create", "--compute", "cpu", "-n", name, "--instance-count", nodes];
    site.text(&[&job[..], &["--command", "exec sleep 600"]].concat());
}

/// The first reason, which must be this one.
fn first_reason(site: &Site, name: &str, code: &str) -> Value {
    let why = site.json(&["why", name, "-o", "json"]);
    assert_eq!(why["value"][0]["code"], code, "{why}");
    why["value"][0].clone()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

#[test]
fn a_job_says_why_it_waits_and_the_command_lifts_it() {
    let site = Site::start();
    site.text(&["compute", "create", "-n", "cpu", "--max-instances", "0", "-d", "60"]);
    submit(&site, "held", "1");
    let shown = site.text(&["why", "held"]);
    assert!(
        shown.starts_with(
            "1. MaximumTooLow: compute 'cpu' has at most 0 nodes, but this job needs 1; \
             raise the maximum\n   max_instances is 0; 1 would be needed\n     muster compute update --name cpu --max-instances 1\n"
        ),
        "{shown}"
    );
    let watched = site.text(&["compute", "watch", "cpu", "--count", "1"]);
    assert!(watched.contains("; MaximumTooLow: compute 'cpu' has at most 0 nodes"), "{watched}");
    let table = site.text(&["job", "show", "-n", "held", "-o", "table"]);
    assert!(table.contains("held is waiting because:\n1. compute 'cpu' has at most 0"), "{table}");
    let reason = first_reason(&site, "held", "MaximumTooLow");
    assert_eq!((&reason["limit"], &reason["value"]), (&"max_instances".into(), &0.into()));
    assert_eq!(reason["needed"], 1);
    let of_cluster = site.json(&["why", "cpu", "-o", "json"]);
    assert_eq!(
        of_cluster["value"][0], reason,
        "the reason of the first job is also why the cluster is small"
    );

    paste(&site, text(&reason["command"]));
    site.wait_for_job("held", |job| job["status"] == "Running");
    let running = site.text(&["why", "held"]);
    assert!(running.starts_with("job 'held' has been running since 2"), "{running}");
    assert_eq!(site.json(&["why", "held", "-o", "json"])["value"], Value::Array(Vec::new()));
    let busy = site.text(&["why", "--compute", "cpu"]);
    assert!(busy.starts_with("1. Busy: "), "{busy}");
    site.run(&["job", "cancel", "-n", "held"]);
    let ended = site.text(&["why", "held"]);
    assert!(ended.starts_with("job 'held' was canceled at 2"), "{ended}");
}

#[test]
fn a_submit_says_whether_the_job_suits_low_priority() {
    let site = Site::start();
    let create = ["compute", "create", "--max-instances", "0", "-n"];
    site.text(&[&create[..], &["spot", "--tier", "low_priority"]].concat());
    site.text(&[&create[..], &["cpu"]].concat());
    let submit = |name: &str, compute: &str, more: &[&str]| {
        let job = ["job", "create", "-n", name, "--compute", compute, "--command", "true"];
        let done = site.run(&[&job[..], more].concat());
        assert_eq!(done.code, 0, "{}", done.stderr);
        let shown = site.json(&["job", "show", "-n", name]);
        (done.stderr, shown["properties"]["muster.lowPriority"].as_str().unwrap_or("").to_owned())
    };
    let (said, suits) = submit("plain", "spot", &[]);
    assert!(said.contains("note: compute 'spot' has low priority, and this job suits"), "{said}");
    assert!(suits.contains("only if it is short") && suits.contains("--checkpoint"), "{suits}");
    let (said, suits) = submit("keeps", "spot", &["--checkpoint", "state"]);
    assert!(!said.contains("note: "), "{said}");
    assert!(suits.starts_with("suits low priority: "), "{suits}");
    let (said, suits) = submit("fails", "spot", &["--on-eviction", "fail"]);
    assert!(said.contains("this job does not suit low priority"), "{said}");
    assert!(suits.starts_with("does not suit low priority"), "{suits}");
    let (said, suits) = submit("dedicated", "cpu", &["--checkpoint", "state"]);
    assert!(!said.contains("note: "), "{said}");
    assert!(suits.starts_with("suits low priority: "), "also on dedicated nodes: {suits}");
}

#[test]
fn a_timeline_shows_the_phase_that_failed() {
    let site = Site::start();
    site.text(&CLUSTER);
    let job = ["job", "create", "-n", "bad", "--compute", "cpu", "--command", "exit 3"];
    site.text(&job);
    site.wait_for_job("bad", |job| job["status"] == "Failed");
    let table = site.text(&["job", "timeline", "bad"]);
    assert!(table.contains("run (failed)"), "{table}");
    assert!(table.contains("failed in phase run: the command ended with exit code 3"), "{table}");
    let shown = site.json(&["job", "timeline", "bad", "-o", "json"]);
    assert_eq!(shown["attempts"][0]["failed_in"], "run", "{shown}");
    site.text(&["job", "create", "-n", "good", "--compute", "cpu", "--command", "true"]);
    site.wait_for_job("good", |job| job["status"] == "Completed");
    assert!(!site.text(&["job", "timeline", "good"]).contains("failed"));
}

#[test]
fn what_does_not_exist_has_no_reasons() {
    let site = Site::start();
    let unknown = site.run(&["why", "no-such"]);
    assert_eq!((unknown.code, unknown.stdout.len()), (3, 0));
    assert!(unknown.stderr.contains("no job or cluster 'no-such'"), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("hint: list them with `muster job list"), "{}", unknown.stderr);
    assert_eq!(site.run(&["why", "no-such", "--job"]).code, 3);
    assert_eq!(site.run(&["why", "no-such", "--compute"]).code, 3);
}

#[test]
fn a_misspelt_name_gets_the_one_that_was_meant() {
    let site = Site::start();
    site.text(&["compute", "create", "-n", "cpu-cluster", "--max-instances", "0"]);
    let job = ["job", "create", "--command", "true", "-n", "training-run", "--compute"];
    site.text(&[&job[..], &["cpu-cluster"]].concat());
    let cases: [(&[&str], i32, &str); 12] = [
        (&["compute", "show", "-n", "cpu"], 3, "cpu-cluster"),
        (&["compute", "list-nodes", "-n", "cpu-xluster"], 3, "cpu-cluster"),
        (&["compute", "update", "-n", "cpu_cluster"], 3, "cpu-cluster"),
        (&["compute", "delete", "-y", "-n", "cpucluster"], 3, "cpu-cluster"),
        (&["job", "create", "--command", "true", "--compute", "cpu"], 2, "cpu-cluster"),
        (&["job", "show", "-n", "trainingrun"], 3, "training-run"),
        (&["job", "stream", "-n", "training"], 3, "training-run"),
        (&["job", "cancel", "-n", "training-rum"], 3, "training-run"),
        (&["why", "cpu"], 3, "cpu-cluster"),
        (&["why", "training"], 3, "training-run"),
        (&["why", "training", "--job"], 3, "training-run"),
        (&["quota", "show", "-l", "eastus", "-n", "TotalDedicatedCore"], 3, "TotalDedicatedCores"),
    ];
    for (command, code, wanted) in cases {
        let failed = site.run(command);
        assert_eq!((failed.code, failed.stdout.len()), (code, 0), "{command:?}");
        let hint = format!("\nhint: did you mean '{wanted}'?\n");
        assert!(failed.stderr.ends_with(&hint), "{command:?}: {}", failed.stderr);
    }
    let other = site.run(&["compute", "show", "-n", "zebra"]);
    assert!(!other.stderr.contains("did you mean"), "{}", other.stderr);
    // A refusal for another reason does not suggest another name.
    let refused = site.run(&[&job[..], &["cpu-cluster", "--cpus", "64"]].concat());
    assert_eq!(refused.code, 2);
    assert!(!refused.stderr.contains("did you mean"), "{}", refused.stderr);
}

#[test]
fn the_commands_of_a_reason_reach_the_place_that_was_asked_about() {
    let site = Site::start();
    let place = ["-w", "other-space", "--subscription", "s"];
    let create = ["compute", "create", "-n", "idle", "--max-instances", "1"];
    site.text(&[&create[..], &place].concat());
    let why = site.json(&[&["why", "idle", "-o", "json"], &place[..]].concat());
    assert_eq!(why["value"][0]["code"], "Empty");
    let command = text(&why["value"][0]["command"]).to_owned();
    assert!(command.ends_with("--workspace-name other-space --subscription s"), "{command}");
    let shown = || site.json(&[&["compute", "show", "-n", "idle"], &place[..]].concat());
    assert_eq!(shown()["min_instances"], 0);
    paste(&site, &command);
    assert_eq!(shown()["min_instances"], 1);
    site.text(&[&["compute", "delete", "-y", "-n", "idle"], &place[..]].concat());
}

#[test]
fn a_quota_refuses_clusters_and_holds_jobs_until_it_is_raised() {
    let site = Site::start();
    site.text(&["compute", "create", "-n", "probe", "--max-instances", "0"]);
    let region = site.json(&["compute", "show", "-n", "probe"])["location"].clone();
    let region = text(&region);
    let limit =
        |vcpus: &str| site.json(&["quota", "update", "-l", region, "-n", FAMILY, "--limit", vcpus]);
    assert_eq!(
        limit("4").to_string(),
        r#"{"limit":4,"name":"standardDSv2Family","reserved":0,"used":0}"#
    );
    let refused = site.run(&CLUSTER);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("\nerror: (QuotaExceeded) "), "{}", refused.stderr);
    assert!(refused.stderr.contains("muster quota update --location"), "{}", refused.stderr);

    assert_eq!(limit("none")["limit"], 100_000, "the default applies again");
    site.text(&CLUSTER);
    assert_eq!(limit("4")["reserved"], 8, "existing clusters are kept");
    submit(&site, "first", "1");
    site.wait_for_job("first", |job| job["status"] == "Running");
    submit(&site, "second", "1");
    let reason = first_reason(&site, "second", "QuotaReached");
    assert_eq!((&reason["value"], &reason["needed"]), (&4.into(), &8.into()));
    // Lists of jobs, and single jobs, show the code of each reason.
    let jobs = site.json(&["job", "list"]);
    let second = jobs.as_array().and_then(|jobs| jobs.iter().find(|job| job["name"] == "second"));
    assert_eq!(second.expect("it is listed")["wait_codes"][0], "QuotaReached", "{jobs}");
    let table = site.text(&["job", "list", "-o", "table"]);
    assert!(table.contains("QuotaReached"), "{table}");
    assert_eq!(site.json(&["job", "show", "-n", "second"])["wait_codes"][0], "QuotaReached");
    paste(&site, text(&reason["command"]));
    site.wait_for_job("second", |job| job["status"] == "Running");
    let shown =
        site.text(&["quota", "show", "-l", region, "-n", "standarddsv2family", "-o", "table"]);
    assert_eq!(shown.lines().last(), Some("standardDSv2Family  8      8         8"), "{shown}");

    for job in ["first", "second"] {
        site.text(&["job", "cancel", "-n", job]);
    }
    limit("4");
    submit(&site, "pair", "2");
    let reason = first_reason(&site, "pair", "QuotaTooLow");
    paste(&site, text(&reason["command"]));
    site.wait_for_job("pair", |job| job["status"] == "Running");

    let table = site.text(&["quota", "list", "-l", region, "-o", "table"]);
    assert!(table.starts_with("Name "), "{table}");
    assert!(
        table
            .lines()
            .any(|line| line.starts_with("TotalDedicatedCores ") && line.contains("100000"))
    );
    let unknown = site.run(&["quota", "update", "-l", region, "-n", "nothing", "--limit", "1"]);
    assert_eq!(unknown.code, 2, "{}", unknown.stderr);
    assert_eq!(site.run(&["quota", "show", "-l", region, "-n", "nothing"]).code, 3);
}

#[test]
fn priorities_shares_and_ways_to_grow_are_kept_and_shown() {
    let site = Site::start();
    let create = ["compute", "create", "-n", "cpu", "--max-instances", "1", "-d", "60"];
    let created = site.json(&[&create[..], &["--scale-up", "predictive"]].concat());
    assert_eq!(created["scale_up"], "predictive");
    let updated = site.json(&["compute", "update", "-n", "cpu", "--scale-up", "immediate"]);
    assert_eq!(updated["scale_up"], "immediate");

    let job = |name: &'static str| ["job", "create", "--compute", "cpu", "-n", name];
    let share = ["--command", "sleep 600", "--cpus", "2", "--memory", "4GB", "--gpus", "0"];
    let one = site.json(&[&job("one")[..], &share, &["--priority", "high"]].concat());
    assert_eq!(one["queue_settings"]["priority"], "high");
    assert_eq!(one["resources"]["properties"].to_string(), r#"{"cpus":2,"gpus":0,"memory":"4GB"}"#);
    site.json(&[&job("two")[..], &share].concat());
    // Both fit on the only node.
    for name in ["one", "two"] {
        site.wait_for_job(name, |job| job["status"] == "Running");
    }
    let usual = site.json(&["job", "show", "-n", "two"]);
    assert!(usual.get("queue_settings").is_none(), "{usual}");
    for (bad, words) in [
        (&["--cpus", "0"][..], "at least 1"),
        (&["--cpus", "64"], "ask for less"),
        (&["--gpus", "1"], "ask for less"),
        (&["--memory", "lots"], "4GB"),
        (&["--priority", "urgent"], "low, medium or high"),
    ] {
        let refused = site.run(&[&job("bad")[..], &["--command", "true"], bad].concat());
        assert_eq!(refused.code, 2, "{bad:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(words), "{bad:?}: {}", refused.stderr);
    }
}
