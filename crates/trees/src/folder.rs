//! A folder that other processes may write to while we read it: no link in it is followed, and nothing outside it is
//! ever opened.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2, statat,
};

use muster_core::model::check_path;

use crate::manifest::FILES_MAX;

/// How many folders, files and other entries are read before a walk is given up.
const ENTRIES_MAX: usize = 20 * FILES_MAX;
/// How many skipped entries are reported.
const SKIPPED_MAX: usize = 1_000;

#[derive(Debug)]
pub struct Folder {
    pub(crate) fd: OwnedFd,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Identifies the state of a file without reading it: every write changes one of these fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub bytes: u64,
    inode: u64,
    changed: (i64, u64),
    modified: (i64, u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub path: Box<str>,
    pub is_executable: bool,
    pub stamp: Stamp,
}

/// An entry that is not a plain file, or that has a name which no tree can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub path: String,
    pub why: &'static str,
}

impl Skipped {
    pub const LINK: &str = "is a symbolic link";
}

/// The entries of a folder, sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    pub files: Vec<Found>,
    /// The first few skipped entries.
    pub skipped: Vec<Skipped>,
}

impl Folder {
    /// The path of the folder itself may contain links.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Folder { fd: open(path, flags, Mode::empty())? })
    }

    /// Lists what is below these paths, each a folder or a file. A missing path is empty.
    pub fn list(&self, below: &[&str]) -> io::Result<Listing> {
        let mut walk =
            Walk { folder: self, found: Listing::default(), seen: 0, keep: &|_, _| true };
        let mut tops: Vec<&str> = below.to_vec();
        tops.sort_unstable();
        tops.dedup();
        for top in &tops {
            // A path below another one is not listed twice.
            let is_inside =
                |other: &&str| top.strip_prefix(*other).is_some_and(|rest| rest.starts_with('/'));
            if !tops.iter().any(is_inside) {
                walk.top(top)?;
            }
        }
        walk.found.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(walk.found)
    }

    /// Lists everything for which `keep` returns true, given the path and whether it is a folder. Folders that are not
    /// kept are not read.
    pub fn list_all(&self, keep: &dyn Fn(&str, bool) -> bool) -> io::Result<Listing> {
        let mut walk = Walk { folder: self, found: Listing::default(), seen: 0, keep };
        walk.below(".", "")?;
        walk.found.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(walk.found)
    }

    /// Opens a plain file of the folder, and returns its stamp.
    pub fn open_file(&self, path: &str) -> io::Result<(fs::File, Stamp)> {
        // Without this flag, opening a pipe would wait for its other end.
        let fd = self.open_beneath(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let stat = fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file"));
        }
        Ok((fd.into(), Stamp::of(&stat)))
    }

    pub(crate) fn open_beneath(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        loop {
            match openat2(&self.fd, path, flags, Mode::empty(), resolve) {
                Ok(fd) => return Ok(fd),
                // Something was renamed at that moment, so the kernel could not be sure; or a signal arrived.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Stamp {
    fn of(stat: &Stat) -> Stamp {
        Stamp {
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            inode: stat.st_ino,
            changed: (stat.st_ctime, stat.st_ctime_nsec),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
        }
    }

    /// When its contents or its mode last changed, according to the disk's clock.
    pub(crate) fn changed_at(&self) -> SystemTime {
        let (seconds, nanoseconds) = self.changed;
        let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        UNIX_EPOCH + seconds + Duration::from_nanos(nanoseconds)
    }

    /// The stamp of an open file.
    pub fn of_file(file: &fs::File) -> io::Result<Stamp> {
        Ok(Stamp::of(&fstat(file)?))
    }
}

struct Walk<'f> {
    folder: &'f Folder,
    found: Listing,
    seen: usize,
    keep: &'f dyn Fn(&str, bool) -> bool,
}

impl Walk<'_> {
    fn top(&mut self, path: &str) -> io::Result<()> {
        let stat = match self.folder.open_beneath(path, OFlags::PATH) {
            Ok(fd) => fstat(&fd)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // There is a link on the way, or a file in place of a folder.
            Err(_) => {
                self.skip(path, "is behind a link or a file");
                return Ok(());
            }
        };
        let mut folders = Vec::new();
        self.take(path.to_owned(), &stat, &mut folders);
        match folders.pop() {
            Some(folder) => self.below(&folder, &folder),
            None => Ok(()),
        }
    }

    /// `top` is opened first, and `prefix` is prepended to the names of its entries.
    fn below(&mut self, top: &str, prefix: &str) -> io::Result<()> {
        let mut folders = vec![prefix.to_owned()];
        while let Some(name) = folders.pop() {
            let opened = if name == prefix { top } else { &name };
            let opened = self.folder.open_beneath(opened, OFlags::RDONLY | OFlags::DIRECTORY);
            // It was removed or replaced, or its owner may not read it.
            let Ok(fd) = opened else {
                self.skip(&name, "cannot be read");
                continue;
            };
            let entries = Dir::read_from(&fd)?;
            for entry in entries {
                let entry = entry?;
                if [c".", c".."].contains(&entry.file_name()) {
                    continue;
                }
                self.seen += 1;
                if self.seen > ENTRIES_MAX {
                    let message = format!("more than {ENTRIES_MAX} files and folders");
                    return Err(io::Error::other(message));
                }
                self.entry(&fd, &name, entry.file_name(), &mut folders);
            }
        }
        Ok(())
    }

    fn entry(&mut self, fd: &OwnedFd, folder: &str, name: &CStr, folders: &mut Vec<String>) {
        let join = |name: &str| match folder {
            "" => name.to_owned(),
            folder => format!("{folder}/{name}"),
        };
        let Ok(text) = name.to_str() else {
            return self.skip(&join(&name.to_string_lossy()), "has a name that is not UTF-8");
        };
        // An entry that disappears meanwhile counts as missing.
        let Ok(stat) = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        self.take(join(text), &stat, folders);
    }

    fn take(&mut self, path: String, stat: &Stat, folders: &mut Vec<String>) {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !(self.keep)(&path, kind == FileType::Directory) {
            return;
        }
        if check_path(&path).is_err() {
            return self.skip(&path, "has a name that is too long, or with control characters");
        }
        match kind {
            FileType::RegularFile => self.found.files.push(Found {
                path: path.into(),
                is_executable: stat.st_mode & 0o111 != 0,
                stamp: Stamp::of(stat),
            }),
            FileType::Directory => folders.push(path),
            FileType::Symlink => self.skip(&path, Skipped::LINK),
            FileType::Fifo => self.skip(&path, "is a pipe"),
            FileType::Socket => self.skip(&path, "is a socket"),
            FileType::CharacterDevice | FileType::BlockDevice => self.skip(&path, "is a device"),
            FileType::Unknown => self.skip(&path, "is not a plain file"),
        }
    }

    fn skip(&mut self, path: &str, why: &'static str) {
        if self.found.skipped.len() < SKIPPED_MAX {
            let path = path.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            self.found.skipped.push(Skipped { path, why });
        }
    }
}
