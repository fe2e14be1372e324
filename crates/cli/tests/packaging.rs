//! The systemd unit: systemd itself understands every line, and it fits the program.

mod support;

use std::process::Command;

use support::{Site, done};

fn unit() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/muster.service");
    std::fs::read_to_string(path).expect("the unit is there")
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
    let path = folder.path().join("muster.service");
    let here = unit().replace("/usr/bin/muster", env!("CARGO_BIN_EXE_muster"));
    std::fs::write(&path, &here).expect("written");
    let verify = |path: &std::path::Path| {
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no", "--recursive-errors=no"]).arg(path);
        done(command.output().expect("systemd-analyze runs: apt-get install systemd"))
    };
    let checked = verify(&path);
    assert_eq!((checked.code, checked.stderr.trim()), (0, ""), "{}", checked.stderr);
    // And it would say so if it did not.
    std::fs::write(&path, here.replace("RestartSec=2", "RestartSec=soon")).expect("written");
    assert!(!verify(&path).stderr.is_empty());
}

#[test]
fn the_unit_fits_the_program() {
    let unit = unit();
    let start = value(&unit, "ExecStart");
    let arguments: Vec<&str> = start.split(' ').skip(1).collect();
    let site = Site::empty();
    let printed = site.text(&[&arguments[..], &["--print-config"]].concat());
    let drain = printed.lines().find_map(|line| line.strip_prefix("drain-seconds = "));
    let drain: u64 = drain.expect("a setting").parse().expect("a number");
    let patience: u64 = value(&unit, "TimeoutStopSec").parse().expect("seconds");
    assert!(patience >= drain + 5, "systemd kills it before it has stopped by itself");
    assert_eq!(value(&unit, "ExecReload"), "/bin/kill -HUP $MAINPID");
    assert_eq!(value(&unit, "KillMode"), "process", "nodes outlive their server");
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
