//! Finds the files of a state directory, and copies them into a backup or out of it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use muster_core::model::BlobId;
use muster_trees::{Extent, Hasher, Target, extent};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, linkat, openat2};
use serde::{Deserialize, Serialize};

use super::error::{BackupError, Doing, damaged};
use super::list::{self, Entry};
use super::{Step, Tell};

const PIECE_BYTES: usize = 1 << 20;
/// How many bytes of a hole are hashed between two reports of progress.
const HOLE_BYTES: u64 = 64 << 20;

/// A symbolic link in the state directory. A backup contains the target instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Relative to the state directory.
    pub path: String,
    pub to: String,
}

/// The contents of a folder. Paths are relative to the state directory.
#[derive(Debug, Default)]
pub struct Found {
    /// Sorted.
    pub files: Vec<PathBuf>,
    pub links: Vec<Link>,
    /// Links that are dangling or form a cycle, with the reason.
    pub dead_links: Vec<(PathBuf, String)>,
}

/// Whether symbolic links are followed. The owner of a state directory may have put some into it; a backup contains
/// none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    Followed,
    Refused,
}

/// The symbolic link at this path, if there is one.
pub fn link_at(root: &Path, path: &Path) -> Option<Link> {
    let to = fs::read_link(root.join(path)).ok()?;
    Some(Link { path: path.to_string_lossy().into(), to: to.to_string_lossy().into() })
}

/// Lists the files below a folder. Names with a leading dot are files that were not written completely; they are left
/// out.
pub fn files_below(root: &Path, folder: &Path) -> Result<Found, BackupError> {
    let mut found = Found::default();
    let mut entered = BTreeSet::new();
    found.links.extend(link_at(root, folder));
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        let path = root.join(&folder);
        // A folder may be deleted while it is listed, such as the logs of a job that is being deleted.
        let Some(about) = if_there(fs::metadata(&path)).doing("inspect", &path)? else { continue };
        let Some(entries) = if_there(fs::read_dir(&path)).doing("list", &path)? else { continue };
        entered.insert((about.dev(), about.ino()));
        for entry in entries {
            let Some(entry) = if_there(entry).doing("list", &path)? else { break };
            let kind = if_there(entry.file_type()).doing("inspect", &path)?;
            let (name, Some(kind)) = (entry.file_name(), kind) else { continue };
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let below = folder.join(name);
            match kind {
                kind if kind.is_dir() => left.push(below),
                kind if kind.is_file() => found.files.push(below),
                kind if kind.is_symlink() => follow(root, below, &entered, &mut found, &mut left),
                _ => {}
            }
        }
    }
    found.files.sort_unstable();
    Ok(found)
}

fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

fn follow(
    root: &Path,
    path: PathBuf,
    entered: &BTreeSet<(u64, u64)>,
    found: &mut Found,
    left: &mut Vec<PathBuf>,
) {
    let Some(link) = link_at(root, &path) else { return };
    let is_entered = |about: &fs::Metadata| entered.contains(&(about.dev(), about.ino()));
    let why = match fs::metadata(root.join(&path)) {
        Ok(about) if about.is_file() => {
            found.links.push(link);
            return found.files.push(path);
        }
        Ok(about) if about.is_dir() && !is_entered(&about) => {
            found.links.push(link);
            return left.push(path);
        }
        Ok(about) if about.is_dir() => "a folder that was already visited".to_owned(),
        Ok(_) => "neither a file nor a folder".to_owned(),
        Err(why) => format!("something that cannot be inspected: {why}"),
    };
    found.dead_links.push((path, format!("it is a symbolic link to {}, {why}", link.to)));
}

/// How a blob got into a backup.
#[derive(Debug)]
pub enum Taken {
    /// A hard link to the original, on the same file system. Its bytes were not read.
    Linked(Entry),
    Copied(Entry),
}

/// Adds a file that never changes. If it is on the same file system, a hard link is enough.
pub fn take_blob(
    root: &Path,
    state: &Path,
    path: &Path,
    digest: BlobId,
    tell: &mut Tell<'_>,
) -> Result<Taken, BackupError> {
    let (from, to) = (root.join(path), state.join(path));
    make_parent(&to)?;
    if linkat(CWD, &from, CWD, &to, AtFlags::SYMLINK_FOLLOW).is_ok() {
        let bytes = fs::metadata(&to).doing("inspect", &to)?.len();
        tell(Step::Bytes(bytes));
        return Ok(Taken::Linked(Entry::new(path, digest, bytes)?));
    }
    let entry = copy(root, state, path, tell)?;
    match entry.digest == digest {
        true => Ok(Taken::Copied(entry)),
        false => Err(damaged(&from, "its bytes do not match its name")),
    }
}

/// Copies a file to the same path below `state`.
pub fn copy(
    root: &Path,
    state: &Path,
    path: &Path,
    tell: &mut Tell<'_>,
) -> Result<Entry, BackupError> {
    let to = state.join(path);
    make_parent(&to)?;
    let file = File::options().write(true).create_new(true).mode(0o600).open(&to);
    read((root, Links::Followed), path, Some(file.doing("write", &to)?), tell)
}

/// Opens a file for reading. A named pipe does not block the caller.
fn open((root, links): (&Path, Links), path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.union(OFlags::CLOEXEC);
    match links {
        Links::Followed => {
            File::options().read(true).custom_flags(flags.bits() as i32).open(root.join(path))
        }
        // No folder between the root and the file may be a link, either.
        Links::Refused => {
            let root = File::open(root)?;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            Ok(openat2(&root, path, flags, Mode::empty(), resolve)?.into())
        }
    }
}

/// Reads a whole file and optionally copies it, with holes kept as holes. Bytes that are appended in the meantime are
/// ignored.
pub fn read(
    (root, links): (&Path, Links),
    path: &Path,
    into: Option<File>,
    tell: &mut Tell<'_>,
) -> Result<Entry, BackupError> {
    let from = root.join(path);
    let unreadable =
        |source: io::Error| BackupError::Unreadable { path: from.clone(), what: source };
    let file = open((root, links), path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(damaged(&from, "it is not a regular file"));
    }
    let mut copy = Copy { hasher: Hasher::default(), into: into.map(|it| Target::new(it, None)) };
    let (mut at, mut end) = (0, found.len());
    let mut piece = vec![0; PIECE_BYTES];
    while at < end {
        let Extent { hole, data } = extent(&file, at, end).map_err(unreadable)?;
        copy.add_hole(hole, tell).doing("copy", &from)?;
        at += hole;
        let until = at + data;
        while at < until {
            let wanted = usize::try_from(until - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let got = match file.read_at(&mut piece[..wanted], at) {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                got => got.map_err(unreadable)?,
            };
            if got == 0 {
                // The file has become shorter.
                end = at;
                break;
            }
            copy.add(&piece[..got], tell).doing("copy", &from)?;
            at += got as u64;
        }
    }
    let digest = copy.finish().doing("copy", &from)?;
    Entry::new(path, digest, at)
}

/// The digest and the size of what was read so far, and the copy.
struct Copy {
    hasher: Hasher,
    into: Option<Target>,
}

impl Copy {
    fn add(&mut self, bytes: &[u8], tell: &mut Tell<'_>) -> io::Result<()> {
        self.hasher.add(bytes);
        self.into.as_mut().map_or(Ok(()), |into| into.write(bytes))?;
        tell(Step::Bytes(bytes.len() as u64));
        Ok(())
    }

    fn add_hole(&mut self, bytes: u64, tell: &mut Tell<'_>) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            let now = left.min(HOLE_BYTES);
            self.hasher.add_hole(now);
            tell(Step::Bytes(now));
            left -= now;
        }
        match &mut self.into {
            Some(into) if bytes > 0 => into.write_hole(bytes),
            Some(_) | None => Ok(()),
        }
    }

    fn finish(mut self) -> io::Result<BlobId> {
        if let Some(into) = &mut self.into {
            // A file that ends in a hole gets its length here.
            into.file()?;
        }
        Ok(self.hasher.finish())
    }
}

pub fn remove_if_there(path: &Path) -> Result<(), BackupError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.doing("remove", path),
    }
}

pub fn write(path: &Path, text: &[u8]) -> Result<(), BackupError> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text)).doing("write", path)
}

pub fn make_folder(path: &Path) -> Result<(), BackupError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            Err(BackupError::Leftover { path: path.to_owned() })
        }
        made => made.doing("create", path),
    }
}

pub fn make_parent(path: &Path) -> Result<(), BackupError> {
    let parent = path.parent().unwrap_or(path);
    DirBuilder::new().recursive(true).mode(0o700).create(parent).doing("create", parent)
}

/// The blobs among these files, each with the digest in its name. Incomplete uploads are not included.
pub fn blobs_among(files: &[PathBuf]) -> impl Iterator<Item = (&Path, BlobId)> {
    files.iter().filter_map(|path| Some((path.as_path(), list::blob_of_path(path)?)))
}
