//! Harmful jobs on real sandboxed nodes: each is contained, its neighbours are not affected, and the outcome says what
//! happened.

use std::path::PathBuf;

use crate::rootless;
use crate::support::Site;
use crate::support::sandbox::{
    NOT_ENFORCED, cluster, nodes_in, processes, ran, sandboxed, wait_until, works,
};

/// Submits a job and waits for its end; returns the state and the message about it.
fn ended(site: &Site, name: &str, command: &str, more: &[&str]) -> String {
    let create =
        ["job", "create", "--compute", "cpu", "--command", command, "-n", name, "-o", "none"];
    let done = site.run(&[&create[..], more].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    let mut shown = String::new();
    wait_until(name, || {
        shown = site.text(&["job", "show", "-n", name]);
        ["Completed", "Failed", "Canceled"].iter().any(|state| shown.contains(state))
    });
    shown
}

/// How much a job may write to its node's disk, and how many files it may have there, as messages show it.
#[derive(Debug)]
struct DiskLimit {
    space: String,
    files: String,
}

/// The limits of all nodes: 1 GiB each, or less on a machine with little free space, because a node gets a part of what
/// is left.
fn disk_limits(site: &Site) -> Vec<DiskLimit> {
    let limit = |node: PathBuf| {
        let bytes = std::fs::metadata(node.join("disk")).map_or(1 << 30, |disk| disk.len());
        let space = match bytes >> 30 {
            0 => format!("{} MiB", bytes >> 20),
            whole => format!("{whole}.0 GiB"),
        };
        DiskLimit { space, files: (bytes / 16_384).to_string() }
    };
    nodes_in(&site.state().join("sandboxes")).into_iter().map(limit).collect()
}

/// The failure class of a failed job.
fn class(site: &Site, name: &str) -> String {
    let shown = site.json(&["job", "show", "-n", name]);
    shown["properties"]["muster.failureClass"].as_str().unwrap_or("none").to_owned()
}

/// A job next to the harmful ones, which counts until it is told to end.
struct Neighbour<'a>(&'a Site);

impl Neighbour<'_> {
    fn start<'a>(site: &'a Site, more: &[&str]) -> Neighbour<'a> {
        let counts = "n=0; while [ ! -e end ]; do n=$((n+1)); echo $n; sleep 0.1; done";
        let create = ["job", "create", "--compute", "cpu", "--command", counts, "-n", "neighbour"];
        assert_eq!(site.run(&[&create[..], more].concat()).code, 0);
        site.wait_for_job("neighbour", |job| job["status"] == "Running");
        Neighbour(site)
    }

    /// It ran all the time, in one attempt, without skipping a number.
    fn ends_unharmed(self) {
        let Neighbour(site) = self;
        site.wait_for_job("neighbour", |job| job["status"] == "Running");
        let end = works(site).into_iter().map(|work| work.join("end"));
        end.for_each(|end| std::fs::write(end, "").expect("its folder exists"));
        site.wait_for_job("neighbour", |job| job["status"] == "Completed");
        let attempts = site.json(&["job", "list-attempts", "-n", "neighbour"]);
        assert_eq!(attempts.as_array().map(Vec::len), Some(1), "{attempts}");
        let log = site.text(&["job", "stream", "-n", "neighbour"]);
        let lines = log.lines().filter(|line| !line.starts_with(NOT_ENFORCED));
        let numbers: Vec<usize> = lines.map(|line| line.parse().expect("a number")).collect();
        assert!(numbers.len() > 5 && numbers.iter().copied().eq(1..=numbers.len()), "{log}");
    }
}

/// Takes 10 s: the neighbour has to outlive both bombs.
#[test]
fn bombs_are_held_and_neighbours_do_not_notice() {
    let site = sandboxed();
    cluster(&site, "cpu", &["--min-instances", "2", "--size", "Standard_DS1_v2"]);
    let neighbour = "n=0; while [ $n -lt 400 ]; do n=$((n+1)); sleep 0.02; done; echo unharmed";
    let create = ["job", "create", "--compute", "cpu", "--command", neighbour, "-n", "neighbour"];
    assert_eq!(site.run(&create).code, 0);
    wait_until("it runs", || site.text(&["job", "show", "-n", "neighbour"]).contains("Running"));

    // The size has 3.5 GiB.
    let bomb = "exec perl -e '@a = map { \"x\" x (64 << 20) } 1..128; print \"lived\\n\"'";
    let memory = ended(&site, "memory", bomb, &[]);
    assert!(memory.contains("Failed") && memory.contains(", 3.5 GiB, and was killed"), "{memory}");
    assert_eq!(class(&site, "memory"), "user code");
    let forks = "exec perl -e 'for my $n (1..20000) { my $p = fork; \
                 if (!defined $p) { print \"refused after $n\\n\"; exit 3 } \
                 if (!$p) { sleep 100; exit } }'";
    let forks = ended(&site, "forks", forks, &[]);
    assert!(forks.contains("Failed") && forks.contains("exit code 3"), "{forks}");
    assert_eq!(class(&site, "forks"), "user code");

    wait_until("it ends", || !site.text(&["job", "show", "-n", "neighbour"]).contains("Running"));
    assert!(site.text(&["job", "show", "-n", "neighbour"]).contains("Completed"));
    assert!(ran(&site, "cpu", "after", "echo still here").contains("still here"));
    let nodes = site.text(&["compute", "list-nodes", "-n", "cpu"]);
    assert_eq!(nodes.matches("\"node_id\"").count(), 2, "no node was lost: {nodes}");
}

/// Both jobs use a part of one node: each gets what it requested and no more, and is not blamed for the other.
#[test]
fn the_memory_and_cores_of_a_share_are_the_jobs_own() {
    let site = sandboxed();
    cluster(&site, "cpu", &["--min-instances", "1", "--size", "Standard_DS3_v2"]);
    let part = ["--cpus", "1", "--memory", "256MB"];
    // It kills itself after its neighbour was killed for its memory.
    let victim = "echo here; while [ ! -e /job/wd/go ]; do sleep 0.05; done; kill -9 $$";
    let create = ["job", "create", "--compute", "cpu", "--command", victim, "-n", "victim"];
    assert_eq!(site.run(&[&create[..], &part].concat()).code, 0);
    site.wait_for_job("victim", |job| job["status"] == "Running");
    let bomb = "exec perl -e '@a = map { \"x\" x (16 << 20) } 1..64; print \"lived\\n\"'";
    let memory = ended(&site, "memory", bomb, &part);
    assert!(memory.contains("Failed"), "{memory}");
    assert!(
        memory.contains(", 256 MiB, and was killed; use less memory, request more (--memory)"),
        "{memory}"
    );
    let go = works(&site).into_iter().map(|work| work.join("go"));
    go.for_each(|go| std::fs::write(go, "").expect("its folder exists"));
    site.wait_for_job("victim", |job| job["status"] == "Failed");
    let victim = site.json(&["job", "show", "-n", "victim"])["failure"].to_string();
    assert!(victim.contains("signal 9") && !victim.contains("memory"), "{victim}");
    // A job within its limits is left alone, and two busy loops get one core.
    let modest = "perl -e '$x = \"x\" x (100 << 20); print \"lived\\n\"'; \
        for n in 1 2; do timeout 2 sh -c 'while :; do :; done' & done; wait; \
        times; cat /proc/self/cgroup";
    let create =
        ["job", "create", "--compute", "cpu", "--command", modest, "-n", "modest", "--stream"];
    let modest = site.run(&[&create[..], &part].concat());
    assert_eq!(modest.code, 0, "{}", modest.stderr);
    let log = String::from_utf8_lossy(&modest.stdout);
    assert!(log.contains("lived") && log.contains("/job-"), "{log}");
    assert!(!log.contains("not enforced"), "{log}");
    let used = cpu_seconds(&log);
    assert!(used < 2.9, "two loops of 2 s on one core at most: {log}");
}

/// The CPU time of the children of a shell, from the second line of `times`: `0m1.96s 0m0.01s`.
fn cpu_seconds(log: &str) -> f64 {
    let is_times = |line: &&str| line.ends_with('s') && line.split(' ').count() == 2;
    let children = log.lines().rfind(is_times);
    let part = |text: &str| {
        let (minutes, seconds) =
            text.trim_end_matches('s').split_once('m').expect("minutes and seconds");
        minutes.parse::<f64>().expect("minutes") * 60.0 + seconds.parse::<f64>().expect("seconds")
    };
    children.expect("two times").split(' ').map(part).sum()
}

/// Takes 11 s: it writes gigabytes and a hundred thousand files.
#[test]
fn a_full_folder_ends_its_job_and_no_other() {
    let mut site = Site::empty();
    site.start_with(&["--isolation", "sandbox", "--job-disk-gb", "1"]);
    cluster(&site, "cpu", &["--min-instances", "2", "--size", "Standard_DS1_v2"]);
    let neighbour = Neighbour::start(&site, &[]);
    let filler = "mkdir deep; while :; do head -c 200000000 /dev/zero >> deep/file; done";
    let filler = ended(&site, "filler", filler, &[]);
    let limits = disk_limits(&site);
    let is_ended = |said: &str, limit: fn(&DiskLimit) -> &String| {
        let is_told =
            limits.iter().any(|own| said.contains(&format!("the {} that it may", limit(own))));
        said.contains("Failed") && is_told
    };
    assert!(is_ended(&filler, |own| &own.space), "{filler} ({limits:?})");
    assert_eq!(class(&site, "filler"), "user code");
    // It makes no difference that the job continues at once, and that its last command succeeds.
    let hasty = ended(&site, "hasty", "head -c 3000000000 /dev/zero > file; echo over", &[]);
    assert!(is_ended(&hasty, |own| &own.space), "{hasty} ({limits:?})");
    // Holes take no space, but the length of a file is limited as well, and the message says so.
    let long = ended(&site, "long", "truncate -s 5G file", &[]);
    assert!(long.contains("created a file") && long.contains("longer than the 2"), "{long}");
    // A deleted file that is still open takes as much space.
    let hidden = "exec 3> file; rm file; while :; do head -c 200000000 /dev/zero >&3; done";
    let hidden = ended(&site, "hidden", hidden, &[]);
    assert!(is_ended(&hidden, |own| &own.space), "{hidden} ({limits:?})");
    assert_eq!(class(&site, "hidden"), "user code");
    // Empty files count as files, too.
    let empty = "exec perl -e 'for (1..1000000) { open my $f, \">\", $_ or die }'";
    let empty = ended(&site, "empty", empty, &[]);
    assert!(is_ended(&empty, |own| &own.files), "{empty} ({limits:?})");
    assert_eq!(class(&site, "empty"), "user code");
    neighbour.ends_unharmed();
    let modest =
        "head -c 100000000 /dev/zero > file; ls; bash -c 'ulimit -f; ulimit -u'; echo fine";
    let modest = ran(&site, "cpu", "modest", modest);
    assert!(modest.contains("fine") && !modest.contains("deep"), "{modest}");
    // A single file may be twice as large as a log, in KiB.
    assert!(modest.contains("2097152\n4096\n"), "{modest}");
}

/// Takes 13 s: a job that is asked to end is given ten seconds to stop.
#[test]
fn what_will_not_end_is_ended_with_all_that_it_started() {
    let site = sandboxed();
    cluster(&site, "cpu", &["--min-instances", "2", "--size", "Standard_DS1_v2"]);
    ends_with_all_that_it_started(&site, &[]);
}

/// Takes 13 s as well. All jobs there run as the same user of the machine, on the same node.
#[test]
fn without_root_what_will_not_end_is_ended_and_jobs_of_its_node_are_not() {
    if !rustix::process::geteuid().is_root() {
        return muster_testing::skip_or_fail(
            "not root: the other test runs without privileges already",
        );
    }
    let site = rootless::started();
    let size = ["--size", "Standard_DS2_v2", "--max-instances", "1", "-d", "600"];
    site.text(&[&["compute", "create", "-n", "cpu"][..], &size].concat());
    ends_with_all_that_it_started(&site, &["--cpus", "1"]);
    let nodes = site.json(&["compute", "list-nodes", "-n", "cpu"]);
    assert_eq!(nodes.as_array().map(Vec::len), Some(1), "they shared one node: {nodes}");
}

fn ends_with_all_that_it_started(site: &Site, more: &[&str]) {
    let neighbour = Neighbour::start(site, more);
    // No other test uses these durations.
    let [deaf, forker] = ["54321", "64321"].map(|time| format!("{time}.{}", std::process::id()));
    let command = format!(
        "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM; sleep {deaf}' & sleep {deaf}; sleep {deaf}"
    );
    let shown = ended(site, "deaf", &command, &[&["--timeout", "1"], more].concat());
    assert!(shown.contains("Failed") && shown.contains("it exceeded its timeout"), "{shown}");
    assert_eq!(class(site, "deaf"), "user code");
    let command = format!(
        "setsid sh -c 'sleep {forker} & sleep {forker}' >/dev/null 2>&1 & sleep 0.2; echo gone"
    );
    assert!(ended(site, "forker", &command, more).contains("Completed"));
    assert_eq!(class(site, "forker"), "none");
    assert!(processes(&["sleep", &deaf]).is_empty(), "nothing of the deaf job is left");
    assert!(
        processes(&["sleep", &forker]).is_empty(),
        "nothing of the job that left its children is left"
    );
    neighbour.ends_unharmed();
}

#[test]
fn a_flood_of_output_is_taken_whole() {
    let site = sandboxed();
    cluster(&site, "cpu", &["--min-instances", "2", "--size", "Standard_DS1_v2"]);
    let neighbour = "while [ ! -e /job/wd/end ]; do echo tick; sleep 0.2; done";
    let create = ["job", "create", "--compute", "cpu", "--command", neighbour, "-n", "neighbour"];
    assert_eq!(site.run(&create).code, 0);
    wait_until("it runs", || site.text(&["job", "show", "-n", "neighbour"]).contains("Running"));
    let lines = ran(&site, "cpu", "lines", "yes | head -n 10000000");
    assert_eq!(lines.len(), 20_000_000);
    assert!(lines.bytes().all(|byte| byte == b'y' || byte == b'\n'));
    let command = "head -c 30000000 /dev/zero | tr '\\0' '\\377'";
    let job = ["job", "create", "--compute", "cpu", "--command", command, "-n", "raw", "--stream"];
    let raw = site.run(&job);
    assert_eq!(raw.code, 0, "{}", raw.stderr);
    assert!(raw.stdout.len() == 30_000_000 && raw.stdout.iter().all(|byte| *byte == 0xff));

    assert!(site.text(&["job", "show", "-n", "neighbour"]).contains("Running"));
    assert_eq!(site.run(&["job", "cancel", "-n", "neighbour"]).code, 0);
    let ticks = String::from_utf8(site.run(&["job", "stream", "-n", "neighbour"]).stdout);
    let ticks = ticks.expect("text");
    assert!(!ticks.is_empty() && ticks.lines().all(|line| line == "tick"), "{ticks}");
}
