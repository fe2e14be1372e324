//! A file of a tree on its way into a folder: it is there under its name when it is whole and what it should be.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;

use muster_core::model::{BadPath, BlobId, check_path};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, unlinkat};

use crate::digest::Hasher;
use crate::folder::Folder;
use crate::manifest::File;

#[derive(Debug, thiserror::Error)]
pub enum PlacingError {
    #[error("the path {path:?} {why}")]
    Path { path: String, why: BadPath },
    #[error("{path} came with other bytes than it should have")]
    WrongBytes { path: String },
    #[error("cannot write {path}")]
    Io { path: String, source: io::Error },
}

pub struct Placing {
    wanted: File,
    parent: OwnedFd,
    file: fs::File,
    hasher: Hasher,
    bytes: u64,
    is_placed: bool,
}

impl Folder {
    /// Begins to write a file, and makes the folders above it.
    pub fn place(&self, wanted: &File) -> Result<Placing, PlacingError> {
        check_path(&wanted.path)
            .map_err(|why| PlacingError::Path { path: wanted.path.to_string(), why })?;
        let failed = |source| PlacingError::Io { path: wanted.path.to_string(), source };
        let parent = match wanted.path.rsplit_once('/') {
            Some((folder, _)) => self.make_folder(folder),
            None => self.open_beneath(".", OFlags::RDONLY | OFlags::DIRECTORY),
        };
        let parent = parent.map_err(failed)?;
        let part = part_name(&wanted.digest);
        let _ = unlinkat(&parent, &part, AtFlags::empty());
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(&parent, &part, flags, Mode::from(0o600)).map_err(|why| failed(why.into()))?;
        let (file, hasher, bytes) = (file.into(), Hasher::default(), 0);
        Ok(Placing { wanted: wanted.clone(), parent, file, hasher, bytes, is_placed: false })
    }

    /// Makes a folder and those above it; what is there stays.
    pub fn make_folder(&self, path: &str) -> io::Result<OwnedFd> {
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        for end in ends {
            let (above, name) = path[..end].rsplit_once('/').unwrap_or((".", &path[..end]));
            let above = self.open_beneath(above, OFlags::RDONLY | OFlags::DIRECTORY)?;
            match mkdirat(&above, name, Mode::from(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.open_beneath(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }
}

impl Placing {
    pub fn write(&mut self, piece: &[u8]) -> Result<(), PlacingError> {
        self.bytes += piece.len() as u64;
        if self.bytes > self.wanted.bytes {
            return Err(self.wrong());
        }
        self.hasher.add(piece);
        self.file.write_all(piece).map_err(|source| self.failed(source))
    }

    /// All of it is here: gives it its name, over whatever had it.
    pub fn finish(mut self) -> Result<(), PlacingError> {
        let digest = std::mem::take(&mut self.hasher).finish();
        if self.bytes != self.wanted.bytes || digest != self.wanted.digest {
            return Err(self.wrong());
        }
        let mode = if self.wanted.is_executable { 0o755 } else { 0o644 };
        let mode = fs::Permissions::from_mode(mode);
        self.file.set_permissions(mode).map_err(|source| self.failed(source))?;
        let path = self.wanted.path.clone();
        let name = path.rsplit('/').next().unwrap_or(&path);
        renameat(&self.parent, part_name(&self.wanted.digest), &self.parent, name)
            .map_err(|why| self.failed(why.into()))?;
        self.is_placed = true;
        Ok(())
    }

    fn wrong(&self) -> PlacingError {
        PlacingError::WrongBytes { path: self.wanted.path.to_string() }
    }

    fn failed(&self, source: io::Error) -> PlacingError {
        PlacingError::Io { path: self.wanted.path.to_string(), source }
    }
}

impl Drop for Placing {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = unlinkat(&self.parent, part_name(&self.wanted.digest), AtFlags::empty());
        }
    }
}

/// Short, whatever the file is called.
fn part_name(digest: &BlobId) -> String {
    let digest = digest.to_string();
    format!(".muster-part-{}", &digest[..16])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::blob_of;

    fn wanted(path: &str, content: &[u8]) -> File {
        let (bytes, digest) = (content.len() as u64, blob_of(content));
        File { path: path.into(), is_executable: true, bytes, digest }
    }

    fn names(dir: &std::path::Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_there_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let mut placing = folder.place(&wanted("a/b/c", b"hello")).unwrap();
        placing.write(b"he").unwrap();
        assert!(!dir.path().join("a/b/c").exists());
        placing.write(b"llo").unwrap();
        placing.finish().unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a/b/c")).unwrap(), "hello");
        let mode = fs::metadata(dir.path().join("a/b/c")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(names(&dir.path().join("a/b")), ["c"]);
    }

    #[test]
    fn other_bytes_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        for bytes in [&b"hellO"[..], b"hell", b"hello!"] {
            let mut placing = folder.place(&wanted("a", b"hello")).unwrap();
            let placed = placing.write(bytes).and_then(|()| placing.finish());
            assert!(matches!(placed, Err(PlacingError::WrongBytes { .. })), "{bytes:?}");
        }
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(other.path(), dir.path().join("out")).unwrap();
        fs::write(other.path().join("file"), "theirs").unwrap();
        symlink(other.path().join("file"), dir.path().join("link")).unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        for path in ["out/x", "out/deep/x", "../x", "/x"] {
            assert!(folder.place(&wanted(path, b"ours")).is_err(), "{path}");
        }
        // A link that has the name gives way; what it leads to stays.
        let mut placing = folder.place(&wanted("link", b"ours")).unwrap();
        placing.write(b"ours").unwrap();
        placing.finish().unwrap();
        assert_eq!(fs::read_to_string(other.path().join("file")).unwrap(), "theirs");
        assert_eq!(names(other.path()), ["file"]);
    }
}
