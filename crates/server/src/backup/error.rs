//! The errors of backups, each with its remedy.

use std::io;
use std::path::{Path, PathBuf};

use muster_store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(
        "there is no installation in {}: muster.db or storage.db is missing; give its state directory with --state-dir",
        path.display()
    )]
    NothingThere { path: PathBuf },
    #[error(
        "{} belongs to user {owner}, but you are user {us}; run this command as the owner (sudo -u '#{owner}' …)",
        path.display()
    )]
    NotOurs { path: PathBuf, owner: u32, us: u32 },
    #[error("{} is inside {}; choose a folder outside it", path.display(), root.display())]
    Inside { path: PathBuf, root: PathBuf },
    #[error(
        "the folder {} does not exist; create it, or mount the disk that it should be on, and try again",
        path.display()
    )]
    NoParent { path: PathBuf },
    #[error("{} is not empty; choose another folder, or move this one away", path.display())]
    Filled { path: PathBuf },
    #[error(
        "{0} is a mount point, which cannot be replaced by a finished folder; choose a folder in it, such as {0}/muster",
        path.display()
    )]
    MountPoint { path: PathBuf },
    #[error("a server is running in {}; choose another folder, or stop the server and move this one away", path.display())]
    InUse { path: PathBuf },
    #[error(
        "{} is left over from an interrupted backup or restore, or one is running now; if none is, remove it and try \
         again",
        path.display()
    )]
    Leftover { path: PathBuf },
    #[error(
        "{} is not a backup: it has no readable manifest.json; give the folder that `muster backup` created",
        path.display()
    )]
    NoBackup { path: PathBuf },
    #[error(
        "the backup {} was created by a newer version of muster (its format is {found}, this version supports {known}); use \
         that version",
        path.display()
    )]
    TooNew { path: PathBuf, found: u32, known: u32 },
    #[error("{} is damaged: {what}; use another backup", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error(
        "{} is damaged: {what}; use another backup, or skip damaged files with --skip-damaged",
        path.display()
    )]
    Skippable { path: PathBuf, what: String },
    #[error("{} cannot be backed up: {what}; fix it, or remove it", path.display())]
    Unfit { path: PathBuf, what: String },
    #[error("cannot read {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        what: io::Error,
    },
    #[error("cannot {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(super) fn damaged(path: &Path, what: &str) -> BackupError {
    BackupError::Damaged { path: path.to_owned(), what: what.to_owned() }
}

/// Adds the operation and the path to an I/O error.
pub(super) trait Doing<T> {
    fn doing(self, operation: &'static str, path: &Path) -> Result<T, BackupError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, operation: &'static str, path: &Path) -> Result<T, BackupError> {
        self.map_err(|source| BackupError::Io { operation, path: path.to_owned(), source })
    }
}
