//! Compute instances, next to clusters.

use crate::support::{CLUSTER, Site};
use serde_json::json;

const INSTANCE: [&str; 6] = ["compute", "create", "-n", "mine", "--type", "ComputeInstance"];

#[test]
fn an_instance_is_made_started_stopped_and_listed_beside_a_cluster() {
    let site = Site::start();
    site.text(&CLUSTER);
    let key =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4 ada";
    let more = ["--size", "Standard_DS3_v2", "--tags", "team=blue", "--ssh-key-value", key];
    let made = site.json(&[&INSTANCE[..], &more].concat());
    assert_eq!((&made["type"], &made["state"]), (&"computeinstance".into(), &"Running".into()));
    assert_eq!(made["ssh_settings"], json!({"admin_username": "azureuser", "ssh_key_value": key}));
    assert_eq!(made["last_operation"]["operationName"], "Create");
    for absent in ["min_instances", "max_instances", "tier", "scale_up"] {
        assert!(made[absent].is_null(), "{absent}: {made}");
    }

    let stopped = site.run(&["compute", "stop", "-n", "mine"]);
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    assert!(stopped.stderr.contains("stopping mine: Succeeded"), "{}", stopped.stderr);
    let state = || site.json(&["compute", "show", "-n", "mine", "--query", "state"]);
    assert_eq!(state(), "Stopped");
    let again = site.run(&["compute", "restart", "-n", "mine"]);
    assert!(again.code == 2 && again.stderr.contains("start it"), "{}", again.stderr);
    assert_eq!(site.json(&["compute", "start", "-n", "mine"])["state"], "Running");
    assert_eq!(site.json(&["compute", "restart", "-n", "mine"])["state"], "Running");

    let table = site.text(&["compute", "list", "-o", "table"]);
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(
        rows.contains(&vec![
            "mine",
            "computeinstance",
            "Running",
            "Standard_DS3_v2",
            "-",
            "-",
            "-"
        ]),
        "{table}"
    );
    assert!(
        rows.contains(&vec!["cpu", "amlcompute", "Succeeded", "STANDARD_DS3_V2", "0", "0", "2"]),
        "{table}"
    );
    let names = |kind: &str| site.json(&["compute", "list", "--type", kind, "--query", "[].name"]);
    assert_eq!((names("computeinstance"), names("AmlCompute")), (json!(["mine"]), json!(["cpu"])));
    let looked = site.text(&["compute", "watch", "mine", "--count", "1"]);
    assert!(looked.starts_with("mine: Running, 1 of 1-1 nodes (0 running, 1 idle"), "{looked}");
    let nodes = site.json(&["compute", "list-nodes", "-n", "mine"]);
    assert_eq!(nodes.as_array().map(Vec::len), Some(1));
    site.text(&["compute", "delete", "-n", "mine", "--yes"]);
}

#[test]
fn what_is_shown_of_an_instance_makes_it_again() {
    let site = Site::start();
    site.text(&[&INSTANCE[..], &["--description", "ours"]].concat());
    let shown = site.text(&["compute", "show", "-n", "mine", "-o", "yaml"]);
    let file = site.folder().join("ci.yml");
    std::fs::write(&file, &shown).expect("it can be written");
    let file = file.to_str().expect("text");
    let again = site.json(&["compute", "create", "-f", file]);
    assert_eq!((&again["state"], &again["description"]), (&"Running".into(), &"ours".into()));
    let changed = site.json(&["compute", "update", "-n", "mine", "--set", "tags.team=blue"]);
    assert_eq!(
        (&changed["type"], &changed["tags"]["team"]),
        (&"computeinstance".into(), &"blue".into())
    );
    std::fs::write(file, "name: other\ntype: computeinstance\nsize: Standard_DS3_v2\n")
        .expect("written");
    assert_eq!(site.json(&["compute", "create", "-f", file])["type"], "computeinstance");
    for wrong in
        [&["--max-instances", "2"][..], &["--set", "state=Stopped"], &["--set", "type=amlcompute"]]
    {
        let done = site.run(&[&["compute", "update", "-n", "mine"], wrong].concat());
        assert_eq!(done.code, 2, "{wrong:?}: {}", done.stderr);
    }
    let price = ["compute", "create", "-n", "third", "--type", "computeinstance", "--dry-run"];
    let price = site.run(&price);
    assert!(price.stderr.contains("at most 0.29 USD per hour"), "{}", price.stderr);
}

#[test]
fn what_an_instance_cannot_have_is_refused() {
    let site = Site::start();
    for (more, said) in [
        (&["--max-instances", "2"][..], "an instance is always one node"),
        (&["--tier", "low_priority"], "never evicted"),
        (&["--user-object-id", "x"], "let that user create it"),
        (&["--user-tenant-id", "x"], "let that user create it"),
        (&["--admin-username", "ada", "--ssh-key-value", "ssh-rsa AAAA"], "always azureuser"),
        (&["--admin-username", "azureuser", "--admin-password", "hush"], "without a password"),
    ] {
        let done = site.run(&[&INSTANCE[..], more].concat());
        assert_eq!(done.code, 2, "{more:?}: {}", done.stderr);
        assert!(done.stderr.contains(said), "{more:?}: {}", done.stderr);
    }
    let keyless = site.run(&["compute", "create", "-n", "cpu", "--ssh-key-value", "ssh-rsa AAAA"]);
    assert!(keyless.code == 2 && keyless.stderr.contains("--admin-username"), "{}", keyless.stderr);
    let file = site.folder().join("ci.yml");
    for (text, said) in [
        ("type: computeinstance\nschedules: {}\n", "by hand"),
        ("type: computeinstance\nidle_time_before_shutdown_minutes: 30\n", "by hand"),
        ("type: kubernetes\n", "give amlcompute or computeinstance"),
    ] {
        std::fs::write(&file, format!("name: mine\n{text}")).expect("it can be written");
        let done = site.run(&["compute", "create", "-f", file.to_str().expect("text")]);
        assert!(done.code == 2 && done.stderr.contains(said), "{text}: {}", done.stderr);
    }
    assert_eq!(site.json(&["compute", "list"]), json!([]));
}
