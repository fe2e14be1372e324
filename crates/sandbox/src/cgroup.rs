//! Limits a node's cores, memory and processes with control groups.
//!
//! A host has cgroups v1 (a hierarchy for each controller), v2 (one for all) or both at once. This process may be root,
//! own a part of them, or own nothing. [`Groups::find`] checks once what can be limited on this host and why the rest
//! cannot. From then on a [`Group`] is a folder in each usable hierarchy, and every operation applies to all of them.
//!
//! ```text
//! <base>/muster-<instance>/node-<node>            the node's limits; delegated to the node's own root
//!                                     /main       v2 only: the node's processes, since a group with children has none
//!                                     /job-<job>  a job's limits, created by the node
//! ```
//!
//! The base is the top of the hierarchy if we may write there, and otherwise the parent of our own group. A group
//! outlives its processes, so the process that creates groups also lists and removes those that an earlier run left
//! behind.

mod base;
mod files;
mod group;
pub mod layout;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use base::{Base, Refusals};
use files::{make_folder, read};
use layout::{Controller, Version};

pub use group::{Folder, Group, counts_none};
pub use usage::{Load, Shortage, Usage};

const NAME_MAX: usize = 64;
const NODE_PREFIX: &str = "node-";

/// The most that a group may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub millicores: u32,
    /// Memory and swap together, if the kernel counts swap.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
}

/// What can be limited on this host, or an explanation for the operator of why it cannot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    pub cpu: Result<(), String>,
    pub memory: Result<(), String>,
    pub pids: Result<(), String>,
}

/// The control groups of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    bases: Vec<Base>,
    refusals: Refusals,
}

impl Groups {
    /// Checks what this host offers and what this process may do. With v2 this also enables controllers.
    pub fn find() -> Groups {
        Groups::of_this_machine(base::enable)
    }

    /// Like [`find`](Groups::find), but changes nothing. Use it to report what is possible.
    pub fn look() -> Groups {
        Groups::of_this_machine(base::could_enable)
    }

    fn of_this_machine(enable: base::Enable) -> Groups {
        // A file that cannot be read means that the hierarchy does not exist.
        let mounts = read(Path::new("/proc/thread-self/mountinfo")).unwrap_or_default();
        let memberships = read(Path::new("/proc/thread-self/cgroup")).unwrap_or_default();
        let hierarchies = layout::hierarchies(
            &layout::parse_mounts(&mounts),
            &layout::parse_memberships(&memberships),
        );
        Groups::find_in(&hierarchies, enable)
    }

    fn find_in(hierarchies: &[layout::Hierarchy], enable: base::Enable) -> Groups {
        let mut groups = Groups { bases: Vec::new(), refusals: Vec::new() };
        let in_one: Vec<Controller> =
            hierarchies.iter().flat_map(|hierarchy| hierarchy.controllers.clone()).collect();
        for hierarchy in hierarchies {
            let wanted: Vec<Controller> = match hierarchy.version {
                Version::One => hierarchy.controllers.clone(),
                // A controller is in one hierarchy only. Even without any controller, v2 is useful to kill processes.
                Version::Two => [Controller::Cpu, Controller::Memory, Controller::Pids]
                    .into_iter()
                    .filter(|controller| !in_one.contains(controller))
                    .collect(),
            };
            let (base, refusals) = base::find(hierarchy, &wanted, enable);
            groups.bases.extend(base);
            groups.refusals.extend(refusals);
        }
        groups
    }

    pub fn enforced(&self) -> Enforced {
        let state = |controller: Controller| {
            if self.bases.iter().any(|base| base.controllers.contains(&controller)) {
                return Ok(());
            }
            let refusal = self.refusals.iter().find(|(refused, _)| *refused == controller);
            let name = controller.name();
            Err(refusal.map_or_else(
                || format!("no hierarchy with the controller {name} is mounted"),
                |(_, text)| text.clone(),
            ))
        };
        Enforced {
            cpu: state(Controller::Cpu),
            memory: state(Controller::Memory),
            pids: state(Controller::Pids),
        }
    }

    /// Creates the group of a node, or applies these limits to the existing one.
    pub fn make(&self, instance: &str, node: &str, limits: &Limits) -> io::Result<Group> {
        let group = self.open(instance, node)?;
        for base in &self.bases {
            let folder = base.folder.join(instance_folder(instance));
            make_folder(&folder)?;
            if base.version == Version::Two {
                hand_down_all(&folder, &base.controllers)?;
            }
        }
        group.set_up_as_node(limits)?;
        Ok(group)
    }

    /// Opens the group that an earlier run left for a node, without creating anything.
    pub fn open(&self, instance: &str, node: &str) -> io::Result<Group> {
        check_name("instance", instance)?;
        check_name("node", node)?;
        let below = Path::new(&instance_folder(instance)).join(format!("{NODE_PREFIX}{node}"));
        let folders = self.bases.iter().map(|base| Folder::of(base, base.folder.join(&below)));
        Ok(Group::node(folders.collect()))
    }

    /// Returns the node's own group, for [`Group::child`]. Call it inside a node that has its [folders](Group::folders)
    /// mounted over the hierarchies.
    pub fn of_this_node(&self) -> Group {
        let inside = self.bases.iter().filter(|base| base.folder == base.hierarchy);
        Group::node(inside.map(|base| Folder::of(base, base.folder.clone())).collect())
    }

    /// Lists the nodes that have a group in any of the hierarchies.
    pub fn list(&self, instance: &str) -> io::Result<Vec<String>> {
        check_name("instance", instance)?;
        let mut nodes = BTreeSet::new();
        for base in &self.bases {
            let entries = match fs::read_dir(base.folder.join(instance_folder(instance))) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let name = entry?.file_name();
                let node = name.to_str().and_then(|name| name.strip_prefix(NODE_PREFIX));
                nodes.extend(node.map(str::to_owned));
            }
        }
        Ok(nodes.into_iter().collect())
    }
}

fn instance_folder(instance: &str) -> String {
    format!("muster-{instance}")
}

fn hand_down_all(folder: &Path, controllers: &[Controller]) -> io::Result<()> {
    match base::hand_down(folder, controllers, base::enable).1.into_iter().next() {
        None => Ok(()),
        Some((_, text)) => Err(io::Error::other(text)),
    }
}

/// Checks a name that becomes a folder beside the kernel's files, which all contain a dot or lack our prefix.
fn check_name(what: &str, name: &str) -> io::Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_plain) {
        let text = format!(
            "{what} name {name:?} cannot be the name of a control group: use 1 to {NAME_MAX} of a-z, A-Z, 0-9, - and _"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}
