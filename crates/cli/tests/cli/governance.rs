//! Locks, resource groups and the activity log, as users of az know them.

use crate::support::{CLUSTER, Site};

const WORKSPACES: &str = "Microsoft.MachineLearningServices/workspaces";
const COMPUTES: &str = "Microsoft.MachineLearningServices/workspaces/computes";

/// The command that a refusal suggests, split as a shell would.
fn advised(talk: &str) -> Vec<String> {
    let (_, command) = talk.split_once("remove that lock first: muster ").expect("advice");
    let line = command.lines().next().expect("a line");
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_refusal_says_how_to_unlock_and_that_works() {
    let site = Site::start();
    site.text(&CLUSTER);
    let on = ["--resource", "cpu", "--resource-type", COMPUTES, "--parent", "workspaces/default"];
    let made =
        ["lock", "create", "-n", "keep", "-t", "cannotdelete", "--notes", "ours", "-g", "default"];
    let made = site.json(&[&made[..], &on].concat());
    assert_eq!((&made["level"], &made["notes"]), (&"CanNotDelete".into(), &"ours".into()));
    assert_eq!(made["resourceGroup"], "default");

    let refused = site.run(&["compute", "delete", "-n", "cpu", "--yes"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    let command = advised(&refused.stderr);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    assert_eq!(command[..3], ["lock", "delete", "--ids"]);
    assert_eq!(site.json(&["lock", "show", "--ids", command[3]])["name"], "keep");
    site.text(&command);
    assert_eq!(site.run(&command).code, 3, "the lock is deleted");
    site.text(&["compute", "delete", "-n", "cpu", "--yes"]);
}

#[test]
fn locks_are_where_the_flags_say() {
    let site = Site::start();
    site.text(&["workspace", "create", "-n", "vision", "-g", "lab"]);
    let lock = |name: &str, more: &[&str]| {
        site.text(&[&["lock", "create", "-n", name, "-t", "ReadOnly"], more].concat());
    };
    lock("all", &[]);
    // A lock above does not prevent new locks below.
    lock("group", &["-g", "lab"]);
    lock("whole", &["-g", "lab", "--resource", "vision", "--resource-type", WORKSPACES]);
    let apart =
        ["--namespace", "Microsoft.MachineLearningServices", "--resource-type", "workspaces"];
    lock("apart", &[&["-g", "lab", "--resource", "vision"], &apart[..]].concat());
    let ids = site.json(&["lock", "list", "--query", "[].id"]);
    let ids: Vec<&str> =
        ids.as_array().expect("a list").iter().filter_map(|id| id.as_str()).collect();
    let ends =
        |name: &str| ids.iter().find(|id| id.ends_with(&format!("/locks/{name}"))).expect("listed");
    let home = "/subscriptions/00000000-0000-0000-0000-000000000000";
    let on = |name: &str| ends(name).rsplit_once("/providers/").expect("an id").0.to_owned();
    assert_eq!(on("all"), home);
    assert_eq!(on("group"), format!("{home}/resourceGroups/lab"));
    assert_eq!(on("whole"), format!("{home}/resourceGroups/lab/providers/{WORKSPACES}/vision"));
    assert_eq!(on("apart"), on("whole"));

    let two = ["lock", "delete", "--ids", ends("group"), ends("whole"), "--dry-run"];
    assert_eq!(site.json(&two).as_array().map(Vec::len), Some(2));
    let two = site.json(&["lock", "show", "--ids", ends("group"), ends("whole")]);
    assert_eq!(two.as_array().map(Vec::len), Some(2));
    let changed = site.json(&["lock", "update", "-n", "group", "-g", "lab", "--notes", "later"]);
    assert_eq!((&changed["level"], &changed["notes"]), (&"ReadOnly".into(), &"later".into()));
    let changed =
        site.json(&["lock", "update", "--ids", ends("group"), "-t", "CanNotDelete", "--notes", ""]);
    assert_eq!((&changed["level"], &changed["notes"]), (&"CanNotDelete".into(), &().into()));
    site.text(&[
        "lock",
        "delete",
        "--ids",
        ends("whole"),
        ends("apart"),
        ends("group"),
        ends("all"),
    ]);
    assert_eq!(site.json(&["lock", "list"]), serde_json::json!([]));
}

#[test]
fn wrong_locks_are_refused_with_what_would_be_right() {
    let site = Site::start();
    site.text(&["workspace", "create", "-n", "vision", "-g", "lab"]);
    site.text(&["lock", "create", "-n", "keep", "-t", "ReadOnly", "-g", "lab"]);
    for (command, code, said) in [
        (&["lock", "create", "-n", "x", "-t", "None"][..], 2, "give CanNotDelete or ReadOnly"),
        (&["lock", "create", "-n", "x"], 2, "--lock-type"),
        (&["lock", "show", "--ids", "keep"], 2, "does not start with '/'"),
        (&["lock", "show", "--ids", "/subscriptions/s"], 2, "not the id of a lock"),
        (&["lock", "show"], 2, "--ids"),
        (&["lock", "update", "-n", "keep", "-g", "lab"], 2, "--lock-type"),
        (&["lock", "show", "-n", "kep", "-g", "lab"], 3, "did you mean 'keep'?"),
        (&["lock", "delete", "-n", "kep", "-g", "lab"], 3, "did you mean 'keep'?"),
        (&["lock", "update", "-n", "kep", "-g", "lab", "--notes", "x"], 3, "did you mean 'keep'?"),
        (&["lock", "list", "--resource", "vision"], 2, "--resource-type"),
        (
            &["lock", "list", "--resource", "vision", "--resource-type", WORKSPACES],
            2,
            "add --resource-group",
        ),
        (
            &[
                "lock",
                "list",
                "--resource",
                "v",
                "--resource-type",
                "Microsoft.Web/sites",
                "-g",
                "lab",
            ],
            2,
            "cannot have a lock",
        ),
        (&["lock", "create", "-n", "x", "-t", "ReadOnly", "-g", "none"], 3, "does not exist"),
    ] {
        let done = site.run(command);
        assert_eq!(done.code, code, "{command:?}: {}", done.stderr);
        assert!(done.stderr.contains(said), "{command:?}: {}", done.stderr);
    }
}

#[test]
fn groups_are_created_changed_and_deleted() {
    let site = Site::start();
    let exists = |name: &str| site.json(&["group", "exists", "-n", name]);
    assert_eq!(exists("lab"), false);
    let made = site.json(&["group", "create", "-n", "lab", "-l", "westus", "--tags", "team=blue"]);
    assert_eq!((&made["location"], &made["tags"]["team"]), (&"westus".into(), &"blue".into()));
    assert_eq!(exists("LAB"), true);
    site.text(&["group", "wait", "-n", "lab", "--created", "--timeout", "5"]);
    let changed = site.json(&["group", "update", "-g", "lab", "--set", "tags.x=1"]);
    assert_eq!((&changed["tags"]["x"], &changed["tags"]["team"]), (&"1".into(), &"blue".into()));
    let changed = site.json(&["group", "update", "--resource-group", "lab", "--tags", "y=2"]);
    assert_eq!(changed["tags"], serde_json::json!({"y": "2"}));
    let names = |tag: &str| site.json(&["group", "list", "--tag", tag, "--query", "[].name"]);
    assert_eq!(names("y=2"), serde_json::json!(["lab"]));
    assert_eq!(names("y=3"), serde_json::json!([]));
    let misspelt = site.run(&["group", "show", "-n", "lap"]);
    assert_eq!(misspelt.code, 3);
    assert!(misspelt.stderr.contains("did you mean 'lab'?"), "{}", misspelt.stderr);
    let nowhere = site.run(&["group", "create", "-n", "x"]);
    assert!(nowhere.code == 2 && nowhere.stderr.contains("--location"), "{}", nowhere.stderr);
    let late =
        site.run(&["group", "wait", "-n", "lab", "--deleted", "--timeout", "1", "--interval", "1"]);
    assert!(late.code == 1 && late.stderr.contains("after 1 seconds"), "{}", late.stderr);
}

#[test]
fn deleting_a_group_lists_what_is_deleted_with_it() {
    let site = Site::start();
    site.text(&["workspace", "create", "-n", "vision", "-g", "lab"]);
    site.text(&["compute", "create", "-n", "cpu", "-g", "lab", "-w", "vision"]);
    let asked = site.run(&["group", "delete", "-n", "lab"]);
    assert_eq!(asked.code, 2, "{}", asked.stderr);
    for said in ["'vision'", "'vision/cpu'", "with 1 workspace and 1 compute", "add --yes"] {
        assert!(asked.stderr.contains(said), "{said}: {}", asked.stderr);
    }
    assert_eq!(site.run(&["group", "delete", "-n", "lap", "--yes"]).code, 3);
    let done = site.run(&["group", "delete", "-n", "lab", "--yes"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stderr.contains("deleting lab: Succeeded"), "{}", done.stderr);
    assert_eq!(site.json(&["group", "exists", "-n", "lab"]), false);
    site.text(&["group", "wait", "-n", "lab", "--deleted", "--timeout", "5"]);
}

const LIST: [&str; 3] = ["monitor", "activity-log", "list"];
const VERIFY: [&str; 3] = ["monitor", "activity-log", "verify"];

#[test]
fn the_activity_log_says_who_did_what() {
    let site = Site::start();
    site.text(&["group", "create", "-n", "lab", "-l", "westus"]);
    site.text(&["lock", "create", "-n", "keep", "-t", "CanNotDelete", "-g", "lab"]);
    assert_eq!(site.run(&["group", "delete", "-n", "lab", "--yes"]).code, 2);
    site.text(&["user", "create", "-n", "ada"]);
    let operations = |more: &[&str]| {
        let query = ["--query", "[].[operationName.value, status.value]", "-o", "tsv"];
        site.text(&[&LIST, more, &query[..]].concat())
    };
    let of_group = operations(&["-g", "lab"]);
    let wanted = "Microsoft.Resources/subscriptions/resourceGroups/delete\tFailed\n\
                  Microsoft.Authorization/locks/write\tSucceeded\n\
                  Microsoft.Resources/subscriptions/resourceGroups/write\tSucceeded\n";
    assert_eq!(of_group, wanted);
    assert_eq!(
        operations(&["-g", "lab", "--max-events", "1"]),
        wanted.split_inclusive('\n').next().unwrap()
    );
    assert_eq!(operations(&["-g", "lab", "--status", "failed"]).lines().count(), 1);
    assert_eq!(operations(&["--namespace", "Microsoft.Authorization"]).lines().count(), 1);
    assert_eq!(operations(&["--caller", "no-such"]), "");
    assert_eq!(operations(&["--end-time", "2020-01-01"]), "");
    assert_eq!(operations(&["--start-time", "2h", "--offset", "1h"]), "");
    assert_eq!(operations(&["--start-time", "1h", "-g", "lab"]), wanted);
    let lock = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/lab/providers";
    assert_eq!(operations(&["--resource-id", lock]).lines().count(), 1);
    assert!(!operations(&[]).contains("Muster.Identity"), "users are in no subscription");
    assert!(operations(&["--all"]).starts_with("Muster.Identity/users/write\tSucceeded\n"));
    let event = &site.json(&[&LIST[..], &["-g", "lab", "--status", "Failed"]].concat())[0];
    assert_eq!(event["properties"]["statusCode"], "ScopeLocked");
    let id = event["correlationId"].as_str().expect("an id");
    assert_eq!(operations(&["--correlation-id", id]).lines().count(), 1);
    for wrong in [
        &["--status", "Maybe"][..],
        &["--offset", "6"],
        &["--start-time", "2h", "--end-time", "1h", "--offset", "1h"],
        &["--start-time", "1h", "--end-time", "2h"],
        &["--all", "-g", "lab"],
    ] {
        assert_eq!(site.run(&[&LIST[..], wrong].concat()).code, 2, "{wrong:?}");
    }
}

#[test]
fn a_changed_activity_log_is_noticed() {
    let mut site = Site::start();
    site.text(&["group", "create", "-n", "lab", "-l", "westus"]);
    let noted = site.json(&VERIFY);
    assert_eq!((&noted["is_whole"], &noted["entries"]), (&true.into(), &1.into()));
    let head = noted["head"].as_str().expect("a digest").to_owned();
    for name in ["a", "b"] {
        site.text(&["group", "create", "-n", name, "-l", "westus"]);
    }
    let with_head = [&VERIFY[..], &["--head", &head]].concat();
    let later = site.json(&with_head);
    assert_eq!((&later["entries"], &later["head_found_at"]), (&3.into(), &1.into()));
    let other = "0".repeat(64);
    let unknown = site.run(&[&VERIFY[..], &["--head", &other]].concat());
    assert!(
        unknown.code == 1 && unknown.stderr.contains("no entry has the digest"),
        "{}",
        unknown.stderr
    );
    assert_eq!(site.run(&[&VERIFY[..], &["--head", "abc"]].concat()).code, 2);

    site.kill();
    let file =
        std::fs::read_dir(site.state()).expect("a folder").flatten().map(|entry| entry.path());
    let file = file.filter(|path| path.extension().is_some_and(|end| end == "db")).last();
    let database = rusqlite::Connection::open(file.expect("a database")).expect("it opens");
    let changed = database
        .execute("UPDATE activity SET doc = replace(doc, 'lab', 'lob') WHERE number = 1", ());
    assert_eq!(changed.expect("it can be written"), 1);
    drop(database);
    site.up();
    let broken = site.run(&with_head);
    assert_eq!(broken.code, 1, "{}", broken.stderr);
    assert!(broken.stderr.contains("entry 1 does not match"), "{}", broken.stderr);
    assert!(String::from_utf8_lossy(&broken.stdout).contains("\"broken_at\": 1"));
}

/// A case in which Azure stays at "resizing 0 → 0" without any explanation.
#[test]
fn a_stuck_cluster_names_the_lock_and_moving_that_to_the_cluster_helps() {
    let site = Site::start();
    site.text(&CLUSTER);
    site.text(&["lock", "create", "-n", "keep", "-t", "CanNotDelete", "-g", "default"]);
    let job = ["job", "create", "-n", "waits", "--compute", "cpu", "--command", "true"];
    site.text(&job);
    for what in ["waits", "cpu"] {
        let why = site.text(&["why", what]);
        for said in ["the lock 'keep' (CanNotDelete) on", "lock individual computes instead"] {
            assert!(why.contains(said), "{said}: {why}");
        }
    }
    let why = site.text(&["why", "waits"]);
    let (_, command) = why.split_once("muster lock delete").expect("a command");
    let id = command.lines().next().expect("a line").trim().strip_prefix("--ids ").expect("an id");
    let on = ["--resource", "cpu", "--resource-type", COMPUTES, "--parent", "workspaces/default"];
    let single = ["lock", "create", "-n", "single", "-t", "CanNotDelete", "-g", "default"];
    site.text(&[&single[..], &on].concat());
    site.text(&["lock", "delete", "--ids", id]);
    site.wait_for_job("waits", |job| job["status"] == "Completed");
    let kept = site.run(&["compute", "delete", "-n", "cpu", "--yes"]);
    assert!(kept.code == 2 && kept.stderr.contains("the lock 'single'"), "{}", kept.stderr);
    let command = advised(&kept.stderr);
    site.text(&command.iter().map(String::as_str).collect::<Vec<_>>());
}
