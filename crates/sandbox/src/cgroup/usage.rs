//! Reads how much a group has used.

use std::ffi::CStr;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::{read, read_at, walk};
use super::group::Folder;
use super::layout::{Controller, Version};

/// Totals since the group was created, including everything below it. `None` means that this host does not count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_us: Option<u64>,
    /// Periods in which the group used up its share of the cores.
    pub cpu_throttled: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    /// The current use. For a node that has ended, this is what is left in caches.
    pub memory_bytes: Option<u64>,
    /// How often the group was slowed down because of high memory use.
    pub memory_high: Option<u64>,
    /// How often the group reached its memory limit.
    pub memory_max: Option<u64>,
    /// Also `None` if there is no limit.
    pub memory_limit_bytes: Option<u64>,
    /// Processes that were killed because memory ran out.
    pub oom_kills: Option<u64>,
    pub pids_peak: Option<u64>,
    /// Processes that could not be started because there were too many.
    pub pids_denied: Option<u64>,
}

/// `has_below` tells whether there may be groups below this one.
pub(super) fn read_usage(folders: &[Folder], has_below: bool) -> io::Result<Usage> {
    let mut usage = Usage { cpu_us: read_cpu(folders)?, ..Usage::default() };
    for folder in folders {
        let text = |name: &str| read_if_there(&folder.path.join(name));
        if folder.has(Controller::Cpu) {
            usage.cpu_throttled = text("cpu.stat")?.and_then(|text| value(&text, "nr_throttled"));
        }
        if folder.has(Controller::Memory) {
            match folder.version {
                Version::One => {
                    usage.memory_peak_bytes = number(text("memory.max_usage_in_bytes")?);
                    usage.memory_bytes = number(text("memory.usage_in_bytes")?);
                    usage.memory_max = number(text("memory.failcnt")?);
                }
                Version::Two => {
                    usage.memory_peak_bytes = number(text("memory.peak")?);
                    usage.memory_bytes = number(text("memory.current")?);
                    let events = text("memory.events")?.unwrap_or_default();
                    usage.memory_high = value(&events, "high");
                    usage.memory_max = value(&events, "max");
                }
            }
        }
        if folder.has(Controller::Pids) {
            usage.pids_peak = number(text("pids.peak")?);
            // Counted where the limit was reached, including everything below; older kernels count where the fork
            // failed.
            usage.pids_denied = match text("pids.events.local")? {
                Some(_) => text("pids.events")?.and_then(|text| value(&text, "max")),
                None => Some(sum_below(&folder.path, c"pids.events", "max")?),
            };
        }
    }
    if let Some(Shortage { limit_bytes, kills }) = read_shortage(folders, has_below)? {
        (usage.memory_limit_bytes, usage.oom_kills) = (limit_bytes, kills);
    }
    Ok(usage)
}

/// What a group uses at this moment, including everything below it. `None` means that this host does not count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Total since the group was created.
    pub cpu_us: Option<u64>,
    /// Excludes cached files that were not used recently, which the kernel reclaims first.
    pub memory_bytes: Option<u64>,
}

/// Reads the part of the usage that is needed every few seconds. It reads nothing else and visits no group below.
pub(super) fn read_load(folders: &[Folder]) -> io::Result<Load> {
    let mut load = Load { cpu_us: read_cpu(folders)?, memory_bytes: None };
    if let Some(folder) = folders.iter().find(|folder| folder.has(Controller::Memory)) {
        let text = |name: &str| read_if_there(&folder.path.join(name));
        let idle_files = match folder.version {
            Version::One => "total_inactive_file",
            Version::Two => "inactive_file",
        };
        let idle_files = text("memory.stat")?.and_then(|text| value(&text, idle_files));
        let current = number(text(in_use(folder.version))?);
        load.memory_bytes = current.map(|bytes| bytes.saturating_sub(idle_files.unwrap_or(0)));
    }
    Ok(load)
}

pub(super) fn read_memory(folders: &[Folder]) -> io::Result<Option<u64>> {
    let Some(folder) = folders.iter().find(|folder| folder.has(Controller::Memory)) else {
        return Ok(None);
    };
    read_if_there(&folder.path.join(in_use(folder.version))).map(number)
}

/// The file of the memory that is charged to a group.
fn in_use(version: Version) -> &'static str {
    match version {
        Version::One => "memory.usage_in_bytes",
        Version::Two => "memory.current",
    }
}

pub(super) fn read_cpu(folders: &[Folder]) -> io::Result<Option<u64>> {
    let text = |folder: &Folder, name: &str| read_if_there(&folder.path.join(name));
    if let Some(folder) = folders.iter().find(|folder| folder.has(Controller::CpuAccount))
        && let Some(ns) = number(text(folder, "cpuacct.usage")?)
    {
        return Ok(Some(ns / 1000));
    }
    // v2 counts this even if it does not limit it.
    match folders.iter().find(|folder| folder.version == Version::Two) {
        Some(folder) => Ok(text(folder, "cpu.stat")?.and_then(|text| value(&text, "usage_usec"))),
        None => Ok(None),
    }
}

/// The memory of a group, and how often it was not enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    pub limit_bytes: Option<u64>,
    pub kills: Option<u64>,
}

/// Reads the part of the usage that every job needs, and nothing else. `None` if nothing counts memory.
pub(super) fn read_shortage(folders: &[Folder], has_below: bool) -> io::Result<Option<Shortage>> {
    let Some(folder) = folders.iter().find(|folder| folder.has(Controller::Memory)) else {
        return Ok(None);
    };
    let text = |name: &str| read_if_there(&folder.path.join(name));
    Ok(Some(match folder.version {
        Version::One => Shortage {
            limit_bytes: number(text("memory.limit_in_bytes")?),
            // The kernel counts kills only in the group of the killed process.
            kills: match has_below {
                true => Some(sum_below(&folder.path, c"memory.oom_control", "oom_kill")?),
                false => text("memory.oom_control")?.and_then(|text| value(&text, "oom_kill")),
            },
        },
        Version::Two => Shortage {
            limit_bytes: number(text("memory.max")?),
            kills: text("memory.events")?.and_then(|text| value(&text, "oom_kill")),
        },
    }))
}

fn sum_below(path: &Path, file: &CStr, key: &str) -> io::Result<u64> {
    let mut sum: u64 = 0;
    walk(path, false, |folder| {
        let text = match read_at(folder, file) {
            // The owner of this group does not enable the controller in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            text => text?,
        };
        sum = sum.saturating_add(value(&text, key).unwrap_or(0));
        Ok(())
    })?;
    Ok(sum)
}

/// Returns the number after `key` in lines of a key and a number.
pub fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, number) = line.split_once(' ')?;
        (name == key).then(|| number.trim().parse().ok())?
    })
}

fn number(text: Option<String>) -> Option<u64> {
    text?.trim().parse().ok()
}

fn read_if_there(path: &Path) -> io::Result<Option<String>> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_whole_word() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(value(text, "oom_kill"), Some(3));
        assert_eq!(value(text, "oom"), None);
        assert_eq!(value("max\nmax many\nmax 2", "max"), Some(2));
        assert_eq!(value("", ""), None);
    }
}
