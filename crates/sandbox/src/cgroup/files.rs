//! Reads and writes the kernel's small files, and walks folders whose contents are not under our control.

use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, open, openat, unlinkat};
use rustix::io::Errno;

use crate::context::cannot;

pub(super) fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(|error| cannot(format_args!("read {}", path.display()), error))
}

/// Writes to an existing file. No file is created, so a folder that is not a control group is left as it is.
pub(super) fn write(path: &Path, value: &str) -> io::Result<()> {
    let written = OpenOptions::new().write(true).open(path);
    written
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(|error| cannot(format_args!("write {value:?} to {}", path.display()), error))
}

/// Like [`write`], but tolerates a kernel that does not have the file. Returns true if the file was written.
pub(super) fn write_if_there(path: &Path, value: &str) -> io::Result<bool> {
    match write(path, value) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done.map_err(|error| cannot(format_args!("create {}", path.display()), error)),
    }
}

pub(super) fn read_at(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<String> {
    let file = openat(folder, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    File::from(file).read_to_string(&mut text)?;
    Ok(text)
}

/// Walks a folder and everything below it, to any depth: the owner of a group may have created more levels than a path
/// can name or than we have descriptors for. `enter` is called before the folders below are visited. With `is_removed`,
/// folders below `top` are removed on the way back, except for those that the kernel reports as busy.
pub(super) fn walk(
    top: &Path,
    is_removed: bool,
    mut enter: impl FnMut(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here: OwnedFd = match open(top, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    enter(here.as_fd())?;
    let mut way: Vec<CString> = Vec::new();
    let mut left = vec![folders_in(here.as_fd())?];
    while let Some(names) = left.last_mut() {
        if let Some(name) = names.pop() {
            match openat(&here, &name, flags, Mode::empty()) {
                Err(Errno::NOENT) => continue,
                opened => here = opened?,
            }
            // A folder that is removed during the walk is skipped.
            ignore_gone(enter(here.as_fd()))?;
            left.push(folders_in(here.as_fd()).or_else(|error| match error {
                Errno::NOENT | Errno::NODEV => Ok(Vec::new()),
                error => Err(error),
            })?);
            way.push(name);
            continue;
        }
        left.pop();
        let Some(name) = way.pop() else { break };
        here = openat(&here, c"..", flags, Mode::empty())?;
        if is_removed {
            match unlinkat(&here, &name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT | Errno::BUSY) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn folders_in(folder: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() == FileType::Directory && name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn ignore_gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_goes_deeper_than_a_path_can_name_and_removes_everything() {
        let top = tempfile::tempdir().unwrap();
        let long = CString::new("x".repeat(250)).unwrap();
        let mut here: OwnedFd = File::open(top.path()).unwrap().into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        for _ in 0..20 {
            rustix::fs::mkdirat(&here, &long, Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&here, c"y", Mode::RWXU).unwrap();
            here = openat(&here, &long, flags, Mode::empty()).unwrap();
        }
        let mut seen = 0;
        let count = |_: BorrowedFd<'_>| {
            seen += 1;
            Ok(())
        };
        walk(top.path(), true, count).unwrap();
        assert_eq!(seen, 41);
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
        walk(&top.path().join("absent"), true, |_| panic!("entered an absent folder")).unwrap();
    }
}
