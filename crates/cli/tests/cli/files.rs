//! Clusters and workspaces from YAML files, and changes of single fields.

use crate::support::Site;
use serde_json::json;

const CLUSTER: &str = "\
$schema: https://azuremlschemas.azureedge.net/latest/amlCompute.schema.json
name: from-file
type: amlcompute
size: STANDARD_DS3_v2
min_instances: 0
max_instances: 2
idle_time_before_scale_down: 120
tier: low_priority
description: made from a file
tags:
  team: blue
identity:
  type: user_assigned
  user_assigned_identities:
  - resource_id: /id/one
ssh_settings:
  admin_username: ada
  admin_password: Pa55word!
network_settings:
  vnet_name: net
  subnet: sub
enable_node_public_ip: false
";

fn file(site: &Site, name: &str, text: &str) -> String {
    let path = site.folder().join(name);
    std::fs::write(&path, text).expect("a writable folder");
    path.display().to_string()
}

#[test]
fn a_cluster_is_made_from_a_file_and_flags_go_first() {
    let site = Site::start();
    let path = file(&site, "cluster.yml", CLUSTER);
    let created = site.json(&["compute", "create", "-f", &path]);
    for (field, wanted) in [
        ("name", json!("from-file")),
        ("size", json!("STANDARD_DS3_v2")),
        ("max_instances", json!(2)),
        ("idle_time_before_scale_down", json!(120)),
        ("tier", json!("low_priority")),
        ("description", json!("made from a file")),
        ("tags", json!({"team": "blue"})),
        ("enable_node_public_ip", json!(false)),
        ("ssh_settings", json!({"admin_username": "ada"})),
    ] {
        assert_eq!(created[field], wanted, "{field}");
    }
    assert_eq!(created["identity"]["user_assigned_identities"][0]["resource_id"], "/id/one");
    let subnet = created["network_settings"]["subnet"].as_str().expect("an id");
    assert!(subnet.ends_with("/virtualNetworks/net/subnets/sub"), "{subnet}");

    let other = ["compute", "create", "-f", &path, "-n", "other", "--max-instances", "5"];
    let set = ["--set", "tags.team=red", "description=none", "--tier", "dedicated"];
    let other = site.json(&[&other[..], &set].concat());
    assert_eq!((&other["name"], &other["max_instances"]), (&json!("other"), &json!(5)));
    assert_eq!((&other["tags"]["team"], &other["tier"]), (&json!("red"), &json!("dedicated")));
    assert_eq!(other["description"], "none");

    // What is shown can be written back.
    let shown = site.text(&["compute", "show", "-n", "other", "-o", "yaml"]);
    let path = file(&site, "shown.yml", &shown);
    let again = site.run(&["compute", "create", "-f", &path]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(again.stderr.contains("note: id, resourceGroup, created_on,"), "{}", again.stderr);
}

#[test]
fn a_bad_file_is_refused_with_its_place_and_nothing_is_made() {
    let site = Site::start();
    for (text, said, hint) in [
        ("name: [", "line 1, column ", ""),
        ("name: x\nmax_instance: 3\n", "line 2, column 1: unknown field", "'max_instances'"),
        ("name: x\nsize: 3\n", "line 2, column 1: size is 3; give a string", ""),
        ("name: x\ntier: spot\n", "tier is 'spot'; give dedicated or low_priority", ""),
        ("name: x\ntype: kubernetes\n", "type is 'kubernetes'; give amlcompute", ""),
        ("size: STANDARD_DS3_V2\n", "the file has no name", ""),
        ("name: x\nresource_id: /y\n", "resource_id cannot be set", ""),
        ("name: ..\n", "name is '..'", ""),
    ] {
        let path = file(&site, "bad.yml", text);
        let done = site.run(&["compute", "create", "-f", &path]);
        assert_eq!(done.code, 2, "{text:?}: {}", done.stderr);
        assert!(done.stderr.contains(said), "{text:?}: {}", done.stderr);
        assert!(done.stderr.contains(hint), "{text:?}: {}", done.stderr);
    }
    let both = ["compute", "create", "-n", "x", "--max-instances", "3", "--set", "max_instances=4"];
    assert_eq!(site.run(&both).code, 2);
    assert_eq!(site.run(&["compute", "create", "-f", "/nowhere.yml"]).code, 2);
    assert_eq!(site.run(&["compute", "create"]).code, 2);
    assert_eq!(site.text(&["compute", "list"]), "[]\n");
}

#[test]
fn single_fields_of_a_cluster_are_set_added_and_removed() {
    let site = Site::start();
    site.text(&["compute", "create", "-n", "cpu", "--tags", "a=1", "--description", "old"]);
    let update = |more: &[&str]| site.json(&[&["compute", "update", "-n", "cpu"], more].concat());
    let set = update(&["--set", "max_instances=7", "tags.b=2", "description=new"]);
    assert_eq!(set["max_instances"], 7);
    assert_eq!(set["tags"], json!({"a": "1", "b": "2"}));
    assert_eq!(set["description"], "new");
    let removed = update(&["--remove", "tags.a"]);
    assert_eq!(removed["tags"], json!({"b": "2"}));
    assert_eq!(removed["max_instances"], 7, "the rest is kept");
    assert_eq!(update(&["--remove", "tags"])["tags"], json!(null));
    let added = update(&[
        "--set",
        "identity.type=user_assigned",
        "--add",
        "identity.user_assigned_identities",
        "resource_id=/id/two",
    ]);
    assert_eq!(added["identity"]["user_assigned_identities"][0]["resource_id"], "/id/two");
    for bad in [
        &["--set", "max_instances"][..],
        &["--set", "max_instances=many"],
        &["--set", "max_instance=3"],
        &["--set", "provisioning_state=Failed"],
        &["--set", "current_node_count=3"],
        &["--remove", "size"],
        &["--remove", "tags.nope"],
        &["--add", "tags", "x=y"],
        &["--max-instances", "3", "--set", "max_instances=4"],
    ] {
        let done = site.run(&[&["compute", "update", "-n", "cpu"], bad].concat());
        assert_eq!(done.code, 2, "{bad:?}: {}", done.stderr);
    }
    assert_eq!(site.run(&["compute", "update", "-n", "cqu", "--set", "max_instances=3"]).code, 3);
}

#[test]
fn a_workspace_is_made_from_a_file() {
    let site = Site::start();
    let text = "$schema: x\nname: vision\nlocation: westus2\nresource_group: lab\n";
    let path = file(&site, "workspace.yml", text);
    let made = site.json(&["workspace", "create", "-f", &path]);
    assert_eq!((&made["name"], &made["location"]), (&json!("vision"), &json!("westus2")));
    assert_eq!(made["resource_group"], "lab");
    for (text, said) in [
        ("name: x\nstorage_account: /s\n", "storage_account cannot be set"),
        ("name: x\nlocaton: y\n", "line 2, column 1: unknown field 'locaton'"),
    ] {
        let path = file(&site, "bad.yml", text);
        let done = site.run(&["workspace", "create", "-f", &path]);
        assert_eq!(done.code, 2, "{}", done.stderr);
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    let moved =
        site.run(&["workspace", "update", "-g", "lab", "-n", "vision", "--set", "location=eastus"]);
    assert_eq!(moved.code, 2, "{}", moved.stderr);
    assert!(moved.stderr.contains("which cannot be changed"), "{}", moved.stderr);
}
