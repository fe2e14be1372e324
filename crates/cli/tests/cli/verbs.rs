//! The commands of `az ml compute`, `az ml workspace` and `az resource` beyond the everyday ones.

use crate::support::{CLUSTER, Site};
use serde_json::json;

#[test]
fn what_a_region_has_is_listed() {
    let site = Site::start();
    site.text(&CLUSTER);
    let sizes = site.json(&["compute", "list-sizes"]);
    let sizes = sizes.as_array().expect("a list");
    let size = sizes.iter().find(|size| size["name"] == "Standard_DS3_v2").expect("the default");
    assert_eq!((&size["v_cp_us"], &size["gpus"]), (&json!(4), &json!(0)));
    assert_eq!((&size["usd_per_hour"], &size["memory_gb"]), (&json!("0.29"), &json!(14.0)));
    assert_eq!(size["usd_per_hour_low_priority"], "0.06");
    let typed = site.json(&["compute", "list-sizes", "--type", "amlcompute", "-l", "westus"]);
    assert_eq!(typed.as_array().map(Vec::len), Some(sizes.len()));
    let table = site.text(&["compute", "list-sizes", "-o", "table"]);
    assert!(table.starts_with("Name "), "{table}");
    let usage = site.json(&["compute", "list-usage"]);
    let usage = usage.as_array().expect("a list");
    let family = usage.iter().find(|line| line["name"]["value"] == "standardDSv2Family");
    assert_eq!(family.expect("in use")["current_value"], 8);
    assert!(site.text(&["compute", "list-usage", "-o", "table"]).contains("standardDSv2Family"));
}

#[test]
fn what_makes_no_sense_is_refused_with_what_does() {
    let site = Site::start();
    site.text(&CLUSTER);
    for (command, said) in [
        (&["compute", "start", "-n", "cpu"][..], "submit a job, or raise min_instances"),
        (&["compute", "stop", "-n", "cpu"], "set min_instances to 0"),
        (&["compute", "restart", "-n", "cpu"], "created and deleted as jobs need them"),
        (&["compute", "attach", "-n", "vm", "--resource-id", "/x"], "muster compute create"),
        (&["compute", "detach", "-n", "vm", "--yes"], "muster compute delete"),
        (&["compute", "connect-ssh", "-n", "cpu", "-f", "key"], "muster job create"),
        (&["compute", "enable-sso", "-n", "cpu"], "muster role assignment create"),
        (&["workspace", "list-keys", "-n", "w"], "muster user rotate-key"),
        (&["workspace", "sync-keys", "-n", "w"], "own disk"),
        (&["workspace", "diagnose", "-n", "w"], "muster why"),
        (&["workspace", "provision-network", "-n", "w"], "remove this step"),
    ] {
        let done = site.run(command);
        assert_eq!((done.code, done.stdout.len()), (2, 0), "{command:?}: {}", done.stderr);
        assert!(done.stderr.contains(said), "{command:?}: {}", done.stderr);
    }
    let missing = site.run(&["compute", "start", "-n", "cpus"]);
    assert_eq!(missing.code, 3);
    assert!(missing.stderr.contains("did you mean 'cpu'?"), "{}", missing.stderr);
}

#[test]
fn words_flags_and_names_that_are_almost_right_get_a_hint() {
    let mut site = Site::empty();
    // On a server that creates nothing on first use.
    site.start_as("serve");
    site.text(&["workspace", "create", "-n", "default"]);
    site.text(&["workspace", "create", "-n", "vision"]);
    site.text(&CLUSTER);
    site.text(&["user", "create", "-n", "ada-lovelace"]);
    for (command, code, hint) in [
        (&["compute", "lst"][..], 2, "'list'"),
        (&["computes", "list"], 2, "'compute'"),
        (&["compute", "create", "-n", "x", "--max-instance", "3"], 2, "'--max-instances'"),
        (&["compute", "show", "-n", "cpus"], 3, "did you mean 'cpu'?"),
        (&["workspace", "show", "-n", "visions"], 3, "did you mean 'vision'?"),
        (&["user", "show", "-n", "ada-lovelac"], 3, "did you mean 'ada-lovelace'?"),
        (&["compute", "create", "-n", "x", "--type", "amlcomput"], 2, "AmlCompute"),
    ] {
        let done = site.run(command);
        assert_eq!(done.code, code, "{command:?}: {}", done.stderr);
        assert!(done.stderr.contains(hint), "{command:?}: {}", done.stderr);
    }
}

#[test]
fn resources_are_listed_and_shown() {
    let site = Site::start();
    site.text(&CLUSTER);
    site.text(&["workspace", "create", "-g", "lab", "-n", "vision"]);
    let names = |more: &[&str]| {
        let list = site.json(&[&["resource", "list", "--query", "[].name"], more].concat());
        list.as_array()
            .expect("a list")
            .iter()
            .map(|name| name.as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["default", "default/cpu", "vision"]);
    assert_eq!(names(&["-g", "lab"]), ["vision"]);
    assert_eq!(names(&["--tag", "team=blue"]), ["default/cpu"]);
    assert_eq!(names(&["--tag", "team=red"]), [""; 0]);
    let computes = "Microsoft.MachineLearningServices/workspaces/computes";
    assert_eq!(names(&["--resource-type", computes]), ["default/cpu"]);
    assert_eq!(names(&["--name", "vision"]), ["vision"]);
    let table = site.text(&["resource", "list", "-g", "default", "-o", "table"]);
    assert!(table.contains("default/cpu  default "), "{table}");
    assert!(table.contains("Succeeded"), "{table}");

    let listed = site.json(&["resource", "list", "--name", "default/cpu"]);
    let id = listed[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(listed[0]["resourceGroup"], "default");
    let shown = site.json(&["resource", "show", "--ids", &id]);
    assert_eq!(shown["properties"]["computeType"], "AmlCompute");
    assert_eq!(shown["resourceGroup"], "default");
    for by_name in [
        &["--name", "default/cpu", "--resource-type", computes][..],
        &["--name", "cpu", "--resource-type", computes, "--parent", "workspaces/default"],
    ] {
        let again = site.json(&[&["resource", "show", "-g", "default"], by_name].concat());
        assert_eq!(again, shown, "{by_name:?}");
    }
    let two = site.json(&["resource", "show", "--ids", &id, &id]);
    assert_eq!(two.as_array().map(Vec::len), Some(2));
    for (bad, code) in [
        (&["--ids", "cpu"][..], 2),
        (&["--ids", "/subscriptions/x/providers/Microsoft.Storage/accounts/y"], 2),
        (&["--name", "cpu", "--resource-type", computes], 2),
        (&["--name", "cpu"], 2),
        (&["--ids", &format!("{id}x")], 3),
    ] {
        let done = site.run(&[&["resource", "show"], bad].concat());
        assert_eq!(done.code, code, "{bad:?}: {}", done.stderr);
    }
}
