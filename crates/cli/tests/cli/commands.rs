//! What the commands print and how they end, from the real binary against a real server.

use std::process::{Command, Stdio};

use crate::support::{CLUSTER, Site, done, ends, ready, settled, signal};

#[test]
fn a_cluster_is_created_shown_changed_and_deleted() {
    let site = Site::start();
    assert_eq!(site.text(&["compute", "list"]), "[]\n");
    let nothing = site.run(&["compute", "list", "-o", "table"]);
    assert_eq!((nothing.code, nothing.stdout.as_slice()), (0, b"".as_slice()));
    assert_eq!(nothing.stderr, "no clusters or compute instances in this workspace\n");

    let created = site.run(&CLUSTER);
    assert_eq!(
        (created.code, created.stderr.as_str()),
        (
            0,
            "in workspace 'default', resource group 'default', subscription \
             '00000000-0000-0000-0000-000000000000'\ncreating cpu: Succeeded\n"
        )
    );
    let shown = site.text(&["compute", "show", "-n", "cpu"]);
    assert_eq!(String::from_utf8(created.stdout).expect("text"), shown);
    assert_eq!(settled(&shown), SHOWN);
    let listed = site.json(&["compute", "list", "--type", "amlcompute", "-r", "5"]);
    assert_eq!(listed[0], site.json(&["compute", "show", "-n", "CPU"]));
    let table = "\
Name  Compute type  State      Instance type    Nodes  Min  Max
----- ------------- ---------- ---------------- ------ ---- ----
cpu   amlcompute    Succeeded  STANDARD_DS3_V2  0      0    2
";
    assert_eq!(site.text(&["compute", "list", "-o", "table"]), table);
    assert_eq!(site.text(&["compute", "show", "-n", "cpu", "-o", "table"]), table);
    assert_eq!(site.text(&["compute", "list-nodes", "-n", "cpu"]), "[]\n");

    let update =
        ["compute", "update", "-n", "cpu", "--max-instances", "3", "-d", "90", "--tags", "a=b"];
    let updated = site.json(&update);
    assert_eq!(updated["max_instances"], 3);
    assert_eq!(updated["idle_time_before_scale_down"], 90);
    assert_eq!(updated["tags"].to_string(), r#"{"a":"b"}"#);
    let again = site.json(&["compute", "create", "-n", "cpu", "--type", "AMLCOMPUTE", "--no-wait"]);
    assert_eq!(again["max_instances"], 3, "settings that are not given are kept");

    let deleted = site.run(&["compute", "delete", "-n", "cpu", "--yes"]);
    assert_eq!((deleted.code, deleted.stdout.len()), (0, 0));
    assert!(deleted.stderr.ends_with("deleting cpu: Succeeded\n"), "{}", deleted.stderr);
    assert_eq!(site.run(&["compute", "show", "-n", "cpu"]).code, 3);
    assert_eq!(site.text(&["compute", "list"]), "[]\n");
}

const SHOWN: &str = r#"{
  "allocation_state": "Steady",
  "current_node_count": 0,
  "enable_node_public_ip": true,
  "id": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/default/computes/cpu",
  "idle_time_before_scale_down": 60,
  "location": "eastus",
  "max_instances": 2,
  "min_instances": 0,
  "name": "cpu",
  "network_settings": {},
  "node_state_counts": {
    "idle_node_count": 0,
    "leaving_node_count": 0,
    "preempted_node_count": 0,
    "preparing_node_count": 0,
    "running_node_count": 0,
    "unusable_node_count": 0
  },
  "provisioning_state": "Succeeded",
  "resourceGroup": "default",
  "scale_up": "immediate",
  "size": "STANDARD_DS3_V2",
  "ssh_public_access_enabled": false,
  "tags": {
    "team": "blue"
  },
  "target_node_count": 0,
  "tier": "dedicated",
  "type": "amlcompute"
}
"#;

#[test]
fn every_setting_of_a_cluster_reaches_the_server() {
    let site = Site::start();
    let created = site.json(&[
        "compute",
        "create",
        "--name",
        "all",
        "--type",
        "AmlCompute",
        "--size",
        "standard_ds2_v2",
        "--min-instances",
        "0",
        "--max-instances",
        "7",
        "--idle-time-before-scale-down",
        "3600",
        "--vm-priority",
        "LowPriority",
        "-l",
        "westus2",
        "--description",
        "for all",
        "-i",
        "[system],/id/one",
        "--vnet-name",
        "net",
        "--subnet",
        "sub",
        "--enable-node-public-ip",
        "false",
        "--admin-username",
        "ada",
        "--admin-password",
        "not shown",
        "--ssh-key-value",
        "ssh-ed25519 AAAA",
        "-p",
        "--resource-group",
        "g",
        "--workspace-name",
        "w",
        "--subscription",
        "s",
    ]);
    for (key, wanted) in [
        ("size", "\"standard_ds2_v2\""),
        ("max_instances", "7"),
        ("idle_time_before_scale_down", "3600"),
        ("tier", "\"low_priority\""),
        ("location", "\"westus2\""),
        ("description", "\"for all\""),
        ("enable_node_public_ip", "false"),
        ("ssh_public_access_enabled", "true"),
        ("ssh_settings", r#"{"admin_username":"ada"}"#),
        ("resourceGroup", "\"g\""),
        (
            "network_settings",
            "{\"subnet\":\"/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/\
             virtualNetworks/net/subnets/sub\"}",
        ),
    ] {
        assert_eq!(created[key].to_string(), wanted, "{key}");
    }
    let identity = &created["identity"];
    assert_eq!(identity["type"], "system_assigned,user_assigned");
    assert_eq!(identity["user_assigned_identities"][0]["resource_id"], "/id/one");
    assert_eq!(identity["principal_id"].as_str().map(str::len), Some(36), "{identity}");
    assert!(!created.to_string().contains("not shown"));
    assert_eq!(site.text(&["compute", "list"]), "[]\n", "the cluster is in another workspace");
    let mut listed = site.command(&["compute", "list"]);
    listed.envs([
        ("AZURE_DEFAULTS_GROUP", "G"),
        ("AZURE_DEFAULTS_WORKSPACE", "W"),
        ("AZURE_SUBSCRIPTION_ID", "S"),
    ]);
    let listed = done(listed.output().expect("the binary runs"));
    assert!(String::from_utf8(listed.stdout).expect("text").contains("\"name\": \"all\""));
    let scope = ["-g", "g", "-w", "w", "--subscription", "s"];
    site.text(&[&["compute", "delete", "-n", "all", "-y"], &scope[..]].concat());
}

#[test]
fn costs_add_up_and_include_unused_time() {
    let site = Site::start();
    let nothing = site.run(&["cost"]);
    assert_eq!((nothing.code, nothing.stdout.len()), (0, 0));
    site.text(&CLUSTER);
    site.text(&["job", "create", "--compute", "cpu", "--command", "sleep 0.2", "--stream"]);
    let table = site.text(&["cost"]);
    for start in [
        "Cluster",
        "cpu        run       succeeded",
        "total ",
        "including  idle",
        "including  floor",
    ] {
        assert!(table.lines().any(|line| line.starts_with(start)), "{start} in\n{table}");
    }
    let json = site.json(&["cost", "-o", "json"]);
    let lines = json["lines"].as_array().expect("lines");
    let micros = |line: &serde_json::Value| -> u64 {
        let text = line["node_seconds"].as_str().expect("text").replace('.', "");
        text.parse().expect("digits")
    };
    assert_eq!(lines.iter().map(micros).sum::<u64>(), micros(&json["total"]));
    assert!(lines.iter().all(|line| line["cluster"] == "cpu" && line.get("group").is_none()));

    let groups = |by: &str| -> Vec<String> {
        let json = site.json(&["cost", "--by", by, "--since", "1h", "-o", "json"]);
        let lines = json["lines"].as_array().expect("lines").iter();
        let named = lines.map(|line| line["group"].as_str().unwrap_or("-").to_owned());
        let mut named: Vec<_> = named.collect();
        named.dedup();
        named
    };
    assert_eq!(groups("tag:team"), ["blue"]);
    assert_eq!(groups("tag:cost-centre"), ["-"]);
    assert_eq!(groups("user").len(), 2, "the owner, and time without a user");
    assert!(groups("category").contains(&"run".to_owned()));
    let by_user = site.text(&["cost", "--by", "user"]);
    assert!(by_user.starts_with("User "), "{by_user}");
    assert!(by_user.lines().any(|line| line.starts_with("including") && line.contains("idle")));
    assert_eq!(site.run(&["cost", "--since", "2999-01-01"]).stdout.len(), 0);
    for bad in [["--by", "colour"], ["--since", "yesterday"], ["--by", "tag:"]] {
        let refused = site.run(&[&["cost"], &bad[..]].concat());
        assert_eq!(refused.code, 2, "{bad:?}");
        assert!(refused.stderr.contains("give "), "{}", refused.stderr);
    }
}

#[test]
fn the_variables_for_azures_clients_are_all_there_or_none() {
    let site = Site::start();
    let variables = site.json(&["env", "--shell", "json"]);
    let text = |name: &str| variables[name].as_str().expect("text").to_owned();
    let url = text("IDENTITY_ENDPOINT");
    let url = url.strip_suffix("/msi/token").expect("the identity endpoint");
    assert!(url.starts_with("https://localhost:"), "{url}");
    assert_eq!(
        text("ARM_CLOUD_METADATA_URL"),
        format!("{url}/metadata/endpoints?api-version=2019-05-01")
    );
    assert_eq!(text("AZUREML_CURRENT_CLOUD"), "Muster");
    assert_eq!(text("MUSTER_STATE_DIR"), site.state().display().to_string());
    for file in ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
        assert!(std::path::Path::new(&text(file)).is_file(), "{file}");
    }
    assert!(variables.get("NO_PROXY").is_none());

    let script = format!("{}\nprintf %s \"$IDENTITY_HEADER$AZURE_CLIENT_ID\"", site.text(&["env"]));
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", &script]).env("AZURE_CLIENT_ID", "stray");
    let read_back = done(shell.output().expect("sh runs"));
    assert_eq!(String::from_utf8(read_back.stdout).expect("text"), text("IDENTITY_HEADER"));

    let mut proxied = site.command(&["env", "--shell", "json"]);
    let proxied = proxied.env("https_proxy", "http://proxy:1").env("no_proxy", "other");
    let proxied = done(proxied.output().expect("the binary runs"));
    let proxied: serde_json::Value = serde_json::from_slice(&proxied.stdout).expect("JSON");
    assert_eq!(proxied["NO_PROXY"], "other,localhost");
    assert_eq!(proxied["no_proxy"], "other,localhost");

    std::fs::remove_file(site.state().join("pki/ca-bundle.pem")).expect("it existed");
    for shell in ["sh", "fish", "json"] {
        let half = site.run(&["env", "--shell", shell]);
        assert_eq!((half.code, half.stdout.len()), (1, 0), "{shell}");
        assert!(half.stderr.contains("ca-bundle.pem is missing"), "{}", half.stderr);
    }
}

#[test]
fn the_server_stops_on_both_signals_even_where_they_were_ignored() {
    for (number, name) in ["-INT", "-TERM"].into_iter().enumerate() {
        let site = Site::empty();
        let mut shell = Command::new("sh");
        shell
            .args([
                "-c",
                "trap '' INT TERM; exec \"$0\" up --listen 127.0.0.1:0 --state-dir \"$1\"",
            ])
            .arg(env!("CARGO_BIN_EXE_muster"))
            .arg(site.state())
            .stdin(Stdio::null());
        let mut server = ready(&mut shell);
        signal(name, &server);
        assert!(ends(&mut server), "{name}");
        let status = server.wait().expect("a child of ours");
        assert_eq!(status.code(), Some(0), "{name} {number}");
    }
}

#[test]
fn a_closed_output_is_no_error_but_a_full_disk_is() {
    let site = Site::start();
    site.text(&CLUSTER);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let closed = site.command(&["compute", "list"]).stdout(writer).output();
    let closed = done(closed.expect("the binary runs"));
    assert_eq!((closed.code, closed.stderr.as_str()), (0, ""));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a full device");
    let full = done(site.command(&["compute", "list"]).stdout(full).output().expect("it runs"));
    assert_eq!(full.code, 1);
    assert!(full.stderr.starts_with("error: cannot write to standard output"), "{}", full.stderr);
}

#[test]
fn a_simulation_prints_what_it_came_to() {
    let site = Site::empty();
    let run = || site.text(&["sim", "--seed", "7", "--days", "1", "--batch", "8"]);
    let first = run();
    assert!(first.contains("jobs submitted"), "{first}");
    let digest = |text: &str| text.lines().last().map(str::to_owned);
    assert_eq!(digest(&first), digest(&run()), "the same seed, the same event log");
    let query = ["--query", "join(' ', ['event log', event_log])", "-o", "tsv"];
    let sim = ["sim", "--seed", "7", "--days", "1", "--batch", "8"];
    let queried = site.text(&[&sim[..], &query].concat());
    assert_eq!(Some(queried.trim_end()), digest(&first).as_deref());
}

#[test]
fn a_size_that_the_cloud_has_retired_is_flagged() {
    let site = Site::start();
    let old = site.run(&["compute", "create", "-n", "old", "--size", "Standard_NC6s_v3"]);
    assert_eq!(old.code, 0, "{}", old.stderr);
    assert!(
        old.stderr.contains("note: the VM size Standard_NC6s_v3 was retired"),
        "{}",
        old.stderr
    );
    let shown = site.run(&["compute", "show", "-n", "old"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let shown = String::from_utf8(shown.stdout).expect("text") + &shown.stderr;
    assert!(shown.contains("was retired in the cloud"), "one that exists is flagged too: {shown}");
    let older = site.run(&["compute", "create", "-n", "older", "--size", "Standard_NC6"]);
    assert_eq!(older.code, 2, "{}", older.stderr);
    assert!(older.stderr.contains("is retired; create the cluster with another size"));
}

#[test]
fn a_second_use_of_a_name_and_another_region_are_pointed_out() {
    let site = Site::start();
    let create = ["compute", "create", "-n", "cpu", "-l", "eastus"];
    let first = site.run(&create);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(!first.stderr.contains("note:"), "{}", first.stderr);
    let second = site.run(&create);
    assert_eq!(second.code, 0, "{}", second.stderr);
    assert!(second.stderr.contains("note: cpu already exists"), "{}", second.stderr);
    let updated = site.run(&["compute", "update", "-n", "cpu", "--max-instances", "2"]);
    assert!(!updated.stderr.contains("note:"), "{}", updated.stderr);
    let abroad = site.run(&["compute", "create", "-n", "far", "-l", "westus2"]);
    assert_eq!(abroad.code, 0, "{}", abroad.stderr);
    assert!(
        abroad.stderr.contains("westus2 is not that of the workspace, eastus"),
        "{}",
        abroad.stderr
    );
}
