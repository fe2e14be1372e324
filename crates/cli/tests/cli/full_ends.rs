//! Jobs that end on a full disk keep what they may. The disks are those of `full_disk.rs`.

use std::fs::File;
use std::process::Command;

use muster_sandbox::disk_space::DiskSpace;
use rustix::fs::{FallocateFlags, fallocate};

use crate::full_disk::{Disk, is_inside, started};
use crate::support::Site;
use crate::support::sandbox::{wait_until, works};

/// Uploads files of this size, to two workspaces in turn, until one is refused, and returns the reason.
fn upload_until_refused(site: &Site, bytes: usize) -> String {
    let path = site.folder().join("sent");
    for number in 1.. {
        let workspace = ["first", "second"][number % 2];
        let name = format!("{workspace}-{bytes}-{number}");
        // No two are the same, and none contains zeros, which would take no space.
        std::fs::write(&path, name.repeat(bytes / name.len())).expect("there is space");
        let create = ["data", "create", "-n", &name, "-v", "1", "-w", workspace, "-o", "none"];
        let file = ["--type", "uri_file", "--path", &path.display().to_string()];
        let done = site.run(&[&create[..], &file].concat());
        if done.code != 0 {
            return done.stderr;
        }
        assert!(number < 200, "the disk does not become full");
    }
    unreachable!("an upload is refused at some point")
}

/// Regression test: the job waited for space, and failed without its outputs.
#[test]
fn uploads_of_others_leave_room_for_what_a_job_leaves() {
    let test = "full_ends::uploads_of_others_leave_room_for_what_a_job_leaves";
    if !is_inside(test, Disk::Large) {
        return;
    }
    let site = started();
    let command = "while [ ! -e end ]; do sleep 0.1; done; head -c 20M /dev/urandom > outputs/model; \
                   sha256sum < outputs/model; echo said at the end";
    let create = ["job", "create", "--compute", "cpu", "--command", command, "-n", "leaves"];
    assert_eq!(site.run(&create).code, 0);
    let shown = || site.text(&["job", "show", "-n", "leaves"]);
    wait_until("it runs", || shown().contains("Running"));

    let code = |name: &str, bytes| {
        let folder = site.folder().join(name);
        std::fs::create_dir(&folder).expect("our own folder");
        std::fs::write(folder.join("weights"), vec![1; bytes]).expect("there is space");
        folder.display().to_string()
    };
    let (small, large) = (code("small", 1 << 10), code("large", 40 << 20));
    let submit = |name: &str, code: &str| {
        let create = ["job", "create", "--compute", "cpu", "--command", "true", "-n", name];
        site.run(&[&create[..], &["--code", code]].concat())
    };
    assert_eq!(submit("early", &small).code, 0);

    let words = "reserved for the server's store and the files of jobs; free some";
    let said = upload_until_refused(&site, 8 << 20);
    assert!(said.contains(words) && said.contains("bytes are free"), "{said}");
    // The same for files that a job brings, and none of them are stored.
    let free = || DiskSpace::of(site.folder()).expect("it is mounted").free_bytes;
    let before = free();
    assert!(submit("late", &large).stderr.contains(words));
    assert!(free() + (4 << 20) > before, "{} of {before} bytes are free", free());
    assert!(upload_until_refused(&site, 1 << 20).contains(words));
    // The store could otherwise be filled with large requests.
    assert!(upload_until_refused(&site, 16 << 10).contains(words));
    let wordy = format!("echo {}", "x".repeat(100_000));
    let wordy = ["job", "create", "--compute", "cpu", "-n", "wordy", "--command", &wordy];
    assert!(site.run(&wordy).stderr.contains(words));

    let ends = works(&site).into_iter().map(|work| work.join("end"));
    ends.for_each(|end| std::fs::write(end, "").expect("its folder exists"));
    wait_until("it ends", || shown().contains("Completed") || shown().contains("Failed"));
    assert!(shown().contains("Completed"), "{}", shown());

    let to = site.folder().join("down");
    let done = site.run(&["job", "download", "-n", "leaves", "-p", &to.display().to_string()]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let model = File::open(to.join("artifacts/outputs/model")).expect("it was kept");
    let sum = Command::new("sha256sum").stdin(model).output().expect("it runs").stdout;
    let said = site.run(&["job", "stream", "-n", "leaves"]).stdout;
    assert_eq!(said, [&sum[..], b"said at the end\n"].concat());
    // Uploads are still refused, but a job that brings nothing new is not.
    assert!(upload_until_refused(&site, 1 << 20).contains(words));
    assert!(submit("later", &large).stderr.contains(words));
    let again = submit("again", &small);
    assert_eq!(again.code, 0, "{}", again.stderr);
}

/// Takes 35 s: the node waits for space with the rest of the log.
#[test]
fn a_log_that_does_not_fit_ends_with_what_is_missing() {
    if !is_inside("full_ends::a_log_that_does_not_fit_ends_with_what_is_missing", Disk::Ext4) {
        return;
    }
    let site = started();
    let command = "while [ ! -e end ]; do sleep 0.1; done; seq 20000";
    let create = ["job", "create", "--compute", "cpu", "--command", command, "-n", "says"];
    assert_eq!(site.run(&create).code, 0);
    let shown = || site.text(&["job", "show", "-n", "says"]);
    wait_until("it runs", || shown().contains("Running"));

    // The store has some of its space left, but nothing else has any.
    let file = File::create(site.folder().join("ballast")).expect("there is space");
    let left = DiskSpace::of(site.folder()).expect("it is mounted").free_bytes;
    fallocate(&file, FallocateFlags::empty(), 0, left - (20 << 20)).expect("there is as much");
    let ends = works(&site).into_iter().map(|work| work.join("end"));
    ends.for_each(|end| std::fs::write(end, "").expect("its folder exists"));
    wait_until("it ends", || !shown().contains("Running"));
    assert!(shown().contains("Completed"), "{}", shown());
    let log = String::from_utf8(site.run(&["job", "stream", "-n", "says"]).stdout).expect("text");
    assert!(log.starts_with("1\n2\n3\n"), "{log}");
    let (kept, said) =
        log.split_once("\nmuster: the last ").expect("the log says that it is incomplete");
    let missing = 108_894 - kept.len();
    assert!(kept.len() > 3_000, "{log}");
    assert!(said.starts_with(&format!("{missing} bytes of this log are missing: ")), "{said}");
    assert!(said.contains("the server's disk is full"), "{said}");
}
