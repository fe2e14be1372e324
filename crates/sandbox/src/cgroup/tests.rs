//! Tests against the real kernel, as root or with a delegated group. The parsers have tests of their own for the files
//! of other hosts.

use std::ffi::CString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Uid};
use rustix::process::Pid;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::*;

const WIDE: Limits = Limits { millicores: 2000, memory_bytes: 256 << 20, pids: 200 };
const LOOK_UNTIL: Duration = Duration::from_secs(60);

/// A node's group that is removed with its processes when the test ends, even if it panics.
struct Made {
    group: Group,
    instance: String,
}

impl Drop for Made {
    fn drop(&mut self) {
        self.group.kill().unwrap();
        self.group.remove().unwrap();
        for folder in self.group.folders() {
            assert!(!folder.path.exists(), "{} remains", folder.path.display());
        }
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("not root");
    }
    is_root
}

/// Returns `None`, so that the test is skipped, if we are not root and have no group in which everything works.
fn make(test: &str, limits: &Limits) -> Option<Made> {
    let groups = Groups::find();
    let Enforced { cpu, memory, pids } = groups.enforced();
    if let Err(text) = cpu.and(memory).and(pids)
        && !is_root()
    {
        muster_testing::skip_or_fail(&text.to_string());
        return None;
    }
    let instance = format!("test-{}-{test}", std::process::id());
    let group = groups.make(&instance, "n1", limits).unwrap();
    Some(Made { group, instance })
}

/// Starts a shell that runs the script once it is in the group.
fn start(group: &Group, script: &str) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("read go; {script}")]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    group.add(Pid::from_child(&child)).unwrap();
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    child
}

fn look_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + LOOK_UNTIL;
    while !is_true() {
        assert!(Instant::now() < deadline, "not seen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn root_can_limit_everything_or_gets_a_reason() {
    let looked = Groups::look().enforced();
    let enforced = Groups::find().enforced();
    assert_eq!(looked, enforced, "look() and find() agree");
    for state in [enforced.cpu, enforced.memory, enforced.pids] {
        match state {
            Ok(()) => {}
            Err(text) if is_root() => panic!("{text}"),
            Err(text) => assert!(text.len() > 20, "{text}"),
        }
    }
    let none = Groups::find_in(&[], base::enable).enforced();
    assert_eq!(none.cpu.unwrap_err(), "no hierarchy with the controller cpu is mounted");
}

#[test]
fn using_too_much_memory_kills_only_the_offender() {
    let small = Limits { memory_bytes: 32 << 20, ..WIDE };
    let Some(node) = make("memory", &small) else { return };
    let neighbour = Groups::find().make(&node.instance, "n2", &WIDE).unwrap();
    let neighbour = Made { group: neighbour, instance: node.instance.clone() };
    let mut quiet = start(&neighbour.group, "exec sleep 1000");
    // Without the group, the shell would end by itself at a gigabyte.
    let bomb = "ulimit -v 1000000; x=0123456789; while :; do x=$x$x; done";
    let status = start(&node.group, bomb).wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    let usage = node.group.usage().unwrap();
    assert!(usage.oom_kills.unwrap() > 0, "{usage:?}");
    assert!(usage.memory_peak_bytes.unwrap() > 16 << 20, "{usage:?}");
    assert!(usage.memory_peak_bytes.unwrap() <= 32 << 20, "{usage:?}");
    assert_eq!(quiet.try_wait().unwrap(), None);
    assert_eq!(neighbour.group.usage().unwrap().oom_kills, Some(0));
    neighbour.group.kill().unwrap();
    quiet.wait().unwrap();
}

#[test]
fn a_job_that_dies_of_its_memory_is_counted_by_its_node() {
    let Some(node) = make("job", &WIDE) else { return };
    let job = node.group.child("j1", &Limits { memory_bytes: 24 << 20, ..WIDE }).unwrap();
    let is_v2 = job.folders().iter().any(|folder| {
        folder.version == Version::Two && folder.controllers.contains(&Controller::Memory)
    });
    assert_eq!(job.die_together().unwrap(), is_v2);
    let bomb = "ulimit -v 1000000; x=0123456789; while :; do x=$x$x; done";
    start(&job, bomb).wait().unwrap();
    assert!(job.usage().unwrap().oom_kills.unwrap() > 0);
    assert!(node.group.usage().unwrap().oom_kills.unwrap() > 0);
    assert!(job.child("deeper", &WIDE).is_err());
    job.remove().unwrap();
    assert!(node.group.is_empty().unwrap());
}

#[test]
fn a_fork_bomb_stops_at_the_limit_and_is_killed_completely() {
    let Some(node) = make("pids", &Limits { pids: 16, ..WIDE }) else { return };
    let many = "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; wait";
    let mut child = start(&node.group, many);
    look_until("a process that was denied", || {
        node.group.usage().unwrap().pids_denied.unwrap() > 0
    });
    let usage = node.group.usage().unwrap();
    assert!(usage.pids_peak.is_none_or(|peak| (2..=16).contains(&peak)), "{usage:?}");
    assert!(!node.group.is_empty().unwrap());
    node.group.kill().unwrap();
    child.wait().unwrap();
    assert!(node.group.is_empty().unwrap());
}

#[test]
fn processes_are_ended_without_the_newer_kernels_help() {
    let Some(node) = make("old", &WIDE) else { return };
    let only = |keep: fn(&Folder) -> bool| {
        Group::node(node.group.folders().iter().filter(|folder| keep(folder)).cloned().collect())
    };
    let with_freezer = only(|folder| folder.version == Version::One);
    let without = only(|folder| folder.version == Version::One && !folder.has(Controller::Freezer));
    for old in [with_freezer, without] {
        if old.folders().is_empty() {
            muster_testing::skip(muster_testing::Optional::CgroupsV1, "v1 is not mounted here");
            continue;
        }
        // Each process starts the next and exits, so a listing that is too slow misses it.
        let chain = "n() { (sleep 0.01; n) & }; n; n; sleep 1000 & wait";
        let mut child = start(&node.group, chain);
        old.kill().unwrap();
        child.wait().unwrap();
        assert!(node.group.is_empty().unwrap());
    }
}

#[test]
fn a_process_that_only_a_part_of_the_group_holds_is_ended_too() {
    let Some(node) = make("part", &WIDE) else { return };
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    // This is the state after an error between one hierarchy and the next.
    let first = Group::node(node.group.folders()[..1].to_vec());
    first.add(Pid::from_child(&child)).unwrap();
    node.group.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn a_busy_process_gets_no_more_than_its_share() {
    let Some(node) = make("cpu", &Limits { millicores: 100, ..WIDE }) else { return };
    assert_eq!(node.group.millicores(), Some(100));
    let mut child = start(&node.group, "while :; do :; done");
    look_until("a throttled period", || node.group.usage().unwrap().cpu_throttled.unwrap() > 0);
    assert!(node.group.usage().unwrap().cpu_us.unwrap() > 0);
    let load = node.group.load().unwrap();
    assert!(load.cpu_us.unwrap() > 0 && load.memory_bytes.is_some(), "{load:?}");
    node.group.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_nodes_own_root_makes_groups_but_does_not_change_its_limits() {
    let Some(node) = make("own", &WIDE).filter(|_| is_root()) else { return };
    let user = 54321;
    node.group.delegate(Uid::from_raw(user), Gid::from_raw(user)).unwrap();
    for folder in node.group.folders() {
        let limit = match (folder.version, folder.controllers.first()) {
            (Version::One, Some(Controller::Memory)) => "memory.limit_in_bytes",
            (Version::One, Some(Controller::Pids)) => "pids.max",
            (Version::One, Some(Controller::Cpu)) => "cpu.cfs_quota_us",
            (Version::Two, _) => "cgroup.max.descendants",
            _ => continue,
        };
        // The call moves the shell into the group; from there it continues as that user.
        let script = format!(
            "cd {} && mkdir job-x && echo $$ > job-x/cgroup.procs && ! echo 100000 > {limit} && \
             ! echo $$ > ../cgroup.procs",
            folder.path.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &format!("read go; {script}")]).stdin(Stdio::piped());
        command.uid(user).gid(user).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        node.group.add(Pid::from_child(&child)).unwrap();
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        assert!(child.wait().unwrap().success(), "{}", folder.path.display());
    }
}

/// Mounts a folder over its hierarchy, as it is in a node.
fn mount_over(folder: &Folder) {
    let path = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap();
    let (from, to) = (path(&folder.path), path(&folder.hierarchy));
    // SAFETY: the texts end with a zero and live longer than the call.
    let done =
        unsafe { libc::mount(from.as_ptr(), to.as_ptr(), ptr::null(), libc::MS_BIND, ptr::null()) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

#[test]
fn a_node_finds_its_own_group_where_it_is_mounted() {
    let Some(node) = make("inside", &WIDE).filter(|_| is_root()) else { return };
    let folders = node.group.folders().to_vec();
    let within = std::thread::spawn(move || {
        // SAFETY: only this thread's mounts change, and it ends with them.
        unsafe {
            unshare_unsafe(UnshareFlags::NEWNS).unwrap();
            let (none, root) = (ptr::null(), c"/".as_ptr());
            assert_eq!(
                libc::mount(none, root, none, libc::MS_REC | libc::MS_PRIVATE, none.cast()),
                0
            );
        }
        folders.iter().for_each(mount_over);
        let groups = Groups::find();
        assert_eq!(groups.enforced(), Enforced { cpu: Ok(()), memory: Ok(()), pids: Ok(()) });
        groups.of_this_node().child("j1", &WIDE).unwrap()
    });
    let job = within.join().unwrap();
    assert!(job.folders()[0].has(Controller::Pids), "processes are counted before all else");
    for folder in node.group.folders() {
        let is_used = job.folders().iter().any(|used| used.hierarchy == folder.hierarchy);
        assert_eq!(folder.path.join("job-j1").exists(), is_used, "{}", folder.path.display());
        let is_needed = folder.has(Controller::Cpu) || folder.has(Controller::Memory);
        assert!(is_used || !is_needed, "{}", folder.path.display());
        assert!(!is_used || folder.controllers != [Controller::Freezer]);
    }
}

/// Creates a folder with the files that a v2 kernel would put there.
fn pretend_group(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for (file, text) in [
        ("cgroup.controllers", "cpuset cpu io memory pids"),
        ("cgroup.subtree_control", ""),
        ("cgroup.procs", ""),
        ("cgroup.threads", ""),
        ("cgroup.max.descendants", ""),
        ("cgroup.max.depth", ""),
        ("cgroup.kill", ""),
        ("cgroup.events", "populated 0\nfrozen 0\n"),
        ("cpu.max", ""),
        ("cpu.stat", "usage_usec 77\nnr_throttled 3\n"),
        ("memory.max", ""),
        ("memory.swap.max", ""),
        ("memory.oom.group", ""),
        ("memory.peak", "4096\n"),
        ("memory.current", "3000\n"),
        (
            "memory.stat",
            "anon 1000\nfile 2000\ninactive_anon 9\nactive_file 1500\ninactive_file 500\n",
        ),
        ("memory.events", "low 0\noom 2\noom_kill 1\n"),
        ("pids.max", ""),
        ("pids.peak", "9\n"),
        ("pids.events", "max 5\n"),
        ("pids.events.local", "max 0\n"),
    ] {
        fs::write(folder.join(file), text).unwrap();
    }
}

#[test]
fn in_v2_limits_are_spelt_as_it_reads_them() {
    let top = tempfile::tempdir().unwrap();
    let node = top.path().join("muster-i/node-n");
    for folder in
        ["", "muster-i", "muster-i/node-n", "muster-i/node-n/main", "muster-i/node-n/job-j"]
    {
        pretend_group(&top.path().join(folder));
    }
    let hierarchy = layout::Hierarchy {
        version: Version::Two,
        controllers: Vec::new(),
        at: top.path().into(),
        own: None,
    };
    let groups = Groups::find_in(&[hierarchy], base::enable);
    assert_eq!(groups.enforced(), Enforced { cpu: Ok(()), memory: Ok(()), pids: Ok(()) });
    let limits = Limits { millicores: 1500, memory_bytes: 1 << 30, pids: 64 };
    let group = groups.make("i", "n", &limits).unwrap();
    let job = group.child("j", &Limits { millicores: 1, ..limits }).unwrap();
    assert!(job.die_together().unwrap());
    group.add(Pid::from_raw(7).unwrap()).unwrap();
    job.add(Pid::from_raw(8).unwrap()).unwrap();
    group.kill().unwrap();
    for (file, text) in [
        ("cpu.max", "150000 100000"),
        ("memory.max", "1073741824"),
        ("memory.swap.max", "0"),
        ("pids.max", "64"),
        ("cgroup.procs", ""),
        ("cgroup.kill", "1"),
        ("main/cgroup.procs", "7"),
        ("job-j/cgroup.procs", "8"),
        ("job-j/cpu.max", "1000 100000"),
        ("job-j/memory.oom.group", "1"),
        ("job-j/cgroup.subtree_control", ""),
    ] {
        assert_eq!(fs::read_to_string(node.join(file)).unwrap(), text, "{file}");
    }
    assert_eq!((group.millicores(), job.millicores()), (Some(1500), Some(10)));
    let usage = group.usage().unwrap();
    let all = [usage.cpu_us, usage.cpu_throttled, usage.memory_peak_bytes, usage.oom_kills];
    assert_eq!(all, [Some(77), Some(3), Some(4096), Some(1)]);
    assert_eq!([usage.pids_peak, usage.pids_denied], [Some(9), Some(5)]);
    let load = Load { cpu_us: Some(77), memory_bytes: Some(2500) };
    assert_eq!((group.load().unwrap(), job.load().unwrap()), (load, load));
}

/// With v1 each controller has its own folder, and the keys with `total_` include the groups below.
#[test]
fn what_a_group_of_v1_uses_is_read_from_its_hierarchies() {
    let top = tempfile::tempdir().unwrap();
    let folder = |name: &str, controllers: &[Controller], files: &[(&str, &str)]| {
        let path = top.path().join(name);
        fs::create_dir(&path).unwrap();
        for (file, text) in files {
            fs::write(path.join(file), text).unwrap();
        }
        let (hierarchy, controllers) = (path.clone(), controllers.to_vec());
        Folder { path, hierarchy, version: Version::One, controllers }
    };
    let cpu = folder(
        "cpu,cpuacct",
        &[Controller::Cpu, Controller::CpuAccount],
        &[("cpuacct.usage", "77000999\n"), ("cpu.stat", "nr_periods 4\nnr_throttled 3\n")],
    );
    let stat = "cache 900\ninactive_file 1\ntotal_cache 1900\ntotal_inactive_file 1000\n";
    let files = [("memory.usage_in_bytes", "5096\n"), ("memory.stat", stat)];
    let memory = folder("memory", &[Controller::Memory], &files);
    let group = Group::node(vec![cpu.clone(), memory]);
    let load = Load { cpu_us: Some(77_000), memory_bytes: Some(4096) };
    assert_eq!(group.load().unwrap(), load);
    assert_eq!(group.usage().unwrap().cpu_us, Some(77_000));
    // Cores are counted even if nothing counts memory.
    let without = Load { memory_bytes: None, ..load };
    assert_eq!(Group::node(vec![cpu]).load().unwrap(), without);
}

#[test]
fn a_group_is_made_twice_found_again_and_removed_twice() {
    let Some(node) = make("again", &WIDE) else { return };
    let groups = Groups::find();
    let smaller = Limits { memory_bytes: 64 << 20, millicores: 500, pids: 50 };
    for limits in [&smaller, &WIDE, &smaller] {
        assert_eq!(groups.make(&node.instance, "n1", limits).unwrap(), node.group);
    }
    assert_eq!(groups.list(&node.instance).unwrap(), ["n1"]);
    node.group.child("left-over", &smaller).unwrap();
    let found = groups.open(&node.instance, "n1").unwrap();
    found.remove().unwrap();
    found.remove().unwrap();
    assert_eq!(groups.list(&node.instance).unwrap(), [""; 0]);
    for base in &groups.bases {
        assert!(!base.folder.join(instance_folder(&node.instance)).exists());
    }
    assert!(found.is_empty().unwrap());
}

#[test]
fn names_that_would_leave_the_folder_are_refused() {
    let groups = Groups::find_in(&[], base::enable);
    for name in ["", "..", "a/b", "memory.max", "a b", "ä", &"x".repeat(65)] {
        let error = groups.open("i", name).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        assert!(groups.list(name).is_err());
    }
    let group = groups.make("i", "n", &WIDE).unwrap();
    assert!(group.folders().is_empty() && group.is_empty().unwrap());
    assert_eq!(group.usage().unwrap(), Usage::default());
    assert_eq!(group.load().unwrap(), Load::default());
}
