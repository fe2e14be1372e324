//! Determines which cgroup hierarchies this host has, from the kernel's lists of mounts and of our memberships.

use std::path::{Component, Path, PathBuf};

/// What a hierarchy can count or limit, as far as Muster uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    Cpu,
    /// Only counts. In v2 it is a part of `Cpu`.
    CpuAccount,
    Memory,
    Pids,
    /// Freezes processes. In v2 this needs no controller.
    Freezer,
}

impl Controller {
    pub const ALL: [Controller; 5] = [
        Controller::Cpu,
        Controller::CpuAccount,
        Controller::Memory,
        Controller::Pids,
        Controller::Freezer,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::CpuAccount => "cpuacct",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Freezer => "freezer",
        }
    }

    pub fn parse(name: &str) -> Option<Controller> {
        Controller::ALL.into_iter().find(|controller| controller.name() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// A mount point of a hierarchy or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub version: Version,
    /// The v1 controllers that Muster uses. For v2 this is empty, because its folders list what they have.
    pub controllers: Vec<Controller>,
    /// The group that is visible at the mount point.
    pub root: PathBuf,
    pub at: PathBuf,
}

/// The group of this process in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    pub version: Version,
    pub controllers: Vec<Controller>,
    pub path: PathBuf,
}

/// A hierarchy and our place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    pub version: Version,
    pub controllers: Vec<Controller>,
    pub at: PathBuf,
    /// The folder of our own group, if it is below the mount point.
    pub own: Option<PathBuf>,
}

/// Parses the kernel's `mountinfo` of a process. Irrelevant or malformed lines are skipped.
pub fn parse_mounts(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_mount).collect()
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (slot, system) = line.split_once(" - ")?;
    let mut slot = slot.split(' ').skip(3);
    let (root, at) = (unescape(slot.next()?), unescape(slot.next()?));
    let mut system = system.split(' ');
    let version = match system.next()? {
        "cgroup" => Version::One,
        "cgroup2" => Version::Two,
        _ => return None,
    };
    let controllers = match version {
        Version::One => parse_controllers(system.nth(1)?),
        Version::Two => Vec::new(),
    };
    Some(Mount { version, controllers, root, at })
}

/// Parses the kernel's list of the groups that a process is in, one for each hierarchy.
pub fn parse_memberships(text: &str) -> Vec<Membership> {
    text.lines().filter_map(parse_membership).collect()
}

fn parse_membership(line: &str) -> Option<Membership> {
    let mut parts = line.splitn(3, ':');
    let (number, names, path) = (parts.next()?, parts.next()?, parts.next()?);
    let version = if number == "0" && names.is_empty() { Version::Two } else { Version::One };
    // A group that was removed while it still had processes is listed with this suffix.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    Some(Membership { version, controllers: parse_controllers(names), path: path.into() })
}

/// Returns the hierarchies that Muster can use, each only once even if it is mounted several times.
pub fn hierarchies(mounts: &[Mount], memberships: &[Membership]) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for mount in mounts {
        if mount.version == Version::One && mount.controllers.is_empty() {
            continue;
        }
        let ours = memberships.iter().find(|membership| {
            membership.version == mount.version && membership.controllers == mount.controllers
        });
        let hierarchy = Hierarchy {
            version: mount.version,
            controllers: mount.controllers.clone(),
            at: mount.at.clone(),
            own: ours.and_then(|ours| folder_of(&ours.path, mount)),
        };
        let same = found.iter_mut().find(|other| {
            other.version == hierarchy.version && other.controllers == hierarchy.controllers
        });
        match same {
            None => found.push(hierarchy),
            // Prefer the mount that shows our own group: it is the one intended for us.
            Some(same) if same.own.is_none() && hierarchy.own.is_some() => *same = hierarchy,
            Some(_) => {}
        }
    }
    found
}

fn folder_of(path: &Path, mount: &Mount) -> Option<PathBuf> {
    let below = path.strip_prefix(&mount.root).ok()?;
    // The path of a group outside our cgroup namespace starts with "..".
    let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    let is_below_up = path.components().any(|part| part == Component::ParentDir);
    (is_plain && !is_below_up).then(|| mount.at.join(below).components().collect())
}

fn parse_controllers(names: &str) -> Vec<Controller> {
    let named: Vec<&str> = names.split(',').collect();
    let is_named = |controller: &Controller| named.contains(&controller.name());
    Controller::ALL.into_iter().filter(is_named).collect()
}

/// Decodes a path in which the kernel wrote space, tab, newline and backslash as three octal digits after a backslash.
fn unescape(text: &str) -> PathBuf {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                plain.push(char::from(code));
                rest = &after[3..];
            }
            None => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        mounts: &str,
        memberships: &str,
        expect: &[(Version, &[Controller], &str, Option<&str>)],
    ) {
        let found = hierarchies(&parse_mounts(mounts), &parse_memberships(memberships));
        let expect: Vec<_> = expect
            .iter()
            .map(|(version, controllers, at, own)| Hierarchy {
                version: *version,
                controllers: controllers.to_vec(),
                at: at.into(),
                own: own.map(Into::into),
            })
            .collect();
        assert_eq!(found, expect);
    }

    use Controller::{Cpu, CpuAccount, Freezer, Memory, Pids};
    use Version::{One, Two};

    #[test]
    fn a_hybrid_machine_has_both() {
        check(
            "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
             32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
             34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
             35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
             37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n\
             40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n",
            "9:name=systemd:/\n6:freezer:/\n4:memory:/api/12dc\n1:cpu,cpuacct:/\n0::/init.scope\n",
            &[
                (
                    One,
                    &[Cpu, CpuAccount],
                    "/sys/fs/cgroup/cpu,cpuacct",
                    Some("/sys/fs/cgroup/cpu,cpuacct"),
                ),
                (One, &[Memory], "/sys/fs/cgroup/memory", Some("/sys/fs/cgroup/memory/api/12dc")),
                (One, &[Freezer], "/sys/fs/cgroup/freezer", Some("/sys/fs/cgroup/freezer")),
                (Two, &[], "/sys/fs/cgroup/unified", Some("/sys/fs/cgroup/unified/init.scope")),
            ],
        );
    }

    #[test]
    fn a_systemd_machine_has_one_hierarchy_and_a_leaf_for_us() {
        let leaf = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope";
        check(
            "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n",
            &format!("0::{leaf}\n"),
            &[(Two, &[], "/sys/fs/cgroup", Some(&format!("/sys/fs/cgroup{leaf}")))],
        );
    }

    #[test]
    fn inside_a_node_only_its_own_part_is_mounted() {
        check(
            "61 50 0:32 /muster-a/node-n1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             62 50 0:36 /muster-a/node-n1 /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
             63 50 0:38 /muster-a/node-n1 /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            "8:pids:/muster-a/node-n1\n4:memory:/muster-a/node-n1/job-x\n0::/muster-a/node-n1/main\n",
            &[
                (One, &[Memory], "/sys/fs/cgroup/memory", Some("/sys/fs/cgroup/memory/job-x")),
                (One, &[Pids], "/sys/fs/cgroup/pids", Some("/sys/fs/cgroup/pids")),
                (Two, &[], "/sys/fs/cgroup/unified", Some("/sys/fs/cgroup/unified/main")),
            ],
        );
    }

    #[test]
    fn our_own_group_may_be_out_of_sight() {
        let mount = |root| format!("30 24 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        let nowhere: &[(Version, &[Controller], &str, Option<&str>)] =
            &[(Two, &[], "/sys/fs/cgroup", None)];
        check(&mount("/"), "0::/../../system.slice/a.service\n", nowhere);
        check(&mount("/.."), "0::/\n", nowhere);
        check(&mount("/docker/abc"), "0::/docker/abcd\n", nowhere);
        check(&mount("/"), "", nowhere);
    }

    #[test]
    fn the_mount_that_shows_our_group_wins_over_its_copies() {
        check(
            "1 0 0:5 /other /srv/copy rw - cgroup2 cgroup2 rw\n\
             2 0 0:5 / /sys/fs/my\\040cgroup rw - cgroup2 cgroup2 rw\n\
             3 0 0:5 / /mnt/copy rw - cgroup2 cgroup2 rw\n",
            "0::/a (deleted)\n",
            &[(Two, &[], "/sys/fs/my cgroup", Some("/sys/fs/my cgroup/a"))],
        );
    }

    #[test]
    fn texts_of_any_kind_do_no_harm() {
        for text in [
            "",
            "\n\n",
            "a b c",
            " - cgroup",
            "1 2 3 4 5 6 - cgroup x",
            "0:",
            "::",
            "\\",
            "1 2 3 \\9 \\ - cgroup2",
        ] {
            let found = hierarchies(&parse_mounts(text), &parse_memberships(text));
            assert!(found.iter().all(|hierarchy| hierarchy.version == Two), "{text}");
        }
        assert_eq!(unescape("a\\134b\\7\\777\\é\\"), PathBuf::from("a\\b\\7\\777\\é\\"));
    }
}
