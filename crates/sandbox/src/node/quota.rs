//! A limit on the folder of a node that the kernel enforces: a project quota.
//!
//! This is the second-best way to limit a node's space. It is used if the node cannot have a disk of its own and the
//! file system of the nodes' folder has project quotas enabled. Everything in a node's folder belongs to one project,
//! whose number is that of the node's first user, so no two nodes of the host share one. The kernel refuses to change
//! the project of a file from within any user namespace other than the host's, and every node has its own: a job cannot
//! leave its project.
//!
//! A quota limits but does not reserve. The sum of the quotas that the kernel knows shows how much all nodes of the
//! host may still take.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::{claims, users};

/// From `linux/quota.h` and `linux/dqblk_xfs.h`. Each works for ext4 and for XFS.
const GET_QUOTA: u32 = 0x80_0007;
const SET_QUOTA: u32 = 0x80_0008;
const GET_NEXT_QUOTA: u32 = 0x80_0009;
const GET_STATE: u32 = 0x5805;
const OF_PROJECTS: u32 = 2;
/// Flags of [`State`]: the use of projects is counted, and limited.
const COUNTED: u16 = 1 << 4;
const ENFORCED: u16 = 1 << 5;
/// Which fields of a [`Quota`] are set: the limits of space and of files.
const LIMITS: u32 = 1 | 4;
const BLOCK: u64 = 1024;
/// A node may have one file for each of this many bytes, as is usual for file systems.
const BYTES_PER_FILE: u64 = 16 * 1024;

/// From `linux/fs.h`.
const GET_ATTRIBUTES: libc::Ioctl = 0x801c_581f;
const SET_ATTRIBUTES: libc::Ioctl = 0x401c_5820;
/// New files in a folder inherit the folder's project.
const INHERIT: u32 = 0x200;

/// `struct if_dqblk`, and `struct if_nextdqblk`, which has the project number where the other has padding.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Quota {
    hard_blocks: u64,
    soft_blocks: u64,
    used_bytes: u64,
    hard_files: u64,
    soft_files: u64,
    used_files: u64,
    times: [u64; 2],
    valid: u32,
    project: u32,
}

const _: () = assert!(size_of::<Quota>() == 72);

/// `struct fs_quota_stat`.
#[repr(C)]
#[derive(Default)]
struct State {
    version: i8,
    flags: u16,
    rest: [u64; 9],
}

const _: () = assert!(size_of::<State>() == 80);

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    others: [u32; 2],
    project: u32,
    rest: [u32; 3],
}

const _: () = assert!(size_of::<Attributes>() == 28);

/// How much all nodes together may take by their quotas, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Granted {
    pub limits: u64,
    /// The part that they have not used yet.
    pub unused: u64,
}

/// Returns an error with the reason if nodes in this folder cannot have quotas.
pub fn check(nodes: &Path) -> Result<(), String> {
    let is_off =
        || format!("project quotas are not enabled on the file system of {}", nodes.display());
    let folder = File::open(nodes).map_err(|error| format!("{}: {error}", nodes.display()))?;
    let mut state = State { version: 1, ..State::default() };
    match call(&folder, GET_STATE, 0, &mut state) {
        Ok(()) if state.flags & COUNTED != 0 && state.flags & ENFORCED != 0 => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(format!("cannot read project quotas: {error}"));
        }
        _ => return Err(is_off()),
    }
    // Only the host's own root may set limits, which root in a container often is not.
    match get(&folder, GET_QUOTA, 0) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(format!("cannot set project quotas: {error}"))
        }
        _ => Ok(()),
    }
}

/// Assigns this empty folder and all that will be in it to the project, and limits the project.
pub(super) fn set(folder: &File, project: u32, bytes: u64) -> io::Result<()> {
    // The limit is set first, so that the project is never without it.
    limit(folder, project, bytes)?;
    let mut attributes = Attributes::default();
    attribute(folder, GET_ATTRIBUTES, &mut attributes)?;
    attributes.flags |= INHERIT;
    attributes.project = project;
    attribute(folder, SET_ATTRIBUTES, &mut attributes)
}

/// How much the nodes of all servers may take on the file system of this folder, except for the one whose quota is
/// about to be set.
pub(super) fn granted(nodes: &Path, except: Option<u32>) -> Granted {
    let Ok(folder) = File::open(nodes) else { return Granted::default() };
    sum(of_nodes(&folder).filter(|quota| Some(quota.project) != except))
}

/// Removes the limits of deleted nodes, which are those whose users are not claimed. A node that another server creates
/// meanwhile waits for us, or we see its claim.
pub(super) fn release(nodes: &Path) {
    let Ok(folder) = File::open(nodes) else { return };
    for quota in of_nodes(&folder) {
        let Some(slot) = users::slot_of(quota.project) else { continue };
        if let Ok(Some(_held)) = claims::take_users(slot)
            && let Err(error) = limit(&folder, quota.project, 0)
        {
            tracing::warn!(project = quota.project, %error, "cannot remove the quota of a node");
        }
    }
}

fn sum(quotas: impl Iterator<Item = Quota>) -> Granted {
    quotas.fold(Granted::default(), |granted, quota| {
        let bytes = quota.hard_blocks.saturating_mul(BLOCK);
        Granted {
            limits: granted.limits.saturating_add(bytes),
            unused: granted.unused.saturating_add(bytes.saturating_sub(quota.used_bytes)),
        }
    })
}

/// Lists all quotas that limit nodes.
fn of_nodes(folder: &File) -> impl Iterator<Item = Quota> {
    let mut from = Some(users::FIRST);
    std::iter::from_fn(move || {
        let quota = get(folder, GET_NEXT_QUOTA, from?).ok()?;
        // A kernel that started from the beginning again would keep us in this loop.
        let next = quota.project.checked_add(1).filter(|next| Some(*next) > from);
        from = next;
        next.map(|_| quota)
    })
    .filter(|quota| quota.hard_blocks > 0 && users::slot_of(quota.project).is_some())
}

fn get(folder: &File, command: u32, project: u32) -> io::Result<Quota> {
    let mut quota = Quota::default();
    call(folder, command, project, &mut quota)?;
    Ok(quota)
}

fn limit(folder: &File, project: u32, bytes: u64) -> io::Result<()> {
    let mut quota = limits(bytes);
    call(folder, SET_QUOTA, project, &mut quota)
}

/// The limits for this many bytes. For 0 bytes there is no limit, as in the kernel.
fn limits(bytes: u64) -> Quota {
    Quota {
        hard_blocks: bytes / BLOCK,
        hard_files: bytes / BYTES_PER_FILE,
        valid: LIMITS,
        ..Quota::default()
    }
}

/// Calls `quotactl_fd` for the file system of this folder. Each command has its own structure.
fn call<T>(folder: &File, command: u32, project: u32, about: &mut T) -> io::Result<()> {
    let command = command << 8 | OF_PROJECTS;
    // SAFETY: the kernel reads or writes the command's structure, which has the size it expects, and keeps no reference
    // to it.
    let done = unsafe {
        libc::syscall(libc::SYS_quotactl_fd, folder.as_raw_fd(), command, project, &raw mut *about)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn attribute(file: &File, request: libc::Ioctl, about: &mut Attributes) -> io::Result<()> {
    // SAFETY: the kernel reads or writes the structure, whose size is part of the request.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut *about) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::super::Users;
    use super::*;

    #[test]
    fn what_is_not_used_yet_counts_as_taken() {
        let quota = |limit: u64, used_bytes| Quota { used_bytes, ..limits(limit) };
        let granted = sum([quota(64 << 20, 4 << 20), quota(1 << 30, 2 << 30)].into_iter());
        assert_eq!(granted, Granted { limits: (1 << 30) + (64 << 20), unused: 60 << 20 });
        assert_eq!(sum(std::iter::empty()), Granted::default());
    }

    #[test]
    fn limits_are_of_space_and_of_files() {
        let quota = limits(64 << 20);
        assert_eq!((quota.hard_blocks, quota.hard_files, quota.valid), (65_536, 4_096, 5));
        let none = limits(0);
        assert_eq!((none.hard_blocks, none.hard_files), (0, 0), "without a limit");
    }

    #[test]
    fn a_file_system_without_quotas_is_reported() {
        // A file system in memory has no project quotas, on any kernel.
        let why = check(Path::new("/dev/shm")).unwrap_err();
        assert!(
            why.contains("project quotas are not enabled on the file system of /dev/shm"),
            "{why}"
        );
        assert_eq!(granted(Path::new("/dev/shm"), None), Granted::default());
        release(Path::new("/dev/shm"));
        assert!(check(Path::new("/none")).is_err());
    }

    /// This tests something only if `TMPDIR` is on a file system that is mounted with `prjquota`, on a kernel with
    /// CONFIG_QFMT_V2 (ext4) or CONFIG_XFS_QUOTA.
    #[test]
    fn a_folder_holds_no_more_than_its_quota() {
        let nodes = tempfile::tempdir().unwrap();
        if let Err(why) = check(nodes.path()) {
            return muster_testing::skip(muster_testing::Optional::ProjectQuotas, &why.to_string());
        }
        // The last slot, which a server assigns last.
        let (slot, bytes) = (crate::protocol::NODES_MAX - 1, 8 << 20);
        let (project, _) = Users::Ranges.root_of(slot);
        let claim = claims::take_users(slot).unwrap().expect("no node has this slot");
        let home = nodes.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let folder = File::open(&home).unwrap();
        let before = granted(nodes.path(), None);
        set(&folder, project, bytes).unwrap();
        let after = granted(nodes.path(), None);
        assert_eq!(after.limits, before.limits + bytes);
        assert_eq!(granted(nodes.path(), Some(project)), before, "all except its own");

        // Processes in the folder see a disk of that size, also in new subfolders.
        let inner = home.join("a");
        std::fs::create_dir(&inner).unwrap();
        let size = || {
            let disk = rustix::fs::statvfs(&inner).unwrap();
            (disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize, disk.f_files)
        };
        assert_eq!((size().0, size().2), (bytes, bytes / BYTES_PER_FILE));

        // Like every node, without the privileges of the host's root.
        let is_held = in_own_users(|| {
            let mut leaves = Attributes { project: project + 1, ..attributes(&folder) };
            let is_refused = attribute(&folder, SET_ATTRIBUTES, &mut leaves).is_err();
            let mut opens = Attributes { flags: 0, ..attributes(&folder) };
            let is_refused = is_refused && attribute(&folder, SET_ATTRIBUTES, &mut opens).is_err();
            let mut written = 0;
            let mut file = File::create(inner.join("file")).unwrap();
            let refused = loop {
                match std::io::Write::write(&mut file, &[1; 65_536]) {
                    Ok(more) => written += more as u64,
                    Err(error) => break error.raw_os_error(),
                }
            };
            let is_full = matches!(refused, Some(libc::EDQUOT | libc::ENOSPC));
            let more = bytes + 1_048_576;
            let taken = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, more);
            is_refused && is_full && taken.is_err() && (bytes / 2..=bytes).contains(&written)
        });
        assert!(is_held, "it left its project, or wrote more than its limit");
        assert!(size().1 < 65_536, "the folder is full: {:?}", size());
        assert!(granted(nodes.path(), None).unused < before.unused + 65_536);

        release(nodes.path());
        assert_eq!(granted(nodes.path(), None).limits, after.limits, "the users are claimed");
        drop(claim);
        release(nodes.path());
        assert_eq!(granted(nodes.path(), None), before, "the users are no longer claimed");
    }

    /// Runs `does` in a process with its own user namespace.
    fn in_own_users(does: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child has one thread and exits without running the test's cleanup.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above; no memory is passed.
            unsafe {
                let is_done = libc::unshare(libc::CLONE_NEWUSER) == 0 && does();
                libc::_exit(i32::from(!is_done))
            }
        }
        let child = rustix::process::Pid::from_raw(child).expect("the fork succeeded");
        let ended = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
        ended.unwrap().is_some_and(|(_, status)| status.exit_status() == Some(0))
    }

    fn attributes(folder: &File) -> Attributes {
        let mut attributes = Attributes::default();
        attribute(folder, GET_ATTRIBUTES, &mut attributes).unwrap();
        attributes
    }
}
