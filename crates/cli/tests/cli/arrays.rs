//! An array on real nodes, through a killed server and an evicted node: no task is lost, and none completes twice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Site;

const TASKS: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(90);

fn children(site: &Site) -> [u64; 5] {
    let job = site.json(&["job", "show", "-n", "many"]);
    let keys = ["waiting", "running", "completed", "failed", "canceled"];
    keys.map(|key| job["children"][key].as_u64().expect("a number"))
}

fn wait_until(site: &Site, what: &str, is_there: impl Fn([u64; 5]) -> bool) {
    let started = Instant::now();
    while !is_there(children(site)) {
        assert!(started.elapsed() < PATIENCE, "{what}: {:?}", children(site));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The cost in millionths of a dollar.
fn cost(site: &Site, job: &str) -> u64 {
    let attempts = site.json(&["job", "list-attempts", "-n", job]);
    let cost = |attempt: &Value| attempt["cost_usd"].as_str().expect("text").parse::<f64>();
    let sum: f64 =
        attempts.as_array().expect("a list").iter().map(|it| cost(it).expect("it")).sum();
    (sum * 1e6).round() as u64
}

/// Every seventh task fails. A line per task and ending is outside of everything that the server does.
#[test]
fn an_array_survives_a_killed_server_and_an_evicted_node() {
    let mut site = Site::start_plain();
    let marks = site.folder().join("marks");
    let pool = ["--max-instances", "3", "--tier", "low_priority", "-d", "60"];
    site.text(&[&["compute", "create", "--name", "pool"][..], &pool].concat());
    let command = format!(
        "i=$MUSTER_ARRAY_INDEX; echo start $i >> {0}; sleep 0.02; echo end $i >> {0}; test $((i % 7)) != 0",
        marks.display()
    );
    let indices = format!("1-{TASKS}");
    let array = ["job", "create", "--name", "many", "--compute", "pool", "--array", &indices];
    site.text(&[&array[..], &["--command", &command]].concat());

    wait_until(&site, "a quarter has ended", |[.., completed, _, _]| completed > TASKS / 4);
    let nodes = site.json(&["compute", "list-nodes", "-n", "pool"]);
    let busy =
        nodes.as_array().expect("a list").iter().find(|node| !node["current_job_name"].is_null());
    let node = busy.unwrap_or(&nodes[0])["node_id"].as_str().expect("text").to_owned();
    site.text(&["compute", "evict", "--name", "pool", "--node", &node]);
    wait_until(&site, "half has ended", |[.., completed, failed, _]| {
        completed + failed > TASKS / 2
    });
    let before = children(&site);
    site.kill();
    site.start_with(&["--isolation", "none"]);
    let after = children(&site);
    assert!(after[2] >= before[2] && after[3] >= before[3], "{before:?} before, {after:?} after");
    assert_eq!(after.iter().sum::<u64>(), TASKS, "none is lost");
    site.wait_for_job("many", |job| job["status"] == "Failed");

    let failing = TASKS / 7;
    assert_eq!(children(&site), [0, 0, TASKS - failing, failing, 0]);
    let list = site.json(&["job", "list", "--parent-job-name", "many", "--all-results"]);
    let mut attempts: BTreeMap<u64, u64> = BTreeMap::new();
    for task in list.as_array().expect("a list") {
        let index = task["array_index"].as_u64().expect("a number");
        let expected = if index % 7 == 0 { "Failed" } else { "Completed" };
        assert_eq!(task["status"], expected, "{index}");
        attempts.insert(index, task["attempts"].as_u64().expect("a number"));
    }
    assert!(attempts.keys().copied().eq(1..=TASKS));
    // What ended was not run again: a task has as many ends as attempts that were not cut short.
    let marks = std::fs::read_to_string(&marks).expect("tasks ran");
    for (index, attempts) in &attempts {
        let count = |what: &str| {
            marks.lines().filter(|line| **line == format!("{what} {index}")).count() as u64
        };
        assert!((1..=*attempts).contains(&count("end")), "{index}: {attempts} attempts");
        assert!(count("start") <= *attempts, "{index}: {attempts} attempts");
    }
    let again = attempts.values().filter(|attempts| **attempts > 1).count();
    assert!(again <= 3, "only what the evicted node ran: {again}");
    let sum: u64 = (1..=TASKS).map(|index| cost(&site, &format!("many_{index}"))).sum();
    assert!(sum.abs_diff(cost(&site, "many")) <= TASKS, "each task is rounded by itself: {sum}");
}
