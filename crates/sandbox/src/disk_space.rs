//! Measures how large the disk of a folder is, and how much of it is free.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{StatVfs, fstatvfs, statvfs};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// The space that users without privileges may still use.
    pub free_bytes: u64,
    pub bytes: u64,
    /// How many files users without privileges may still create. 0 also if the file system does not count files.
    pub free_files: u64,
    /// How many files the disk can hold. 0 if the file system does not count files.
    pub files: u64,
}

impl DiskSpace {
    /// Measures the disk that this path is on.
    pub fn of(path: &Path) -> io::Result<DiskSpace> {
        Ok(DiskSpace::read(&statvfs(path)?))
    }

    /// Measures the disk that this open file or folder is on.
    pub fn of_open(file: impl AsFd) -> io::Result<DiskSpace> {
        Ok(DiskSpace::read(&fstatvfs(file)?))
    }

    fn read(found: &StatVfs) -> DiskSpace {
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        DiskSpace {
            free_bytes: bytes(found.f_bavail),
            bytes: bytes(found.f_blocks),
            free_files: found.f_favail,
            files: found.f_files,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_what_is_open_there_are_on_the_same_disk() {
        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::File::open(folder.path()).unwrap();
        let (by_path, by_file) =
            (DiskSpace::of(folder.path()).unwrap(), DiskSpace::of_open(&open).unwrap());
        assert_eq!((by_path.bytes, by_path.files), (by_file.bytes, by_file.files));
        assert!(0 < by_path.free_bytes && by_path.free_bytes <= by_path.bytes);
        assert!(DiskSpace::of(Path::new("/nowhere")).is_err());
    }
}
