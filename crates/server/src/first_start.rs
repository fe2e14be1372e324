//! Distinguishes a first start from an installation that has lost its databases. The latter must not be mistaken for a
//! new one: its keys, users, jobs and blobs would seem to have never existed.
//!
//! On a first start, the databases are created before everything else. So anything that is found without them was left
//! by a server that had them. A first start that was interrupted left nothing else, and is continued.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use muster_core::ids::JobId;
use muster_store::{
    Durability, Reader as _, Revision, SqliteReader, SqliteStorage, SqliteStore, StoreError,
};

use crate::state_dir::StateDir;
use crate::state_dir::names::INCOMING;

#[derive(Debug, thiserror::Error)]
pub enum FirstStartError {
    #[error(
        "{} {what}, although {} shows that a server has used this directory; nothing was changed: restore a backup \
         into another directory (`muster restore`), put the file back, or move {} away to start with an empty installation",
        lost.display(), trace.display(), root.display()
    )]
    Lost { lost: PathBuf, what: &'static str, trace: PathBuf, root: PathBuf },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Creates the databases on a first start. Afterwards both exist.
pub fn prepare(state_dir: &StateDir) -> Result<(), FirstStartError> {
    let (database, storage) = (state_dir.database(), state_dir.storage());
    let lost = [&database, &storage].into_iter().find_map(|path| Some((path, absent(path)?)));
    let Some((lost, what)) = lost else { return Ok(()) };
    if let Some(trace) = trace(state_dir) {
        let (lost, root) = (lost.clone(), state_dir.root().to_owned());
        return Err(FirstStartError::Lost { lost, what, trace, root });
    }
    // The order matters: see `trace`.
    drop(SqliteStore::open(&database, Durability::Disk)?);
    drop(SqliteStorage::open(&storage, Durability::Disk)?);
    Ok(())
}

/// What is wrong with a database file that has no contents.
fn absent(path: &Path) -> Option<&'static str> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() == 0 => Some("is empty"),
        Err(why) if why.kind() == ErrorKind::NotFound => Some("is missing"),
        // Other problems are reported when the file is opened.
        Ok(_) | Err(_) => None,
    }
}

/// Finds something that does not exist before the databases do.
fn trace(state_dir: &StateDir) -> Option<PathBuf> {
    let (database, storage) = (state_dir.database(), state_dir.storage());
    let is_used =
        || SqliteReader::open(&database)?.event_range().map(|(_, last)| last > Revision(0));
    if absent(&database).is_some() && absent(&storage).is_none() {
        return Some(storage);
    }
    if absent(&database).is_none() && is_used().unwrap_or(false) {
        return Some(database);
    }
    let log = |path: &PathBuf| {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        PathBuf::from(log)
    };
    let is_filled = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.len() > 0);
    let orphans = [&database, &storage].into_iter().filter(|path| absent(path).is_some());
    if let Some(orphan) = orphans.map(log).find(is_filled) {
        return Some(orphan);
    }
    let folders = [state_dir.keys(), state_dir.pki(), state_dir.post_mortems()];
    let found = folders.iter().find_map(|folder| first_in(folder, |_| true));
    let found = found.or_else(|| first_in(&state_dir.logs(), |name| name.parse::<JobId>().is_ok()));
    // Uploads in progress do not count, and neither does their folder.
    let blobs = || first_in(&state_dir.blobs(), |name| name != INCOMING);
    let (connection, series) = (state_dir.connection_file(), state_dir.series());
    let files = || [connection, series].into_iter().find(|path| path.exists());
    found.or_else(blobs).or_else(files)
}

fn first_in(folder: &Path, is_trace: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find(|name| is_trace(name)).map(|name| folder.join(name))
}

#[cfg(test)]
mod tests;
