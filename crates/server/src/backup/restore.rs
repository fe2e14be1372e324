//! Verifies a backup, and restores it as a state directory.
//!
//! A restored store continues with numbers far beyond those of its past (`muster_store::backup::fence`): node names,
//! attempts and epochs that the lost server issued after the backup are never issued again. Nodes from that time that
//! still run are orphans. They are told to end, or lose their leases; see docs/adr/0002 and docs/adr/0003.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use muster_store::backup as copies;
use muster_trees::blob_of;
use rustix::fs::{FlockOperation, flock};

use super::copying::{Links, make_folder, make_parent, read, remove_if_there};
use super::damage::{self, Damage, Damaged, can_be_left_out};
use super::error::{BackupError, Doing, damaged};
use super::list::{Entry, List};
use super::{
    FILES, FORMAT, MANIFEST, Manifest, STATE, Step, Tell, beside, refuse_filled,
    refuse_mount_point, settle, unix_ms,
};
use crate::pki::files;
use crate::state_dir::names::{self, DATABASE, STORAGE};

/// A backup that is complete, apart from files that were left out.
#[derive(Debug)]
pub struct Checked {
    pub manifest: Manifest,
    /// Damaged files of the backup that were skipped.
    pub skipped: Vec<Damaged>,
}

/// How to handle damaged files of a backup if the rest is usable without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDamage {
    Refuse,
    Skip,
}

/// Reads and verifies the whole backup, without writing anything.
pub fn check(
    from: &Path,
    on_damage: OnDamage,
    tell: &mut Tell<'_>,
) -> Result<Checked, BackupError> {
    let (manifest, list) = open(from)?;
    let (state, mut damage) = (from.join(STATE), Damage::default());
    tell(Step::Databases { bytes: list.bytes() });
    for entry in list.entries() {
        let path = Path::new(&entry.path);
        let found = read((&state, Links::Refused), path, None, tell);
        let checked = found.and_then(|found| same(&state, &found, entry));
        checked.or_else(|why| skip(path, why, on_damage, &mut damage))?;
    }
    check_rows(&state, &manifest, &list, &damage, tell)?;
    Ok(Checked { manifest, skipped: damage.with_owners(&state)? })
}

/// Continues without a file, if that was requested and the rest is usable.
fn skip(
    path: &Path,
    why: BackupError,
    on_damage: OnDamage,
    damage: &mut Damage,
) -> Result<(), BackupError> {
    match (on_damage, why) {
        (OnDamage::Skip, why) => damage.note(path, why),
        (OnDamage::Refuse, BackupError::Damaged { path: whole, what }) if can_be_left_out(path) => {
            Err(BackupError::Skippable { path: whole, what })
        }
        (OnDamage::Refuse, BackupError::Unreadable { path: whole, what })
            if can_be_left_out(path) =>
        {
            Err(BackupError::Skippable { path: whole, what: format!("it cannot be read: {what}") })
        }
        (OnDamage::Refuse, why) => Err(why),
    }
}

/// Restores the backup as a state directory. `to` must be empty or not exist; it gets this name once everything has
/// been verified and is on disk.
pub fn restore(
    from: &Path,
    to: &Path,
    now: SystemTime,
    on_damage: OnDamage,
    tell: &mut Tell<'_>,
) -> Result<Checked, BackupError> {
    let (manifest, list) = open(from)?;
    let to = std::path::absolute(to).doing("resolve", to)?;
    refuse_used(&to)?;
    let partial = beside(&to, "restoring")?;
    let parent = to.parent().unwrap_or(&to);
    fs::create_dir_all(parent).doing("create", parent)?;
    make_folder(&partial)?;
    let backup = (from, &manifest, &list);
    let restored = fill(backup, &partial, on_damage, tell).and_then(|skipped| {
        copies::fence(&partial.join(DATABASE), unix_ms(now))?;
        settle(&partial, &to)?;
        Ok(skipped)
    });
    if restored.is_err() {
        // Report the first error, not one of the clean-up.
        let _ = fs::remove_dir_all(&partial);
    }
    restored.map(|skipped| Checked { manifest, skipped })
}

fn fill(
    (from, manifest, list): (&Path, &Manifest, &List),
    partial: &Path,
    on_damage: OnDamage,
    tell: &mut Tell<'_>,
) -> Result<Vec<Damaged>, BackupError> {
    let (state, mut damage) = (from.join(STATE), Damage::default());
    tell(Step::Databases { bytes: list.bytes() });
    for entry in list.entries() {
        let (path, to) = (Path::new(&entry.path), partial.join(&entry.path));
        make_parent(&to)?;
        let file = File::options().write(true).create_new(true).mode(mode(&entry.path)).open(&to);
        let found = read((&state, Links::Refused), path, Some(file.doing("write", &to)?), tell);
        if let Err(why) = found.and_then(|found| same(&state, &found, entry)) {
            skip(path, why, on_damage, &mut damage)?;
            remove_if_there(&to)?;
        }
    }
    check_rows(partial, manifest, list, &damage, tell)?;
    damage.with_owners(partial)
}

/// The mode of a file. Certificates are readable by all, because they are handed to clients.
fn mode(path: &str) -> u32 {
    let is_public = Path::new(path).starts_with(names::PKI) && path.ends_with(".pem");
    if is_public { files::PUBLIC } else { files::PRIVATE }
}

pub(super) fn same(state: &Path, found: &Entry, listed: &Entry) -> Result<(), BackupError> {
    if found == listed {
        return Ok(());
    }
    let what = format!(
        "it has {} bytes with the digest {}, but the list says {} bytes with {}",
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
    if let Some(name) = [DATABASE, STORAGE].into_iter().find(|name| !has.contains(name)) {
        return Err(damaged(&path, &format!("it does not list {name}")));
    }
    Ok((manifest, list))
}

/// Checks that the databases are intact and match the manifest, and that every file that their rows reference exists.
fn check_rows(
    state: &Path,
    manifest: &Manifest,
    list: &List,
    skipped: &Damage,
    tell: &mut Tell<'_>,
) -> Result<(), BackupError> {
    tell(Step::Checking);
    let revision = copies::check_copies(&state.join(DATABASE), &state.join(STORAGE))?;
    if revision.0 != manifest.revision {
        let what = format!(
            "its last change is number {}, but manifest.json says {}",
            revision.0, manifest.revision
        );
        return Err(damaged(&state.join(DATABASE), &what));
    }
    if manifest.blob_store.is_some() {
        return Ok(());
    }
    let damaged_before = manifest.damaged.iter().map(|damaged| &damaged.path);
    let known: BTreeSet<&String> = manifest.lost.iter().chain(damaged_before).collect();
    let named = damage::named(state, list, skipped)?;
    if let Some((path, what)) = named.bad_trees.first() {
        return Err(damaged(&state.join(path), what));
    }
    match named.missing.iter().find(|path| !known.contains(path) && !skipped.has(path)) {
        Some(path) => {
            Err(damaged(&state.join(path), "the database refers to this file, but it is missing"))
        }
        None => Ok(()),
    }
}

fn refuse_used(to: &Path) -> Result<(), BackupError> {
    refuse_mount_point(to)?;
    let filled = refuse_filled(to);
    let Err(BackupError::Filled { path }) = filled else { return filled };
    let is_taken = |lock: File| flock(lock, FlockOperation::NonBlockingLockShared).is_err();
    match File::open(path.join(names::LOCK)).is_ok_and(is_taken) {
        true => Err(BackupError::InUse { path }),
        false => Err(BackupError::Filled { path }),
    }
}
