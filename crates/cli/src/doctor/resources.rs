//! What this machine can limit, and what limits us: control groups, users, descriptors, processes and memory.

use muster_providers::sandboxed::Machine;
use muster_sandbox::cgroup::layout::{Version, parse_mounts};
use muster_sandbox::cgroup::{Enforced, Groups};
use muster_server::{DESCRIPTORS_MIN, DESCRIPTORS_WANTED, Isolation};
use rustix::process::{Resource, geteuid, getrlimit};

use super::finding::{Finding, State};

/// Threads count too, and a library for numbers starts one per core.
const PROCESSES_WANTED: u64 = 4096;
const MEMORY_WANTED: u64 = 512 << 20;
const MEMORY_FREE_WANTED: u64 = 256 << 20;
/// The first user of nodes, and how many a node has; see the sandbox.
const NODE_USERS: (u64, u64) = (0x7000_0000, 65_536);

pub struct Resources {
    pub has_v1: bool,
    pub has_v2: bool,
    pub enforced: Enforced,
    pub is_root: bool,
    /// Which users there are in the namespace that we are in: the first, and how many.
    pub users: Vec<(u64, u64)>,
    pub has_subordinate_ids: bool,
    /// Most that can be open; `None` is no limit.
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

/// The kernel's map: first inside, first outside, count.
fn users(map: &str) -> Vec<(u64, u64)> {
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
        let (first, _, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some((first, count))
    };
    map.lines().filter_map(line).collect()
}

/// By the user's number, or by the name that the number has.
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
        ("limit-cpu", cpu, "without it a node could take all cores"),
        ("limit-memory", memory, "without it a node could take all memory"),
        ("limit-processes", pids, "without it a node could fill the machine with processes"),
    ] {
        findings.push(limit(id, enforced, meaning, found, isolation));
    }
    findings.extend([node_users(found, isolation), files(found), processes(found)]);
    findings.extend(found.memory.map(enough_memory));
    findings
}

/// What nodes share.
pub fn host(is_strict: bool) -> Finding {
    const MEANING: &str =
        "more than that waits for room, unless over-commit is true, as it is with `muster up`";
    let rule =
        if is_strict { "over-commit is false" } else { "over-commit as the server is started" };
    Finding::ok("host", format!("{}; {rule}", Machine::this()), MEANING)
}

fn hierarchies(found: &Resources, isolation: Isolation) -> Finding {
    const ID: &str = "cgroups";
    const MEANING: &str = "without control groups nothing limits nodes, nor counts what they use";
    match (found.has_v1, found.has_v2) {
        (false, true) => Finding::ok(ID, "v2", MEANING),
        (true, false) => Finding::ok(ID, "v1", MEANING),
        (true, true) => Finding::ok(ID, "hybrid: v1 and v2", MEANING),
        (false, false) => {
            let state = State::of_missing_wall(isolation).min(State::Warning);
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
    // Nodes run all the same.
    let state = State::of_missing_wall(isolation).min(State::Warning);
    let fix = match (found.is_root, found.has_v1) {
        (true, _) if id == "limit-memory" => {
            "start Linux with cgroup_enable=memory (GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub)"
        }
        (true, _) => {
            "run the server in a unit of systemd with Delegate=yes and DelegateSubgroup=server"
        }
        (false, false) => {
            "systemd-run --user -p Delegate=yes -p DelegateSubgroup=server muster up, or the same two settings in \
             your unit"
        }
        (false, true) => {
            "start the server with sudo, which runs it as you and only its helper as root, or start Linux with systemd.unified_cgroup_hierarchy=1 and use Delegate=yes"
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
            format!("not root: all nodes are one user ({more})"),
            "nodes are kept apart by namespaces alone; with root every node has 65,536 users of its own",
        )
        .fix("start the server with sudo to have users for each node: it runs as you, and only its helper as root");
    }
    if has_range {
        return Finding::ok(
            ID,
            "root: 65,536 users for each node",
            "what gets out of a node is still nobody on the machine and in other nodes",
        );
    }
    Finding::new(
        ID,
        State::of_missing_wall(isolation),
        "root of a namespace without the users of nodes",
        "nodes have users from 1,879,048,192 on, and this namespace has not",
    )
    .fix("run the server outside this container, as another user in it, or with --userns host")
}

fn files(found: &Resources) -> Finding {
    const ID: &str = "open-files";
    const MEANING: &str =
        "every connection is an open file, and nodes hold one or two connections each";
    let fix = format!(
        "LimitNOFILE={DESCRIPTORS_WANTED} in the unit, or `* hard nofile {DESCRIPTORS_WANTED}` in \
         /etc/security/limits.d/muster.conf"
    );
    let limit = match found.files {
        Some(limit) if limit < DESCRIPTORS_WANTED => limit,
        Some(limit) => return Finding::ok(ID, format!("up to {limit}"), MEANING),
        None => return Finding::ok(ID, "no limit", MEANING),
    };
    let told = format!("up to {limit}, and the server wants {DESCRIPTORS_WANTED}");
    let state = if limit < DESCRIPTORS_MIN { State::Failure } else { State::Warning };
    Finding::new(ID, state, told, MEANING).fix(fix)
}

fn processes(found: &Resources) -> Finding {
    const ID: &str = "processes";
    const MEANING: &str =
        "processes and threads of one user count together, those of all jobs on a node too";
    match found.processes {
        None => Finding::ok(ID, "no limit", MEANING),
        Some(limit) if limit >= PROCESSES_WANTED => {
            Finding::ok(ID, format!("up to {limit}"), MEANING)
        }
        Some(limit) => {
            let told = format!("up to {limit}; {PROCESSES_WANTED} are enough for a few nodes");
            Finding::warning(ID, told, MEANING).fix(
                "LimitNPROC=infinity in the unit, or `* soft nproc unlimited` in /etc/security/limits.d/muster.conf",
            )
        }
    }
}

fn enough_memory(memory: Memory) -> Finding {
    const ID: &str = "memory";
    const MEANING: &str = "the server takes about 100 MB; nodes take what their jobs do";
    let mib = |bytes: u64| bytes >> 20;
    let swap = match memory.swap {
        0 => "no swap".to_owned(),
        swap => format!("{} MiB of swap", mib(swap)),
    };
    let told = format!(
        "{} MiB, of which {} MiB are available; {swap}",
        mib(memory.total),
        mib(memory.available)
    );
    if memory.total < MEMORY_WANTED {
        return Finding::warning(ID, told, MEANING).fix("use a machine with 1 GiB or more");
    }
    if memory.available < MEMORY_FREE_WANTED {
        return Finding::warning(ID, told, MEANING)
            .fix("end what takes it: `ps aux --sort=-rss | head` shows that");
    }
    Finding::ok(ID, told, MEANING)
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
    fn limits_that_cannot_be_kept_are_told_with_the_reason() {
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
    fn few_files_processes_or_little_memory_are_told() {
        for (files, state) in [(DESCRIPTORS_MIN - 1, State::Failure), (4096, State::Warning)] {
            let found = Resources { files: Some(files), ..good() };
            assert_eq!(bad(&found, Isolation::None), [("open-files", state)]);
        }
        assert_eq!(bad(&Resources { files: None, ..good() }, Isolation::Auto), []);
        let few = Resources { processes: Some(256), is_root: false, ..good() };
        assert!(bad(&few, Isolation::Auto).contains(&("processes", State::Warning)));
        // Users of nodes are not root on the machine, whoever started them.
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
