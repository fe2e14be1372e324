//! A disk that somebody else has filled, or that became read-only: changes are refused at once and for good, what runs
//! goes on and runs once, and a stop is heard.
//!
//! Each test has a small disk to itself, in namespaces of its own: a tmpfs, or a file with ext4 in it that
//! reserves nothing for root.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::walls::{cluster, ran, wait_until};
use crate::support::{Site, ends, run_apart, signal};

/// Set for the run that has the small disk to itself.
const INSIDE: &str = "MUSTER_FULL_DISK_INSIDE";
/// The shortest that there is: a node that is not heard for longer would lose its job.
const LEASE_S: &str = "6";
/// Long enough for two leases and what the controller waits beyond them.
const OUTAGE: Duration = Duration::from_secs(15);

enum Disk {
    Memory,
    Ext4,
}

/// Whether this is the inner run; the outer one starts it, and has nothing more to do.
fn is_inside(test: &str, disk: Disk) -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: only root can mount a small disk");
        return false;
    }
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().display();
    let mount = match disk {
        Disk::Memory => "mount -t tmpfs -o size=256m none disk",
        Disk::Ext4 => {
            "truncate -s 256M image && mkfs.ext4 -q -m 0 image && mount -o loop image disk"
        }
    };
    let setup = format!(
        "ip link set lo up; cd {folder} && mkdir disk && {mount} && export TMPDIR={folder}/disk || exit 1"
    );
    run_apart(test, &setup, INSIDE);
    false
}

fn started() -> Site {
    let mut site = Site::empty();
    site.start_with(&["--isolation", "walls", "--lease-seconds", LEASE_S]);
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2"]);
    ran(&site, "cpu", "before", "echo there is space");
    site
}

/// Takes all that is left of the disk.
fn fill(site: &Site) -> PathBuf {
    let path = site.folder().join("ballast");
    let mut ballast = std::fs::File::create(&path).expect("there is space at first");
    for size in [1 << 20, 4096, 1] {
        while ballast.write_all(&vec![1; size]).is_ok() {}
    }
    path
}

/// Tries to submit; returns what was said, and that was soon.
fn refused(site: &Site, name: &str) -> String {
    let began = Instant::now();
    let create = ["job", "create", "--compute", "cpu", "--command", "true", "-n", name];
    let done = site.run(&create);
    assert_ne!(done.code, 0, "{name} was accepted on a full disk");
    assert!(began.elapsed() < Duration::from_secs(5), "{name}: {:?}", began.elapsed());
    done.stderr
}

fn free(ballast: &Path) {
    std::fs::remove_file(ballast).expect("it is ours");
}

/// Takes 25 s: the disk stays full for longer than a lease.
#[test]
fn what_runs_goes_on_and_what_is_refused_is_never_done() {
    if !is_inside("full_disk::what_runs_goes_on_and_what_is_refused_is_never_done", Disk::Ext4) {
        return;
    }
    let site = started();
    let command =
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 1; done; echo whole";
    let create = ["job", "create", "--compute", "cpu", "--command", command, "-n", "long"];
    assert_eq!(site.run(&create).code, 0);
    wait_until("it runs", || site.text(&["job", "show", "-n", "long"]).contains("Running"));

    let ballast = fill(&site);
    let (began, mut number) = (Instant::now(), 0);
    while began.elapsed() < OUTAGE {
        number += 1;
        let said = refused(&site, &format!("late{number}"));
        assert!(said.contains("disk is full"), "{said}");
        // Reads are served.
        assert!(site.text(&["job", "show", "-n", "long"]).contains("Running"));
        std::thread::sleep(Duration::from_millis(500));
    }
    free(&ballast);

    wait_until("it ends", || site.text(&["job", "show", "-n", "long"]).contains("Completed"));
    let attempts = site.json(&["job", "list-attempts", "-n", "long"]);
    assert_eq!(attempts.as_array().map(Vec::len), Some(1), "it ran once: {attempts}");
    assert!(ran(&site, "cpu", "after", "echo goes on").contains("goes on"));
    let jobs = site.text(&["job", "list", "--query", "[].name", "-o", "tsv"]);
    assert!(!jobs.contains("late"), "what was refused was done later: {jobs}");
}

#[test]
fn a_stop_is_heard_and_a_start_works_again() {
    if !is_inside("full_disk::a_stop_is_heard_and_a_start_works_again", Disk::Memory) {
        return;
    }
    let mut site = started();
    let ballast = fill(&site);
    refused(&site, "late");
    let mut server = site.take_server();
    signal("-TERM", &server);
    assert!(ends(&mut server), "a full disk does not keep it from stopping");
    assert!(server.wait().expect("it ended").success());
    free(&ballast);
    site.start_with(&["--isolation", "walls", "--lease-seconds", LEASE_S]);
    assert!(ran(&site, "cpu", "after", "echo goes on").contains("goes on"));
}

#[test]
fn a_disk_that_became_read_only_can_be_read_and_left() {
    if !is_inside("full_disk::a_disk_that_became_read_only_can_be_read_and_left", Disk::Ext4) {
        return;
    }
    let mut site = started();
    // What ext4 does by itself when its device fails.
    let disk = std::env::var("TMPDIR").expect("set by the outer run");
    let broken = Command::new("mount").args(["-o", "remount,abort", &disk]).status();
    assert!(broken.expect("mount runs").success());
    for number in 0..5 {
        let said = refused(&site, &format!("late{number}"));
        assert!(said.contains("cannot write to its store"), "{said}");
        assert!(site.text(&["job", "show", "-n", "before"]).contains("Completed"));
    }
    let mut server = site.take_server();
    signal("-TERM", &server);
    assert!(ends(&mut server), "it stops");
    // The server cannot delete its nodes any more; they end with these namespaces.
}
