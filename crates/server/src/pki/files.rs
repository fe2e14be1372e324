//! Small files that must be complete or absent: keys, certificates, bundles.
//!
//! A write goes to a temporary file next to the target, is flushed to disk and renamed; a crash leaves the old content
//! or the new, never a part. A private file that others may read is refused, not repaired, because its content may
//! already be known.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Keys and certificates take about 1 KiB; Muster writes nothing near this limit.
pub const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The mode of a file that only the server may read.
pub const PRIVATE: u32 = 0o600;

/// The mode of a file that is handed to clients.
pub const PUBLIC: u32 = 0o644;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot {operation} {}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{0} can be read by other users (mode {mode:04o}, at most 0600 is allowed); \
         if no other user could have copied it, run `chmod 600 {0}`; otherwise replace it",
        path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "{} is longer than {limit_bytes} bytes, the maximum for such a file; \
         restore the correct file",
        path.display()
    )]
    TooLong { path: PathBuf, limit_bytes: u64 },
}

/// Creates the directory and its parents; an existing one is not changed.
pub fn ensure_dir(dir: &Path) -> Result<(), FileError> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.map_err(io_error("create the directory", dir))
}

/// The content of a file, or `None` if it does not exist.
pub fn read(path: &Path, limit_bytes: u64) -> Result<Option<Vec<u8>>, FileError> {
    match open(path)? {
        None => Ok(None),
        Some(file) => read_open(file, path, limit_bytes).map(Some),
    }
}

/// The same as [`read`], for a file that no other user may read.
pub fn read_private(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let Some(file) = open(path)? else {
        return Ok(None);
    };
    // The open file is checked, so that it cannot be replaced before it is read.
    let mode = file.metadata().map_err(io_error("inspect", path))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(FileError::Exposed { path: path.to_owned(), mode });
    }
    read_open(file, path, FILE_BYTES_MAX).map(Some)
}

/// Replaces or creates the file as a whole.
pub fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), FileError> {
    let temporary = temporary_beside(path);
    let written = write_through(&temporary, path, content, mode);
    if written.is_err() {
        // Report the first error; a leftover is removed by the next write.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Removes the file if it exists.
pub fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("remove", path)(error))
        }
        _ => sync_dir_of(path),
    }
}

fn open(path: &Path) -> Result<Option<File>, FileError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("open", path)(error)),
    }
}

fn read_open(file: File, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, FileError> {
    let mut content = Vec::new();
    file.take(limit_bytes + 1).read_to_end(&mut content).map_err(io_error("read", path))?;
    if content.len() as u64 > limit_bytes {
        return Err(FileError::TooLong { path: path.to_owned(), limit_bytes });
    }
    Ok(content)
}

fn write_through(temp: &Path, path: &Path, content: &[u8], mode: u32) -> Result<(), FileError> {
    // A leftover of an earlier crash has unknown content and mode, so a new file is created.
    remove(temp)?;
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(temp);
    let mut file = opened.map_err(io_error("create", temp))?;
    file.write_all(content).map_err(io_error("write", temp))?;
    file.sync_all().map_err(io_error("flush", temp))?;
    fs::rename(temp, path).map_err(io_error("replace", path))?;
    sync_dir_of(path)
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

/// A rename is on disk only once its directory is.
fn sync_dir_of(path: &Path) -> Result<(), FileError> {
    let dir = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("flush", dir))
}

fn io_error<'a>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError::Io { operation, path: path.to_owned(), source }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_write_replaces_the_whole_file_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        fs::write(dir.path().join(".a.key.new"), "leftover of a crash").unwrap();
        write(&path, b"first and longer", PRIVATE).unwrap();
        write(&path, b"second", PRIVATE).unwrap();
        assert_eq!(read_private(&path).unwrap().unwrap(), b"second");
        assert_eq!(mode_of(&path), PRIVATE);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir(&path).unwrap();
        let error = write(&path, b"x", PRIVATE).unwrap_err();
        assert!(error.to_string().starts_with("cannot replace "), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_private_file_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        write(&path, b"secret", PRIVATE).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_private(&path).unwrap_err();
        assert!(matches!(error, FileError::Exposed { mode: 0o640, .. }), "{error}");
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }

    #[test]
    fn missing_is_not_an_error_and_too_long_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        assert!(read(&path, 10).unwrap().is_none());
        assert!(read_private(&path).unwrap().is_none());
        remove(&path).unwrap();
        write(&path, b"0123456789", PUBLIC).unwrap();
        assert_eq!(read(&path, 10).unwrap().unwrap().len(), 10);
        assert!(matches!(read(&path, 9).unwrap_err(), FileError::TooLong { limit_bytes: 9, .. }));
    }
}
