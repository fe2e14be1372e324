//! What this machine can limit, and how it limits the server: control groups, users, descriptors, processes and memory.

use muster_providers::sandboxed::Machine;
use muster_sandbox::cgroup::layout::{Version, parse_mounts};
use muster_sandbox::cgroup::{Enforced, Groups};
use muster_server::{DESCRIPTORS_MIN, DESCRIPTORS_WANTED, Isolation};
use rustix::process::{Resource, geteuid, getrlimit};

use super::finding::{Finding, State};

/// Threads count too, and numerical libraries start one per core.
const PROCESSES_WANTED: u64 = 4096;
const MEMORY_WANTED: u64 = 512 << 20;
const MEMORY_FREE_WANTED: u64 = 256 << 20;
/// The first user id of nodes, and how many ids a node has; see the sandbox.
const NODE_USERS: (u64, u64) = (0x7000_0000, 65_536);

pub struct Resources {
    pub has_v1: bool,
    pub has_v2: bool,
    pub enforced: Enforced,
    pub is_root: bool,
    /// The user ids that exist in the current namespace: the first, and how many.
    pub users: Vec<(u64, u64)>,
    pub has_subordinate_ids: bool,
    /// How many files can be open; `None` means no limit.
    pub files: Option<u64>,
    pub processes: Option<u64>,
    pub memory: Option<Memory>,
}

/// In bytes.
#[derive(Clone, Copy)]
pub struct Memory {
    pub total: u64,
    pub available: u64,
    pub swap: u64,
}

pub fn look() -> Resources {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mounts = parse_mounts(&read("/proc/self/mountinfo"));
    let uid = geteuid().as_raw();
    Resources {
        has_v1: mounts.iter().any(|it| it.version == Version::One && !it.controllers.is_empty()),
        has_v2: mounts.iter().any(|it| it.version == Version::Two),
        enforced: Groups::look().enforced(),
        is_root: uid == 0,
        users: users(&read("/proc/self/uid_map")),
        has_subordinate_ids: has_subordinate_ids(&read("/etc/subuid"), &read("/etc/passwd"), uid),
        files: getrlimit(Resource::Nofile).maximum,
        processes: getrlimit(Resource::Nproc).current,
        memory: memory(&read("/proc/meminfo")),
    }
}

/// Parses the kernel's map: first id inside, first id outside, count.
fn users(map: &str) -> Vec<(u64, u64)> {
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
        let (first, _, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some((first, count))
    };
    map.lines().filter_map(line).collect()
}

/// Looks for the user's id, or for the name that belongs to it.
fn has_subordinate_ids(subuid: &str, passwd: &str, uid: u32) -> bool {
    let uid = uid.to_string();
    let named = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid));
    let name = named.and_then(|line| line.split(':').next());
    let owners = subuid.lines().filter_map(|line| line.split(':').next());
    let mut owners = owners.filter(|owner| !owner.is_empty());
    owners.any(|owner| owner == uid || Some(owner) == name)
}

fn memory(text: &str) -> Option<Memory> {
    let bytes = |key: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    let swap = bytes("SwapTotal").unwrap_or(0);
    Some(Memory { total: bytes("MemTotal")?, available: bytes("MemAvailable")?, swap })
}

pub fn check(found: &Resources, isolation: Isolation) -> Vec<Finding> {
    let mut findings = vec![hierarchies(found, isolation)];
    let Enforced { cpu, memory, pids } = &found.enforced;
    for (id, enforced, meaning) in [
        ("limit-cpu", cpu, "without it, a node could use all cores"),
        ("limit-memory", memory, "without it, a node could use all memory"),
        ("limit-processes", pids, "without it, a node could fill the machine with processes"),
    ] {
        findings.push(limit(id, enforced, meaning, found, isolation));
    }
    findings.extend([node_users(found, isolation), files(found), processes(found)]);
    findings.extend(found.memory.map(enough_memory));
    findings
}

/// The capacity that nodes share.
pub fn host(is_strict: bool) -> Finding {
    const MEANING: &str =
        "further nodes wait for capacity, unless over-commit is true, as with `muster up`";
    let rule =
        if is_strict { "over-commit is false" } else { "over-commit depends on the start command" };
    Finding::ok("host", format!("{}; {rule}", Machine::this()), MEANING)
}

fn hierarchies(found: &Resources, isolation: Isolation) -> Finding {
    const ID: &str = "cgroups";
    const MEANING: &str =
        "without control groups, nodes have no limits and their usage is not measured";
    match (found.has_v1, found.has_v2) {
        (false, true) => Finding::ok(ID, "v2", MEANING),
        (true, false) => Finding::ok(ID, "v1", MEANING),
        (true, true) => Finding::ok(ID, "hybrid: v1 and v2", MEANING),
        (false, false) => {
            let state = State::of_missing_sandbox(isolation).min(State::Warning);
            Finding::new(ID, state, "none is mounted", MEANING)
                .fix("mount -t cgroup2 none /sys/fs/cgroup")
        }
    }
}

fn limit(
    id: &'static str,
    enforced: &Result<(), String>,
    meaning: &'static str,
    found: &Resources,
    isolation: Isolation,
) -> Finding {
    let why = match enforced {
        Ok(()) => return Finding::ok(id, "can be enforced", meaning),
        Err(why) => format!("cannot be enforced: {why}"),
    };
    // Nodes run anyway.
    let state = State::of_missing_sandbox(isolation).min(State::Warning);
    let fix = match (found.is_root, found.has_v1) {
        (true, _) if id == "limit-memory" => {
            "start Linux with cgroup_enable=memory (GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub)"
        }
        (true, _) => {
            "run the server in a systemd unit with Delegate=yes and DelegateSubgroup=server"
        }
        (false, false) => {
            "systemd-run --user -p Delegate=yes -p DelegateSubgroup=server muster up, or the same two settings in \
             your unit"
        }
        (false, true) => {
            "start the server with sudo, which runs it as you and only its helper as root; or boot Linux with systemd.unified_cgroup_hierarchy=1 and use Delegate=yes"
        }
    };
    Finding::new(id, state, why, meaning).fix(fix)
}

fn node_users(found: &Resources, isolation: Isolation) -> Finding {
    const ID: &str = "users";
    let (first, count) = NODE_USERS;
    let has_range =
        found.users.iter().any(|(from, held)| *from <= first && first + count <= from + held);
    if !found.is_root {
        let more = match found.has_subordinate_ids {
            true => "there are subordinate ids, which are not used",
            false => "there are no subordinate ids",
        };
        return Finding::note(
            ID,
            format!("not root: all nodes share one user ({more})"),
            "nodes are separated by namespaces alone; as root, every node has its own 65,536 users",
        )
        .fix("start the server with sudo to give each node its own users: it runs as you, and only its helper as root");
    }
    if has_range {
        return Finding::ok(
            ID,
            "root: 65,536 users for each node",
            "a process that escapes from a node has no permissions on the machine or in other nodes",
        );
    }
    Finding::new(
        ID,
        State::of_missing_sandbox(isolation),
        "root in a namespace without the user ids of nodes",
        "the user ids of nodes start at 1,879,048,192, and this namespace does not have them",
    )
    .fix("run the server outside this container, as another user in it, or with --userns host")
}

fn files(found: &Resources) -> Finding {
    const ID: &str = "open-files";
    const MEANING: &str =
        "every connection is an open file, and each node has one or two connections";
    let fix = format!(
        "LimitNOFILE={DESCRIPTORS_WANTED} in the unit, or `* hard nofile {DESCRIPTORS_WANTED}` in \
         /etc/security/limits.d/muster.conf"
    );
    let limit = match found.files {
        Some(limit) if limit < DESCRIPTORS_WANTED => limit,
        Some(limit) => return Finding::ok(ID, format!("up to {limit}"), MEANING),
        None => return Finding::ok(ID, "no limit", MEANING),
    };
    let found = format!("up to {limit}; the server needs {DESCRIPTORS_WANTED}");
    let state = if limit < DESCRIPTORS_MIN { State::Failure } else { State::Warning };
    Finding::new(ID, state, found, MEANING).fix(fix)
}

fn processes(found: &Resources) -> Finding {
    const ID: &str = "processes";
    const MEANING: &str = "all processes and threads of one user count together, including those of all jobs on a node";
    match found.processes {
        None => Finding::ok(ID, "no limit", MEANING),
        Some(limit) if limit >= PROCESSES_WANTED => {
            Finding::ok(ID, format!("up to {limit}"), MEANING)
        }
        Some(limit) => {
            let found = format!("up to {limit}; {PROCESSES_WANTED} are enough for a few nodes");
            Finding::warning(ID, found, MEANING).fix(
                "LimitNPROC=infinity in the unit, or `* soft nproc unlimited` in /etc/security/limits.d/muster.conf",
            )
        }
    }
}

fn enough_memory(memory: Memory) -> Finding {
    const ID: &str = "memory";
    const MEANING: &str = "the server uses about 100 MB; nodes use as much as their jobs do";
    let mib = |bytes: u64| bytes >> 20;
    let swap = match memory.swap {
        0 => "no swap".to_owned(),
        swap => format!("{} MiB of swap", mib(swap)),
    };
    let found = format!(
        "{} MiB, of which {} MiB are available; {swap}",
        mib(memory.total),
        mib(memory.available)
    );
    if memory.total < MEMORY_WANTED {
        return Finding::warning(ID, found, MEANING).fix("use a machine with 1 GiB or more");
    }
    if memory.available < MEMORY_FREE_WANTED {
        return Finding::warning(ID, found, MEANING)
            .fix("stop programs that use much memory: `ps aux --sort=-rss | head` shows them");
    }
    Finding::ok(ID, found, MEANING)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Resources {
        Resources {
            has_v1: false,
            has_v2: true,
            enforced: Enforced { cpu: Ok(()), memory: Ok(()), pids: Ok(()) },
            is_root: true,
            users: vec![(0, 4_294_967_295)],
            has_subordinate_ids: false,
            files: Some(1 << 20),
            processes: None,
            memory: Some(Memory { total: 8 << 30, available: 4 << 30, swap: 0 }),
        }
    }

    fn bad(found: &Resources, isolation: Isolation) -> Vec<(&'static str, State)> {
        let findings = check(found, isolation);
        for finding in &findings {
            assert_eq!(finding.fix.is_some(), finding.state != State::Ok, "{finding:?}");
        }
        let bad = findings.iter().filter(|finding| finding.state != State::Ok);
        bad.map(|finding| (finding.id, finding.state)).collect()
    }

    #[test]
    fn limits_that_cannot_be_enforced_are_reported_with_the_reason() {
        assert_eq!(bad(&good(), Isolation::Sandbox), []);
        let no = || Err("not delegated".to_owned());
        let all = Enforced { cpu: no(), memory: no(), pids: no() };
        for (is_root, has_v1, words) in [
            (true, false, "DelegateSubgroup=server"),
            (false, false, "systemd-run --user"),
            (false, true, "unified_cgroup_hierarchy=1"),
        ] {
            let found = Resources { enforced: all.clone(), is_root, has_v1, ..good() };
            let limits = [State::Warning; 3];
            let limits: Vec<_> =
                ["limit-cpu", "limit-memory", "limit-processes"].into_iter().zip(limits).collect();
            assert_eq!(bad(&found, Isolation::Sandbox)[..3], limits);
            let finding = limit("limit-cpu", &no(), "", &found, Isolation::None);
            assert_eq!(finding.state, State::Note);
            assert!(finding.found.ends_with("not delegated"), "{finding:?}");
            assert!(finding.fix.is_some_and(|fix| fix.contains(words)), "{words}");
        }
        let memory = limit("limit-memory", &no(), "", &good(), Isolation::Auto);
        assert!(memory.fix.is_some_and(|fix| fix.contains("cgroup_enable=memory")));
        let none = Resources { has_v2: false, ..good() };
        assert_eq!(bad(&none, Isolation::Sandbox), [("cgroups", State::Warning)]);
        let hybrid = Resources { has_v1: true, ..good() };
        assert_eq!(hierarchies(&hybrid, Isolation::Auto).found, "hybrid: v1 and v2");
    }

    #[test]
    fn users_of_nodes_need_root_of_the_whole_machine() {
        let user = Resources { is_root: false, ..good() };
        assert_eq!(bad(&user, Isolation::Sandbox), [("users", State::Note)]);
        let with = Resources { has_subordinate_ids: true, is_root: false, ..good() };
        assert!(node_users(&with, Isolation::Auto).found.contains("there are subordinate ids"));
        let contained = Resources { users: vec![(0, 65_536)], ..good() };
        assert_eq!(bad(&contained, Isolation::Sandbox), [("users", State::Failure)]);
        assert_eq!(bad(&contained, Isolation::Auto), [("users", State::Warning)]);
    }

    #[test]
    fn few_files_or_processes_and_little_memory_are_reported() {
        for (files, state) in [(DESCRIPTORS_MIN - 1, State::Failure), (4096, State::Warning)] {
            let found = Resources { files: Some(files), ..good() };
            assert_eq!(bad(&found, Isolation::None), [("open-files", state)]);
        }
        assert_eq!(bad(&Resources { files: None, ..good() }, Isolation::Auto), []);
        let few = Resources { processes: Some(256), is_root: false, ..good() };
        assert!(bad(&few, Isolation::Auto).contains(&("processes", State::Warning)));
        // The users of nodes are not root on the machine, even if root started them.
        assert_eq!(processes(&Resources { is_root: true, ..few }).state, State::Warning);
        let many = Resources { processes: Some(PROCESSES_WANTED), is_root: false, ..good() };
        assert_eq!(processes(&many).state, State::Ok);
        for (total, available, swap) in [(256 << 20, 200 << 20, 0), (8 << 30, 1 << 20, 1 << 30)] {
            let memory = Some(Memory { total, available, swap });
            let found = Resources { memory, ..good() };
            assert_eq!(bad(&found, Isolation::Auto), [("memory", State::Warning)]);
        }
    }

    #[test]
    fn the_systems_files_are_read_as_they_are() {
        assert_eq!(users("         0          0 4294967295\n"), [(0, 4_294_967_295)]);
        assert_eq!(users("0 1000 1\n1 100000 65536\nx\n"), [(0, 1), (1, 65_536)]);
        let passwd = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert!(has_subordinate_ids("ada:100000:65536\n", passwd, 1000));
        assert!(has_subordinate_ids("1000:100000:65536\n", "", 1000));
        assert!(!has_subordinate_ids("ada:100000:65536\n:\n", passwd, 1001));
        let text = "MemTotal:  2048 kB\nMemAvailable:  1024 kB\nSwapTotal: 0 kB\n";
        let read = memory(text).unwrap();
        assert_eq!((read.total, read.available, read.swap), (2 << 20, 1 << 20, 0));
        assert!(memory("MemTotal: many kB").is_none());
    }
}
