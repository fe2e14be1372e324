//! Stores the bytes of the files that jobs bring and leave, and of the blob storage. Each file is stored once under its
//! BLAKE3 digest. Workspaces are kept separate, so that a client cannot find out which files another workspace has.
//!
//! ```text
//! blobs/WORKSPACE/ab/abcdef…     a file's bytes, or the text of a file list
//! blobs/incoming/NUMBER          an upload in progress; deleted at a restart
//! ```
//!
//! With `blob-store`, the files of workspaces are objects in an object store, under the same names (`remote.rs`). An
//! upload is sent there when it is complete.
//!
//! A file gets its name when it is complete, matches the digest in the name, and is on disk. A file list gets its name
//! only when all files on it exist, so a list that can be found is always complete. The rows of the storage database
//! say which files make up a blob (`storage.rs`); until such a row is on disk, its files are [`Held`].

mod content;
mod garbage;
mod gate;
mod holes;
mod incoming;
mod keyed_lock;
mod location;
mod lock;
mod references;
#[cfg_attr(not(feature = "object-store"), path = "blobs/no_remote.rs")]
mod remote;
mod usage;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use muster_core::ids::WorkspaceId;
use muster_core::model::{BlobId, TreeId};
use muster_trees::{BadTree, BufferPool, MANIFEST_BYTES_MAX, Tree, tree_of};

pub use self::content::Content;
pub use self::garbage::Removed;
use self::gate::Gate;
pub use self::gate::Held;
use self::holes::Holes;
pub use self::incoming::Incoming;
pub use self::keyed_lock::KeyedLock;
pub use self::location::OpenError;
pub use self::lock::BlobsLock;
pub use self::references::ReferencedBytes;
use self::remote::Remote;
use self::usage::Usage;
pub use self::usage::{Figures, Reserved};
use crate::room::{self, NoRoom, Room};

#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error(transparent)]
    Full(NoRoom),
    #[error(
        "the files and logs of this workspace have {used} bytes, and {more} more would exceed the limit of {limit} \
         bytes; `muster workspace list-usage` shows what takes the space. Delete jobs with their files and logs (`muster job \
         delete`), blobs, or versions of assets, whose space is free some minutes later, or have the operator raise \
         workspace-storage-gb"
    )]
    ShareUsed { used: u64, more: u64, limit: u64 },
    #[error("more than the limit of {limit} bytes; leave out files that are not needed")]
    TooLarge { limit: u64 },
    #[error(
        "the digest is {found}, not {wanted}: the file changed in transit, or while it was read"
    )]
    WrongDigest { wanted: String, found: String },
    #[error(
        "the bytes do not match the MD5 digest in the request: they changed in transit; send them again"
    )]
    WrongMd5,
    #[error(transparent)]
    BadTree(#[from] BadTree),
    #[error("the server cannot store files")]
    Io(#[source] io::Error),
}

pub struct Blobs {
    root: PathBuf,
    /// The object store for complete files, if they are not kept locally.
    remote: Option<Remote>,
    room: Room,
    /// The number of the next upload.
    next: AtomicU64,
    gate: Gate,
    on_disk: Mutex<OnDisk>,
    usage: Usage,
    /// Buffers for uploads.
    pub pieces: BufferPool,
    pub holes: Holes,
}

/// Folders whose directory entries are on disk.
#[derive(Default)]
struct OnDisk(BTreeSet<PathBuf>);

impl OnDisk {
    fn missing(&self, folders: BTreeSet<PathBuf>) -> Vec<PathBuf> {
        folders.into_iter().filter(|folder| !self.0.contains(folder)).collect()
    }
}

/// The result of registering a file list.
#[derive(Debug)]
pub struct Listed {
    pub tree: Tree,
    /// If this is empty, the list is stored.
    pub missing: Vec<BlobId>,
}

impl Blobs {
    /// With the address of an object store, complete files are stored there. `share_max` is the number of bytes
    /// that the files of a workspace may have.
    pub fn new(
        root: PathBuf,
        elsewhere: Option<&str>,
        share_max: Option<u64>,
    ) -> Result<Blobs, OpenError> {
        let remote = Remote::open(&root, elsewhere)?;
        let blobs = Blobs::with_room(root.clone(), Room::of(root))?;
        Ok(Blobs { remote, usage: Usage::up_to(share_max), ..blobs })
    }

    fn with_room(root: PathBuf, room: Room) -> io::Result<Blobs> {
        let incoming = root.join(crate::state_dir::names::INCOMING);
        // The clients of interrupted uploads start again.
        match fs::remove_dir_all(&incoming) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir_all(&incoming)?;
        let (next, gate, on_disk) = (AtomicU64::new(0), Gate::default(), Mutex::default());
        let (usage, pieces, holes) = (Usage::default(), BufferPool::default(), Holes::default());
        Ok(Blobs { root, remote: None, room, next, gate, on_disk, usage, pieces, holes })
    }

    fn path(&self, workspace: WorkspaceId, digest: &BlobId) -> PathBuf {
        let name = digest.to_string();
        self.root.join(workspace.to_string()).join(&name[..2]).join(name)
    }

    /// Whether the file exists. It is then kept for long enough that the caller can store a reference to it.
    fn has(&self, workspace: WorkspaceId, digest: &BlobId) -> Result<bool, BlobError> {
        if let Some(remote) = &self.remote {
            self.gate.ask(workspace, *digest);
            return Ok(remote.size(workspace, digest)?.is_some());
        }
        let _gate = self.gate.lock();
        match File::options().append(true).open(self.path(workspace, digest)) {
            Ok(file) => {
                file.set_modified(SystemTime::now()).map_err(BlobError::Io)?;
                Ok(true)
            }
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(other) => Err(BlobError::Io(other)),
        }
    }

    /// Holds a file of this size, if it exists.
    pub fn hold(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        digest: BlobId,
        bytes: u64,
    ) -> Result<Option<Held>, BlobError> {
        let held = Held::new(self, workspace, digest, bytes);
        Ok((self.size(workspace, &digest)? == Some(bytes)).then_some(held))
    }

    fn size(&self, workspace: WorkspaceId, digest: &BlobId) -> Result<Option<u64>, BlobError> {
        if let Some(remote) = &self.remote {
            return remote.size(workspace, digest);
        }
        match fs::metadata(self.path(workspace, digest)) {
            Ok(found) => Ok(Some(found.len())),
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(other) => Err(BlobError::Io(other)),
        }
    }

    pub fn has_tree(&self, workspace: WorkspaceId, tree: &TreeId) -> Result<bool, BlobError> {
        match self.tree(workspace, tree)? {
            Some(text) => Ok(self.missing(workspace, &Tree::parse(&text)?)?.is_empty()),
            None => Ok(false),
        }
    }

    fn missing(&self, workspace: WorkspaceId, tree: &Tree) -> Result<Vec<BlobId>, BlobError> {
        let digests: BTreeSet<BlobId> = tree.files().iter().map(|file| file.digest).collect();
        let mut missing = Vec::new();
        for digest in digests {
            if !self.has(workspace, &digest)? {
                missing.push(digest);
            }
        }
        Ok(missing)
    }

    /// Returns the files of a list that are missing, and stores the list if none is. `bytes_max` is the maximum total
    /// size. Files may take less space than they have bytes, so whether there is room is checked when they arrive.
    pub fn list(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        wanted: &TreeId,
        text: &[u8],
        bytes_max: u64,
        kind: room::Kind,
    ) -> Result<Listed, BlobError> {
        let found = tree_of(text);
        if found != *wanted {
            let (wanted, found) = (wanted.to_string(), found.to_string());
            return Err(BlobError::WrongDigest { wanted, found });
        }
        let tree = Tree::parse(text)?;
        if tree.bytes() > bytes_max {
            return Err(BlobError::TooLarge { limit: bytes_max });
        }
        let missing = self.missing(workspace, &tree)?;
        let as_blob = BlobId(wanted.0);
        // Existing files need no room: a job whose code was sent before can be submitted again.
        if !missing.is_empty() || !self.has(workspace, &as_blob)? {
            // Files may consist mostly of holes, so the space of each is checked when it arrives. A disk without any
            // space is reported now.
            self.check_room(0, kind)?;
            self.check_share(workspace, u64::from(!missing.is_empty()))?;
            if missing.is_empty() {
                // The names of the files are on disk before the list is.
                self.sync_folders(workspace, tree.files().iter().map(|file| file.digest))?;
                let mut incoming = self.begin(workspace, Some(text.len() as u64), kind)?;
                incoming.write(text)?;
                incoming.keep(&as_blob)?;
                self.sync_folders(workspace, [as_blob])?;
            }
        }
        // Nothing references the list yet, and perhaps nothing ever will.
        self.gate.doubt(workspace, as_blob);
        Ok(Listed { tree, missing })
    }

    /// Syncs the folders of these files and their parents, up to the root. A folder that is on disk is never removed,
    /// so only its contents can be new.
    pub fn sync_folders(
        &self,
        workspace: WorkspaceId,
        digests: impl IntoIterator<Item = BlobId>,
    ) -> Result<(), BlobError> {
        if self.remote.is_some() {
            return Ok(());
        }
        let digests = digests.into_iter();
        let folders: BTreeSet<PathBuf> =
            digests.filter_map(|it| Some(self.path(workspace, &it).parent()?.to_owned())).collect();
        let sync = |folder: &Path| {
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(BlobError::Io)
        };
        folders.iter().try_for_each(|folder| sync(folder))?;
        let known = || self.on_disk.lock().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<_> = { known() }.missing(folders);
        if !new.is_empty() {
            let above: BTreeSet<&Path> = new.iter().filter_map(|folder| folder.parent()).collect();
            above.into_iter().chain([&*self.root]).try_for_each(sync)?;
            known().0.extend(new);
        }
        Ok(())
    }

    /// The text of a file list.
    pub fn tree(
        &self,
        workspace: WorkspaceId,
        tree: &TreeId,
    ) -> Result<Option<Vec<u8>>, BlobError> {
        if let Some(remote) = &self.remote {
            return remote.text(workspace, &BlobId(tree.0));
        }
        let Some(content) = self.open(workspace, &BlobId(tree.0))? else { return Ok(None) };
        content.text(MANIFEST_BYTES_MAX as u64 + 1).map(Some).map_err(BlobError::Io)
    }

    /// Opens a file of this list; files that are not on it are not found.
    pub fn file_of(
        &self,
        workspace: WorkspaceId,
        tree: &TreeId,
        digest: &BlobId,
    ) -> Result<Option<Content>, BlobError> {
        let Some(text) = self.tree(workspace, tree)? else { return Ok(None) };
        let wanted = digest.to_string();
        let mut lines = text.split(|byte| *byte == b'\n');
        match lines.any(|line| line.starts_with(wanted.as_bytes())) {
            true => self.open(workspace, digest),
            false => Ok(None),
        }
    }

    pub fn open(
        &self,
        workspace: WorkspaceId,
        digest: &BlobId,
    ) -> Result<Option<Content>, BlobError> {
        if let Some(remote) = &self.remote {
            return remote.content(workspace, digest);
        }
        match File::open(self.path(workspace, digest)) {
            Ok(file) => Content::of_file(file).map(Some).map_err(BlobError::Io),
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(other) => Err(BlobError::Io(other)),
        }
    }

    pub fn check_room(&self, bytes: u64, kind: room::Kind) -> Result<(), BlobError> {
        self.room.check(bytes, kind).map_err(|why| match why {
            full @ NoRoom::Full { .. } => BlobError::Full(full),
            NoRoom::Io(why) => BlobError::Io(why),
        })
    }

    fn failed(&self, why: io::Error, kind: room::Kind) -> BlobError {
        match why.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                self.check_room(u64::MAX, kind).err().unwrap_or(BlobError::Io(why))
            }
            _ => BlobError::Io(why),
        }
    }
}

#[cfg(test)]
mod tests;
