//! Writes a file of a tree into a folder. It appears under its name only when it is complete and correct.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;

use muster_core::model::{BadPath, BlobId, check_path};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, unlinkat};

use crate::blob_of;
use crate::digest::Hasher;
use crate::direct::Target;
use crate::folder::Folder;
use crate::manifest::File;

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("the path {path:?} {why}")]
    Path { path: String, why: BadPath },
    #[error("the contents of {path} do not match its digest")]
    WrongBytes { path: String },
    #[error("cannot write {path}")]
    Io { path: String, source: io::Error },
}

pub struct FileInstall {
    path: Box<str>,
    is_executable: bool,
    bytes_wanted: u64,
    /// `None` for files from elsewhere, whose digest is not known.
    digest: Option<BlobId>,
    part: String,
    parent: OwnedFd,
    file: Target,
    hasher: Hasher,
    bytes: u64,
    is_placed: bool,
}

impl Folder {
    /// Starts to write a file, and creates the folders above it.
    pub fn place(&self, wanted: &File) -> Result<FileInstall, InstallError> {
        let File { path, is_executable, bytes, digest } = wanted;
        self.place_any(path, *is_executable, *bytes, Some(*digest))
    }

    /// The same for a file with arbitrary contents, if no digest is given.
    pub fn place_any(
        &self,
        path: &str,
        is_executable: bool,
        bytes_wanted: u64,
        digest: Option<BlobId>,
    ) -> Result<FileInstall, InstallError> {
        check_path(path).map_err(|why| InstallError::Path { path: path.to_owned(), why })?;
        let failed = |source| InstallError::Io { path: path.to_owned(), source };
        let parent = match path.rsplit_once('/') {
            Some((folder, _)) => self.make_folder(folder),
            None => self.open_beneath(".", OFlags::RDONLY | OFlags::DIRECTORY),
        };
        let parent = parent.map_err(failed)?;
        let part = part_name(path);
        let _ = unlinkat(&parent, &part, AtFlags::empty());
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(&parent, &part, flags, Mode::from(0o600)).map_err(|why| failed(why.into()))?;
        Ok(FileInstall {
            path: path.into(),
            is_executable,
            bytes_wanted,
            digest,
            part,
            parent,
            file: Target::new(file.into(), None),
            hasher: Hasher::default(),
            bytes: 0,
            is_placed: false,
        })
    }

    /// Creates a folder and its parents. Existing ones are kept.
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

impl FileInstall {
    pub fn write(&mut self, piece: &[u8]) -> Result<(), InstallError> {
        self.bytes += piece.len() as u64;
        if self.bytes > self.bytes_wanted {
            return Err(self.wrong());
        }
        if self.digest.is_some() {
            self.hasher.add(piece);
        }
        self.file.write(piece).map_err(|source| self.failed(source))
    }

    /// The same for a file whose length is not known in advance.
    pub fn finish_as_is(mut self) -> Result<(), InstallError> {
        self.bytes_wanted = self.bytes;
        self.finish()
    }

    /// Completes the file: gives it its name, replacing whatever had it.
    pub fn finish(mut self) -> Result<(), InstallError> {
        let found = std::mem::take(&mut self.hasher).finish();
        if self.bytes != self.bytes_wanted || self.digest.is_some_and(|wanted| wanted != found) {
            return Err(self.wrong());
        }
        let mode = if self.is_executable { 0o755 } else { 0o644 };
        let mode = fs::Permissions::from_mode(mode);
        let whole = self.file.file().and_then(|file| file.set_permissions(mode));
        whole.map_err(|source| self.failed(source))?;
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        renameat(&self.parent, &self.part, &self.parent, name)
            .map_err(|why| self.failed(why.into()))?;
        self.is_placed = true;
        Ok(())
    }

    fn wrong(&self) -> InstallError {
        InstallError::WrongBytes { path: self.path.to_string() }
    }

    fn failed(&self, source: io::Error) -> InstallError {
        InstallError::Io { path: self.path.to_string(), source }
    }
}

impl Drop for FileInstall {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = unlinkat(&self.parent, &self.part, AtFlags::empty());
        }
    }
}

/// Short, whatever the name of the file is.
fn part_name(path: &str) -> String {
    let digest = blob_of(path.as_bytes()).to_string();
    format!(".muster-part-{}", &digest[..16])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

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
            assert!(matches!(placed, Err(InstallError::WrongBytes { .. })), "{bytes:?}");
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
        // A link with this name is replaced; its target is kept.
        let mut placing = folder.place(&wanted("link", b"ours")).unwrap();
        placing.write(b"ours").unwrap();
        placing.finish().unwrap();
        assert_eq!(fs::read_to_string(other.path().join("file")).unwrap(), "theirs");
        assert_eq!(names(other.path()), ["file"]);
    }
}
