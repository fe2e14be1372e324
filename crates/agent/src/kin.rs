//! Finds the processes of a node from outside, to make sure that nothing of it is left.
//!
//! Every process of a node starts with [`NODE_VARIABLE`] and [`DIR_VARIABLE`] in its environment, and the folder is
//! private; so a process that has both was started for this node. A process that cleared its environment is still in
//! the session of a recorded job and holds a file of the folder. A process that both left its session and cleared its
//! environment is not found: that takes a sandbox.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Signal, geteuid};

use crate::home::Home;
use crate::identity::{Handle, Identity, Stat, boot_id};

pub const NODE_VARIABLE: &str = "MUSTER_NODE";
pub const DIR_VARIABLE: &str = "MUSTER_NODE_DIR";

/// Lists every living process of the node, including its agent but not the caller.
pub fn of_node(name: &str, home: &Home) -> io::Result<Vec<Identity>> {
    let sessions = recorded_sessions(home)?;
    // The path as the kernel shows it, without links.
    let real_dir = home.dir().canonicalize().unwrap_or_else(|_| home.dir().to_path_buf());
    let mut found = Vec::new();
    for pid in own_pids()? {
        let Some(stat) = Stat::of(pid).filter(Stat::is_alive) else { continue };
        let is_kin = mark_of(pid).is_some_and(|mark| mark.node == name && mark.dir == home.dir())
            || (sessions.contains(&stat.session) && holds_a_file_of(pid, &real_dir));
        if is_kin {
            found.extend(Identity::of(pid)?);
        }
    }
    Ok(found)
}

/// Lists the names of all nodes under `nodes_dir` that have a living process.
pub fn nodes_alive(nodes_dir: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for pid in own_pids()? {
        let Some(mark) = mark_of(pid) else { continue };
        if mark.dir == nodes_dir.join(&mark.node) && Stat::of(pid).is_some_and(|s| s.is_alive()) {
            names.insert(mark.node);
        }
    }
    Ok(names)
}

/// Kills every process of the node, including those that are started meanwhile. Returns the processes that are still
/// alive when the time is up.
pub fn kill_all(name: &str, home: &Home, within: Duration) -> io::Result<Vec<Identity>> {
    let deadline = Instant::now() + within;
    loop {
        let found = of_node(name, home)?;
        if found.is_empty() || Instant::now() >= deadline {
            return Ok(found);
        }
        let handles: Vec<Handle> = found
            .iter()
            .filter_map(|identity| identity.open().transpose())
            .collect::<Result<_, _>>()?;
        for handle in &handles {
            handle.signal(Signal::KILL)?;
        }
        for handle in &handles {
            handle.wait(deadline.saturating_duration_since(Instant::now()))?;
        }
    }
}

/// Returns true if anything in this process group is still running. Zombies do not count, because their parent may take
/// its time to reap them.
pub(crate) fn is_group_alive(group: u32) -> bool {
    let mut stats = own_pids().unwrap_or_default().into_iter().filter_map(Stat::of);
    stats.any(|stat| stat.group == group && stat.is_alive())
}

struct Mark {
    node: String,
    dir: PathBuf,
}

/// Reads the node's variables from the environment with which the process started.
fn mark_of(pid: u32) -> Option<Mark> {
    let environ = environ_of(pid)?;
    let value = |name: &str| {
        environ.split(|byte| *byte == 0).find_map(|entry| {
            entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec)
        })
    };
    Some(Mark {
        node: String::from_utf8(value(NODE_VARIABLE)?).ok()?,
        dir: PathBuf::from(OsString::from_vec(value(DIR_VARIABLE)?)),
    })
}

/// A process shows no environment at the moment of an exec. It is read again so that it is not overlooked. Kernel
/// threads never show one, but they have no program either.
fn environ_of(pid: u32) -> Option<Vec<u8>> {
    const LOOKS: u32 = 5;
    const PAUSE: Duration = Duration::from_millis(1);
    for _ in 0..LOOKS {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        if !environ.is_empty() || std::fs::read_link(format!("/proc/{pid}/exe")).is_err() {
            return Some(environ);
        }
        std::thread::sleep(PAUSE);
    }
    Some(Vec::new())
}

fn holds_a_file_of(pid: u32, dir: &Path) -> bool {
    ["cwd", "fd/1", "fd/2"].iter().any(|link| {
        std::fs::read_link(format!("/proc/{pid}/{link}"))
            .is_ok_and(|target| target.starts_with(dir))
    })
}

/// Returns the sessions of the jobs that an agent of this boot recorded. Each is led by the job's first process.
fn recorded_sessions(home: &Home) -> io::Result<BTreeSet<u32>> {
    let boot = boot_id()?;
    let entries = match std::fs::read_dir(home.jobs()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(error),
    };
    let mut sessions = BTreeSet::new();
    for entry in entries {
        let leader = Identity::read(&entry?.path())?;
        sessions.extend(leader.filter(|leader| leader.boot == boot).map(|leader| leader.pid));
    }
    Ok(sessions)
}

/// Lists the PIDs of our own user, without our own.
fn own_pids() -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let is_ours = entry.metadata().is_ok_and(|meta| meta.uid() == geteuid().as_raw());
        if is_ours && pid != std::process::id() {
            pids.push(pid);
        }
    }
    Ok(pids)
}
