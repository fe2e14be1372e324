//! The identity of later commands: `muster login`, `muster logout`, and what they leave on disk.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use crate::support::{Done, Site, done};
use serde_json::Value;

fn site() -> Site {
    let mut site = Site::empty();
    site.start_as("serve");
    site
}

fn url(site: &Site) -> String {
    let connection = fs::read(site.state().join("connection.json")).expect("it is up");
    let connection: Value = serde_json::from_slice(&connection).expect("JSON");
    connection["url"].as_str().expect("an address").to_owned()
}

/// As on another machine, where the state directory is unknown.
fn elsewhere(site: &Site, arguments: &[&str]) -> Command {
    let mut command = site.command(arguments);
    command.env_remove("MUSTER_STATE_DIR").env("HOME", site.folder());
    command
}

fn run(mut command: Command) -> Done {
    done(command.output().expect("the binary runs"))
}

fn name_of(found: &Done) -> Value {
    assert_eq!(found.code, 0, "{}", found.stderr);
    serde_json::from_slice::<Value>(&found.stdout).expect("JSON")["name"].clone()
}

fn new_principal(site: &Site) -> (String, String) {
    let user = site.json(&["user", "create", "-n", "robot", "--service"]);
    let text = |field: &str| user[field].as_str().expect("text").to_owned();
    (text("object_id"), text("key"))
}

#[test]
fn a_service_principal_logs_in_once_and_is_known_until_logout() {
    let site = site();
    let (id, key) = new_principal(&site);
    let flags = ["--service-principal", "-u", &id, "-p", &key, "--tenant", "any"];
    let mut login = elsewhere(&site, &[&["login"], &flags[..]].concat());
    login.env("MUSTER_URL", url(&site)).env("MUSTER_CA_FILE", site.state().join("pki/ca.pem"));
    let said = run(login);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.stdout.is_empty());
    for word in ["robot", &id, &url(&site)] {
        assert!(said.stderr.contains(word), "{}", said.stderr);
    }
    assert!(!said.stderr.contains(&key), "{}", said.stderr);
    let file = site.config().join("login.json");
    assert_eq!(
        fs::metadata(&file).expect("the file was created").permissions().mode() & 0o777,
        0o600
    );

    let whoami = ["whoami", "-o", "json"];
    let found = run(elsewhere(&site, &whoami));
    assert_eq!(name_of(&found), "robot");
    let found: Value = serde_json::from_slice(&found.stdout).expect("JSON");
    assert_eq!(found["key_source"], file.display().to_string());
    // With the state directory it is the same server, so it is the same user.
    assert_eq!(name_of(&site.run(&whoami)), "robot");
    // A key in the environment takes precedence.
    let owner = fs::read_to_string(site.state().join("keys/owner.key")).expect("a key");
    let mut command = elsewhere(&site, &whoami);
    command.env("MUSTER_API_KEY", owner.trim_end());
    assert_eq!(name_of(&run(command)), "owner");

    assert_eq!(run(elsewhere(&site, &["logout"])).code, 0);
    assert!(!file.exists());
    assert_eq!(run(elsewhere(&site, &whoami)).code, 3);
    assert_eq!(name_of(&site.run(&whoami)), "owner");
    let again = site.run(&["logout"]);
    assert!(again.code == 0 && again.stderr.contains("not logged in"), "{}", again.stderr);
}

#[test]
fn the_key_at_hand_is_kept_with_identity() {
    let site = site();
    assert_eq!(site.run(&["login", "--identity"]).code, 0);
    assert_eq!(name_of(&run(elsewhere(&site, &["whoami", "-o", "json"]))), "owner");
    // After a login, the bundle also has the public CAs, but no directory of the server.
    let variables = run(elsewhere(&site, &["env", "--shell", "json"]));
    let variables: Value = serde_json::from_slice(&variables.stdout).expect("JSON");
    assert_eq!(variables["MUSTER_URL"], url(&site));
    let bundle = variables["REQUESTS_CA_BUNDLE"].as_str().expect("a path");
    let bundle = fs::read_to_string(bundle).expect("it was written");
    let ours = fs::read_to_string(site.state().join("pki/ca.pem")).expect("it is up");
    assert!(bundle.contains(ours.trim_end()));
    let theirs = fs::read_to_string(site.state().join("pki/ca-bundle.pem")).expect("it is up");
    let count = |text: &str| text.matches("BEGIN CERTIFICATE").count();
    assert_eq!(count(&bundle), count(&theirs));
}

#[test]
fn what_is_wrong_keeps_nothing() {
    let site = site();
    let (id, key) = new_principal(&site);
    let wrong = "msk_0000";
    let other = "00000000-0000-0000-0000-000000000000";
    for (flags, code, word) in [
        (&[][..], 2, "--identity"),
        (&["--service-principal", "-u", &id], 2, "--password"),
        (&["--identity", "-u", &id], 2, "cannot be used with"),
        (&["--service-principal", "-u", &id, "-p", wrong], 1, "does not accept the key"),
        (&["--service-principal", "-u", other, "-p", &key], 1, "does not belong to '00000000-"),
        (&["--service-principal", "-u", &id, "-p", "a b"], 2, "contains no key"),
    ] {
        let refused = site.run(&[&["login"], flags].concat());
        assert_eq!(refused.code, code, "{flags:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(word), "{}", refused.stderr);
        assert!(!site.config().join("login.json").exists(), "{flags:?}");
    }
}

#[test]
fn a_secret_comes_from_standard_input_too() {
    let site = site();
    let (id, key) = new_principal(&site);
    let mut command = site.command(&["login", "--service-principal", "-u", &id, "-p", "-"]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("piped");
    writeln!(stdin, "{key}").expect("it reads");
    drop(stdin);
    let said = done(child.wait_with_output().expect("it ends"));
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(site.json(&["whoami", "-o", "json"])["name"], "robot");
}

/// The key is sent to the server that it was verified with, and to no other.
#[test]
fn a_login_does_not_follow_to_another_server() {
    let (site, other) = (site(), site());
    let (id, key) = new_principal(&site);
    site.text(&["login", "--service-principal", "-u", &id, "-p", &key]);
    let mut command = site.command(&["whoami", "-o", "json"]);
    command.env("MUSTER_STATE_DIR", other.state());
    assert_eq!(name_of(&run(command)), "owner");
    let mut command = elsewhere(&site, &["whoami", "-o", "json"]);
    command.env("MUSTER_URL", url(&other));
    let refused = run(command);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("MUSTER_API_KEY"), "{}", refused.stderr);

    let file = site.config().join("login.json");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("ours");
    let refused = site.run(&["whoami"]);
    assert!(refused.code == 1 && refused.stderr.contains("chmod 600"), "{}", refused.stderr);
    site.text(&["logout"]);
}

/// Runs the lines that `muster user create` prints in a shell of another machine.
#[test]
fn a_new_user_logs_in_with_the_printed_lines() {
    let site = site();
    fs::copy(site.state().join("pki/ca.pem"), site.folder().join("ca.pem")).expect("a copy");
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_muster")).parent().expect("a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    for (name, more) in [("ada", &[][..]), ("robot", &["--service"])] {
        let made = site.run(&[&["user", "create", "-n", name], more].concat());
        assert_eq!(made.code, 0, "{}", made.stderr);
        let user: Value = serde_json::from_slice(&made.stdout).expect("JSON");
        let key = user["key"].as_str().expect("a key");
        assert!(!made.stderr.contains(key), "{}", made.stderr);
        let (azs, ours): (Vec<&str>, Vec<&str>) = made
            .stderr
            .lines()
            .filter_map(|line| line.strip_prefix("    "))
            .partition(|line| line.starts_with("az "));
        let script = format!("set -e\n{}\nmuster whoami -o json\n", ours.join("\n"));
        let mut shell = elsewhere(&site, &[]);
        let variables: Vec<_> =
            shell.get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect();
        shell = Command::new("sh");
        for (variable, value) in variables {
            match value {
                Some(value) => shell.env(variable, value),
                None => shell.env_remove(variable),
            };
        }
        shell.args([
            "-c",
            &script
                .replace("KEY=KEY", &format!("KEY={key}"))
                .replace("-p KEY", &format!("-p {key}")),
        ]);
        // Each has its own place for a login.
        shell
            .current_dir(site.folder())
            .env("PATH", &path)
            .env("MUSTER_CONFIG_DIR", site.folder().join(name));
        assert_eq!(name_of(&run(shell)), name, "{script}");
        let wanted = match more {
            [] => "az login --identity".to_owned(),
            _ => format!(
                "az login --service-principal -u {} -p KEY --tenant ",
                user["object_id"].as_str().expect("an id")
            ),
        };
        assert!(azs.len() == 1 && azs[0].starts_with(&wanted), "{azs:?}");
    }
}

#[test]
fn without_a_flag_the_key_is_asked_for() {
    let site = site();
    let user = site.json(&["user", "create", "-n", "ada"]);
    let key = user["key"].as_str().expect("text");
    let login = |typed: &str, flags: &[&str]| {
        let mut login = elsewhere(&site, &[&["login"], flags].concat());
        login.env("MUSTER_URL", url(&site)).env("MUSTER_CA_FILE", site.state().join("pki/ca.pem"));
        login.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = login.spawn().expect("the binary runs");
        let mut stdin = child.stdin.take().expect("piped");
        writeln!(stdin, "{typed}").expect("it reads");
        drop(stdin);
        done(child.wait_with_output().expect("it ends"))
    };
    let nothing = login("", &[]);
    assert_eq!(nothing.code, 2, "{}", nothing.stderr);
    assert!(nothing.stderr.contains("muster user create --name NAME"), "{}", nothing.stderr);
    let another = login(key, &["-u", "grace"]);
    assert_eq!(another.code, 1, "{}", another.stderr);
    assert!(!site.config().join("login.json").exists());
    for flags in [&[][..], &["-u", "ADA"]] {
        let said = login(key, flags);
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert!(said.stderr.contains("logged in as 'ada'") && !said.stderr.contains(key));
    }
    assert_eq!(name_of(&run(elsewhere(&site, &["whoami", "-o", "json"]))), "ada");
}
