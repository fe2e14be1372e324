//! A folder as a tree, while others may be writing to it: either all of it as it was at one moment, or nothing; or, for
//! viewing only, each file as far as it goes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, SystemTime};

use muster_core::model::BlobId;

use crate::digest::Hasher;
use crate::folder::{Folder, Found, Listing, Skipped, Stamp};
use crate::manifest::{BadTree, FILES_MAX, File, Tree, check_sizes};
use crate::sparse::{Extent, extent, hole_bytes};

const PIECE_BYTES: usize = 1 << 20;

/// The most bytes in holes of all files together. Holes take no space but take time to hash: a minute or two for this
/// many.
pub const HOLES_BYTES_MAX: u64 = 64 << 30;

/// Two changes within a tick of the disk's clock look like one, so a file that changed just now is read again next
/// time.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// What was read before, so that files that have not changed since are not read again.
#[derive(Debug)]
pub struct Memory {
    known: BTreeMap<Box<str>, (Stamp, BlobId)>,
    settled_after: Duration,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { known: BTreeMap::new(), settled_after: SETTLED_AFTER }
    }
}

#[derive(Debug)]
pub struct Snapshot {
    pub tree: Tree,
    /// The stamps of all files, to be compared when they are read again.
    pub listing: Listing,
    pub skipped: Vec<Skipped>,
    /// Whether all of it is from one moment.
    pub is_whole: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Retry when fewer files are changing.
    #[error("{path} changed while it was read")]
    Changed { path: String },
    #[error(transparent)]
    Bad(#[from] BadTree),
    #[error(
        "{path} has {bytes} bytes, of which {holes} are holes; all files together may have {HOLES_BYTES_MAX} bytes of \
         holes: write only what is needed, or remove the file"
    )]
    TooManyHoles { path: String, bytes: u64, holes: u64 },
    #[error("cannot read {path}")]
    Io { path: String, source: io::Error },
}

/// Reads what is below these paths of a folder.
pub fn snapshot(
    folder: &Folder,
    below: &[&str],
    memory: &mut Memory,
) -> Result<Snapshot, SnapshotError> {
    let listing = list(folder, below)?;
    memory.forget_gone(below, &listing);
    let files = listing.files.iter().map(|found| memory.file(folder, found));
    let tree = Tree::new(files.collect::<Result<_, _>>()?)?;
    // All files must be from one moment.
    let later = list(folder, below)?;
    if later.files != listing.files {
        let is_other = |pair: &(&Found, &Found)| pair.0 != pair.1;
        let other = listing.files.iter().zip(&later.files).find(is_other);
        let path = other.map_or("a folder".to_owned(), |(found, _)| found.path.to_string());
        return Err(SnapshotError::Changed { path });
    }
    let skipped = listing.skipped.clone();
    Ok(Snapshot { tree, listing, skipped, is_whole: true })
}

/// The same for folders that keep changing: each file up to where it ended when it was found, as an occasional viewer
/// would see it. Files that disappear or shrink meanwhile are left out.
pub fn glance(
    folder: &Folder,
    below: &[&str],
    memory: &mut Memory,
) -> Result<Snapshot, SnapshotError> {
    let mut listing = list(folder, below)?;
    memory.forget_gone(below, &listing);
    let (mut files, mut taken) = (Vec::new(), Vec::new());
    for found in listing.files {
        let file = match memory.file(folder, &found) {
            Ok(file) => Some(file),
            Err(SnapshotError::Changed { .. }) => read_part(folder, &found)?,
            Err(error) => return Err(error),
        };
        if let Some(file) = file {
            files.push(file);
            taken.push(found);
        }
    }
    listing.files = taken;
    let skipped = listing.skipped.clone();
    Ok(Snapshot { tree: Tree::new(files)?, listing, skipped, is_whole: false })
}

fn list(folder: &Folder, below: &[&str]) -> Result<Listing, SnapshotError> {
    let path = below.join(", ");
    let listing = folder.list(below).map_err(|source| SnapshotError::Io { path, source })?;
    if listing.files.len() > FILES_MAX {
        return Err(BadTree::TooManyFiles { count: listing.files.len() }.into());
    }
    // Checked before reading, because reading files that are too large may take hours.
    let sizes = listing.files.iter().map(|found| (&*found.path, found.stamp.bytes));
    if check_sizes(sizes)? > HOLES_BYTES_MAX {
        check_holes(folder, &listing)?;
    }
    Ok(listing)
}

fn check_holes(folder: &Folder, listing: &Listing) -> Result<(), SnapshotError> {
    let mut left = HOLES_BYTES_MAX;
    for found in &listing.files {
        let (path, bytes) = (found.path.to_string(), found.stamp.bytes);
        // A file that disappears meanwhile is noticed when it is read.
        let Ok((file, _)) = folder.open_file(&path) else { continue };
        let holes = hole_bytes(&file, bytes).map_err(|source| failed(found, source))?;
        left = left.checked_sub(holes).ok_or(SnapshotError::TooManyHoles { path, bytes, holes })?;
    }
    Ok(())
}

impl Memory {
    /// Forgets missing files, but only below these paths, because others may be requested again.
    fn forget_gone(&mut self, below: &[&str], listing: &Listing) {
        let paths: BTreeSet<&str> = listing.files.iter().map(|found| &*found.path).collect();
        let is_in = |path: &str, top: &&str| {
            path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.known
            .retain(|path, _| paths.contains(&**path) || !below.iter().any(|top| is_in(path, top)));
    }

    fn file(&mut self, folder: &Folder, found: &Found) -> Result<File, SnapshotError> {
        let digest = match self.known.get(&found.path) {
            Some((stamp, digest)) if *stamp == found.stamp => *digest,
            Some(_) | None => {
                let began = SystemTime::now();
                let digest = read(folder, found)?;
                if found.stamp.changed_at() + self.settled_after <= began {
                    self.known.insert(found.path.clone(), (found.stamp, digest));
                }
                digest
            }
        };
        Ok(file_of(found, digest))
    }
}

fn file_of(found: &Found, digest: BlobId) -> File {
    let (path, is_executable) = (found.path.clone(), found.is_executable);
    File { path, is_executable, bytes: found.stamp.bytes, digest }
}

fn read(folder: &Folder, found: &Found) -> Result<BlobId, SnapshotError> {
    let failed = |source| failed(found, source);
    let (file, stamp) = folder.open_file(&found.path).map_err(failed)?;
    // Reads one byte more than expected, so that a file that keeps growing is noticed.
    let (digest, bytes) = digest_of(&file, found.stamp.bytes + 1).map_err(failed)?;
    let later = Stamp::of_file(&file).map_err(failed)?;
    if stamp != found.stamp || later != found.stamp || bytes != found.stamp.bytes {
        return Err(SnapshotError::Changed { path: found.path.to_string() });
    }
    Ok(digest)
}

/// Reads a file that has changed since it was found, if it is still at least as long.
fn read_part(folder: &Folder, found: &Found) -> Result<Option<File>, SnapshotError> {
    // It was removed or replaced.
    let Ok((file, _)) = folder.open_file(&found.path) else { return Ok(None) };
    let (digest, bytes) =
        digest_of(&file, found.stamp.bytes).map_err(|source| failed(found, source))?;
    Ok((bytes == found.stamp.bytes).then(|| file_of(found, digest)))
}

fn failed(found: &Found, source: io::Error) -> SnapshotError {
    let path = found.path.to_string();
    match source.kind() {
        io::ErrorKind::NotFound => SnapshotError::Changed { path },
        _ => SnapshotError::Io { path, source },
    }
}

/// Hashes this many bytes, or fewer if the file ends before. Returns the digest and the number of bytes. Holes are not
/// read.
fn digest_of(file: &std::fs::File, bytes_max: u64) -> io::Result<(BlobId, u64)> {
    let mut hasher = Hasher::default();
    let mut piece = vec![0; PIECE_BYTES];
    let end = file.metadata()?.len().min(bytes_max);
    let mut at = 0;
    while at < end {
        let Extent { hole, data } = extent(file, at, end)?;
        hasher.add_hole(hole);
        at += hole;
        let until = at + data;
        while at < until {
            let most = usize::try_from(until - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
            match file.read_at(&mut piece[..most], at)? {
                // The file has become shorter.
                0 => return Ok((hasher.finish(), at)),
                read => {
                    hasher.add(&piece[..read]);
                    at += read as u64;
                }
            }
        }
    }
    Ok((hasher.finish(), end))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::blob_of;

    fn taken(folder: &Folder, below: &[&str], memory: &mut Memory) -> Snapshot {
        snapshot(folder, below, memory).unwrap()
    }

    #[test]
    fn only_what_is_named_is_taken_and_links_and_devices_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("outputs/deep")).unwrap();
        fs::write(path("outputs/deep/model"), "weights").unwrap();
        fs::write(path("outputs/run"), "").unwrap();
        fs::set_permissions(path("outputs/run"), PermissionsExt::from_mode(0o700)).unwrap();
        fs::write(path("other"), "not asked for").unwrap();
        symlink("/etc", path("outputs/etc")).unwrap();
        symlink("deep/model", path("outputs/here")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("outputs/pipe"), 0o600.into()).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("outputs/socket")).unwrap();
        fs::write(path("outputs/a\nb"), "").unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let taken = taken(&folder, &["outputs", "outputs/deep", "missing"], &mut Memory::default());
        let files: Vec<_> =
            taken.tree.files().iter().map(|f| (&*f.path, f.is_executable)).collect();
        assert_eq!(files, [("outputs/deep/model", false), ("outputs/run", true)]);
        assert_eq!(taken.tree.files()[0].digest, blob_of(b"weights"));
        let skipped: Vec<_> = taken.skipped.iter().map(|s| s.path.as_str()).collect();
        for name in ["outputs/etc", "outputs/here", "outputs/pipe", "outputs/socket", "outputs/a?b"]
        {
            assert!(skipped.contains(&name), "{name}: {skipped:?}");
        }
    }

    #[test]
    fn a_folder_that_is_a_link_is_not_entered() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("secret"), "of another user").unwrap();
        symlink(other.path(), dir.path().join("outputs")).unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        for below in ["outputs", "outputs/secret"] {
            let taken = taken(&folder, &[below], &mut Memory::default());
            assert!(taken.tree.is_empty(), "{below}");
            assert_eq!(taken.skipped.len(), 1, "{below}");
        }
        assert!(folder.open_file("outputs/secret").is_err());
        assert!(folder.open_file("../secret").is_err());
    }

    #[test]
    fn what_has_not_changed_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "one").unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let mut memory = Memory { settled_after: Duration::ZERO, ..Memory::default() };
        let first = taken(&folder, &["a"], &mut memory).tree;
        // To prove that it is remembered, the memory is changed.
        memory.known.get_mut("a").unwrap().1 = blob_of(b"remembered");
        assert_eq!(
            taken(&folder, &["a"], &mut memory).tree.files()[0].digest,
            blob_of(b"remembered")
        );
        fs::write(dir.path().join("a"), "two").unwrap();
        let second = taken(&folder, &["a"], &mut memory).tree;
        assert_eq!(second.files()[0].digest, blob_of(b"two"));
        assert_ne!(first, second);
        fs::remove_file(dir.path().join("a")).unwrap();
        assert!(taken(&folder, &["a"], &mut memory).tree.is_empty());
        assert!(memory.known.is_empty());
        fs::write(dir.path().join("a"), "just now").unwrap();
        let mut memory = Memory { settled_after: Duration::from_secs(3_600), ..memory };
        assert_eq!(
            taken(&folder, &["a"], &mut memory).tree.files()[0].digest,
            blob_of(b"just now")
        );
        assert!(memory.known.is_empty(), "it may have changed again without a trace");
    }

    #[test]
    fn holes_count_as_what_they_read_as_and_too_many_are_refused_unread() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("a")).unwrap();
        file.write_all_at(b"end", 3 << 20).unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let whole = fs::read(dir.path().join("a")).unwrap();
        let found = taken(&folder, &["a"], &mut Memory::default()).tree.files()[0].clone();
        assert_eq!((found.bytes, found.digest), (whole.len() as u64, blob_of(&whole)));
        // Hashing this would take a quarter of an hour.
        file.set_len(1 << 40).unwrap();
        let refused = snapshot(&folder, &["a"], &mut Memory::default()).unwrap_err().to_string();
        assert!(refused.contains("a has 1099511627776 bytes") && refused.contains("68719476736"));
        for name in ["b", "c"] {
            fs::File::create(dir.path().join(name)).unwrap().set_len(40 << 30).unwrap();
        }
        let refused = glance(&folder, &["b", "c"], &mut Memory::default()).unwrap_err();
        assert!(matches!(refused, SnapshotError::TooManyHoles { .. }), "{refused}");
        assert!(refused.to_string().starts_with("c has 42949672960 bytes"), "{refused}");
    }

    #[test]
    fn a_file_that_grows_while_it_is_read_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "one").unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let mut found = folder.list(&["a"]).unwrap().files.remove(0);
        fs::write(dir.path().join("a"), "one more").unwrap();
        assert!(matches!(read(&folder, &found), Err(SnapshotError::Changed { .. })));
        found.path = "gone".into();
        assert!(matches!(read(&folder, &found), Err(SnapshotError::Changed { .. })));
    }

    #[test]
    fn a_glance_takes_what_is_there_of_files_that_are_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["grows", "stays", "shrinks", "goes"] {
            fs::write(path(name), "one").unwrap();
        }
        let folder = Folder::open(dir.path()).unwrap();
        let found = folder.list(&["goes", "grows", "shrinks", "stays"]).unwrap().files;
        fs::write(path("grows"), "one more").unwrap();
        fs::write(path("shrinks"), "1").unwrap();
        fs::remove_file(path("goes")).unwrap();
        let parts: Vec<_> = found.iter().map(|found| read_part(&folder, found).unwrap()).collect();
        let digests: Vec<_> = parts.iter().map(|part| part.as_ref().map(|f| f.digest)).collect();
        assert_eq!(digests, [None, Some(blob_of(b"one")), None, Some(blob_of(b"one"))]);
        // A folder that does not change looks the same both ways.
        let mut memory = Memory::default();
        let below = ["grows", "shrinks", "stays"];
        let (glanced, whole) =
            (glance(&folder, &below, &mut memory), snapshot(&folder, &below, &mut memory));
        assert_eq!(glanced.unwrap().tree, whole.unwrap().tree);
    }
}
