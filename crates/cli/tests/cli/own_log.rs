//! A server that writes its log to its own files.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::support::sandbox::wait_until;
use crate::support::{Site, run_apart};

/// Set for the run that has a small disk to itself, to the path of that disk.
const DISK: &str = "MUSTER_LOG_DISK_INSIDE";
const REQUESTS: usize = 15;

fn answered(log: &Path) -> usize {
    std::fs::read_to_string(log).unwrap_or_default().matches("answered").count()
}

#[test]
fn a_log_goes_to_its_file_and_a_bad_place_is_refused() {
    let mut site = Site::empty();
    let up = ["up", "--listen", "127.0.0.1:0", "--isolation", "none"];
    for bad in ["no/such/folder/log", "."] {
        let refused = site.run(&[&up[..], &["--log-file", bad]].concat());
        assert_eq!((refused.code, refused.stdout.len()), (2, 0), "{bad}: {}", refused.stderr);
        assert!(refused.stderr.contains("cannot write the log-file"), "{}", refused.stderr);
    }
    let few = site.run(&[&up[..], &["--log-file", "x", "--log-max-files", "1"]].concat());
    assert_eq!(few.code, 2, "{}", few.stderr);

    let log = site.folder().join("muster.log");
    let path = log.display().to_string();
    let said = site.start_heard(
        "serve",
        &["--isolation", "none", "--log-file", &path, "--log-format", "json"],
    );
    assert_eq!(site.run(&["workspace", "list"]).code, 0);
    wait_until("the requests are logged", || answered(&log) >= 2);
    let text = std::fs::read_to_string(&log).expect("it exists");
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("an object per line");
    }
    // The user who started it still sees the usual messages.
    let said = std::fs::read_to_string(said).expect("it printed something");
    assert!(said.contains("the state directory is") && !said.contains("answered"), "{said}");
}

#[test]
fn a_full_disk_costs_no_line_and_delays_no_request() {
    if !rustix::process::geteuid().is_root() {
        return muster_testing::skip_or_fail("not root: only root can mount a small disk");
    }
    let Some(disk) = std::env::var_os(DISK).filter(|disk| disk != "1") else {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().display();
        let setup = format!(
            "ip link set lo up; mkdir {folder}/disk && mount -t tmpfs -o size=64k none {folder}/disk && \
             export {DISK}={folder}/disk || exit 1"
        );
        return run_apart("own_log::a_full_disk_costs_no_line_and_delays_no_request", &setup, DISK);
    };
    let disk = PathBuf::from(disk);
    let log = disk.join("muster.log");
    let mut site = Site::empty();
    let path = log.display().to_string();
    site.start_with(&["--isolation", "none", "--log-level", "info", "--log-file", &path]);
    assert_eq!(site.run(&["workspace", "list"]).code, 0);
    wait_until("the requests are logged", || answered(&log) >= 2);
    let before = answered(&log);

    let mut filler = std::fs::File::create(disk.join("filler")).expect("there is room");
    while filler.write(&[0; 512]).is_ok() {}
    for _ in 0..REQUESTS {
        assert_eq!(site.run(&["workspace", "list"]).code, 0, "the log's disk is not the server's");
    }
    let during = answered(&log);
    assert!(during < before + 2 * REQUESTS, "the disk was not full: {during}");
    let text = std::fs::read(&log).expect("it exists");
    assert_eq!(text.last(), Some(&b'\n'), "the last line is complete");
    std::fs::remove_file(disk.join("filler")).expect("ours");
    drop(filler);
    wait_until("all of them are there", || answered(&log) >= before + 2 * REQUESTS);
}
