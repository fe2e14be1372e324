//! The history of a compute on a real server: from what is sampled to what the API and the command line show.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Site;

/// The largest value of a metric in the history.
fn most(history: &Value, metric: &str) -> f64 {
    let series = history["series"].as_array().expect("a list");
    let found = series.iter().find(|series| series["metric"] == metric);
    let values = found.and_then(|series| series["max"].as_array()).into_iter().flatten();
    values.filter_map(Value::as_f64).fold(0.0, f64::max)
}

/// It takes up to 70 seconds, in which it only waits: a server looks every ten seconds and writes when a minute is over.
/// Another interval would need a setting that users have no use for.
#[test]
fn the_use_of_a_compute_and_its_node_is_recorded_and_shown() {
    let mut site = Site::start();
    site.text(&["compute", "create", "cpu", "--min-instances", "1", "--max-instances", "1"]);
    site.text(&["job", "create", "busy", "--compute", "cpu", "--command", "sleep 1000"]);
    site.text(&["job", "create", "waits", "--compute", "cpu", "--command", "true"]);
    let command = ["compute", "history", "cpu", "--since", "10m", "-o", "json"];
    let started = Instant::now();
    let history = loop {
        let history = site.json(&command);
        if most(&history, "nodes.busy") > 0.0 {
            break history;
        }
        assert!(started.elapsed() < Duration::from_secs(150), "nothing is recorded: {history}");
        std::thread::sleep(Duration::from_millis(500));
    };
    for (metric, expected) in [("nodes.busy", 1.0), ("jobs.running", 1.0), ("jobs.queued", 1.0)] {
        assert_eq!(most(&history, metric), expected, "{metric} in {history}");
    }
    assert!(most(&history, "cost.run") > 0.0, "{history}");
    assert_eq!(history["compute"], "cpu");

    let node = history["nodes"][0]["name"].as_str().expect("a node has a history").to_owned();
    let of_node = ["compute", "history", "cpu", "--since", "10m", "--node", &node, "-o", "json"];
    assert!(most(&site.json(&of_node), "memory") > 0.0, "the sleeping job needs some memory");
    let table = site.text(&["compute", "history", "cpu", "--since", "10m", "-o", "table"]);
    for metric in ["nodes.busy", "jobs.queued", "cost.run", "memory"] {
        assert!(table.contains(metric), "{metric} in {table}");
    }

    site.kill();
    site.up();
    let again = site.json(&command);
    assert!(most(&again, "nodes.busy") > 0.0, "it survives a crash of the server: {again}");
}
