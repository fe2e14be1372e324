//! Creates backups of a state directory while its server runs or is stopped. The owner of the directory does this.
//! [`restore`] turns a backup back into a state directory.
//!
//! ```text
//! DIR/manifest.json     what was backed up, and the digest of `files`
//! DIR/files             the digest, size and path of every file in `state`
//! DIR/state/…           the files, laid out as in the state directory
//! ```
//!
//! The databases are copied first, both from the same moment. Every file that their rows reference was on disk before
//! the rows were, and nothing removes it during the backup, because garbage collection waits for a backup
//! ([`BlobsLock`](crate::blobs::BlobsLock)). So the files that are linked or copied afterwards include everything that
//! is needed, and perhaps a few newer ones. Nodes, environments and sockets are left out, because they can be created
//! again.

mod copying;
mod damage;
mod error;
mod list;
mod restore;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use muster_store::backup as copies;
use muster_trees::blob_of;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use self::copying::Link;
use self::copying::{
    Links, Taken, blobs_among, copy, files_below, link_at, make_folder, read, remove_if_there,
    take_blob, write,
};
use self::damage::Damage;
pub use self::damage::Damaged;
pub use self::error::BackupError;
use self::error::{Doing, damaged};
use self::list::List;
pub use self::restore::{Checked, OnDamage, check, restore};
use crate::blobs::BlobsLock;
use crate::state_dir::StateDir;
use crate::state_dir::names::{
    BLOBS, CLOCK, CONFIG, DATABASE, ELSEWHERE, KEYS, LOGS, MODE, PKI, POST_MORTEMS, SERIES, STORAGE,
};

/// Increased when older versions can no longer read the format.
const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const FILES: &str = "files";
const STATE: &str = "state";
/// Folders that are copied with all their files, followed by single files, which are copied if they exist.
const FOLDERS: [&str; 4] = [KEYS, PKI, LOGS, POST_MORTEMS];
const SINGLE: [&str; 4] = [CONFIG, CLOCK, MODE, ELSEWHERE];

/// Describes a backup: what it contains, and when it was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub muster_version: String,
    /// When the databases were copied, as an RFC 3339 timestamp.
    pub made_at: String,
    /// The number of the last change in the backup.
    pub revision: u64,
    pub files: u64,
    pub bytes: u64,
    /// The BLAKE3 digest of the list of files.
    pub list_digest: String,
    /// Where the bytes of blobs are stored, if they are not in the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob_store: Option<String>,
    /// Files that rows reference and that were already lost before the backup.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// Files that were left out because they are damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
    /// Symbolic links in the state directory that were followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
}

/// The progress of a backup or a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The databases are next, and this many bytes will be copied or read in all.
    Databases {
        bytes: u64,
    },
    Files,
    Checking,
    Bytes(u64),
}

/// The callback that receives the progress.
pub type Tell<'t> = dyn FnMut(Step) + 't;

/// How thoroughly a backup is verified while it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Blobs that are hard links are not read.
    Usual,
    /// Every file of the backup is read again.
    Everything,
}

/// Creates a backup in `to`, which must be empty or not exist. The backup gets this name once it is complete and on
/// disk. Damaged files are left out if the rest is usable without them.
pub fn make(
    state_dir: &StateDir,
    to: &Path,
    version: &str,
    verify: Verify,
    tell: &mut Tell<'_>,
) -> Result<Manifest, BackupError> {
    let root = state_dir.root();
    check_source(state_dir)?;
    let to = std::path::absolute(to).doing("resolve", to)?;
    if to.starts_with(root) {
        return Err(BackupError::Inside { path: to, root: root.to_owned() });
    }
    refuse_mount_point(&to)?;
    refuse_filled(&to)?;
    // The parent is not created, so that a disk that is not mounted is noticed.
    if let Some(parent) = to.parent().filter(|parent| !parent.exists()) {
        return Err(BackupError::NoParent { path: parent.to_owned() });
    }
    let partial = beside(&to, "partial")?;
    make_folder(&partial)?;
    let made = fill(state_dir, &partial, version, verify, tell).and_then(|manifest| {
        settle(&partial, &to)?;
        Ok(manifest)
    });
    if made.is_err() {
        // Report the first error, not one of the clean-up.
        let _ = fs::remove_dir_all(&partial);
    }
    made
}

/// Only the owner can read the whole directory, and creates no files in it that the server could not open.
fn check_source(state_dir: &StateDir) -> Result<(), BackupError> {
    let root = state_dir.root();
    if !state_dir.database().exists() || !state_dir.storage().exists() {
        return Err(BackupError::NothingThere { path: root.to_owned() });
    }
    let owner = fs::metadata(root).doing("inspect", root)?.uid();
    let us = rustix::process::geteuid().as_raw();
    match owner == us {
        true => Ok(()),
        false => Err(BackupError::NotOurs { path: root.to_owned(), owner, us }),
    }
}

fn fill(
    state_dir: &StateDir,
    partial: &Path,
    version: &str,
    verify: Verify,
    tell: &mut Tell<'_>,
) -> Result<Manifest, BackupError> {
    let (root, state) = (state_dir.root(), partial.join(STATE));
    make_folder(&state)?;
    let _turn = BlobsLock::backup(&state_dir.blobs()).doing("lock", &state_dir.blobs())?;
    let moment = copies::Moment::hold(&state_dir.database(), &state_dir.storage())?;
    let (revision, made_at) = (moment.revision, jiff::Timestamp::now());
    tell(Step::Databases { bytes: moment.bytes()? });
    let (store, storage) = (state.join(DATABASE), state.join(STORAGE));
    moment.copy(&store, &storage, &mut |bytes| tell(Step::Bytes(bytes)))?;

    tell(Step::Files);
    let mut files = Files::new(root, &state);
    files.take_folders(tell)?;
    files.take_single(tell)?;
    files.take_blobs(tell)?;
    files.take_history(tell)?;

    tell(Step::Checking);
    copies::check_copies(&store, &storage)?;
    for name in [DATABASE, STORAGE] {
        files.links.extend(link_at(root, Path::new(name)));
        files.list.push(read((&state, Links::Refused), Path::new(name), None, tell)?);
    }
    if verify == Verify::Everything {
        files.verify(tell)?;
    }
    let blob_store = fs::read_to_string(state.join(ELSEWHERE)).ok().map(|it| it.trim().to_owned());
    let lost = match blob_store {
        Some(_) => BTreeSet::new(),
        None => files.lost()?,
    };
    let Files { list, damage, links, .. } = files;
    let text = list.to_text();
    write(&partial.join(FILES), text.as_bytes())?;
    let manifest = Manifest {
        format: FORMAT,
        muster_version: version.to_owned(),
        made_at: made_at.to_string(),
        revision: revision.0,
        files: list.len(),
        bytes: list.bytes(),
        list_digest: blob_of(text.as_bytes()).to_string(),
        blob_store,
        lost: lost.into_iter().collect(),
        damaged: damage.with_owners(&state)?,
        links,
    };
    let text = serde_json::to_vec_pretty(&manifest).expect("the manifest has only plain fields");
    write(&partial.join(MANIFEST), &text)?;
    Ok(manifest)
}

/// Collects the files of a backup.
#[derive(Debug)]
struct Files<'a> {
    root: &'a Path,
    state: &'a Path,
    list: List,
    /// Blobs on the list that were not read, because they are hard links to the originals.
    linked: BTreeSet<String>,
    damage: Damage,
    links: Vec<Link>,
}

impl Files<'_> {
    fn new<'a>(root: &'a Path, state: &'a Path) -> Files<'a> {
        let (list, linked) = (List::default(), BTreeSet::new());
        Files { root, state, list, linked, damage: Damage::default(), links: Vec::new() }
    }

    /// The files below a folder. Dangling links are noted as damaged files.
    fn below(&mut self, folder: &str) -> Result<Vec<PathBuf>, BackupError> {
        let found = files_below(self.root, Path::new(folder))?;
        self.links.extend(found.links);
        for (path, what) in found.dead_links {
            let unfit = BackupError::Unfit { path: self.root.join(&path), what };
            self.damage.note(&path, unfit)?;
        }
        Ok(found.files)
    }

    fn take_folders(&mut self, tell: &mut Tell<'_>) -> Result<(), BackupError> {
        for name in FOLDERS {
            for path in self.below(name)? {
                match copy(self.root, self.state, &path, tell) {
                    Ok(entry) => self.list.push(entry),
                    Err(why) => {
                        remove_if_there(&self.state.join(&path))?;
                        // Logs of deleted jobs, and old post-mortems, may be removed during the backup.
                        if self.root.join(&path).exists() {
                            self.damage.note(&path, why)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn take_single(&mut self, tell: &mut Tell<'_>) -> Result<(), BackupError> {
        let (root, state) = (self.root, self.state);
        for name in SINGLE.map(Path::new) {
            if root.join(name).is_file() {
                self.list.push(copy(root, state, name, tell)?);
                self.links.extend(link_at(root, name));
            } else if let Some(link) = link_at(root, name) {
                let what = format!("it is a symbolic link to {}, which does not exist", link.to);
                // The server treats such a file as absent, too.
                self.damage.add(name, what);
            }
        }
        Ok(())
    }

    /// The history of computes. One that cannot be copied is left out, because a server works without it.
    fn take_history(&mut self, tell: &mut Tell<'_>) -> Result<(), BackupError> {
        let (from, to, name) = (self.root.join(SERIES), self.state.join(SERIES), Path::new(SERIES));
        if !from.exists() {
            return Ok(());
        }
        match copies::copy_series(&from, &to, &mut |bytes| tell(Step::Bytes(bytes))) {
            Ok(()) => {
                self.list.push(read((self.state, Links::Refused), name, None, tell)?);
                self.links.extend(link_at(self.root, name));
            }
            Err(why) => {
                remove_if_there(&to)?;
                self.damage.add(name, muster_core::ErrorChain(&why).to_string());
            }
        }
        Ok(())
    }

    fn take_blobs(&mut self, tell: &mut Tell<'_>) -> Result<(), BackupError> {
        let files = self.below(BLOBS)?;
        for (path, digest) in blobs_among(&files) {
            match take_blob(self.root, self.state, path, digest, tell) {
                Ok(Taken::Copied(entry)) => self.list.push(entry),
                Ok(Taken::Linked(entry)) => {
                    self.linked.insert(entry.path.clone());
                    self.list.push(entry);
                }
                Err(why) => self.leave_out(path, why)?,
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, path: &Path, why: BackupError) -> Result<(), BackupError> {
        self.damage.note(path, why)?;
        self.list.remove(&path.to_string_lossy());
        remove_if_there(&self.state.join(path))
    }

    /// Reads every file again. A copy that differs from what was written points to a fault of the backup's disk; a hard
    /// link that does, to damage of the file itself.
    fn verify(&mut self, tell: &mut Tell<'_>) -> Result<(), BackupError> {
        for entry in self.list.entries().to_vec() {
            let path = Path::new(&entry.path);
            let found = read((self.state, Links::Refused), path, None, tell)
                .and_then(|found| restore::same(self.state, &found, &entry));
            match found {
                Err(why) if self.linked.contains(&entry.path) => self.leave_out(path, why)?,
                found => found?,
            }
        }
        Ok(())
    }

    /// The files that rows reference and that are not in the backup.
    fn lost(&mut self) -> Result<BTreeSet<String>, BackupError> {
        let named = damage::named(self.state, &self.list, &self.damage)?;
        for (path, what) in named.bad_trees {
            let path = Path::new(&path);
            self.leave_out(path, damaged(path, &what))?;
        }
        let damage = &self.damage;
        Ok(named.missing.into_iter().filter(|path| !damage.has(path)).collect())
    }
}

/// A name next to `path`, for a folder that is not complete yet.
fn beside(path: &Path, suffix: &str) -> Result<PathBuf, BackupError> {
    let Some(name) = path.file_name() else {
        return Err(BackupError::Filled { path: path.to_owned() });
    };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{suffix}"));
    Ok(path.with_file_name(hidden))
}

/// Refuses a mount point: the finished folder could not be renamed to it. Its parent may be on another disk, too.
fn refuse_mount_point(path: &Path) -> Result<(), BackupError> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let is_root = match statx(CWD, path, flags, StatxFlags::empty()) {
        Ok(found) => found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        Err(Errno::NOENT) => false,
        Err(why) => return Err(io::Error::from(why)).doing("inspect", path),
    };
    match is_root {
        true => Err(BackupError::MountPoint { path: path.to_owned() }),
        false => Ok(()),
    }
}

fn refuse_filled(path: &Path) -> Result<(), BackupError> {
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(BackupError::Filled { path: path.to_owned() }),
        },
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(why) => Err(why).doing("inspect", path),
    }
}

/// Flushes the folder to disk, and only then gives it its name.
fn settle(partial: &Path, to: &Path) -> Result<(), BackupError> {
    let folder = File::open(partial).doing("open", partial)?;
    rustix::fs::syncfs(&folder).map_err(io::Error::from).doing("flush", partial)?;
    fs::rename(partial, to).doing("rename", to)?;
    let parent = to.parent().unwrap_or(to);
    File::open(parent).and_then(|folder| folder.sync_all()).doing("flush", parent)
}

/// Milliseconds since 1970.
fn unix_ms(now: SystemTime) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
