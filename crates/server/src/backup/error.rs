//! What can go wrong with a backup, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use muster_store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(
        "there is no installation in {}: muster.db or storage.db is missing; name its state directory with --state-dir",
        path.display()
    )]
    NothingThere { path: PathBuf },
    #[error(
        "{} belongs to user {owner}, and this is user {us}; do this as its owner (sudo -u '#{owner}' …)",
        path.display()
    )]
    NotOurs { path: PathBuf, owner: u32, us: u32 },
    #[error("{} is inside {}; name a folder outside it", path.display(), root.display())]
    Inside { path: PathBuf, root: PathBuf },
    #[error(
        "the folder {} does not exist; make it, or mount the disk that it should be on, and try again",
        path.display()
    )]
    NoParent { path: PathBuf },
    #[error("{} is not empty; name another folder, or move it away", path.display())]
    Filled { path: PathBuf },
    #[error(
        "{0} is a mount point, which cannot be replaced by a finished folder; name a folder in it, such as {0}/muster",
        path.display()
    )]
    MountPoint { path: PathBuf },
    #[error("a server runs in {}; name another folder, or stop it and move it away", path.display())]
    InUse { path: PathBuf },
    #[error(
        "{} is left over from an interrupted backup or restore, or one is running now; if none is, remove it and try \
         again",
        path.display()
    )]
    Leftover { path: PathBuf },
    #[error(
        "{} is not a backup: it has no readable manifest.json; name the folder that `muster backup` made",
        path.display()
    )]
    NoBackup { path: PathBuf },
    #[error(
        "the backup {} was made by a newer version of muster (its format is {found}, this one knows {known}); use that \
         version",
        path.display()
    )]
    TooNew { path: PathBuf, found: u32, known: u32 },
    #[error("{} is damaged: {what}; use another backup", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error(
        "{} is damaged: {what}; use another backup, or leave out such files with --skip-damaged",
        path.display()
    )]
    Skippable { path: PathBuf, what: String },
    #[error("{} cannot be backed up: {what}; put it right, or remove it", path.display())]
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

/// Says what was being done to which file.
pub(super) trait Doing<T> {
    fn doing(self, operation: &'static str, path: &Path) -> Result<T, BackupError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, operation: &'static str, path: &Path) -> Result<T, BackupError> {
        self.map_err(|source| BackupError::Io { operation, path: path.to_owned(), source })
    }
}
