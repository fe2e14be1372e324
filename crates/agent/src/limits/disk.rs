//! Measures what a job uses of a disk, even if it tries to hide it.

use std::collections::BTreeSet;
use std::fs::{DirEntry, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use muster_core::model::{Exit, Scarce};
use muster_sandbox::disk_space::DiskSpace;
use rustix::fs::{major, minor, statvfs};

/// A disk with less free space than this is full. A write that does not fit still writes the part that does, but the
/// file system reserves some blocks for its own metadata.
const FULL_BYTES: u64 = 512 * 1024;
/// The path of a job's folder, below the `/proc` entry of one of its processes.
const INSIDE: &str = "root/job";
const BLOCK: u64 = 512;
/// A job may have one file for each of this many bytes that it may write, as is usual for file systems. Otherwise it
/// could use up all files of the disk with empty ones.
const BYTES_PER_FILE: u64 = 16 * 1024;

/// Returns the corresponding exit if the node's disk is full and is its own: it is then as large as what a job may
/// write.
pub(super) fn full(folder: &Path, most: u64) -> Option<Exit> {
    let disk = DiskSpace::of(folder).ok()?;
    match (disk.free_bytes, disk.free_files) {
        _ if disk.bytes > most => None,
        (..FULL_BYTES, _) => Some(Exit::OverLimit { of: Scarce::Disk, most }),
        (_, 0) => Some(Exit::OverLimit { of: Scarce::Files, most: disk.files }),
        _ => None,
    }
}

/// What is used of a disk, or may be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub bytes: u64,
    pub files: u64,
}

impl Used {
    /// The most that fits on a disk of this size.
    pub fn of_disk(bytes: u64) -> Used {
        Used { bytes, files: bytes / BYTES_PER_FILE }
    }

    /// Both together.
    pub fn and(self, more: Used) -> Used {
        Used {
            bytes: self.bytes.saturating_add(more.bytes),
            files: self.files.saturating_add(more.files),
        }
    }

    fn without(self, less: Used) -> Used {
        Used {
            bytes: self.bytes.saturating_sub(less.bytes),
            files: self.files.saturating_sub(less.files),
        }
    }

    fn add(&mut self, found: &Metadata) {
        self.bytes += found.blocks() * BLOCK;
        self.files += 1;
    }

    pub fn beyond(self, most: Used) -> Option<Exit> {
        match (self.bytes > most.bytes, self.files > most.files) {
            (true, _) => Some(Exit::OverLimit { of: Scarce::Disk, most: most.bytes }),
            (_, true) => Some(Exit::OverLimit { of: Scarce::Files, most: most.files }),
            (false, false) => None,
        }
    }
}

/// Measures the folder, and the deleted files that processes of the job still have open.
pub(super) fn used_by(folder: &Path, most: Used) -> Used {
    let mut used = used_below(folder, most);
    let Ok(own) = folder.metadata() else { return used };
    let mut seen = BTreeSet::new();
    for process in processes() {
        if folder_of(&process) == Some(id_of(&own)) {
            nameless_files(&process)
                .filter(|found| found.dev() == own.dev())
                .filter(|found| seen.insert(found.ino()))
                .for_each(|found| used.add(&found));
        }
    }
    used
}

/// Measures what a job hides on its node's own disk: files that take space but have no name and are open in no process.
/// Such a file is in transit between processes in a socket, or only mapped. The size is what is left of the disk's use
/// after subtracting everything visible. It counts for a job that has such a socket or mapping, and for one that is
/// alone on its node.
pub(super) fn hidden_by(folder: &Path) -> Used {
    let home = folder.ancestors().nth(2);
    let (Some(home), Ok(own), Ok(disk)) = (home, folder.metadata(), statvfs(folder)) else {
        return Used::default();
    };
    // Read first, so that what is written while we look does not count as hidden.
    let taken = Used {
        bytes: disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(disk.f_frsize),
        files: disk.f_files.saturating_sub(disk.f_ffree),
    };
    let mut in_sight = InSight { device: own.dev(), used: Used::default(), seen: BTreeSet::new() };
    in_sight.look_below(home);
    let (mut may_hide, mut is_alone) = (false, true);
    for process in processes() {
        nameless_files(&process).for_each(|found| in_sight.add(&found));
        match folder_of(&process) {
            Some(id) if id == id_of(&own) => may_hide = may_hide || may_hide_files(&process, &own),
            Some((device, _)) if device == own.dev() => is_alone = false,
            _ => {}
        }
    }
    if may_hide || is_alone { taken.without(in_sight.used) } else { Used::default() }
}

/// What is visible on a disk, counting each file once.
struct InSight {
    device: u64,
    used: Used,
    /// Files that may be found again, because they have no name or more than one.
    seen: BTreeSet<u64>,
}

impl InSight {
    fn add(&mut self, found: &Metadata) {
        let has_one_name = !found.is_file() || found.nlink() == 1;
        if found.dev() == self.device && (has_one_name || self.seen.insert(found.ino())) {
            self.used.add(found);
        }
    }

    fn look_below(&mut self, folder: &Path) {
        let mut folders = vec![folder.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let Ok(found) = entry.metadata() else { continue };
                self.add(&found);
                if found.is_dir() && found.dev() == self.device {
                    folders.push(entry.path());
                }
            }
        }
    }
}

/// Lists the `/proc` folder of every visible process.
fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_number = |entry: &DirEntry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit);
    entries.filter(is_number).map(|entry| entry.path())
}

fn id_of(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Identifies the job's folder of a process. Exactly the processes with the same folder belong to this job.
fn folder_of(process: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(process.join(INSIDE)).ok().map(|found| id_of(&found))
}

/// Lists files without a name that a process has open or executes.
fn nameless_files(process: &Path) -> impl Iterator<Item = Metadata> {
    let open = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let all = open.map(|entry| entry.path()).chain([process.join("exe")]);
    all.filter_map(|path| std::fs::metadata(path).ok())
        .filter(|found| found.is_file() && found.nlink() == 0)
}

/// Returns true if files are in transit through a socket of the process, or if it maps an unnamed file of this disk. A
/// process that we cannot examine may hide anything.
fn may_hide_files(process: &Path, own: &Metadata) -> bool {
    let device = format!(" {:02x}:{:02x} ", major(own.dev()), minor(own.dev()));
    let is_nameless = |line: &str| line.contains(&device) && line.ends_with(" (deleted)");
    let has_nameless = |maps: String| maps.lines().any(is_nameless);
    let is_hidden = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let maps = std::fs::read(process.join("maps"));
    let maps = maps.map(|maps| has_nameless(String::from_utf8_lossy(&maps).into_owned()));
    maps.unwrap_or_else(|error| is_hidden(&error))
        || std::fs::read_dir(process.join("fdinfo")).map_or_else(
            |error| is_hidden(&error),
            |entries| entries.flatten().any(|entry| passes_files(&entry.path())),
        )
}

/// Returns true if files are in transit through this descriptor's socket, or through connections that it has not
/// accepted yet.
fn passes_files(about: &Path) -> bool {
    let text = std::fs::read_to_string(about).unwrap_or_default();
    let mut counts = text.lines().filter_map(|line| line.strip_prefix("scm_fds:"));
    counts.any(|count| count.trim() != "0")
}

/// Measures a folder, and stops beyond the limit. Files that disappear meanwhile or cannot be read count as nothing;
/// links are not followed, and a file with two names counts twice.
pub(super) fn used_below(folder: &Path, most: Used) -> Used {
    let mut used = Used::default();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            used.add(&found);
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
        if used.beyond(most).is_some() {
            break;
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_counts_and_what_is_linked_does_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let most = Used { bytes: u64::MAX, files: u64::MAX };
        let before = used_below(dir.path(), most);
        std::fs::write(dir.path().join("a/b/file"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
        let used = used_below(dir.path(), most);
        let bytes = used.bytes - before.bytes;
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
        assert_eq!((before.files, used.files), (2, 4));
    }

    #[test]
    fn every_file_in_sight_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), vec![1; 1 << 20]).unwrap();
        std::fs::hard_link(dir.path().join("file"), dir.path().join("again")).unwrap();
        let device = dir.path().metadata().unwrap().dev();
        let mut in_sight = InSight { device, used: Used::default(), seen: BTreeSet::new() };
        in_sight.look_below(dir.path());
        assert!((1 << 20..2 << 20).contains(&in_sight.used.bytes), "{:?}", in_sight.used);
        assert_eq!(in_sight.used.files, 1);
        let mut elsewhere = InSight { device: device + 1, ..in_sight };
        elsewhere.used = Used::default();
        elsewhere.look_below(dir.path());
        assert_eq!(elsewhere.used, Used::default(), "another disk");
    }

    #[test]
    fn files_on_their_way_and_nameless_mappings_are_seen() {
        use std::io::IoSlice;
        use std::os::fd::{AsFd as _, AsRawFd as _};

        use rustix::net::{
            AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
            SocketType, sendmsg, socketpair,
        };

        // Not every file system shows the same device for a file and for its mapping; those of nodes do, and so does
        // this one.
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.open(dir.path().join("file")).unwrap();
        let own = file.metadata().unwrap();
        let process = Path::new("/proc/self");
        assert!(!may_hide_files(process, &own));
        let flags = SocketFlags::CLOEXEC;
        let (one, two) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let (mut space, files) = ([0; 64].map(std::mem::MaybeUninit::new), [file.as_fd()]);
        let mut message = SendAncillaryBuffer::new(&mut space);
        assert!(message.push(SendAncillaryMessage::ScmRights(&files)));
        sendmsg(&one, &[IoSlice::new(b"x")], &mut message, SendFlags::empty()).unwrap();
        assert!(may_hide_files(process, &own), "it is in transit");
        drop((one, two));
        assert!(!may_hide_files(process, &own));

        file.set_len(4096).unwrap();
        // SAFETY: this is a new mapping, which nothing uses.
        let at = unsafe {
            let (flags, fd) = (libc::MAP_SHARED, file.as_raw_fd());
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, fd, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        drop(file);
        assert!(!may_hide_files(process, &own), "it has a name");
        std::fs::remove_file(dir.path().join("file")).unwrap();
        assert!(may_hide_files(process, &own), "it is only mapped");
    }
}
