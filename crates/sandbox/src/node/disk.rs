//! A node's disk: a file of fixed size with a file system of its own in it, which the kernel never lets grow.
//!
//! All of the file's space is taken when the node is made. So the disks of all nodes together never promise more than
//! there is, whatever else is written to the machine's disk, and a node can use its space even while that is full.
//!
//! Nothing but the node's mounts holds the file system: with the last process of the node it is unmounted, and its loop
//! device is given back. The file goes with the node's folder, or as soon as the node is seen to have ended.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, FallocateFlags, Gid, Mode, Uid, fallocate};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use super::files::make_dir;
use super::loops::{self, Device};
use super::{Doing, NodeError, quota};
use crate::disk_space::DiskSpace;
use crate::mounts::take_up;

/// In the node's folder.
const FILE: &str = "disk";
/// The same, for a node without a disk.
pub(super) const HOME: &str = "home";
/// Beside the folder of nodes: an empty file system of each size that was ever wanted. Copying one is quicker than making
/// one.
const TEMPLATES: &str = "disks";
/// Where distributions have it. A server's search path seldom has these folders.
const MKFS: [&str; 2] = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"];
/// The least that a node can work with.
pub(crate) const BYTES_MIN: u64 = 64 << 20;
/// A new node gets at most one part in so many of what is free.
const SHARE: u64 = 8;
/// The most that is left to the server's store, of a large disk. Of a small one a sixteenth is.
const RESERVE_MAX: u64 = 512 << 20;
const RESERVE_PART: u64 = 16;
/// A sixteenth of a disk is the most that one node's disk gets of it: an eighth of half.
const JOBS_PART: u64 = 16;
/// Enough for a large model, and little enough that a workstation whose disk is nearly full can still be used.
const JOBS_MAX: u64 = 16 << 30;

/// What nodes, logs and files of jobs leave free on a disk of this size, for the server's store.
pub fn reserve(disk_bytes: u64) -> u64 {
    (disk_bytes / RESERVE_PART).min(RESERVE_MAX)
}

/// What uploads leave free beside the reserve, for the files and logs that jobs leave.
pub fn kept_for_jobs(disk_bytes: u64) -> u64 {
    (disk_bytes / JOBS_PART).min(JOBS_MAX)
}

/// What new nodes leave free. Where uploads have left no more than they must, nodes get half of the jobs' part, and the other
/// half holds everything that is on their disks.
fn kept_from_nodes(disk_bytes: u64) -> u64 {
    reserve(disk_bytes) + kept_for_jobs(disk_bytes) / 2
}

/// Of the machine's disk, in bytes.
#[derive(Debug, Clone, Copy)]
struct Space {
    free: u64,
    /// By the disks of nodes.
    taken: u64,
    /// What is left to the store and to what jobs leave, in any case.
    kept: u64,
}

/// How large a disk a new node gets: at most what is wanted and its share of what is free, and a size of few, so that there
/// are few templates.
fn size(wanted: u64, space: Space) -> Result<u64, NodeError> {
    let Space { free, taken, kept } = space;
    // All nodes together get half: the rest is for what people bring and what jobs leave.
    let half = free.saturating_add(taken) / 2;
    let left = half.saturating_sub(taken).min(free.saturating_sub(kept));
    if left < BYTES_MIN {
        let mib = |bytes: u64| bytes >> 20;
        return Err(NodeError::new(format!(
            "the disk of this machine has {} MiB free, of which {} MiB are kept for the server and its files, and a node \
             takes at least {} MiB; free some space, or wait until other nodes are gone",
            mib(free),
            mib(free - left),
            mib(BYTES_MIN),
        )));
    }
    Ok(round_down(wanted.min(left / SHARE).max(BYTES_MIN)))
}

/// To a power of two, or one and a half times one.
fn round_down(bytes: u64) -> u64 {
    let power = 1 << bytes.max(1).ilog2();
    if bytes >= power / 2 * 3 { power / 2 * 3 } else { power }
}

/// How nodes are kept within their space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// By disks of their own, whose space is reserved.
    Disks,
    /// By project quotas, for the reason why they cannot have disks.
    Quotas { no_disks: String },
    /// By nothing that the kernel does, for this reason.
    Nothing(String),
}

impl Bound {
    /// The best that there is for nodes in this folder.
    pub fn of(nodes: &Path) -> Bound {
        if !rustix::process::geteuid().is_root() {
            return Bound::Nothing("started without root".to_owned());
        }
        match (check(nodes), quota::check(nodes)) {
            (Ok(()), _) => Bound::Disks,
            (Err(no_disks), Ok(())) => Bound::Quotas { no_disks },
            (Err(no_disks), Err(no_quotas)) => Bound::Nothing(format!("{no_disks}; {no_quotas}")),
        }
    }
}

/// Why nodes in this folder cannot have disks of their own, if so.
fn check(nodes: &Path) -> Result<(), String> {
    if mkfs().is_none() {
        return Err("mkfs.ext4 is not installed: apt install e2fsprogs".to_owned());
    }
    let control = OpenOptions::new().read(true).write(true).open(loops::CONTROL);
    control.map_err(|error| format!("cannot open {}: {error}", loops::CONTROL))?;
    let known = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC);
    known.map_err(|error| format!("the kernel has no ext4: {error}"))?;
    let taken = tempfile_in(nodes).and_then(|file| {
        fallocate(&file, FallocateFlags::empty(), 0, 4096)?;
        Ok(file)
    });
    match taken {
        Ok(file) => match loops::attach(&file) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("cannot use a loop device: {error}")),
        },
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            Err(format!("the file system of {} cannot reserve space", nodes.display()))
        }
        // Anything else may be over when a node is made.
        Err(_) => Ok(()),
    }
}

/// A file without a name.
fn tempfile_in(folder: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(folder)
}

fn mkfs() -> Option<&'static str> {
    MKFS.into_iter().find(|path| Path::new(path).is_file())
}

/// A disk as nodes get it: not mounted anywhere yet.
pub(super) struct Disk {
    pub mount: OwnedFd,
    pub bytes: u64,
}

/// Makes the disk of the node in this folder, at most this large, for this user. What was there before is gone.
pub(super) fn make(folder: &Path, wanted: u64, owner: (Uid, Gid)) -> Result<Disk, NodeError> {
    let nodes = folder.parent().unwrap_or(folder);
    // What an attempt before this one took is there for this one.
    remove(folder).doing("cannot remove the node's old disk")?;
    let bytes = size(wanted, space(nodes, owner.0)?)?;
    let template = template(nodes, bytes)?;
    let path = folder.join(FILE);
    let file = fill(&path, &template, bytes);
    let file = file.inspect_err(|_| drop(std::fs::remove_file(&path)));
    let file = file.doing(format!("cannot take {} MiB for the node's disk", bytes >> 20))?;
    let mounted = loops::attach(&file)
        .doing("cannot make the node's disk a device")
        .and_then(|device| mount(&device, owner).doing("cannot mount the node's disk"));
    let mount = mounted.inspect_err(|_| {
        drop(std::fs::remove_file(&path));
        // It may be what is wrong; the next try makes it anew.
        drop(std::fs::remove_file(template_path(nodes, bytes)));
    })?;
    Ok(Disk { mount, bytes })
}

/// Makes the folder of a node one that holds at most this much, and is this user's. What was there before is gone.
pub(super) fn make_limited(
    folder: &Path,
    wanted: u64,
    owner: (Uid, Gid),
) -> Result<Disk, NodeError> {
    let (nodes, home) = (folder.parent().unwrap_or(folder), folder.join(HOME));
    remove_home(folder).doing("cannot remove the node's old folder")?;
    quota::release(nodes);
    let bytes = size(wanted, space(nodes, owner.0)?)?;
    make_dir(&home, 0o700).doing("cannot make the node's own folder")?;
    let opened = File::open(&home).doing("cannot open the node's own folder")?;
    quota::set(&opened, owner.0.as_raw(), bytes)
        .doing(format!("cannot limit the node's folder to {} MiB", bytes >> 20))?;
    rustix::fs::fchown(&opened, Some(owner.0), Some(owner.1))
        .doing("cannot give the node its own folder")?;
    let mount = take_up(&home, OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
        .doing("cannot take up the node's own folder")?;
    Ok(Disk { mount, bytes })
}

/// What there is for a new node of this user. What other nodes may still write counts as taken.
fn space(nodes: &Path, user: Uid) -> Result<Space, NodeError> {
    let disk = DiskSpace::of(nodes).doing("cannot look at the disk of nodes")?;
    let quotas = quota::granted(nodes, Some(user.as_raw()));
    let disks: u64 = disks(nodes).map(|(_, found)| found.len()).sum();
    Ok(Space {
        free: disk.free_bytes.saturating_sub(quotas.unused),
        taken: disks.saturating_add(quotas.limits),
        kept: kept_from_nodes(disk.bytes),
    })
}

/// What nodes without disks of their own may still write to the disk of this folder, by their quotas. Only root can tell.
pub fn promised_by_quotas(folder: &Path) -> u64 {
    quota::granted(folder, None).unused
}

/// The disks of all nodes in this folder.
fn disks(nodes: &Path) -> impl Iterator<Item = (PathBuf, Metadata)> {
    let nodes = std::fs::read_dir(nodes).into_iter().flatten().flatten();
    let disks = nodes.map(|node| node.path().join(FILE));
    disks.filter_map(|path| Some((path.clone(), std::fs::symlink_metadata(&path).ok()?)))
}

/// Whether something of the disk of the node in this folder is not its own any more. A file system that has no block left for
/// its own lists may write zeros over what was never written, and the kernel makes holes of these.
pub fn has_holes(folder: &Path) -> bool {
    let found = std::fs::symlink_metadata(folder.join(FILE));
    found.is_ok_and(|found| found.blocks().saturating_mul(512) < found.len())
}

/// Takes again what such holes have given back.
pub(super) fn fill_holes(folder: &Path) -> io::Result<()> {
    let file =
        OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(folder.join(FILE))?;
    Ok(fallocate(&file, FallocateFlags::empty(), 0, file.metadata()?.len())?)
}

fn template_path(nodes: &Path, bytes: u64) -> PathBuf {
    nodes.with_extension(TEMPLATES).join(bytes.to_string())
}

/// Gives back what the disk of the node in this folder takes. For one that does not live any more.
pub fn remove(folder: &Path) -> io::Result<()> {
    match std::fs::remove_file(folder.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The same for a node without a disk.
pub(super) fn remove_home(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder.join(HOME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// An empty file system of this size. Most of it is a hole.
fn template(nodes: &Path, bytes: u64) -> Result<File, NodeError> {
    let path = template_path(nodes, bytes);
    if let Ok(file) = File::open(&path) {
        return Ok(file);
    }
    make_dir(&nodes.with_extension(TEMPLATES), 0o700)
        .doing("cannot make a folder for empty disks")?;
    let temporary = path.with_extension("new");
    let make = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&temporary)?.set_len(bytes)?;
        let program = mkfs().ok_or(io::ErrorKind::NotFound)?;
        // Nothing of a node outlives a crash of the machine, so there is no journal. What is not written reads as zeros,
        // so the tables need no zeros either. Of what is reserved only the node's agent may use.
        let done = Command::new(program)
            .args(["-q", "-F", "-m", "2", "-b", "4096", "-i", "16384"])
            .args(["-O", "^has_journal,^resize_inode"])
            .args(["-E", "lazy_itable_init=1,nodiscard,packed_meta_blocks=1"])
            .arg(&temporary)
            .stdin(Stdio::null())
            .output()?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(io::Error::other(format!("mkfs.ext4: {}", said.trim())));
        }
        let file = File::open(&temporary)?;
        // A name without its bytes, after a crash of the machine, would be trusted for ever.
        file.sync_all()?;
        std::fs::rename(&temporary, &path)?;
        Ok(file)
    };
    make()
        .inspect_err(|_| drop(std::fs::remove_file(&temporary)))
        .doing("cannot make an empty disk")
}

/// A file of which every byte has its place, with what the template has.
fn fill(path: &Path, template: &File, bytes: u64) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    let mut at = 0;
    // Beyond the last there is no more data, and the kernel says so by this error.
    while let Some(start) = seek(template, rustix::fs::SeekFrom::Data(at))? {
        let end = seek(template, rustix::fs::SeekFrom::Hole(start))?.unwrap_or(bytes);
        // Byte by byte: blocks that both files shared would not be this one's own.
        let mut piece = [0; 64 * 1024];
        let mut from = start;
        while from < end {
            let wanted =
                usize::try_from(end - from).map_or(piece.len(), |left| left.min(piece.len()));
            template.read_exact_at(&mut piece[..wanted], from)?;
            file.write_all_at(&piece[..wanted], from)?;
            from += wanted as u64;
        }
        at = end;
    }
    Ok(file)
}

fn seek(file: &File, to: rustix::fs::SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn mount(device: &Device, (uid, gid): (Uid, Gid)) -> io::Result<OwnedFd> {
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", &device.path)?;
    fsconfig_set_string(context.as_fd(), "resuid", uid.as_raw().to_string())?;
    // Nothing on it is needed after the machine has crashed, so no write has to wait for the machine's disk.
    for flag in ["nobarrier", "noinit_itable"] {
        fsconfig_set_flag(context.as_fd(), flag)?;
    }
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    // Every new file system has this folder for repairs; a node's disk is never repaired.
    rustix::fs::unlinkat(&mount, "lost+found", AtFlags::REMOVEDIR)?;
    rustix::fs::chownat(&mount, ".", Some(uid), Some(gid), AtFlags::empty())?;
    rustix::fs::chmodat(&mount, ".", Mode::RWXU, AtFlags::empty())?;
    Ok(mount)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_disk_is_a_part_of_what_is_free_and_never_what_the_server_needs() {
        assert_eq!(reserve(1000 * GIB), 512 << 20);
        assert_eq!(reserve(GIB), 64 << 20);
        let size = |free, taken| {
            let space = Space { free, taken, kept: 512 << 20 };
            size(64 * GIB, space).map_err(|error| error.told())
        };
        assert_eq!(size(2000 * GIB, 0), Ok(64 * GIB), "what is wanted");
        assert_eq!(size(64 * GIB, 0), Ok(4 * GIB), "an eighth of half of it");
        assert_eq!(size(GIB, 0), Ok(BYTES_MIN), "the least there is");
        let refused = size(GIB, GIB - BYTES_MIN).unwrap_err();
        assert!(refused.contains("1024 MiB free, of which 992 MiB are kept"), "{refused}");
        let (mut free, mut taken) = (64 * GIB, 0);
        while let Ok(next) = size(free, taken) {
            (free, taken) = (free - next, taken + next);
        }
        assert!(free >= 32 * GIB, "all together leave half of it");
        assert!(taken >= 31 * GIB, "and use the other half: {taken}");
    }

    /// However full uploads have made the disk.
    #[test]
    fn what_new_nodes_hold_fits_beside_them_and_the_store() {
        assert_eq!(kept_for_jobs(GIB), 64 << 20);
        assert_eq!(kept_for_jobs(1000 * GIB), 16 * GIB);
        for disk in [2 * GIB, 8 * GIB, 100 * GIB, 4000 * GIB] {
            let (mut free, mut taken) = (reserve(disk) + kept_for_jobs(disk), 0);
            while let Ok(next) = size(64 * GIB, Space { free, taken, kept: kept_from_nodes(disk) })
            {
                (free, taken) = (free - next, taken + next);
            }
            assert!(taken >= BYTES_MIN, "there is room for a node on {disk}");
            assert!(free >= reserve(disk) + taken, "{free} of {disk} beside {taken}");
        }
    }

    #[test]
    fn holes_in_a_disk_are_seen_and_filled_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join(FILE)).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
        assert!(!has_holes(dir.path()));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 0, 1 << 19).unwrap();
        assert!(has_holes(dir.path()));
        fill_holes(dir.path()).unwrap();
        assert!(!has_holes(dir.path()));
        assert!(!has_holes(&dir.path().join("none")), "one without a disk");
    }

    #[test]
    fn sizes_are_few() {
        for (bytes, rounded) in [(64, 64), (95, 64), (96, 96), (127, 96), (128, 128)] {
            assert_eq!(round_down(bytes << 20), rounded << 20);
        }
    }
}
