//! The disk of a node: a file of fixed size that contains a file system, which the kernel never lets grow.
//!
//! All of the file's space is allocated when the node is created. The disks of all nodes together therefore never
//! promise more than there is, whatever else is written to the host's disk, and a node can use its space even while the
//! host's disk is full.
//!
//! Only the node's mounts hold the file system. When the last process of the node ends, the file system is unmounted
//! and its loop device is freed. The file is deleted with the node's folder, or as soon as the node is seen to have
//! ended.

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

/// The name of the disk in the node's folder.
const FILE: &str = "disk";
/// The name of the folder that a node without a disk has instead.
pub(super) const HOME: &str = "home";
/// A folder beside the one of the nodes, with an empty file system of each size that was ever needed. Copying one is
/// faster than creating one.
const TEMPLATES: &str = "disks";
/// Where distributions install it. The server's search path rarely contains these folders.
const MKFS: [&str; 2] = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"];
/// The smallest disk that a node can work with.
pub(crate) const BYTES_MIN: u64 = 64 << 20;
/// A new node gets at most this fraction (one eighth) of the available space.
const SHARE: u64 = 8;
/// The most space that is reserved for the server's store, on a large disk. On a small one it is a sixteenth.
const RESERVE_MAX: u64 = 512 << 20;
const RESERVE_PART: u64 = 16;
/// A sixteenth of a disk is the most that a single node's disk gets: an eighth of half.
const JOBS_PART: u64 = 16;
/// Enough for the model of a usual job, but so little that a workstation with a nearly full disk can
/// still be used.
const JOBS_MAX: u64 = 2 << 30;

/// How much space nodes, logs and files of jobs leave free for the server's store, on a disk of this size.
pub fn reserve(disk_bytes: u64) -> u64 {
    (disk_bytes / RESERVE_PART).min(RESERVE_MAX)
}

/// How much space uploads leave free besides the reserve, for the files and logs that jobs leave.
pub fn kept_for_jobs(disk_bytes: u64) -> u64 {
    (disk_bytes / JOBS_PART).min(JOBS_MAX)
}

/// How much space new nodes leave free. If uploads have left only the minimum, nodes get half of the jobs' part, and
/// the other half has room for everything that is on their disks.
fn kept_from_nodes(disk_bytes: u64) -> u64 {
    reserve(disk_bytes) + kept_for_jobs(disk_bytes) / 2
}

/// The space on the host's disk, in bytes.
#[derive(Debug, Clone, Copy)]
struct Space {
    free: u64,
    /// Taken by the disks of nodes.
    taken: u64,
    /// Always reserved for the store and for what jobs leave.
    kept: u64,
}

/// Chooses the size of a new node's disk: at most what is wanted and its share of the free space, rounded to one of a
/// few sizes, so that there are few templates.
fn size(wanted: u64, space: Space) -> Result<u64, NodeError> {
    let Space { free, taken, kept } = space;
    // All nodes together get half. The rest is for uploads and for the outputs of jobs.
    let half = free.saturating_add(taken) / 2;
    let left = half.saturating_sub(taken).min(free.saturating_sub(kept));
    if left < BYTES_MIN {
        let mib = |bytes: u64| bytes >> 20;
        return Err(NodeError::new(format!(
            "the disk of this host has {} MiB free, of which {} MiB are reserved for the server and its files, but a node \
             needs at least {} MiB; free some space, or wait until other nodes have been deleted",
            mib(free),
            mib(free - left),
            mib(BYTES_MIN),
        )));
    }
    Ok(round_down(wanted.min(left / SHARE).max(BYTES_MIN)))
}

/// Rounds down to a power of two, or one and a half times a power of two.
fn round_down(bytes: u64) -> u64 {
    let power = 1 << bytes.max(1).ilog2();
    if bytes >= power / 2 * 3 { power / 2 * 3 } else { power }
}

/// How the disk space of nodes is limited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// Nodes have disks of their own, whose space is reserved.
    Disks,
    /// Nodes have project quotas, for the reason why they cannot have disks.
    Quotas { no_disks: String },
    /// The kernel enforces no limit, for this reason.
    Nothing(String),
}

impl Bound {
    /// Finds the best limit that works for nodes in this folder.
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

/// Returns an error with the reason if nodes in this folder cannot have disks of their own.
fn check(nodes: &Path) -> Result<(), String> {
    if mkfs().is_none() {
        return Err("mkfs.ext4 is not installed: apt install e2fsprogs".to_owned());
    }
    let control = OpenOptions::new().read(true).write(true).open(loops::CONTROL);
    control.map_err(|error| format!("cannot open {}: {error}", loops::CONTROL))?;
    let known = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC);
    known.map_err(|error| format!("the kernel does not support ext4: {error}"))?;
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
        // Any other problem may be gone by the time a node is created.
        Err(_) => Ok(()),
    }
}

/// Creates an unnamed temporary file.
fn tempfile_in(folder: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(folder)
}

fn mkfs() -> Option<&'static str> {
    MKFS.into_iter().find(|path| Path::new(path).is_file())
}

/// A disk in the form that nodes get: not mounted anywhere yet.
pub(super) struct Disk {
    pub mount: OwnedFd,
    pub bytes: u64,
}

/// Creates the disk of the node in this folder, with at most this size, for this user. An existing disk is deleted.
pub(super) fn make(folder: &Path, wanted: u64, owner: (Uid, Gid)) -> Result<Disk, NodeError> {
    let nodes = folder.parent().unwrap_or(folder);
    // The space of an earlier attempt is available to this one.
    remove(folder).doing("cannot remove the node's old disk")?;
    let bytes = size(wanted, space(nodes, owner.0)?)?;
    let template = template(nodes, bytes)?;
    let path = folder.join(FILE);
    let file = fill(&path, &template, bytes);
    let file = file.inspect_err(|_| drop(std::fs::remove_file(&path)));
    let file = file.doing(format!("cannot take {} MiB for the node's disk", bytes >> 20))?;
    let mounted = loops::attach(&file)
        .doing("cannot attach the node's disk to a loop device")
        .and_then(|device| mount(&device, owner).doing("cannot mount the node's disk"));
    let mount = mounted.inspect_err(|_| {
        drop(std::fs::remove_file(&path));
        // The template may be damaged, so the next attempt creates it anew.
        drop(std::fs::remove_file(template_path(nodes, bytes)));
    })?;
    Ok(Disk { mount, bytes })
}

/// Creates the folder of a node, limited to this much space and owned by this user. An existing folder is deleted.
pub(super) fn make_limited(
    folder: &Path,
    wanted: u64,
    owner: (Uid, Gid),
) -> Result<Disk, NodeError> {
    let (nodes, home) = (folder.parent().unwrap_or(folder), folder.join(HOME));
    remove_home(folder).doing("cannot remove the node's old folder")?;
    quota::release(nodes);
    let bytes = size(wanted, space(nodes, owner.0)?)?;
    make_dir(&home, 0o700).doing("cannot create the node's own folder")?;
    let opened = File::open(&home).doing("cannot open the node's own folder")?;
    quota::set(&opened, owner.0.as_raw(), bytes)
        .doing(format!("cannot limit the node's folder to {} MiB", bytes >> 20))?;
    rustix::fs::fchown(&opened, Some(owner.0), Some(owner.1))
        .doing("cannot give the node its own folder")?;
    let mount = take_up(&home, OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
        .doing("cannot open a mount of the node's own folder")?;
    Ok(Disk { mount, bytes })
}

/// Measures the space for a new node of this user. What other nodes may still write counts as taken.
fn space(nodes: &Path, user: Uid) -> Result<Space, NodeError> {
    let disk = DiskSpace::of(nodes).doing("cannot measure the disk of the nodes")?;
    let quotas = quota::granted(nodes, Some(user.as_raw()));
    let disks: u64 = disks(nodes).map(|(_, found)| found.len()).sum();
    Ok(Space {
        free: disk.free_bytes.saturating_sub(quotas.unused),
        taken: disks.saturating_add(quotas.limits),
        kept: kept_from_nodes(disk.bytes),
    })
}

/// How much nodes without disks of their own may still write to the disk of this folder, by their quotas. Only root can
/// read this.
pub fn promised_by_quotas(folder: &Path) -> u64 {
    quota::granted(folder, None).unused
}

/// Lists the disks of all nodes in this folder.
fn disks(nodes: &Path) -> impl Iterator<Item = (PathBuf, Metadata)> {
    let nodes = std::fs::read_dir(nodes).into_iter().flatten().flatten();
    let disks = nodes.map(|node| node.path().join(FILE));
    disks.filter_map(|path| Some((path.clone(), std::fs::symlink_metadata(&path).ok()?)))
}

/// Returns true if the disk of the node in this folder has lost some of its space. A file system without a free block
/// for its own metadata may write zeros over blocks that were never written, and the kernel turns these into holes.
pub fn has_holes(folder: &Path) -> bool {
    let found = std::fs::symlink_metadata(folder.join(FILE));
    found.is_ok_and(|found| found.blocks().saturating_mul(512) < found.len())
}

/// Allocates the space of such holes again.
pub(super) fn fill_holes(folder: &Path) -> io::Result<()> {
    let file =
        OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(folder.join(FILE))?;
    Ok(fallocate(&file, FallocateFlags::empty(), 0, file.metadata()?.len())?)
}

fn template_path(nodes: &Path, bytes: u64) -> PathBuf {
    nodes.with_extension(TEMPLATES).join(bytes.to_string())
}

/// Frees the space of the disk of the node in this folder, which must have ended.
pub fn remove(folder: &Path) -> io::Result<()> {
    match std::fs::remove_file(folder.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The same, for a node without a disk.
pub(super) fn remove_home(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder.join(HOME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Opens an empty file system of this size, most of which is a hole.
fn template(nodes: &Path, bytes: u64) -> Result<File, NodeError> {
    let path = template_path(nodes, bytes);
    if let Ok(file) = File::open(&path) {
        return Ok(file);
    }
    make_dir(&nodes.with_extension(TEMPLATES), 0o700)
        .doing("cannot create a folder for empty disks")?;
    let temporary = path.with_extension("new");
    let make = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&temporary)?.set_len(bytes)?;
        let program = mkfs().ok_or(io::ErrorKind::NotFound)?;
        // Nothing of a node survives a crash of the host, so there is no journal. Unwritten blocks read as zeros, so
        // the tables need no zeroing either. Only the node's agent may use the reserved blocks.
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
        // After a crash of the host, a file name without its contents would be trusted from then on.
        file.sync_all()?;
        std::fs::rename(&temporary, &path)?;
        Ok(file)
    };
    make()
        .inspect_err(|_| drop(std::fs::remove_file(&temporary)))
        .doing("cannot create an empty disk")
}

/// Creates a file with the contents of the template, in which every byte is allocated.
fn fill(path: &Path, template: &File, bytes: u64) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    let mut at = 0;
    // Beyond the last data, the kernel returns this error.
    while let Some(start) = seek(template, rustix::fs::SeekFrom::Data(at))? {
        let end = seek(template, rustix::fs::SeekFrom::Hole(start))?.unwrap_or(bytes);
        // Copied byte by byte: blocks shared between the two files would not be reserved for this one.
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
    // Nothing on the disk is needed after a crash of the host, so no write has to wait for the host's disk.
    for flag in ["nobarrier", "noinit_itable"] {
        fsconfig_set_flag(context.as_fd(), flag)?;
    }
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    // Every new file system has this folder for repairs, but a node's disk is never repaired.
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
            size(64 * GIB, space).map_err(|error| error.describe())
        };
        assert_eq!(size(2000 * GIB, 0), Ok(64 * GIB), "as much as is wanted");
        assert_eq!(size(64 * GIB, 0), Ok(4 * GIB), "an eighth of half of it");
        assert_eq!(size(GIB, 0), Ok(BYTES_MIN), "the minimum");
        let refused = size(GIB, GIB - BYTES_MIN).unwrap_err();
        assert!(refused.contains("1024 MiB free, of which 992 MiB are reserved"), "{refused}");
        let (mut free, mut taken) = (64 * GIB, 0);
        while let Ok(next) = size(free, taken) {
            (free, taken) = (free - next, taken + next);
        }
        assert!(free >= 32 * GIB, "all nodes together leave half of it");
        assert!(taken >= 31 * GIB, "the nodes use the other half: {taken}");
    }

    /// This holds however full uploads have made the disk.
    #[test]
    fn the_contents_of_new_nodes_fit_beside_them_and_the_store() {
        assert_eq!(kept_for_jobs(GIB), 64 << 20);
        assert_eq!(kept_for_jobs(1000 * GIB), 2 * GIB);
        for disk in [2 * GIB, 8 * GIB, 100 * GIB, 4000 * GIB] {
            let (mut free, mut taken) = (reserve(disk) + kept_for_jobs(disk), 0);
            while let Ok(next) = size(64 * GIB, Space { free, taken, kept: kept_from_nodes(disk) })
            {
                (free, taken) = (free - next, taken + next);
            }
            assert!(taken >= BYTES_MIN, "there is room for a node on {disk}");
            assert!(free >= reserve(disk) + taken, "{free} of {disk} besides {taken}");
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
        assert!(!has_holes(&dir.path().join("none")), "a node without a disk has no holes");
    }

    #[test]
    fn sizes_are_few() {
        for (bytes, rounded) in [(64, 64), (95, 64), (96, 96), (127, 96), (128, 128)] {
            assert_eq!(round_down(bytes << 20), rounded << 20);
        }
    }
}
