//! What becomes of a backup: it is read through, and made a state directory again.
//!
//! A restored store counts on from far beyond its past (`muster_store::backup::fence`): node names, attempts and epochs that the
//! lost server gave out after the backup are never given out again. Nodes that live from that time are strangers to it,
//! and are told to end, or lose their leases; see docs/adr/0002 and docs/adr/0003.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use muster_store::backup as copies;
use muster_trees::blob_of;
use rustix::fs::{FlockOperation, flock};

use super::error::{BackupError, Doing, damaged};
use super::list::List;
use super::{
    FILES, FORMAT, MANIFEST, Manifest, STATE, STORAGE, STORE, Step, Tell, beside, make_folder,
    make_parent, missing, read, refuse_filled, settle, unix_ms,
};
use crate::pki::files;

/// A backup that is whole.
#[derive(Debug)]
pub struct Checked {
    pub manifest: Manifest,
}

/// Reads all of it, and writes nothing.
pub fn check(from: &Path, tell: &mut Tell<'_>) -> Result<Checked, BackupError> {
    let (manifest, list) = open(from)?;
    let state = from.join(STATE);
    tell(Step::Databases { bytes: list.bytes() });
    for entry in list.entries() {
        let found = read(&state, Path::new(&entry.path), None, tell)?;
        same(&state, &found, entry)?;
    }
    check_rows(&state, &manifest, &list, tell)?;
    Ok(Checked { manifest })
}

/// Makes it a state directory. `to` must not be there, or be empty; it has its name when everything was found right and is on
/// disk.
pub fn restore(
    from: &Path,
    to: &Path,
    now: SystemTime,
    tell: &mut Tell<'_>,
) -> Result<Checked, BackupError> {
    let (manifest, list) = open(from)?;
    let to = std::path::absolute(to).doing("find", to)?;
    refuse_used(&to)?;
    let partial = beside(&to, "restoring")?;
    let parent = to.parent().unwrap_or(&to);
    fs::create_dir_all(parent).doing("make", parent)?;
    make_folder(&partial)?;
    let restored = fill(from, &partial, &manifest, &list, tell).and_then(|()| {
        copies::fence(&partial.join(STORE), unix_ms(now))?;
        settle(&partial, &to)
    });
    if restored.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_dir_all(&partial);
    }
    restored.map(|()| Checked { manifest })
}

fn fill(
    from: &Path,
    partial: &Path,
    manifest: &Manifest,
    list: &List,
    tell: &mut Tell<'_>,
) -> Result<(), BackupError> {
    let state = from.join(STATE);
    tell(Step::Databases { bytes: list.bytes() });
    for entry in list.entries() {
        let (path, to) = (Path::new(&entry.path), partial.join(&entry.path));
        make_parent(&to)?;
        let file = File::options().write(true).create_new(true).mode(mode(&entry.path)).open(&to);
        let found = read(&state, path, Some(file.doing("write", &to)?), tell)?;
        same(&state, &found, entry)?;
    }
    check_rows(partial, manifest, list, tell)
}

/// Certificates are handed to clients.
fn mode(path: &str) -> u32 {
    let is_public = path.starts_with("pki/") && path.ends_with(".pem");
    if is_public { files::PUBLIC } else { files::PRIVATE }
}

fn same(
    state: &Path,
    found: &super::list::Entry,
    listed: &super::list::Entry,
) -> Result<(), BackupError> {
    if found == listed {
        return Ok(());
    }
    let what = format!(
        "it has {} bytes with the digest {}, and the list says {} bytes with {}",
        found.bytes, found.digest, listed.bytes, listed.digest
    );
    Err(damaged(&state.join(&found.path), &what))
}

fn open(from: &Path) -> Result<(Manifest, List), BackupError> {
    let path = from.join(MANIFEST);
    let no_backup = || BackupError::NoBackup { path: from.to_owned() };
    let text = fs::read(&path).map_err(|_| no_backup())?;
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let Format { format } = serde_json::from_slice(&text).map_err(|_| no_backup())?;
    if format != FORMAT {
        let (path, found, known) = (from.to_owned(), format, FORMAT);
        return Err(BackupError::TooNew { path, found, known });
    }
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|why| damaged(&path, &why.to_string()))?;
    let path = from.join(FILES);
    let text = fs::read(&path).doing("read", &path)?;
    if blob_of(&text).to_string() != manifest.list_digest {
        return Err(damaged(&path, "it is not the list that manifest.json names"));
    }
    let text = String::from_utf8(text).map_err(|_| damaged(&path, "it is not text"))?;
    let list = List::parse(&text).map_err(|what| damaged(&path, &what))?;
    let has = list.paths();
    if let Some(name) = [STORE, STORAGE].into_iter().find(|name| !has.contains(name)) {
        return Err(damaged(&path, &format!("{name} is not on it")));
    }
    Ok((manifest, list))
}

/// The databases are whole, are what the manifest says, and every file that their rows name is there.
fn check_rows(
    state: &Path,
    manifest: &Manifest,
    list: &List,
    tell: &mut Tell<'_>,
) -> Result<(), BackupError> {
    tell(Step::Checking);
    let revision = copies::check_copies(&state.join(STORE), &state.join(STORAGE))?;
    if revision.0 != manifest.revision {
        let what = format!(
            "its last change is number {}, and manifest.json says {}",
            revision.0, manifest.revision
        );
        return Err(damaged(&state.join(STORE), &what));
    }
    if manifest.blob_store.is_some() {
        return Ok(());
    }
    let lost: BTreeSet<&str> = manifest.lost.iter().map(String::as_str).collect();
    let missing = missing(state, &list.paths())?;
    match missing.iter().find(|path| !lost.contains(path.as_str())) {
        Some(path) => Err(damaged(&state.join(path), "rows name it, and it is not there")),
        None => Ok(()),
    }
}

fn refuse_used(to: &Path) -> Result<(), BackupError> {
    let filled = refuse_filled(to);
    let Err(BackupError::Filled { path }) = filled else { return filled };
    let is_taken = |lock: File| flock(lock, FlockOperation::NonBlockingLockShared).is_err();
    match File::open(path.join("lock")).is_ok_and(is_taken) {
        true => Err(BackupError::InUse { path }),
        false => Err(BackupError::Filled { path }),
    }
}
