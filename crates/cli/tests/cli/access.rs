//! A server for many users: workspaces that are created explicitly, and users with keys and roles of their own.

use crate::support::{Done, Site, done};
use serde_json::Value;

const WORKSPACE: &str = "/subscriptions/s/resourceGroups/lab/providers/\
                         Microsoft.MachineLearningServices/workspaces/vision";
const PLACE: [&str; 6] = ["-g", "lab", "-w", "vision", "--subscription", "s"];

fn site() -> Site {
    let mut site = Site::empty();
    site.start_as("serve");
    site
}

/// The address of the server and a user's key, as on another machine.
fn run_as(site: &Site, key: &str, arguments: &[&str]) -> Done {
    let connection = std::fs::read(site.state().join("connection.json")).expect("it is up");
    let connection: Value = serde_json::from_slice(&connection).expect("JSON");
    let mut command = site.command(arguments);
    command
        .env_remove("MUSTER_STATE_DIR")
        .env("HOME", site.folder())
        .env("MUSTER_URL", connection["url"].as_str().expect("an address"))
        .env("MUSTER_API_KEY", key)
        .env("MUSTER_CA_FILE", site.state().join("pki/ca.pem"));
    done(command.output().expect("the binary runs"))
}

fn new_key(site: &Site, name: &str) -> String {
    let user = site.json(&["user", "create", "-n", name]);
    user["key"].as_str().expect("it is shown once").to_owned()
}

fn make_workspace(site: &Site) {
    let place = ["-g", "lab", "--subscription", "s"];
    site.text(&[&["workspace", "create", "-n", "vision", "-l", "westeurope"], &place[..]].concat());
}

#[test]
fn workspaces_exist_only_once_created() {
    let site = site();
    let list = [&["compute", "list"], &PLACE[..]].concat();
    let create = [&["compute", "create", "-n", "cpu"], &PLACE[..]].concat();
    for command in [&create, &list] {
        let refused = site.run(command);
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        assert!(
            refused.stderr.contains("muster workspace create --name vision"),
            "{}",
            refused.stderr
        );
    }
    make_workspace(&site);
    let shown = site.json(&[&["workspace", "show"], &PLACE[..]].concat());
    assert_eq!(shown["location"], "westeurope");
    // Creating it again changes nothing.
    make_workspace(&site);
    site.text(&create);
    assert_eq!(site.json(&list).as_array().map(Vec::len), Some(1));
    site.text(&[&["compute", "delete", "-n", "cpu", "--yes"], &PLACE[..]].concat());
}

#[test]
fn a_user_does_what_the_role_allows() {
    let site = site();
    make_workspace(&site);
    let key = new_key(&site, "ada");
    let list = [&["compute", "list"], &PLACE[..]].concat();
    let create = [&["compute", "create", "-n", "cpu", "--max-instances", "0"], &PLACE[..]].concat();
    let refused = run_as(&site, &key, &list);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("muster role assignment create --assignee ada"),
        "{}",
        refused.stderr
    );

    let assign = |role: &str, verb: &str| {
        let command = ["role", "assignment", verb, "--assignee", "ada", "--role", role];
        site.text(&[&command, &["--scope", WORKSPACE][..]].concat())
    };
    assign("reader", "create");
    assert_eq!(run_as(&site, &key, &list).code, 0);
    assert_eq!(run_as(&site, &key, &create).code, 1);
    assign("AzureML Compute Operator", "create");
    assert_eq!(run_as(&site, &key, &create).code, 0);
    // Assigning a role twice has the effect of assigning it once.
    assign("reader", "create");
    let roles = site.json(&["role", "assignment", "list", "--assignee", "ADA"]);
    assert_eq!(roles.as_array().map(Vec::len), Some(2), "{roles}");
    assign("AzureML Compute Operator", "delete");
    assert_eq!(run_as(&site, &key, &create).code, 1);

    let me = run_as(&site, &key, &[&["whoami", "-o", "json"], &PLACE[..]].concat());
    let me: Value = serde_json::from_slice(&me.stdout).expect("JSON");
    assert_eq!((&me["name"], &me["is_owner"]), (&"ada".into(), &false.into()));
    assert_eq!(me["roles"][0]["scope"], WORKSPACE);
    assert_eq!(site.json(&["whoami", "-o", "json"])["is_owner"], true);
    site.text(&[&["compute", "delete", "-n", "cpu", "--yes"], &PLACE[..]].concat());
}

#[test]
fn a_key_is_replaced_and_taken_at_once() {
    let site = site();
    let old = new_key(&site, "ada");
    assert_eq!(run_as(&site, &old, &["whoami"]).code, 0);
    let new = site.json(&["user", "rotate-key", "-n", "ada"]);
    let refused = run_as(&site, &old, &["whoami"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("does not accept the key in MUSTER_API_KEY"),
        "{}",
        refused.stderr
    );
    let new = new["key"].as_str().expect("a key");
    assert_eq!(run_as(&site, new, &["whoami"]).code, 0);
    site.text(&["user", "revoke-key", "-n", "ada"]);
    assert_eq!(run_as(&site, new, &["whoami"]).code, 1);
    let listed = site.text(&["user", "list", "-o", "table"]);
    assert!(listed.contains("ada") && listed.contains("no key"), "{listed}");
    assert!(!listed.contains("msk_"), "{listed}");

    let asked = site.run(&["user", "delete", "-n", "ada"]);
    assert_eq!(asked.code, 2, "{}", asked.stderr);
    site.text(&["user", "delete", "-n", "ada", "--yes"]);
    assert_eq!(site.run(&["user", "show", "-n", "ada"]).code, 3);
}

#[test]
fn missing_connection_settings_are_reported() {
    let site = site();
    let with = |variables: &[(&str, &str)]| {
        let mut command = site.command(&["whoami"]);
        command.env_remove("MUSTER_STATE_DIR").envs(variables.iter().copied());
        done(command.output().expect("the binary runs"))
    };
    for (variables, word) in [
        (&[("MUSTER_URL", "http://localhost:1")][..], "https"),
        (&[("MUSTER_URL", "https://localhost:1")][..], "MUSTER_API_KEY"),
        (&[("MUSTER_URL", "https://localhost:1"), ("MUSTER_API_KEY", "k")][..], "MUSTER_CA_FILE"),
    ] {
        let refused = with(variables);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains(word), "{}", refused.stderr);
    }
    let bad = site.run(&["role", "assignment", "list", "--scope", "everywhere"]);
    assert_eq!(bad.code, 2, "{}", bad.stderr);
    let bad = site.run(&[
        "role",
        "assignment",
        "create",
        "--assignee",
        "a",
        "--role",
        "god",
        "--scope",
        "/",
    ]);
    assert!(bad.stderr.contains("AzureML Data Scientist"), "{}", bad.stderr);
}

#[test]
fn a_refusal_names_what_the_caller_has_and_what_it_takes() {
    let site = site();
    make_workspace(&site);
    let key = new_key(&site, "ada");
    let create = [&["compute", "create", "-n", "cpu"], &PLACE[..]].concat();
    let refused = run_as(&site, &key, &create).stderr;
    assert!(refused.contains("ada has no role anywhere"), "{refused}");
    let assign = ["role", "assignment", "create", "--assignee", "ada", "--role", "Reader"];
    site.text(&[&assign[..], &["--scope", WORKSPACE]].concat());
    let refused = run_as(&site, &key, &create).stderr;
    for part in [
        &format!("ada has Reader on {WORKSPACE}"),
        "this requires AzureML Compute Operator or Contributor or Owner there or above",
        &format!("--assignee ada --role 'AzureML Compute Operator' --scope {WORKSPACE}"),
    ] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
}

#[test]
fn a_role_on_something_that_does_not_exist_is_pointed_out() {
    let site = site();
    make_workspace(&site);
    new_key(&site, "ada");
    let assign = |scope: &str| {
        let command = ["role", "assignment", "create", "--assignee", "ada", "--role", "Reader"];
        let done = site.run(&[&command[..], &["--scope", scope]].concat());
        assert_eq!(done.code, 0, "{}", done.stderr);
        done.stderr
    };
    for scope in ["/", "/subscriptions/S", "/subscriptions/s/resourceGroups/LAB", WORKSPACE] {
        assert!(!assign(scope).contains("note:"), "{scope}");
    }
    for (scope, words) in [
        ("/subscriptions/other", "there is no subscription 'other'"),
        ("/subscriptions/s/resourceGroups/labs", "there is no resource group 'labs'. The role"),
        (&format!("{WORKSPACE}x"), "did you mean 'vision'?"),
    ] {
        let said = assign(scope);
        assert!(said.contains("note: ") && said.contains(words), "{scope}: {said}");
    }
    let slip = ["role", "assignment", "create", "--assignee", "ada", "--role", "Raeder"];
    let slip = site.run(&[&slip[..], &["--scope", "/"]].concat());
    assert_eq!(slip.code, 2);
    assert!(slip.stderr.contains("did you mean 'Reader'?"), "{}", slip.stderr);
}

#[test]
fn advice_that_the_caller_may_not_follow_says_whom_to_ask() {
    let site = site();
    make_workspace(&site);
    let create = ["compute", "create", "-n", "cpu", "--max-instances", "0"];
    site.text(&[&create, &PLACE[..]].concat());
    let (reader, _) = (new_key(&site, "reader"), new_key(&site, "ada"));
    for (name, role) in [("reader", "Reader"), ("ada", "Contributor")] {
        let assign = ["role", "assignment", "create", "--assignee", name, "--role", role];
        site.text(&[&assign[..], &["--scope", WORKSPACE]].concat());
    }
    let job = ["job", "create", "-n", "held", "--compute", "cpu", "--command", "true"];
    site.text(&[&job, &PLACE[..]].concat());
    let why = [&["why", "held"], &PLACE[..]].concat();
    let said = run_as(&site, &reader, &why);
    let said = String::from_utf8_lossy(&said.stdout);
    let words = "(you may not create, change or delete computes there; ask ada, or request the role Owner or \
                 Contributor or AzureML Compute Operator)";
    assert!(said.contains(words), "{said}");
    assert!(!site.text(&why).contains("you may not"), "the owner may");
    site.text(&[&["compute", "delete", "-n", "cpu", "--yes"], &PLACE[..]].concat());
}
