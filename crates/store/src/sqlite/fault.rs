//! SQLite's errors in our own words.

use std::path::Path;

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;

use crate::StoreError;

/// Says what was being done to which file when SQLite refused.
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
            ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly => {
                StoreError::CannotOpen { path, source: source.into() }
            }
            _ => StoreError::Sqlite { doing, source },
        },
        // A column that holds something else than we ever write.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => StoreError::Damaged { path, what: source.to_string() },
        _ => StoreError::Sqlite { doing, source },
    }
}
