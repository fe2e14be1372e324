//! `muster whatif` from the real binary: what it prints, draws and refuses. It contacts no server.

use std::path::Path;

use crate::support::Site;

const HEADER: &str = "submit_s,duration_s,nodes,gpus_per_node,user,group\n";
const FIELDS: [&str; 16] = [
    "billed_node_h",
    "boot_node_h",
    "boot_s",
    "busy_node_h",
    "cold_share",
    "cost",
    "idle_node_h",
    "idle_s",
    "idle_share",
    "jobs",
    "max_nodes",
    "optimum_node_h",
    "queue_mean_s",
    "queue_p50_s",
    "queue_p95_s",
    "queue_p99_s",
];

/// A folder with a trace of these rows, and the path of the trace.
fn site(rows: &str) -> (Site, String) {
    let site = Site::empty();
    let path = site.folder().join("trace.csv");
    std::fs::write(&path, format!("{HEADER}{rows}")).expect("a file");
    let path = path.to_str().expect("text").to_owned();
    (site, path)
}

#[test]
fn a_row_per_setting_with_the_figures_that_can_be_worked_out_by_hand() {
    // The node is up at 180 s and runs an hour; half an hour later the next job arrives.
    let (site, trace) = site("0,3600,1,1,ann,\n5580,3600,1,1,,\n");
    let rows = site
        .json(&["whatif", "--trace", &trace, "--idle", "3600,0", "--boot", "180", "-o", "json"]);
    let rows = rows.as_array().expect("a list");
    assert_eq!(rows.len(), 2);
    for row in rows {
        let fields: Vec<&String> = row.as_object().expect("an object").keys().collect();
        assert_eq!(fields, FIELDS);
        assert_eq!((row["jobs"].as_u64(), row["max_nodes"].as_u64()), (Some(2), Some(1)));
        assert_eq!((row["boot_s"].as_u64(), row["busy_node_h"].as_f64()), (Some(180), Some(2.0)));
        assert_eq!(row["optimum_node_h"].as_f64(), Some(0.1));
    }
    let field = |row: usize, name: &str| rows[row][name].as_f64().expect(name);
    assert_eq!([field(0, "idle_s"), field(1, "idle_s")], [0.0, 3600.0]);
    // Nothing is kept: two boots, both waited for.
    assert_eq!([field(0, "boot_node_h"), field(0, "idle_node_h")], [0.1, 0.0]);
    assert_eq!([field(0, "queue_mean_s"), field(0, "cold_share")], [180.0, 1.0]);
    // Kept: 1800 s until the second job and 3600 s after it.
    assert_eq!([field(1, "boot_node_h"), field(1, "idle_node_h")], [0.05, 1.5]);
    assert_eq!([field(1, "queue_mean_s"), field(1, "cold_share")], [90.0, 0.5]);
    assert_eq!([field(1, "queue_p50_s"), field(1, "queue_p99_s")], [0.0, 180.0]);
    assert_eq!(field(1, "billed_node_h"), 3.55);
    assert!((field(1, "idle_share") - 1.5 / 3.55).abs() < 1e-12);
    let hour = field(0, "cost") / field(0, "billed_node_h");
    assert!((field(1, "cost") - 3.55 * hour).abs() < 1e-5 && hour > 0.0, "{hour}");
}

#[test]
fn the_table_has_the_maximum_first_and_the_optimum_beside() {
    let (site, trace) = site("0,3600,1,1,,\n0,3600,1,1,,\n");
    let table = site.text(&["whatif", "--trace", &trace, "--max-nodes", "2,1", "--idle", "0,600"]);
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(table.starts_with("Max nodes  Idle s  Queue mean s"), "{table}");
    assert!(lines[0].ends_with(&["Optimum", "h", "USD"]), "{table}");
    let settings: Vec<_> = lines[2..].iter().map(|cells| (cells[0], cells[1])).collect();
    assert_eq!(settings, [("1", "0"), ("1", "600"), ("2", "0"), ("2", "600")]);
    assert_eq!(lines[2][2..7], ["1980.0", "180", "3780", "3780", "100.0"]);
}

#[test]
fn the_example_runs_with_all_defaults_and_is_drawn() {
    let site = Site::empty();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/trace.csv");
    let trace = trace.to_str().expect("text");
    let drawing = site.folder().join("what if.svg");
    let table = site.text(&["whatif", "--trace", trace, "--plot", drawing.to_str().expect("text")]);
    assert_eq!(table.lines().count(), 2 + 6, "{table}");
    let svg = std::fs::read_to_string(drawing).expect("drawn");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!((svg.matches("<circle").count(), svg.matches("<polyline").count()), (6, 1));
    assert!(svg.contains("STANDARD_DS3_V2") || svg.contains("Standard_DS3_v2"), "{svg}");
    let again = site.text(&["whatif", "--trace", trace]);
    assert_eq!(again, table, "the same however the settings are shared between cores");
}

#[test]
fn what_is_wrong_is_named_with_the_remedy() {
    let (site, trace) = site("0,10,1,1,,\n5,10,4,1,,\n");
    let check = |arguments: &[&str], code: i32, wanted: &[&str]| {
        let done = site.run(&[&["whatif"], arguments].concat());
        assert_eq!(done.code, code, "{arguments:?}: {}", done.stderr);
        assert!(done.stdout.is_empty(), "{arguments:?}");
        for part in wanted {
            assert!(done.stderr.contains(part), "{arguments:?}: {}", done.stderr);
        }
    };
    check(&[], 2, &["--trace <FILE.csv>"]);
    check(&["--trace", "nowhere.csv"], 3, &["--trace: there is no file 'nowhere.csv'"]);
    let with = |more: &[&'static str]| [&["--trace", trace.as_str()], more].concat();
    check(
        &with(&["--max-nodes", "2"]),
        2,
        &["--max-nodes: the job of line 3 needs 4", "at least 4"],
    );
    check(&with(&["--max-nodes", "10001"]), 2, &["10001 nodes", "at most 10000"]);
    check(&with(&["--max-nodes", "0"]), 2, &["'0'", "from 1"]);
    check(&with(&["--idle", "60,x"]), 2, &["'x'", "a whole number of seconds"]);
    check(&with(&["--idle", "-1"]), 2, &["'-1'", "a whole number of seconds"]);
    check(&with(&["--idle", "4000000000"]), 2, &["--idle: ", "too long", "2592000"]);
    check(&with(&["--boot", "100000"]), 2, &["--boot: ", "100000 s", "86400"]);
    check(&with(&["--size", "Standard_DS3_v3"]), 2, &["--size: ", "did you mean Standard_"]);
    check(&with(&["--scale-up", "never"]), 2, &["'never'", "immediate, predictive"]);
    check(&with(&["--plot", "/nowhere/x.svg"]), 1, &["--plot: cannot write '/nowhere/x.svg'"]);

    std::fs::write(&trace, format!("{HEADER}0,10,1,1,,\n9,ten\u{1b}[2J,1,1,,\n")).expect("a file");
    check(&with(&[]), 2, &["line 3, column duration_s: 'ten\u{fffd}[2J'", "such as 90"]);
    std::fs::write(&trace, "").expect("a file");
    check(&with(&[]), 2, &["the trace is empty", "submit_s,duration_s,nodes"]);
}
