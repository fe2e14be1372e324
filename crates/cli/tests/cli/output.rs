//! What `--output` and `--query` print, from the real binary against a real server.

use std::process::Command;

use crate::support::{CLUSTER, Site, done, settled};

/// Two clusters without nodes: a state that does not change by itself.
fn site() -> Site {
    let site = Site::start();
    site.text(&CLUSTER);
    site.text(&[
        "compute",
        "create",
        "-n",
        "gpu",
        "--max-instances",
        "1",
        "--tier",
        "low_priority",
    ]);
    site
}

#[test]
fn a_cluster_is_printed_in_every_format() {
    let site = site();
    let show =
        |more: &[&str]| settled(&site.text(&[&["compute", "show", "-n", "cpu"], more].concat()));
    assert_eq!(show(&["-o", "yaml"]), YAML);
    let json = show(&[]);
    assert!(json.starts_with("{\n  \"allocation_state\": \"Steady\",\n"), "{json}");
    assert_eq!(show(&["--output", "JSON"]), json);
    // Colours are for terminals.
    assert_eq!(show(&["-o", "jsonc"]), json);
    assert_eq!(show(&["-o", "yamlc"]), YAML);
    assert_eq!(show(&["-o", "none"]), "");
    let tsv = site.text(&["compute", "show", "-n", "cpu", "-o", "tsv"]);
    let cells: Vec<_> = tsv.trim_end_matches('\n').split('\t').collect();
    assert_eq!(cells[0], "Steady");
    assert!(cells.contains(&"True") && cells.contains(&"amlcompute"), "{tsv}");
    let keys = site.json(&["compute", "show", "-n", "cpu", "--query", "length(keys(@))"]);
    assert_eq!(keys, cells.len());
    let table = show(&["-o", "table"]);
    assert!(table.starts_with("Name  Compute type  State "), "{table}");
    let refused = site.run(&["compute", "show", "-n", "cpu", "-o", "xml"]);
    assert_eq!(refused.code, 2);
    for format in ["json", "jsonc", "yaml", "yamlc", "table", "tsv", "none"] {
        assert!(refused.stderr.contains(format), "{}", refused.stderr);
    }
}

const YAML: &str = "\
allocation_state: Steady
current_node_count: 0
enable_node_public_ip: true
id: /subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/default/computes/cpu
idle_time_before_scale_down: 60
location: eastus
max_instances: 2
min_instances: 0
name: cpu
network_settings: {}
node_state_counts:
  idle_node_count: 0
  leaving_node_count: 0
  preempted_node_count: 0
  preparing_node_count: 0
  running_node_count: 0
  unusable_node_count: 0
provisioning_state: Succeeded
resourceGroup: default
scale_up: immediate
size: STANDARD_DS3_V2
ssh_public_access_enabled: false
tags:
  team: blue
target_node_count: 0
tier: dedicated
type: amlcompute
";

#[test]
fn a_query_chooses_what_is_printed_in_every_format() {
    let site = site();
    let list =
        |query: &str, format: &str| site.text(&["compute", "list", "--query", query, "-o", format]);
    let both = "[].{Name: name, max: max_instances, id: id, deep: network_settings, no: nothing}";
    let short = "[].{Name: name, Big: max_instances > `1`}";
    assert_eq!(list("[].name", "tsv"), "cpu\ngpu\n");
    assert_eq!(list("[].name", "json"), "[\n  \"cpu\",\n  \"gpu\"\n]\n");
    assert_eq!(list("[].name", "yaml"), "- cpu\n- gpu\n");
    assert_eq!(list("[].name", "table"), "Result\n-------\ncpu\ngpu\n");
    assert_eq!(list("[].name", "none"), "");
    assert_eq!(list("[].[name, min_instances]", "tsv"), "cpu\t0\ngpu\t0\n");
    assert_eq!(list("[?contains(name, `gp`)].name", "tsv"), "gpu\n");
    assert_eq!(list("sum([].max_instances)", "tsv"), "3\n");
    assert_eq!(list("length(@)", "json"), "2\n");
    assert_eq!(list("[?tier=='low_priority'].name | [0]", "tsv"), "gpu\n");
    // In the order of the query, not of the alphabet.
    assert_eq!(list(short, "tsv"), "cpu\tTrue\ngpu\tFalse\n");
    assert_eq!(list(short, "table"), "Name  Big\n----- ------\ncpu   True\ngpu   False\n");
    assert_eq!(list(both, "table"), "Name  Max\n----- ----\ncpu   2\ngpu   1\n");
    let tsv = list(both, "tsv");
    let first = tsv.lines().next().expect("a line");
    assert!(
        first.starts_with("cpu\t2\t/subscriptions/") && first.ends_with("/cpu\t\tNone"),
        "{tsv}"
    );
    assert_eq!(
        list("[0].{name: name, no: nothing}", "json"),
        "{\n  \"name\": \"cpu\",\n  \"no\": null\n}\n"
    );
    for format in ["json", "jsonc", "yaml", "yamlc", "table", "tsv", "none"] {
        assert_eq!(list("[0].nothing", format), "", "a missing value prints nothing: {format}");
    }
    assert_eq!(list("[?name=='x']", "json"), "[]\n");
    assert_eq!(list("[?name=='x']", "table"), "");
}

#[test]
fn commands_for_people_take_queries_too() {
    let site = Site::start();
    let usd = site.text(&["cost", "--query", "total.usd", "-o", "tsv"]);
    assert_eq!(usd, "0.000000\n");
    assert_eq!(
        site.text(&["cost", "--query", "total"]),
        "Node_seconds  Usd\n------------- ---------\n0.000000      0.000000\n"
    );
    let limits = ["quota", "list", "-l", "eastus", "--query"];
    let names =
        site.text(&[&limits[..], &["[?starts_with(name, 'Total')].name", "-o", "tsv"]].concat());
    assert_eq!(names, "TotalDedicatedCores\nTotalLowPriorityCores\n");
    let unknown = site.run(&["why", "no-such", "--query", "value", "-o", "none"]);
    assert_eq!(unknown.code, 3);
}

#[test]
fn a_bad_query_is_refused_before_anything_is_done() {
    let site = Site::start();
    let create = ["compute", "create", "-n", "cpu", "--query"];
    for (bad, wanted) in [
        ("[", "found the end at character 2"),
        ("[].{name}", "at character"),
        ("name = 'x'", "at character 6"),
    ] {
        let refused = site.run(&[&create[..], &[bad]].concat());
        assert_eq!((refused.code, refused.stdout.len()), (2, 0), "{bad}");
        assert!(refused.stderr.contains("--query <JMESPATH>"), "{}", refused.stderr);
        assert!(refused.stderr.contains(wanted), "{}", refused.stderr);
        assert!(refused.stderr.contains(r#"such as --query "[].name""#), "{}", refused.stderr);
    }
    assert_eq!(site.text(&["compute", "list"]), "[]\n");
    let wrong = site.run(&["compute", "list", "--query", "sum(@[0])"]);
    assert_eq!((wrong.code, wrong.stdout.len()), (2, 0));
    assert!(wrong.stderr.starts_with("error: --query: "), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("hint: to see the available fields"), "{}", wrong.stderr);
    let unknown = site.run(&["compute", "list", "--query", "shout(@)"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("shout"), "{}", unknown.stderr);
    let untabled = site.run(&["compute", "list", "--query", "{all: @}", "-o", "table"]);
    assert_eq!(untabled.code, 1);
    assert!(untabled.stderr.contains("hint: select columns"), "{}", untabled.stderr);
}

/// `script` gives a command a terminal of its own.
#[test]
fn a_terminal_gets_colours_unless_it_wants_none() {
    let site = Site::start();
    let on_terminal = |format: &str, no_color: &str| {
        let mut script = Command::new("script");
        let command = format!(
            "{} compute list --query '{{a: `1`}}' -o {format}",
            env!("CARGO_BIN_EXE_muster")
        );
        script.args(["-qec", &command, "/dev/null"]).env("MUSTER_STATE_DIR", site.state());
        script.env("NO_COLOR", no_color).env("TERM", "xterm").env_remove("CLICOLOR");
        let printed = done(script.output().expect("script runs"));
        assert_eq!(printed.code, 0, "{}", printed.stderr);
        String::from_utf8(printed.stdout).expect("text")
    };
    for format in ["jsonc", "yamlc"] {
        assert!(on_terminal(format, "").contains("\u{1b}[36m1"), "{format}");
        assert!(!on_terminal(format, "1").contains('\u{1b}'), "{format}");
    }
    assert!(!on_terminal("json", "").contains('\u{1b}'));
}

#[test]
fn workspaces_are_shown_and_listed() {
    let site = Site::start();
    let create = |group: &str, name: &str| {
        site.text(&["workspace", "create", "-g", group, "-n", name]);
    };
    create("lab", "vision");
    create("lab", "speech");
    create("other", "robots");
    let show = ["workspace", "show", "-g", "lab", "--query", "[name, resourceGroup, location]"];
    let shown = |more: &[&str]| site.text(&[&show[..], &["-o", "tsv"], more].concat());
    assert_eq!(shown(&["-n", "vision"]), "vision\nlab\neastus\n");
    assert_eq!(shown(&["-w", "speech"]), "speech\nlab\neastus\n");
    assert_eq!(site.run(&["workspace", "show", "-n", "a", "-w", "b"]).code, 2);
    let misspelt = site.run(&["workspace", "show", "-g", "lab", "-n", "visions"]);
    assert_eq!(misspelt.code, 3, "{}", misspelt.stderr);
    for said in ["does not exist in resource group 'lab'", "did you mean 'vision'?"] {
        assert!(misspelt.stderr.contains(said), "{}", misspelt.stderr);
    }
    let names = |more: &[&str]| {
        let list = ["workspace", "list", "--query", "sort([].name)", "-o", "tsv"];
        site.text(&[&list[..], more].concat())
    };
    assert_eq!(names(&[]), "robots\nspeech\nvision\n");
    assert_eq!(names(&["-g", "lab"]), "speech\nvision\n");
    assert_eq!(names(&["-g", "none"]), "");
    let table = site.text(&["workspace", "list", "-g", "other", "-o", "table"]);
    assert_eq!(
        table,
        "Name    Location  Description  Resource group\n\
         ------- --------- ------------ ---------------\n\
         robots  eastus                 other\n"
    );
    assert_eq!(site.json(&["workspace", "list", "-r", "2"]).as_array().map(Vec::len), Some(2));
}
