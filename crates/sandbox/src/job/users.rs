//! Chooses the user that a job is outside its sandbox.

use std::io;
use std::os::unix::fs::lchown;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{getegid, geteuid};

use super::{LaunchError, USER};

/// How many consecutive jobs of a node have different users. After that the numbers repeat.
const USERS: u32 = 10_000;
/// The first number if all users of the host are ours to assign: above people, subordinate ids and containers.
const FIRST_OF_MACHINE: u32 = 2_000_000_000;
/// The first number if a node has a range of its own, which contains no people.
const FIRST_OF_RANGE: u32 = USER;

/// The users that can be assigned to jobs.
#[derive(Debug)]
pub(super) enum Users {
    Range {
        first: u32,
        next: AtomicU32,
    },
    /// All jobs have our own user, because the node has no other.
    One,
}

impl Users {
    pub(super) fn here() -> io::Result<Users> {
        let users = std::fs::read_to_string("/proc/self/uid_map")?;
        let groups = std::fs::read_to_string("/proc/self/gid_map")?;
        let is_mapped = |first| has_ids(&users, first) && has_ids(&groups, first);
        let range = |first| Users::Range { first, next: AtomicU32::new(0) };
        Ok(match geteuid().is_root() {
            true if is_mapped(FIRST_OF_MACHINE) => range(FIRST_OF_MACHINE),
            true if is_mapped(FIRST_OF_RANGE) => range(FIRST_OF_RANGE),
            _ => Users::One,
        })
    }

    pub(super) fn has_range(&self) -> bool {
        matches!(self, Users::Range { .. })
    }

    /// Returns the user and group of the next job, as seen from here.
    pub(super) fn next(&self) -> (u32, u32) {
        match self {
            Users::Range { first, next } => {
                let id = first + next.fetch_add(1, Ordering::Relaxed) % USERS;
                (id, id)
            }
            Users::One => (geteuid().as_raw(), getegid().as_raw()),
        }
    }
}

/// The user of the process that signals the processes of this one. No job has it.
pub(super) fn signaller_of(user: u32) -> u32 {
    let first = if user < FIRST_OF_MACHINE { FIRST_OF_RANGE } else { FIRST_OF_MACHINE };
    first + USERS
}

/// Returns true if an id map (lines of: inside, outside, count) contains all ids that we assign from `first` on.
fn has_ids(map: &str, first: u32) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> =
            line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [inside, _, count] = numbers[..] else { return false };
        inside <= u64::from(first) && u64::from(first + USERS) < inside + count
    })
}

/// Gives a folder and its contents to a user. No job has created anything in it yet, and links are not followed.
pub(super) fn hand_over(top: &Path, (user, group): (u32, u32)) -> Result<(), LaunchError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| LaunchError::HandOver { path, source }
    };
    let mut dirs = vec![top.to_path_buf()];
    lchown(top, Some(user), Some(group)).map_err(failed(top))?;
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).map_err(failed(&dir))? {
            let entry = entry.map_err(failed(&dir))?;
            let path = entry.path();
            lchown(&path, Some(user), Some(group)).map_err(failed(&path))?;
            if entry.file_type().map_err(failed(&path))?.is_dir() {
                dirs.push(path);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_counts_only_if_it_is_whole() {
        let machine = "         0          0 4294967295\n";
        assert!(has_ids(machine, FIRST_OF_MACHINE) && has_ids(machine, FIRST_OF_RANGE));
        let node = "0 524288 65536\n";
        assert!(!has_ids(node, FIRST_OF_MACHINE) && has_ids(node, FIRST_OF_RANGE));
        for small in ["0 1000 1\n", "0 524288 5000\n", "2000 524288 65536\n", "", "0 x 65536"] {
            assert!(!has_ids(small, FIRST_OF_RANGE), "{small}");
        }
    }
}
