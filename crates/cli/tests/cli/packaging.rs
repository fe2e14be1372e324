//! The systemd unit: systemd itself understands every line, and it fits the program.

use std::process::Command;

use crate::support::{Site, done};

const UNITS: [&str; 3] = ["muster.service", "muster-helper.service", "muster-agent.service"];

fn unit(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
    std::fs::read_to_string(format!("{folder}/{name}")).expect("the unit exists")
}

/// The value of a key that occurs once.
fn value(unit: &str, key: &str) -> String {
    let found: Vec<&str> =
        unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect();
    assert_eq!(found.len(), 1, "{key}: {found:?}");
    found[0].to_owned()
}

#[test]
fn systemd_understands_the_unit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let verify = |path: &std::path::Path| {
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no", "--recursive-errors=no"]).arg(path);
        done(command.output().expect("systemd-analyze runs: apt-get install systemd"))
    };
    let here = UNITS.map(|name| {
        let text = unit(name).replace("/usr/bin/muster", env!("CARGO_BIN_EXE_muster"));
        let path = folder.path().join(name);
        std::fs::write(&path, &text).expect("written");
        (path, text)
    });
    for (path, text) in here {
        let checked = verify(&path);
        assert_eq!((checked.code, checked.stderr.trim()), (0, ""), "{}", checked.stderr);
        // And it would report a line that it did not understand.
        let soon = text.replace("RestartSec=", "RestartSec=soon ");
        std::fs::write(&path, soon).expect("written");
        assert!(!verify(&path).stderr.is_empty());
    }
}

#[test]
fn the_unit_fits_the_program() {
    let unit = unit("muster.service");
    let start = value(&unit, "ExecStart");
    let arguments: Vec<&str> = start.split(' ').skip(1).collect();
    let site = Site::empty();
    let printed = site.text(&[&arguments[..], &["--print-config"]].concat());
    let drain = printed.lines().find_map(|line| line.strip_prefix("drain-seconds = "));
    let drain: u64 = drain.expect("a setting").parse().expect("a number");
    let patience: u64 = value(&unit, "TimeoutStopSec").parse().expect("seconds");
    assert!(patience >= drain + 5, "systemd would kill it before it has stopped");
    assert_eq!(value(&unit, "ExecReload"), "/bin/kill -HUP $MAINPID");
    for (key, wanted) in [
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("StateDirectory", "muster"),
        ("StateDirectoryMode", "0700"),
        ("Restart", "on-failure"),
    ] {
        assert_eq!(value(&unit, key), wanted, "{key}");
    }
}

/// Both units use the same socket, folder and user, and the program knows the words.
#[test]
fn the_helpers_unit_fits_the_servers() {
    let (server, helper) = (unit("muster.service"), unit("muster-helper.service"));
    let start = value(&helper, "ExecStart");
    let words: Vec<&str> = start.split(' ').collect();
    let after = |flag: &str| words[words.iter().position(|word| *word == flag).expect(flag) + 1];
    assert!(server.contains(&format!("Environment=MUSTER_HELPER_SOCKET={}\n", after("--listen"))));
    assert!(server.contains(&format!("Environment=MUSTER_STATE_DIR={}\n", after("--state-dir"))));
    assert!(server.contains("Environment=MUSTER_CONFIG=%E/muster/muster.toml\n"));
    assert_eq!(value(&server, "User"), after("--user"));
    assert_eq!(value(&helper, "KillMode"), "process", "nodes outlive their helper");
    check_flags(&words);
}

/// The program accepts every setting in the configuration file of the package, and has the defaults that it shows.
#[test]
fn the_configuration_file_shows_the_defaults() {
    let key = |line: &str| {
        let (key, _) = line.split_once(" = ")?;
        key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-').then(|| key.to_owned())
    };
    let shipped = unit("muster.toml");
    let commented = shipped.lines().filter_map(|line| line.strip_prefix("# "));
    let settings: Vec<&str> = commented.filter(|line| key(line).is_some()).collect();
    let site = Site::empty();
    let file = site.folder().join("all.toml");
    std::fs::write(&file, settings.join("\n")).expect("written");
    let file = file.to_str().expect("text");
    let taken = site.text(&["serve", "--config", file, "--print-config"]);
    let usual = site.text(&["serve", "--print-config"]);
    let mut differing = Vec::new();
    for setting in &settings {
        assert!(taken.lines().any(|line| line == *setting), "{setting}");
        if !usual.lines().any(|line| line == *setting) {
            differing.extend(key(setting));
        }
    }
    // Their defaults depend on the machine or on the command, or they have none.
    assert_eq!(differing, ["public-host", "tls-cert", "tls-key", "egress"]);
}

fn check_flags(words: &[&str]) {
    let help = Site::empty().text(&[words[1], "--help"]);
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        assert!(help.contains(flag), "{flag}");
    }
}

/// Its token comes in a variable that the program knows, and its nodes outlive it.
#[test]
fn the_unit_of_a_joined_machine_fits_the_program() {
    let unit = unit("muster-agent.service");
    let start = value(&unit, "ExecStart");
    let words: Vec<&str> = start.split(' ').collect();
    check_flags(&words);
    assert_eq!(words[1..3], ["agent", "--join"]);
    assert!(words.contains(&&*format!("%S/{}", value(&unit, "StateDirectory"))), "{start}");
    assert!(unit.contains("#       MUSTER_JOIN_TOKEN="), "it says how to give the token");
    let help = Site::empty().text(&["agent", "--help"]);
    assert!(help.contains("[env: MUSTER_JOIN_TOKEN]"), "{help}");
    assert_eq!(value(&unit, "KillMode"), "process");
    assert_eq!(value(&unit, "StateDirectoryMode"), "0700", "its key is in there");
}
