//! The systemd unit: systemd itself understands every line, and it fits the program.

mod support;

use std::process::Command;

use support::{Site, done};

const UNITS: [&str; 2] = ["muster.service", "muster-helper.service"];

fn unit(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
    std::fs::read_to_string(format!("{folder}/{name}")).expect("the unit is there")
}

/// The value of a key that is there once.
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
        // And it would say so if it did not.
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
    assert!(patience >= drain + 5, "systemd kills it before it has stopped by itself");
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

/// Both units mean the same socket, folder and user, and the program knows the words.
#[test]
fn the_helpers_unit_fits_the_servers() {
    let (server, helper) = (unit("muster.service"), unit("muster-helper.service"));
    let start = value(&helper, "ExecStart");
    let words: Vec<&str> = start.split(' ').collect();
    let after = |flag: &str| words[words.iter().position(|word| *word == flag).expect(flag) + 1];
    assert!(server.contains(&format!("Environment=MUSTER_HELPER_SOCKET={}\n", after("--listen"))));
    assert!(server.contains(&format!("Environment=MUSTER_STATE_DIR={}\n", after("--state-dir"))));
    assert_eq!(value(&server, "User"), after("--user"));
    assert_eq!(value(&helper, "KillMode"), "process", "nodes outlive their helper");
    let site = Site::empty();
    let help = site.text(&[words[1], "--help"]);
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        assert!(help.contains(flag), "{flag}");
    }
}
