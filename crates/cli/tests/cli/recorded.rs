//! State directories of earlier versions can be opened and used: recorded/README.md describes their contents.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Site, ends, signal};

/// The only workspace in it.
const LAB: [&str; 4] = ["-g", "research", "-w", "lab"];

fn unpack(name: &str) -> Site {
    let site = Site::empty();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/recorded").join(name);
    let mut tar = Command::new("tar");
    let unpacked = tar.arg("-xzf").arg(file).arg("-C").arg(site.folder()).status();
    assert!(unpacked.expect("tar is installed").success());
    site
}

fn asked(words: &[&'static str]) -> Vec<&'static str> {
    [words, &LAB[..]].concat()
}

/// Everything from before is still there.
fn check(site: &Site) {
    for (job, status) in
        [("with-outputs", "Completed"), ("plain", "Completed"), ("fails", "Failed")]
    {
        assert_eq!(site.json(&asked(&["job", "show", "-n", job]))["status"], status, "{job}");
    }
    let log = site.run(&asked(&["job", "stream", "-n", "plain"]));
    let log = String::from_utf8(log.stdout).expect("text") + &log.stderr;
    assert!(log.contains("hello from the past"), "{log}");
    let to = tempfile::tempdir().expect("a folder");
    let path = to.path().to_str().expect("text");
    let download = ["job", "download", "-n", "with-outputs", "-p", path];
    assert_eq!(site.run(&[&download[..], &LAB].concat()).code, 0);
    let found = Command::new("grep").args(["-r", "from code"]).arg(to.path()).output();
    let found = String::from_utf8(found.expect("grep runs").stdout).expect("text");
    assert!(found.contains("result.txt"), "{found:?} {:?}", fs::read_dir(to.path()));
    assert_eq!(site.json(&asked(&["compute", "show", "-n", "cpu"]))["tags"]["team"], "blue");
    let data = site.json(&asked(&["data", "show", "-n", "table", "--version", "1"]));
    assert_eq!(data["name"], "table");
    assert!(site.text(&["user", "list"]).contains("\"ada\""));
}

fn run_one_more(site: &Site, name: &'static str) {
    let words = ["job", "create", "-n", name, "--compute", "cpu", "--command", "echo and on"];
    site.text(&asked(&words));
    let mut tried = 0;
    while site.json(&asked(&["job", "show", "-n", name]))["status"] != "Completed" {
        tried += 1;
        assert!(tried < 600, "{}", site.json(&asked(&["job", "show", "-n", name])));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_state_directory_of_november_2026_goes_on() {
    let mut site = unpack("state-74919b3.tar.gz");
    site.start_with(&["--isolation", "none"]);
    check(&site);
    run_one_more(&site, "one-more");
    site.text(&asked(&["compute", "delete", "-n", "cpu", "--yes"]));
    let mut server = site.take_server();
    signal("-TERM", &server);
    assert!(ends(&mut server) && server.wait().expect("ended").success());
}

/// A version backs up only what it can read. The server upgrades older databases when it starts, so an upgrade begins
/// with a backup by the version that is running.
#[test]
fn it_can_be_backed_up_once_it_is_up_to_date() {
    let mut old = unpack("state-74919b3.tar.gz");
    let backup = old.folder().join("backup");
    let backup = backup.to_str().expect("text");
    let refused = old.run(&["backup", backup, "-o", "none"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("has format 9"), "{}", refused.stderr);
    old.start_with(&["--isolation", "none"]);
    let mut server = old.take_server();
    signal("-TERM", &server);
    assert!(ends(&mut server) && server.wait().expect("ended").success());
    old.text(&["backup", backup, "--verify", "-o", "none"]);
    let mut new = Site::empty();
    let state = new.state();
    new.text(&["restore", backup, "--state-dir", state.to_str().expect("text"), "-o", "none"]);
    new.start_with(&["--isolation", "none"]);
    check(&new);
    run_one_more(&new, "after-all");
    new.text(&asked(&["compute", "delete", "-n", "cpu", "--yes"]));
}
