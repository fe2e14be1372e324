//! GPUs through the real binary, on a machine that seems to have four: in a mount namespace of this test, `/dev` has
//! devices with their names. What is behind them does not matter: the test checks which processes see and open which
//! device.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::path::Path;

use crate::support::Site;
use crate::support::sandbox::wait_until;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// Internet access needs a device that is not created here.
const FLAGS: [&str; 3] = ["--isolation", "sandbox", "--egress=false"];
/// Two GPUs.
const SIZE: &str = "Standard_NC12s_v3";
/// Prints which GPU devices there are, which of all can be opened, and what programs are told.
const LOOK: &str = "ls /dev | grep nvidia | tr '\\n' ' '; \
                    for n in 0 1 2 3; do (: < /dev/nvidia$n) 2> /dev/null && printf 'opens%s ' $n; done; \
                    mknod /tmp/nvidia9 c 195 1 2> /dev/null && printf 'made '; \
                    echo \"cuda=$CUDA_VISIBLE_DEVICES\"";

/// Gives this thread, and everything that it starts, a `/dev` of its own; the machine's is not changed. Returns `false`
/// if this needs root.
fn pretend_gpus() -> bool {
    if !rustix::process::geteuid().is_root() {
        muster_testing::skip_or_fail("not root: only root can make devices");
        return false;
    }
    // SAFETY: a plain system call; the other threads of this process keep the machine's mounts.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0, "a mount namespace");
    let none: *const libc::c_void = std::ptr::null();
    let mount = |from: &str, to: &Path, kind: &str, flags: libc::c_ulong| {
        let text = |text: &str| CString::new(text).expect("no zero byte");
        let (from, to, kind) = (text(from), text(to.to_str().expect("text")), text(kind));
        // SAFETY: all texts live until the call returns, and no data is passed.
        let done = unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, none) };
        assert_eq!(done, 0, "mount of {from:?} on {to:?}: {}", std::io::Error::last_os_error());
    };
    mount("none", Path::new("/"), "", libc::MS_REC | libc::MS_PRIVATE);
    let dir = tempfile::tempdir().expect("a folder");
    mount("tmpfs", dir.path(), "tmpfs", 0);
    let device = |name: &str, major, minor| {
        let (path, mode) = (dir.path().join(name), Mode::from_raw_mode(0o666));
        let numbers = makedev(major, minor);
        mknodat(CWD, &path, FileType::CharacterDevice, mode, numbers).expect("root may");
        rustix::fs::chmod(&path, mode).expect("our own");
    };
    let usual = [("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)];
    let gpus = ["nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm"];
    usual.into_iter().chain(gpus.map(|name| (name, 5))).for_each(|(name, n)| device(name, 1, n));
    device("tty", 5, 0);
    for name in ["pts", "shm"] {
        std::fs::create_dir(dir.path().join(name)).expect("it is empty");
        mount(&format!("/dev/{name}"), &dir.path().join(name), "", libc::MS_BIND);
    }
    mount(dir.path().to_str().expect("text"), Path::new("/dev"), "", libc::MS_MOVE);
    // Other users of this machine may run this test, too, and their GPUs have the same numbers.
    let claims = Path::new("/run/muster-claims");
    std::fs::create_dir_all(claims).expect("root may");
    mount("tmpfs", claims, "tmpfs", 0);
    true
}

/// The GPUs of each node, as the helper has recorded them.
fn holdings(site: &Site) -> BTreeMap<String, Vec<u64>> {
    let folders = std::fs::read_dir(site.state().join("sandboxes")).expect("nodes").flatten();
    let place = |folder: std::fs::DirEntry| {
        let text = std::fs::read(folder.path().join("place")).ok()?;
        let place: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let gpus = place["gpus"].as_array().map(Vec::as_slice).unwrap_or_default();
        let gpus = gpus.iter().map(|gpu| gpu.as_u64().expect("a number")).collect();
        Some((folder.file_name().to_str().expect("text").to_owned(), gpus))
    };
    folders.filter_map(place).collect()
}

fn submit(site: &Site, name: &str, command: &str, more: &[&str]) {
    let job = ["job", "create", "-n", name, "--compute", "gpu", "--command", command, "-o", "none"];
    let done = site.run(&[&job[..], more].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
}

/// The output of the job, as soon as it has a line.
fn said(site: &Site, job: &str) -> String {
    let mut text = String::new();
    wait_until(&format!("{job} prints something"), || {
        let folder = site.folder().join(format!("down-{job}"));
        let path = folder.to_str().expect("text");
        site.run(&["job", "download", "-n", job, "-p", path]);
        let log = folder.join("artifacts/user_logs/std_log.txt");
        text = std::fs::read_to_string(log).unwrap_or_default();
        let _ = std::fs::remove_dir_all(folder);
        text.contains("cuda=")
    });
    text
}

fn opened(said: &str) -> BTreeSet<&str> {
    said.split_whitespace().filter_map(|word| word.strip_prefix("opens")).collect()
}

#[test]
fn nodes_and_jobs_have_gpus_of_their_own() {
    if !pretend_gpus() {
        return;
    }
    let mut site = Site::empty();
    site.start_with(&FLAGS);
    assert_eq!(site.json(&["host", "show", "local"])["gpus"], 4);
    let create = ["compute", "create", "-n", "gpu", "--size", SIZE, "--max-instances", "3"];
    let made = site.run(&[&create[..], &["-d", "600"]].concat());
    assert_eq!((made.code, made.stderr.contains("no host has")), (0, false), "{}", made.stderr);

    // Two nodes at once, each with whole GPUs.
    let wait = format!("{LOOK}; while :; do sleep 1; done");
    submit(&site, "a", &wait, &[]);
    submit(&site, "b", &wait, &[]);
    let (a, b) = (said(&site, "a"), said(&site, "b"));
    assert_eq!((opened(&a).len(), opened(&b).len()), (2, 2), "{a}{b}");
    assert!(opened(&a).is_disjoint(&opened(&b)), "{a}{b}");
    for said in [&a, &b] {
        assert!(said.contains("nvidia-uvm ") && said.contains("nvidiactl "), "{said}");
        assert_eq!(said.matches("nvidia").count(), 4, "no others: {said}");
        assert!(said.contains("cuda=0,1") && !said.contains("made"), "{said}");
    }
    let before = holdings(&site);
    let all: BTreeSet<u64> = before.values().flatten().copied().collect();
    assert_eq!((before.len(), all), (2, (0..4).collect()), "{before:?}");

    // They still belong to the same nodes, and a third node gets none and says so.
    site.kill();
    site.start_with(&FLAGS);
    submit(&site, "c", LOOK, &[]);
    let c = said(&site, "c");
    assert!(opened(&c).is_empty() && c.contains("0 of the 2 GPUs"), "{c}");
    assert!(c.contains("cuda=\n"), "no numbers for GPUs that do not exist: {c}");
    let after = holdings(&site);
    for (node, gpus) in &before {
        assert_eq!(after.get(node), Some(gpus), "{after:?}");
    }
    assert_eq!(after.values().filter(|gpus| gpus.is_empty()).count(), 1, "{after:?}");

    // The GPUs of a deleted node are free again, and jobs that share a node do not share its GPUs.
    for job in ["a", "b"] {
        site.text(&["job", "cancel", "-n", job]);
    }
    site.text(&["compute", "delete", "-n", "gpu", "--yes"]);
    assert_eq!(holdings(&site), BTreeMap::new());
    site.text(&[&create[..6], &["--max-instances", "1", "-d", "600"]].concat());
    let one = ["--gpus", "1", "--cpus", "1", "--memory", "1GB"];
    submit(&site, "d", &wait, &one);
    submit(&site, "e", &wait, &one);
    let (d, e) = (said(&site, "d"), said(&site, "e"));
    assert_eq!((opened(&d).len(), opened(&e).len()), (1, 1), "{d}{e}");
    assert!(opened(&d).is_disjoint(&opened(&e)), "{d}{e}");
    assert!(d.contains("cuda=0\n") && e.contains("cuda=0\n"), "{d}{e}");
    submit(&site, "f", LOOK, &["--gpus", "0", "--cpus", "1", "--memory", "1GB"]);
    let f = said(&site, "f");
    assert!(opened(&f).is_empty() && !f.contains("nvidia") && f.contains("cuda=\n"), "{f}");
}

/// The UID ranges of a server's nodes.
fn users(site: &Site) -> BTreeSet<u64> {
    let folders = std::fs::read_dir(site.state().join("sandboxes")).expect("nodes").flatten();
    let places = folders.filter_map(|folder| std::fs::read(folder.path().join("place")).ok());
    let place = |text: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&text).expect("JSON");
    places.map(|text| place(text)["users"].as_u64().expect("a number")).collect()
}

#[test]
fn nodes_of_two_servers_share_neither_gpus_nor_users() {
    if !pretend_gpus() {
        return;
    }
    let mut sites = [Site::empty(), Site::empty()];
    for site in &mut sites {
        site.start_with(&FLAGS);
        let create = ["compute", "create", "-n", "gpu", "--size", SIZE, "-d", "600"];
        site.text(&[&create[..], &["--min-instances", "1", "--max-instances", "1"]].concat());
        submit(site, "look", LOOK, &[]);
    }
    let [first, second] = &sites;
    let (a, b) = (said(first, "look"), said(second, "look"));
    assert_eq!((opened(&a).len(), opened(&b).len()), (2, 2), "{a}{b}");
    assert!(opened(&a).is_disjoint(&opened(&b)), "{a}{b}");
    assert!(users(first).is_disjoint(&users(second)));

    // A claim belongs to its node, not to its server.
    let [first, second] = &mut sites;
    first.kill();
    let one_more = ["compute", "create", "-n", "more", "--size", SIZE, "--min-instances", "1"];
    second.text(&[&one_more[..], &["--max-instances", "1"]].concat());
    wait_until("another node", || holdings(second).len() == 2);
    let gpus: BTreeSet<u64> = holdings(second).into_values().flatten().collect();
    assert!(gpus.is_disjoint(&holdings(first).into_values().flatten().collect()), "{gpus:?}");
    first.start_with(&FLAGS);
}
