//! A disk that other programs have filled, or that became read-only: changes are refused at once and never carried out,
//! running jobs continue and run once, and a stop is obeyed.
//!
//! Each test has a small disk to itself, in namespaces of its own: a tmpfs, or a file with ext4 in it that reserves
//! nothing for root.

use std::io::{BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use muster_sandbox::disk_space::DiskSpace;

use crate::support::sandbox::{cluster, init_of, nodes_in, ran, wait_until, works};
use crate::support::{Site, ends, run_apart, signal};

/// Set for the run that has the small disk to itself.
const INSIDE: &str = "MUSTER_FULL_DISK_INSIDE";
/// The shortest lease that is possible: a node that does not report for longer would lose its job.
const LEASE_S: &str = "6";
/// Long enough for two leases and the time that the server waits beyond them.
const OUTAGE: Duration = Duration::from_secs(15);

pub enum Disk {
    Memory,
    Ext4,
    /// The same with more space, for two nodes and their outputs.
    Large,
}

/// Whether this is the inner run; the outer one starts it, and has nothing more to do.
pub fn is_inside(test: &str, disk: Disk) -> bool {
    if !rustix::process::geteuid().is_root() {
        muster_testing::skip_or_fail("not root: only root can mount a small disk");
        return false;
    }
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().display();
    let mount = match disk {
        Disk::Memory => "mount -t tmpfs -o size=512m none disk",
        Disk::Ext4 => {
            "truncate -s 512M image && mkfs.ext4 -q -m 0 image && mount -o loop image disk"
        }
        Disk::Large => {
            "truncate -s 1G image && mkfs.ext4 -q -m 0 image && mount -o loop image disk"
        }
    };
    let setup = format!(
        "ip link set lo up; cd {folder} && mkdir disk && {mount} && export TMPDIR={folder}/disk || exit 1"
    );
    run_apart(test, &setup, INSIDE);
    false
}

pub fn started() -> Site {
    let mut site = Site::empty();
    site.start_with(&["--isolation", "sandbox", "--lease-seconds", LEASE_S]);
    cluster(&site, "cpu", &["--size", "Standard_DS1_v2"]);
    ran(&site, "cpu", "before", "echo there is space");
    site
}

/// Fills the rest of the disk, and the store's reserve.
pub fn fill(site: &Site) -> PathBuf {
    let path = site.folder().join("ballast");
    // The store uses its reserve as soon as it needs it, and cleans up when it is opened again: that space must be
    // filled, too.
    let mut refused = 0;
    for number in 1.. {
        fill_once(&path);
        let is_refused = site.run(&submit(&format!("early{number}"))).code != 0;
        refused = if is_refused { refused + 1 } else { 0 };
        if refused == 3 {
            break;
        }
        assert!(number < 100, "the disk does not become full");
    }
    path
}

/// Appends to this file until not a byte is left.
pub fn fill_once(path: &Path) {
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .expect("there is space for its name");
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

fn submit(name: &str) -> [&str; 8] {
    ["job", "create", "--compute", "cpu", "--command", "true", "-n", name]
}

/// Tries to submit; returns the message, and checks that it came soon.
fn refused(site: &Site, name: &str) -> String {
    let began = Instant::now();
    let done = site.run(&submit(name));
    assert_ne!(done.code, 0, "{name} was accepted on a full disk");
    assert!(began.elapsed() < Duration::from_secs(5), "{name}: {:?}", began.elapsed());
    done.stderr
}

pub fn free(ballast: &Path) {
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
    // The server looks every few seconds whether there is space again.
    wait_until("it accepts jobs again", || site.run(&submit("again")).code == 0);
    assert!(ran(&site, "cpu", "after", "echo goes on").contains("goes on"));
    let jobs = site.text(&["job", "list", "--query", "[].name", "-o", "tsv"]);
    assert!(!jobs.contains("late"), "a refused change was carried out later: {jobs}");
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
    site.start_with(&["--isolation", "sandbox", "--lease-seconds", LEASE_S]);
    assert!(ran(&site, "cpu", "after", "echo goes on").contains("goes on"));
}

/// Starts a server that cannot become ready yet, and returns it after it has reported why.
fn start_waiting(site: &Site) -> (Child, impl BufRead + use<>) {
    let arguments =
        ["up", "--listen", "127.0.0.1:0", "--isolation", "sandbox", "--lease-seconds", LEASE_S];
    let mut command = site.command(&arguments);
    let mut server =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let said = BufReader::new(server.stderr.take().expect("it is piped"));
    let mut lines = said.lines().map(|line| line.expect("text"));
    let line = lines.find(|line| line.contains("disk is full")).expect("it waits and says so");
    assert!(line.contains("free at least") && line.contains("KiB"), "{line}");
    let ready = BufReader::new(server.stdout.take().expect("it is piped"));
    (server, ready)
}

/// Neither the store's reserve nor anything else is left to start with.
#[test]
fn a_start_on_a_full_disk_waits_for_space_and_hears_a_stop() {
    let test = "full_disk::a_start_on_a_full_disk_waits_for_space_and_hears_a_stop";
    if !is_inside(test, Disk::Ext4) {
        return;
    }
    let mut site = started();
    let ballast = fill(&site);
    let mut server = site.take_server();
    signal("-TERM", &server);
    assert!(ends(&mut server), "it stops");
    // The space that it freed when it closed its files is filled as well.
    fill_once(&ballast);

    let (mut server, _) = start_waiting(&site);
    signal("-TERM", &server);
    assert!(ends(&mut server), "it obeys a stop while it waits");
    assert!(server.wait().expect("it ended").success());

    let (server, mut ready) = start_waiting(&site);
    site.adopt(server);
    free(&ballast);
    let mut line = String::new();
    ready.read_line(&mut line).expect("text");
    assert!(line.starts_with("ready https://"), "{line}");
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
        assert!(said.contains("file system is read-only"), "{said}");
        assert!(said.contains("mount it again"), "{said}");
        assert!(site.text(&["job", "show", "-n", "before"]).contains("Completed"));
    }
    let status = site.text(&["status", "-o", "table"]);
    assert!(status.contains("file system is read-only"), "{status}");
    let why = site.text(&["why", "before", "-o", "table"]);
    assert!(why.contains("Completed") || why.contains("completed"), "{why}");
    assert!(why.contains("file system is read-only"), "{why}");
    let mut server = site.take_server();
    signal("-TERM", &server);
    assert!(ends(&mut server), "it stops");
    // The server cannot delete its nodes any more; they end with these namespaces.
}

/// The first process of the only node.
fn the_node(site: &Site) -> (PathBuf, u32) {
    let nodes = nodes_in(&site.state().join("sandboxes"));
    let [node] = &nodes[..] else { panic!("one node: {nodes:?}") };
    (node.clone(), init_of(node).expect("it lives"))
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("a process"), rustix::process::Signal::KILL)
        .expect("it is ours");
}

#[test]
fn what_dead_nodes_leave_is_given_back_although_nothing_can_be_written() {
    if !is_inside(
        "full_disk::what_dead_nodes_leave_is_given_back_although_nothing_can_be_written",
        Disk::Ext4,
    ) {
        return;
    }
    let mut site = started();
    let ballast = fill(&site);
    let (node, init) = the_node(&site);
    assert!(node.join("disk").exists());
    kill(init);
    // This is the space that the store needs to record the node's end.
    wait_until("its disk is deleted", || !node.join("disk").exists());
    wait_until("there is space again", || site.run(&submit("after")).code == 0);
    free(&ballast);
    let shown = |name| site.text(&["job", "show", "-n", name]);
    wait_until("it ends", || shown("after").contains("Completed"));

    // A server that starts on a full disk frees the disks of nodes that died with the last server.
    let (node, init) = the_node(&site);
    site.kill();
    kill(init);
    fill_once(&site.folder().join("more"));
    site.start_with(&["--isolation", "sandbox", "--lease-seconds", LEASE_S]);
    assert!(!node.join("disk").exists());
    assert!(site.text(&["job", "show", "-n", "after"]).contains("Completed"));
    assert_eq!(site.run(&submit("last")).code, 0);
}

#[test]
fn a_job_that_takes_all_it_can_does_not_affect_others() {
    if !is_inside("full_disk::a_job_that_takes_all_it_can_does_not_affect_others", Disk::Large) {
        return;
    }
    let mut site = started();
    cluster(&site, "other", &["--size", "Standard_DS1_v2", "--min-instances", "1"]);
    ran(&site, "other", "warm", "true");
    // What fills a disk in no time: space that is allocated without writing a byte.
    let greedy = "i=0; while [ $i -lt 20 ]; do i=$((i+1)); fallocate -l 1900M a$i; \
                  fallocate -l 20M b$i; head -c 20M /dev/zero > c$i; done; echo took all; df . | tail -1; sleep 600";
    let create = ["job", "create", "--compute", "cpu", "--command", greedy, "-n", "greedy"];
    assert_eq!(site.run(&create).code, 0);
    let mut number = 0;
    wait_until("it ends", || {
        number += 1;
        // Each is accepted and runs, whatever the other job does.
        let name = format!("tenant{number}");
        assert!(ran(&site, "other", &name, "head -c 1M /dev/zero > file; ls").contains("file"));
        site.text(&["job", "show", "-n", "greedy"]).contains("Failed")
    });
    let shown = site.text(&["job", "show", "-n", "greedy"]);
    assert!(shown.contains("wrote more to its folder"), "{shown}");
    let said = site.run(&["job", "stream", "-n", "greedy"]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("took all"), "its output is kept");

    site.kill();
    site.start_with(&["--isolation", "sandbox", "--lease-seconds", LEASE_S]);
    assert!(ran(&site, "cpu", "after", "echo goes on").contains("goes on"));
    let jobs = site.json(&["job", "list", "--query", "[?status=='Completed'].name"]);
    assert_eq!(jobs.as_array().map(Vec::len), Some(number + 3), "none is lost: {jobs}");
    for name in (1..=number).map(|number| format!("tenant{number}")) {
        let attempts = site.json(&["job", "list-attempts", "-n", &name]);
        assert_eq!(attempts.as_array().map(Vec::len), Some(1), "{name} ran once: {attempts}");
    }
}

#[test]
fn nodes_wait_for_room_on_the_disk_and_say_so() {
    if !is_inside("full_disk::nodes_wait_for_room_on_the_disk_and_say_so", Disk::Memory) {
        return;
    }
    let site = started();
    cluster(&site, "late", &["--size", "Standard_DS1_v2"]);
    // The store has all the space that it needs, but a node has not.
    let ballast = site.folder().join("ballast");
    let file = std::fs::File::create(&ballast).expect("there is space");
    let left = DiskSpace::of(site.folder()).expect("it is mounted").free_bytes;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, left - (40 << 20))
        .expect("there is as much");
    // A file that is still open would keep its space.
    drop(file);
    let create = ["job", "create", "--compute", "late", "--command", "true", "-n", "waits"];
    assert_eq!(site.run(&create).code, 0);
    let why = || site.text(&["why", "waits", "-o", "table"]);
    wait_until("the reason is shown", || why().contains("MiB are reserved for the server"));
    assert!(why().contains("free some space"), "{}", why());
    free(&ballast);
    wait_until("it runs", || site.text(&["job", "show", "-n", "waits"]).contains("Completed"));
}

/// Fills the disk with a file that has no name and that no process has open: it is in transit through a socket, or only
/// mapped.
const HIDE: &str = "HIDE=import ctypes, os, socket, sys, time
fd, size = os.open('file', os.O_CREAT | os.O_RDWR), 0
for step in (1 << 20, 4096):
    try:
        while True:
            os.posix_fallocate(fd, size, step)
            size += step
    except OSError:
        pass
os.unlink('file')
if sys.argv[1] == 'sent':
    pair = socket.socketpair()
    socket.send_fds(pair[0], [b'x'], [fd])
else:
    assert ctypes.CDLL(None).mmap(None, 4096, 1, 1, fd, 0) != -1
os.close(fd)
time.sleep(600)
";

#[test]
fn a_job_that_hides_what_it_wrote_is_ended_and_its_neighbour_is_not() {
    let test = "full_disk::a_job_that_hides_what_it_wrote_is_ended_and_its_neighbour_is_not";
    if !is_inside(test, Disk::Large) {
        return;
    }
    let site = started();
    let size = ["--size", "Standard_DS2_v2", "--max-instances", "1", "-d", "600"];
    site.text(&[&["compute", "create", "-n", "two"][..], &size].concat());
    let part = ["--compute", "two", "--cpus", "1", "-o", "none"];
    let waits = "while [ ! -e end ]; do sleep 0.1; done";
    let create = ["job", "create", "-n", "neighbour", "--command", waits];
    assert_eq!(site.run(&[&create[..], &part].concat()).code, 0);
    let shown = |name: &str| site.text(&["job", "show", "-n", name]);
    wait_until("it runs", || shown("neighbour").contains("Running"));
    for how in ["sent", "mapped"] {
        let command = format!("exec python3 -c \"$HIDE\" {how}");
        let create = ["job", "create", "-n", how, "--command", &command, "--env", HIDE];
        assert_eq!(site.run(&[&create[..], &part].concat()).code, 0);
        wait_until(how, || shown(how).contains("Failed"));
        assert!(shown(how).contains("wrote more to its folder"), "{}", shown(how));
        assert!(shown("neighbour").contains("Running"), "{}", shown("neighbour"));
    }
    let nodes = site.json(&["compute", "list-nodes", "-n", "two"]);
    assert_eq!(nodes.as_array().map(Vec::len), Some(1), "they shared one node: {nodes}");
    let ends = works(&site).into_iter().map(|work| work.join("end"));
    ends.for_each(|end| std::fs::write(end, "").expect("its folder exists"));
    wait_until("it ends", || shown("neighbour").contains("Completed"));
}

#[test]
fn code_that_does_not_fit_on_the_disk_of_its_node_fails_its_job() {
    let test = "full_disk::code_that_does_not_fit_on_the_disk_of_its_node_fails_its_job";
    if !is_inside(test, Disk::Large) {
        return;
    }
    let site = started();
    let code = site.folder().join("code");
    std::fs::create_dir(&code).expect("our own folder");
    // The node's disk has 64 MiB.
    std::fs::write(code.join("weights"), vec![1; 100 << 20]).expect("there is space");
    let code = code.display().to_string();
    let create = ["job", "create", "--compute", "cpu", "--command", "ls", "-n", "large"];
    let done = site.run(&[&create[..], &["--code", &code]].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    wait_until("it ends", || site.text(&["job", "show", "-n", "large"]).contains("Failed"));
    let shown = site.text(&["job", "show", "-n", "large"]);
    assert!(shown.contains("weights") && shown.contains("No space left"), "{shown}");
    assert!(ran(&site, "cpu", "after", "echo goes on").contains("goes on"), "on the same node");
}

/// A gigabyte of holes on a disk of half a gigabyte.
#[test]
fn a_sparse_output_takes_no_more_than_it_has_and_keeps_its_holes() {
    let test = "full_disk::a_sparse_output_takes_no_more_than_it_has_and_keeps_its_holes";
    if !is_inside(test, Disk::Ext4) {
        return;
    }
    let site = started();
    ran(&site, "cpu", "sparse", "truncate -s 1G outputs/model; printf end >> outputs/model");
    let blobs = allocated(&site.state().join("blobs"));
    assert!(blobs < 16 << 20, "{blobs} bytes");
    let to = site.folder().join("down");
    let done = site.run(&["job", "download", "-n", "sparse", "-p", &to.display().to_string()]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let model = to.join("artifacts/outputs/model");
    let mut file = std::fs::File::open(&model).expect("it was kept");
    assert_eq!(file.metadata().expect("it is open").len(), (1 << 30) + 3);
    file.seek(SeekFrom::End(-5)).expect("the file is that long");
    let mut end = Vec::new();
    file.read_to_end(&mut end).expect("it can be read");
    assert_eq!(end, b"\0\0end");
    assert!(allocated(&to) < 16 << 20, "{} bytes", allocated(&to));

    // A file that would take minutes to hash is refused at once, with its name.
    let command = "for i in $(seq 41); do truncate -s 1900M outputs/$i; done";
    let create = ["job", "create", "--compute", "cpu", "--command", command, "-n", "huge"];
    assert_eq!(site.run(&create).code, 0);
    wait_until("it ends", || site.text(&["job", "show", "-n", "huge"]).contains("Failed"));
    let shown = site.text(&["job", "show", "-n", "huge"]);
    let words = "has 1992294400 bytes, of which 1992294400 are holes";
    assert!(shown.contains(words) && shown.contains("outputs/"), "{shown}");
}

/// A cluster of one node, which runs one job after the other.
fn one_node(site: &Site) {
    let size = ["--size", "Standard_DS1_v2", "--max-instances", "1", "-d", "600"];
    site.text(&[&["compute", "create", "-n", "one"][..], &size].concat());
    ran(site, "one", "warm", "true");
}

#[test]
fn a_job_finds_nothing_of_what_the_job_before_it_left() {
    let test = "full_disk::a_job_finds_nothing_of_what_the_job_before_it_left";
    if !is_inside(test, Disk::Large) {
        return;
    }
    let site = started();
    one_node(&site);
    let submit = |name: &str, command: &str| {
        let create = ["job", "create", "--compute", "one", "--command", command, "-n", name];
        let done = site.run(&create);
        assert_eq!(done.code, 0, "{}", done.stderr);
    };
    // They end by themselves as soon as there is no space left.
    let fills = [
        ("bytes", "head -c 1G /dev/zero > big; true"),
        (
            "files",
            "exec python3 -c \"
import os
n = 0
try:
    while True:
        os.mkdir(f'{n}') if n % 500 == 0 else open(f'{n - n % 500}/{n}', 'w').close()
        n += 1
except OSError as error:
    print(error)
\"",
        ),
    ];
    for (what, fill) in fills {
        let (first, next) = (format!("{what}-a"), format!("{what}-b"));
        submit(&first, fill);
        submit(
            &next,
            "df -P . | tail -1; df -Pi . | tail -1; head -c 20M /dev/zero > g && echo fits",
        );
        wait_until(&next, || {
            let shown = site.text(&["job", "show", "-n", &next]);
            shown.contains("Completed") || shown.contains("Failed")
        });
        let shown = site.text(&["job", "show", "-n", &next]);
        assert!(shown.contains("Completed"), "{shown}");
        let said = site.run(&["job", "stream", "-n", &next]).stdout;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("fits"), "{said}");
        let taken: Vec<u64> = said
            .split_whitespace()
            .filter_map(|word| word.strip_suffix('%')?.parse().ok())
            .collect();
        assert!(taken.len() == 2 && taken.iter().all(|part| *part < 25), "{said}");
    }
    let nodes = site.json(&["compute", "list-nodes", "-n", "one"]);
    assert_eq!(nodes.as_array().map(Vec::len), Some(1), "they used one node: {nodes}");
}

#[test]
fn a_job_that_continues_with_a_full_disk_is_ended_with_the_reason() {
    let test = "full_disk::a_job_that_continues_with_a_full_disk_is_ended_with_the_reason";
    if !is_inside(test, Disk::Large) {
        return;
    }
    let site = started();
    one_node(&site);
    let shown = |name: &str| site.text(&["job", "show", "-n", name]);
    let fails = |name: &str, command: &str| {
        let create = ["job", "create", "--compute", "one", "--command", command, "-n", name];
        assert_eq!(site.run(&create).code, 0);
        let has_ended = || shown(name).contains("Completed") || shown(name).contains("Failed");
        wait_until(name, has_ended);
        let shown = shown(name);
        assert!(shown.contains("Failed"), "{shown}");
        shown
    };
    for round in 1..=2 {
        let command =
            "dd if=/dev/zero of=big bs=1M count=4000; echo still here; sleep 15; echo end";
        let said = fails(&format!("goes-on-{round}"), command);
        assert!(said.contains("wrote more to its folder"), "{said}");
    }
}

/// The disk space of all files below a folder.
fn allocated(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let taken = |entry: std::fs::DirEntry| match entry.metadata().expect("it exists") {
        about if about.is_dir() => allocated(&entry.path()),
        about => about.blocks() * 512,
    };
    entries.map(taken).sum()
}
