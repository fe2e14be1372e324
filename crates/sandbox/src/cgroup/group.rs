//! A group: the same folder in every usable hierarchy.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Uid, chown};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::base::Base;
use super::files::{make_folder, read, read_at, walk, write, write_if_there};
use super::layout::{Controller, Version};
use super::usage::{self, Load, Shortage, Usage};
use super::{Limits, check_name, hand_down_all};
use crate::context::cannot;

/// The period over which a group's share of the cores is enforced.
const PERIOD_US: u64 = 100_000;
/// The smallest share that the kernel accepts.
const QUOTA_US_MIN: u64 = 1_000;
/// A node may create groups of its own, but each one costs kernel memory.
const DESCENDANTS_MAX: u32 = 4096;
const DEPTH_MAX: u32 = 16;
/// A process that is still running after this time was never moved into the v2 folder.
const KERNEL_KILLS_WITHIN: Duration = Duration::from_secs(1);
const KILL_WITHIN: Duration = Duration::from_secs(10);
const REMOVE_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);
/// The child group that holds a node's processes in v2, where a group with children cannot have processes.
const MAIN: &str = "main";

/// A group's folder in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    pub path: PathBuf,
    /// Where the hierarchy is mounted on the host. The node finds the folder because it is mounted in the same place.
    pub hierarchy: PathBuf,
    pub(super) version: Version,
    pub(super) controllers: Vec<Controller>,
}

impl Folder {
    pub(super) fn of(base: &Base, path: PathBuf) -> Folder {
        Folder {
            path,
            hierarchy: base.hierarchy.clone(),
            version: base.version,
            controllers: base.controllers.clone(),
        }
    }

    pub(super) fn has(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    fn limit(&self, limits: &Limits) -> io::Result<()> {
        let file = |name: &str| self.path.join(name);
        if self.has(Controller::Memory) {
            self.limit_memory(limits.memory_bytes)?;
        }
        if self.has(Controller::Pids) {
            write(&file("pids.max"), &limits.pids.to_string())?;
        }
        if self.has(Controller::Cpu) {
            let quota = (u64::from(limits.millicores) * PERIOD_US / 1000).max(QUOTA_US_MIN);
            match self.version {
                Version::One => {
                    write(&file("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                    write(&file("cpu.cfs_quota_us"), &quota.to_string())?;
                }
                Version::Two => write(&file("cpu.max"), &format!("{quota} {PERIOD_US}"))?,
            }
        }
        Ok(())
    }

    fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        let (file, bytes) = (|name: &str| self.path.join(name), bytes.to_string());
        if self.version == Version::Two {
            write(&file("memory.max"), &bytes)?;
            // A kernel without swap does not have this file.
            return write_if_there(&file("memory.swap.max"), "0").map(drop);
        }
        // The limit with swap must never be below the other one, so the order of the writes depends on the old values.
        let first = write(&file("memory.limit_in_bytes"), &bytes);
        write_if_there(&file("memory.memsw.limit_in_bytes"), &bytes)?;
        first.or_else(|_| write(&file("memory.limit_in_bytes"), &bytes))
    }
}

/// The group of a node or a job. Without a usable hierarchy it has no folders and limits and kills nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    folders: Vec<Folder>,
    /// A node has groups below its own, so v2 keeps its processes in one of them.
    is_node: bool,
}

impl Group {
    pub(super) fn node(folders: Vec<Folder>) -> Group {
        Group { folders, is_node: true }
    }

    pub(super) fn set_up_as_node(&self, limits: &Limits) -> io::Result<()> {
        for folder in &self.folders {
            make_folder(&folder.path)?;
            folder.limit(limits)?;
            if folder.version == Version::Two {
                write(&folder.path.join("cgroup.max.descendants"), &DESCENDANTS_MAX.to_string())?;
                write(&folder.path.join("cgroup.max.depth"), &DEPTH_MAX.to_string())?;
                hand_down_all(&folder.path, &folder.controllers)?;
                make_folder(&folder.path.join(MAIN))?;
            }
        }
        Ok(())
    }

    /// Creates the group of a job in this node, or applies these limits to the existing one. The node's own root may do
    /// this if the group was [delegated](Group::delegate). Cgroups v1 refuses a larger share of the cores than the
    /// node's.
    ///
    /// The group exists only in the hierarchies that limit or measure a job, because each one costs a job the creation
    /// of a folder and a move. In the others the job stays in its node's group, with which it is frozen and killed.
    pub fn child(&self, name: &str, limits: &Limits) -> io::Result<Group> {
        check_name("job", name)?;
        if !self.is_node {
            let text = "the group of a job cannot have groups below it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let below = |folder: &Folder| {
            let path = folder.path.join(format!("job-{name}"));
            Folder { path, ..folder.clone() }
        };
        let child = Group { folders: self.folders_for_jobs().map(below).collect(), is_node: false };
        for folder in &child.folders {
            make_folder(&folder.path)?;
            folder.limit(limits)?;
        }
        Ok(child)
    }

    /// The folder that counts processes comes first. A process that could join only some of them is therefore counted.
    fn folders_for_jobs(&self) -> impl Iterator<Item = &Folder> {
        const USED: [Controller; 4] =
            [Controller::Cpu, Controller::CpuAccount, Controller::Memory, Controller::Pids];
        // Without this controller, the time that a job uses is counted by v2, which needs none for it.
        let has_accounts = self.folder_with(Controller::CpuAccount).is_some();
        let is_used = move |folder: &&Folder| {
            let counts_time = folder.version == Version::Two && !has_accounts;
            counts_time || USED.iter().any(|controller| folder.has(*controller))
        };
        let (first, others): (Vec<_>, Vec<_>) =
            self.folders.iter().filter(is_used).partition(|folder| folder.has(Controller::Pids));
        first.into_iter().chain(others)
    }

    /// Makes the kernel kill the whole group when it runs out of memory, instead of its largest process. Returns false
    /// if the kernel cannot (v1); check [`Usage::oom_kills`] and call [`kill`](Group::kill) in that case.
    pub fn die_together(&self) -> io::Result<bool> {
        match self.folder_with(Controller::Memory) {
            Some(folder) => write_if_there(&folder.path.join("memory.oom.group"), "1"),
            None => Ok(false),
        }
    }

    /// Moves a process into the group. Processes that it starts later are in the group too.
    pub fn add(&self, pid: Pid) -> io::Result<()> {
        let pid = pid.as_raw_nonzero().to_string();
        for folder in &self.folders {
            write(&self.processes_of(folder).join("cgroup.procs"), &pid)?;
        }
        Ok(())
    }

    /// Lets a user create groups in this one and move its processes between them, but not change its limits.
    pub fn delegate(&self, user: Uid, group: Gid) -> io::Result<()> {
        for folder in &self.folders {
            match folder.version {
                Version::One => give(&folder.path, &["", "tasks", "cgroup.procs"], user, group)?,
                Version::Two => {
                    let files = ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"];
                    give(&folder.path, &files, user, group)?;
                    if self.is_node {
                        give(&folder.path.join(MAIN), &files, user, group)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The cores that the group may use, in thousandths, if they are limited.
    pub fn millicores(&self) -> Option<u32> {
        let folder = self.folder_with(Controller::Cpu)?;
        let number = |name: &str| read(&folder.path.join(name)).ok();
        let (quota, period): (u64, u64) = match folder.version {
            Version::One => (
                number("cpu.cfs_quota_us")?.trim().parse().ok()?,
                number("cpu.cfs_period_us")?.trim().parse().ok()?,
            ),
            Version::Two => {
                let text = number("cpu.max")?;
                let (quota, period) = text.trim().split_once(' ')?;
                (quota.parse().ok()?, period.parse().ok()?)
            }
        };
        u32::try_from(quota.saturating_mul(1000).checked_div(period)?).ok()
    }

    /// The folders of the group, to be mounted into the node.
    pub fn folders(&self) -> &[Folder] {
        &self.folders
    }

    pub fn usage(&self) -> io::Result<Usage> {
        usage::read_usage(&self.folders, self.is_node)
    }

    pub fn load(&self) -> io::Result<Load> {
        usage::read_load(&self.folders)
    }

    pub fn shortage(&self) -> io::Result<Option<Shortage>> {
        usage::read_shortage(&self.folders, self.is_node)
    }

    /// All memory that is charged to the group at this moment, with its caches. `None` if nothing counts it.
    pub fn memory_bytes(&self) -> io::Result<Option<u64>> {
        usage::read_memory(&self.folders)
    }

    /// The time that the group has used since it was created. `None` if nothing counts it.
    pub fn cpu_us(&self) -> io::Result<Option<u64>> {
        usage::read_cpu(&self.folders)
    }

    /// The file in which the kernel counts the processes of the group, for [`counts_none`].
    pub fn process_count(&self) -> Option<PathBuf> {
        self.folder_with(Controller::Pids).map(|folder| folder.path.join("pids.current"))
    }

    /// Returns true if no process is in this group or in any group below it.
    pub fn is_empty(&self) -> io::Result<bool> {
        for folder in &self.folders {
            let is_used = match folder.version {
                Version::One => !processes_below(&folder.path)?.is_empty(),
                Version::Two => match read(&folder.path.join("cgroup.events")) {
                    Ok(text) => usage::value(&text, "populated") != Some(0),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                    Err(error) => return Err(error),
                },
            };
            if is_used {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Like [`is_empty`](Group::is_empty), but costs little, and an error counts as "no". For the group of a job.
    pub fn is_certainly_empty(&self) -> bool {
        match self.process_count() {
            // A process joins the folder that counts it first, so it is in no other one either.
            Some(count) => counts_none(&count),
            None => self.is_empty().unwrap_or(false),
        }
    }

    /// Kills every process in this group and below it, however fast they fork, and waits until all have ended.
    pub fn kill(&self) -> io::Result<()> {
        let start = Instant::now();
        loop {
            self.kill_once(start.elapsed() > KERNEL_KILLS_WITHIN)?;
            if self.is_empty()? {
                return Ok(());
            }
            if start.elapsed() > KILL_WITHIN {
                let text = format!(
                    "processes are still running {} s after the kill",
                    KILL_WITHIN.as_secs()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            sleep(PAUSE);
        }
    }

    /// Removes the group and everything below it. Waits for processes that are ending; running processes are an error.
    /// A group that does not exist is not an error.
    pub fn remove(&self) -> io::Result<()> {
        let deadline = Instant::now() + REMOVE_WITHIN;
        for folder in &self.folders {
            while let Err(error) = remove_folder(&folder.path) {
                if error.kind() != io::ErrorKind::ResourceBusy || Instant::now() > deadline {
                    return Err(cannot(format_args!("remove {}", folder.path.display()), error));
                }
                sleep(PAUSE);
            }
            // The instance's own folder is removed with its last node.
            if let Some(instance) = folder.path.parent().filter(|_| self.is_node) {
                let _ = fs::remove_dir(instance);
            }
        }
        Ok(())
    }

    fn kill_once(&self, is_late: bool) -> io::Result<()> {
        let mut is_killed = false;
        for folder in self.folders.iter().filter(|folder| folder.version == Version::Two) {
            is_killed |= write_if_there(&folder.path.join("cgroup.kill"), "1")?;
        }
        if is_killed && !is_late {
            return Ok(());
        }
        // Frozen processes cannot fork between our listing and our signals.
        let freezer = self.folder_with(Controller::Freezer).map(|folder| &folder.path);
        let freeze = |state| match freezer {
            Some(path) => write_if_there(&path.join("freezer.state"), state).map(drop),
            None => Ok(()),
        };
        freeze("FROZEN")?;
        let signalled = self.signal_all();
        freeze("THAWED")?;
        signalled
    }

    fn signal_all(&self) -> io::Result<()> {
        let mut pids = HashSet::new();
        for folder in &self.folders {
            pids.extend(processes_below(&folder.path)?);
        }
        for pid in pids {
            match kill_process(pid, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => {
                    return Err(cannot(format_args!("kill process {pid:?}"), error));
                }
            }
        }
        Ok(())
    }

    fn processes_of(&self, folder: &Folder) -> PathBuf {
        match folder.version {
            Version::Two if self.is_node => folder.path.join(MAIN),
            _ => folder.path.clone(),
        }
    }

    fn folder_with(&self, controller: Controller) -> Option<&Folder> {
        self.folders.iter().find(|folder| folder.has(controller))
    }
}

/// Returns true if it is certain that the group with this [`process_count`](Group::process_count) has no processes.
///
/// The count is exact, unlike most of what the kernel counts for a group. A process and each of its threads is counted,
/// also in the groups above, before it exists (`fork` fails if it cannot be) and until it has been reaped. Zombies are
/// therefore counted as well. A process leaves the count of its group only by being moved to another one, which takes
/// the right to write to the files of both.
pub fn counts_none(process_count: &Path) -> bool {
    read(process_count).is_ok_and(|text| text.trim_end() == "0")
}

fn remove_folder(path: &Path) -> io::Result<()> {
    walk(path, true, |_| Ok(()))?;
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn processes_below(path: &Path) -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    walk(path, false, |folder| {
        let text = match read_at(folder, c"cgroup.procs") {
            // This group holds threads of a process that is listed further up.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(()),
            text => text?,
        };
        // A process outside our PID namespace is listed as 0.
        pids.extend(text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)));
        Ok(())
    })?;
    Ok(pids)
}

fn give(folder: &Path, files: &[&str], user: Uid, group: Gid) -> io::Result<()> {
    for file in files {
        let path = folder.join(file);
        match chown(&path, Some(user), Some(group)) {
            // Older kernels have fewer files, but the folder itself always exists.
            Err(Errno::NOENT) if !file.is_empty() => {}
            done => done.map_err(|error| {
                cannot(format_args!("give {} to user {}", path.display(), user.as_raw()), error)
            })?,
        }
    }
    Ok(())
}
