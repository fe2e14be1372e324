//! Ended jobs are removed after their time, by a real server that is killed in between, and nothing else changes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::Site;
use crate::support::sandbox::wait_until;

/// The server continues from the time that an earlier one recorded, so this is what it believes after its next start.
fn set_clock(site: &Site, days_from_now: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    std::fs::write(site.state().join("clock"), format!("{}\n", now + days_from_now * 86_400))
        .expect("our own folder");
}

fn names(site: &Site) -> Vec<String> {
    let jobs = site.json(&["job", "list"]);
    let name = |job: &Value| job["name"].as_str().expect("text").to_owned();
    let mut names: Vec<String> = jobs.as_array().expect("a list").iter().map(name).collect();
    names.sort();
    names
}

fn costs(site: &Site) -> Vec<Value> {
    let by = |by| site.json(&["cost", "--by", by, "-o", "json"]);
    ["cluster", "user", "category", "tag:team"].map(by).into()
}

fn run(site: &Site, name: &str, more: &[&str]) {
    let job = ["job", "create", "-n", name, "--compute", "cpu", "--command", "echo hello"];
    site.text(&[&job[..], more].concat());
    site.wait_for_job(name, |job| job["status"] == "Completed");
}

/// Takes several seconds, because it starts a server three times and runs jobs on real nodes.
#[test]
fn ended_jobs_go_after_their_time_and_the_costs_stay() {
    let mut site = Site::start_plain();
    site.text(&["compute", "create", "-n", "cpu", "--max-instances", "1", "-d", "1"]);
    for number in 0..12 {
        run(&site, &format!("old-{number:02}"), &["--tags", "team=red"]);
    }
    run(&site, "tree", &["--array", "1-3"]);
    site.text(&["compute", "create", "-n", "none", "--max-instances", "0"]);
    site.text(&["job", "create", "-n", "waiting", "--compute", "none", "--command", "true"]);
    wait_until("the node is deleted", || {
        site.json(&["compute", "list-nodes", "-n", "cpu"]) == Value::Array(Vec::new())
    });
    let (before, jobs) = (costs(&site), names(&site));
    assert_eq!(jobs.len(), 14, "{jobs:?}");
    let verify = ["monitor", "activity-log", "verify"];
    site.text(&verify);

    // The default is 400 days.
    site.kill();
    set_clock(&site, 399);
    site.start_with(&["--isolation", "none"]);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(names(&site), jobs);

    // It is killed while it removes them, and the next one continues.
    site.kill();
    set_clock(&site, 401);
    site.start_with(&["--isolation", "none"]);
    wait_until("the first ones are removed", || names(&site).len() < jobs.len());
    site.kill();
    site.start_with(&["--isolation", "none"]);
    wait_until("all of them are removed", || names(&site) == ["waiting"]);
    assert_eq!(costs(&site), before);
    assert_ne!(site.run(&["job", "show", "-n", "tree_2"]).code, 0, "it goes with its array");
    let logs = site.state().join("logs");
    wait_until("their logs are removed", || std::fs::read_dir(&logs).expect("io").count() == 0);
    run(&site, "old-00", &[]);

    // Everything that the activity log had is too old, except for what was recorded since.
    site.text(&["group", "create", "-n", "lab", "-l", "westus"]);
    site.text(&verify);

    let sizes = site.json(&["storage", "show", "-o", "json"]);
    let row = |content: &str| {
        let rows = sizes.as_array().expect("a list");
        rows.iter().find(|row| row["content"] == content).expect("it is shown").clone()
    };
    assert_eq!(row("jobs")["entries"], 2, "{sizes}");
    assert_eq!(row("jobs")["settings"]["job-days"], 400, "{sizes}");
    assert_eq!(row("activity log")["settings"]["activity-days"], 90, "{sizes}");
    assert!(row("event log")["bytes"].as_u64().expect("a number") > 0, "{sizes}");
    let table = site.text(&["storage", "show"]);
    assert!(table.contains("job-days = 400") && table.contains("total"), "{table}");
}
