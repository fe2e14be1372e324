//! Backups of a state directory, made while its server runs or when it is stopped, by whoever owns the directory; and
//! how they are restored ([`restore`]).
//!
//! ```text
//! DIR/manifest.json     what it is a backup of, and the digest of the next
//! DIR/files             every file below: its digest, its bytes, its path
//! DIR/state/…           as in the state directory
//! ```
//!
//! The databases are copied first, both as of one moment. Whatever their rows name was on disk before the rows were, and
//! nothing removes it meanwhile: the sweep of a server waits for a backup ([`Turn`](crate::blobs::Turn)). So the files
//! that are linked or copied afterwards are all that is needed, and a few that came later. What can be made again is left
//! out: nodes, environments, sockets.

mod error;
mod list;
mod restore;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use muster_core::ids::WorkspaceId;
use muster_core::model::BlobId;
use muster_store::{Reader as _, SqliteReader, backup as copies};
use muster_trees::{Hasher, Tree, blob_of};
use serde::{Deserialize, Serialize};

pub use self::error::BackupError;
use self::error::{Doing, damaged};
use self::list::{Entry, List};
pub use self::restore::{Checked, check, restore};
use crate::blobs::Turn;
use crate::state_dir::StateDir;

/// Raised when an older version could not read it.
const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const FILES: &str = "files";
const STATE: &str = "state";
const STORE: &str = "muster.db";
const STORAGE: &str = "storage.db";
const BLOBS: &str = "blobs";
/// With the address of the object store, if bytes are there and not here.
const ELSEWHERE: &str = "blobs/elsewhere";
/// Copied whole; and single files beside them, where they are.
const FOLDERS: [&str; 4] = ["keys", "pki", "logs", "post-mortems"];
const SINGLE: [&str; 3] = ["muster.toml", "clock", ELSEWHERE];
const PIECE_BYTES: usize = 1 << 20;

/// What a backup is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub muster_version: String,
    /// When its databases were held, RFC 3339.
    pub made_at: String,
    /// The last change that is in it.
    pub revision: u64,
    pub files: u64,
    pub bytes: u64,
    /// BLAKE3 of the list of files.
    pub list_digest: String,
    /// Where the bytes of blobs are, if they are not in the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob_store: Option<String>,
    /// Files that rows name and that were lost before the backup was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many bytes are to be copied or read.
    Databases {
        bytes: u64,
    },
    Files,
    Checking,
    Bytes(u64),
}

/// Who is told.
pub type Tell<'t> = dyn FnMut(Step) + 't;

/// Makes a backup in `to`, which must not be there, or be empty. It has its name when it is whole and on disk.
pub fn make(
    state_dir: &StateDir,
    to: &Path,
    version: &str,
    tell: &mut Tell<'_>,
) -> Result<Manifest, BackupError> {
    let root = state_dir.root();
    check_source(state_dir)?;
    let to = std::path::absolute(to).doing("find", to)?;
    if to.starts_with(root) {
        return Err(BackupError::Inside { path: to, root: root.to_owned() });
    }
    refuse_filled(&to)?;
    let partial = beside(&to, "partial")?;
    make_folder(&partial)?;
    let made = fill(state_dir, &partial, version, tell).and_then(|manifest| {
        settle(&partial, &to)?;
        Ok(manifest)
    });
    if made.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_dir_all(&partial);
    }
    made
}

/// Only its owner reads all of it, and makes no files in it that the server could not open.
fn check_source(state_dir: &StateDir) -> Result<(), BackupError> {
    let root = state_dir.root();
    if !state_dir.database().exists() || !state_dir.storage().exists() {
        return Err(BackupError::NothingThere { path: root.to_owned() });
    }
    let owner = fs::metadata(root).doing("look at", root)?.uid();
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
    tell: &mut Tell<'_>,
) -> Result<Manifest, BackupError> {
    let (root, state) = (state_dir.root(), partial.join(STATE));
    make_folder(&state)?;
    let _turn = Turn::backup(&state_dir.blobs()).doing("lock", &state_dir.blobs())?;
    let moment = copies::Moment::hold(&state_dir.database(), &state_dir.storage())?;
    let (revision, made_at) = (moment.revision, jiff::Timestamp::now());
    tell(Step::Databases { bytes: moment.bytes()? });
    let (store, storage) = (state.join(STORE), state.join(STORAGE));
    moment.copy(&store, &storage, &mut |bytes| tell(Step::Bytes(bytes)))?;

    tell(Step::Files);
    let mut list = List::default();
    for name in FOLDERS {
        for path in files_below(root, Path::new(name))? {
            // Logs of jobs that are deleted, and old post-mortems, may go meanwhile.
            match copy(root, &state, &path, tell) {
                Err(_) if !root.join(&path).exists() => remove_if_there(&state.join(&path))?,
                copied => list.push(copied?),
            }
        }
    }
    for name in SINGLE.iter().map(Path::new).filter(|name| root.join(name).is_file()) {
        list.push(copy(root, &state, name, tell)?);
    }
    for path in blob_files(root)? {
        list.push(link(root, &state, &path, tell)?);
    }

    tell(Step::Checking);
    copies::check_copies(&store, &storage)?;
    for name in [STORE, STORAGE] {
        list.push(read(&state, Path::new(name), None, tell)?);
    }
    let blob_store = fs::read_to_string(state.join(ELSEWHERE)).ok().map(|it| it.trim().to_owned());
    let lost = match blob_store {
        Some(_) => BTreeSet::new(),
        None => missing(&state, &list.paths())?,
    };
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
    };
    let text = serde_json::to_vec_pretty(&manifest).expect("plain fields");
    write(&partial.join(MANIFEST), &text)?;
    Ok(manifest)
}

/// Which files the rows of these databases name and the list does not have.
fn missing(state: &Path, listed: &BTreeSet<&str>) -> Result<BTreeSet<String>, BackupError> {
    let mut missing = BTreeSet::new();
    let mut look = |workspace: WorkspaceId, digest: BlobId| {
        let path = blob_path(workspace, &digest);
        let is_there = listed.contains(path.as_str());
        if !is_there {
            missing.insert(path);
        }
        is_there
    };
    copies::each_named_file(&state.join(STORAGE), |workspace, digest| {
        look(workspace, digest);
    })?;
    for (workspace, tree) in SqliteReader::open(state.join(STORE))?.wanted_trees()? {
        let digest = BlobId(tree.0);
        if !look(workspace, digest) {
            continue;
        }
        let path = state.join(blob_path(workspace, &digest));
        let text = fs::read(&path).doing("read", &path)?;
        let parsed = Tree::parse(&text).map_err(|why| damaged(&path, &why.to_string()))?;
        for file in parsed.files() {
            look(workspace, file.digest);
        }
    }
    Ok(missing)
}

fn blob_path(workspace: WorkspaceId, digest: &BlobId) -> String {
    let name = digest.to_string();
    format!("{BLOBS}/{workspace}/{}/{name}", &name[..2])
}

/// The files of the byte store. What is on its way there is not.
fn blob_files(root: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let is_named = |path: &PathBuf| list::blob_of_path(path).is_some();
    Ok(files_below(root, Path::new(BLOBS))?.into_iter().filter(is_named).collect())
}

/// Paths from `root`, in order. What is half written begins with a dot, and is left out.
fn files_below(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        let path = root.join(&folder);
        let entries = match fs::read_dir(&path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.doing("list", &path)?,
        };
        for entry in entries {
            let entry = entry.doing("list", &path)?;
            let (name, kind) = (entry.file_name(), entry.file_type().doing("look at", &path)?);
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            match kind {
                kind if kind.is_dir() => left.push(folder.join(name)),
                kind if kind.is_file() => found.push(folder.join(name)),
                _ => {}
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A file that never changes: on the same file system it is the same file.
fn link(root: &Path, state: &Path, path: &Path, tell: &mut Tell<'_>) -> Result<Entry, BackupError> {
    let (from, to) = (root.join(path), state.join(path));
    make_parent(&to)?;
    let digest = list::blob_of_path(path).expect("only such are linked");
    if fs::hard_link(&from, &to).is_ok() {
        let bytes = fs::metadata(&to).doing("look at", &to)?.len();
        tell(Step::Bytes(bytes));
        return Entry::new(path, digest, bytes);
    }
    let entry = copy(root, state, path, tell)?;
    match entry.digest == digest {
        true => Ok(entry),
        false => Err(damaged(&from, "its bytes are not what its name says")),
    }
}

fn remove_if_there(path: &Path) -> Result<(), BackupError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.doing("remove", path),
    }
}

fn copy(root: &Path, state: &Path, path: &Path, tell: &mut Tell<'_>) -> Result<Entry, BackupError> {
    let to = state.join(path);
    make_parent(&to)?;
    let file = File::options().write(true).create_new(true).mode(0o600).open(&to);
    read(root, path, Some(file.doing("write", &to)?), tell)
}

/// Reads a file through, and writes what it reads into another. A file that grows is as long as it was at first.
fn read(
    root: &Path,
    path: &Path,
    mut into: Option<File>,
    tell: &mut Tell<'_>,
) -> Result<Entry, BackupError> {
    let from = root.join(path);
    let file =
        File::options().read(true).custom_flags(NOFOLLOW).open(&from).doing("read", &from)?;
    let found = file.metadata().doing("look at", &from)?;
    if !found.is_file() {
        return Err(damaged(&from, "it is not a plain file"));
    }
    let (mut file, mut hasher, mut bytes) = (file.take(found.len()), Hasher::default(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let got = match file.read(&mut piece) {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            got => got.doing("read", &from)?,
        };
        if got == 0 {
            break;
        }
        hasher.add(&piece[..got]);
        if let Some(into) = &mut into {
            into.write_all(&piece[..got]).doing("copy", &from)?;
        }
        bytes += got as u64;
        tell(Step::Bytes(got as u64));
    }
    Entry::new(path, hasher.finish(), bytes)
}

/// Nor does a pipe keep anybody waiting.
const NOFOLLOW: i32 =
    rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK).bits() as i32;

fn write(path: &Path, text: &[u8]) -> Result<(), BackupError> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text)).doing("write", path)
}

fn make_folder(path: &Path) -> Result<(), BackupError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            Err(BackupError::Leftover { path: path.to_owned() })
        }
        made => made.doing("make", path),
    }
}

fn make_parent(path: &Path) -> Result<(), BackupError> {
    let parent = path.parent().unwrap_or(path);
    DirBuilder::new().recursive(true).mode(0o700).create(parent).doing("make", parent)
}

/// A name beside `path`, for what is not whole yet.
fn beside(path: &Path, suffix: &str) -> Result<PathBuf, BackupError> {
    let Some(name) = path.file_name() else {
        return Err(BackupError::Filled { path: path.to_owned() });
    };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{suffix}"));
    Ok(path.with_file_name(hidden))
}

fn refuse_filled(path: &Path) -> Result<(), BackupError> {
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(BackupError::Filled { path: path.to_owned() }),
        },
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(why) => Err(why).doing("look at", path),
    }
}

/// Onto the disk, and only then under its name.
fn settle(partial: &Path, to: &Path) -> Result<(), BackupError> {
    let folder = File::open(partial).doing("open", partial)?;
    rustix::fs::syncfs(&folder).map_err(io::Error::from).doing("flush", partial)?;
    fs::rename(partial, to).doing("name", to)?;
    let parent = to.parent().unwrap_or(to);
    File::open(parent).and_then(|folder| folder.sync_all()).doing("flush", parent)
}

/// Milliseconds since 1970.
fn unix_ms(now: SystemTime) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
