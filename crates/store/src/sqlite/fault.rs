//! SQLite's errors as the store's own.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags, statvfs};
use rustix::io::Errno;

use crate::StoreError;

/// Adds what was being done to which file when SQLite failed.
pub(super) trait Doing<T> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, StoreError>;
}

impl<T> Doing<T> for rusqlite::Result<T> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, StoreError> {
        self.map_err(|source| translate(source, doing, path))
    }
}

fn translate(source: rusqlite::Error, doing: &'static str, path: &Path) -> StoreError {
    let path = path.to_owned();
    match &source {
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                StoreError::Damaged { path, what: source.to_string() }
            }
            ErrorCode::DiskFull => StoreError::Full { doing, path },
            ErrorCode::SystemIoFailure if failure.extended_code == SQLITE_IOERR_SHMSIZE => {
                StoreError::Full { doing, path }
            }
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed => StoreError::Busy { doing, path },
            ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly
            | ErrorCode::SystemIoFailure
                if is_read_only(&path) =>
            {
                StoreError::ReadOnly { doing, path }
            }
            ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly => {
                StoreError::CannotOpen { path, source: source.into() }
            }
            _ => StoreError::Sqlite { doing, source },
        },
        // A column with a value that this code never writes.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => StoreError::Damaged { path, what: source.to_string() },
        _ => StoreError::Sqlite { doing, source },
    }
}

/// A file that cannot be opened or written, for a reason that the system gave.
pub(super) fn cannot_open(path: &Path, source: io::Error) -> StoreError {
    let path = path.to_owned();
    match source.kind() == io::ErrorKind::ReadOnlyFilesystem || is_read_only(&path) {
        true => StoreError::ReadOnly { doing: "opening the store", path },
        false => StoreError::CannotOpen { path, source: source.into() },
    }
}

/// Whether the file system of this file is read-only. A file system that stopped because of an error does not always
/// report that it is, but it refuses a new file. The file that is tried has no name and disappears at once.
fn is_read_only(path: &Path) -> bool {
    let Some(folder) = path.parent() else { return false };
    let says_so =
        statvfs(folder).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let refuses = || rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR);
    says_so || refuses().is_err_and(|why| why == Errno::ROFS)
}
