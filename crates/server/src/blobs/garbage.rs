//! Deletes bytes that nothing references any more.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use muster_core::ids::WorkspaceId;
use muster_core::model::BlobId;

use super::gate::Key;
use super::usage::taken_by;
use super::{BlobError, Blobs, BlobsLock, ReferencedBytes};

/// The result of a garbage collection, or of a rehearsal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    pub files: u64,
    pub bytes: u64,
    /// Files that were kept, if every file was examined.
    pub kept: u64,
}

/// Whether a file is referenced by anything other than file lists. An error stops the garbage collection.
pub type IsNamed<'a> = dyn FnMut(WorkspaceId, &BlobId) -> Result<bool, BlobError> + 'a;

impl Blobs {
    /// Files that jobs brought or left since the last call, and those that were too young then.
    pub fn take_doubted(&self) -> BTreeSet<Key> {
        self.gate.take_doubted()
    }

    /// Marks a file as possibly unreferenced, so that the next garbage collection examines it.
    pub fn doubt(&self, workspace: WorkspaceId, digest: BlobId) {
        self.gate.doubt(workspace, digest);
    }

    /// Forgets requests for files from before this time.
    pub fn forget_asked(&self, before: SystemTime) {
        self.gate.forget_asked(before);
    }

    /// The lock to hold while files are deleted. `None` while a backup is being created.
    pub fn turn(&self) -> Result<Option<BlobsLock>, BlobError> {
        BlobsLock::collect_garbage(&self.root).map_err(BlobError::Io)
    }

    /// Examines every file, and deletes those that are on no job's file list, that nothing else references, and that
    /// were not requested since `before`. A rehearsal only counts them.
    pub fn collect_garbage(
        &self,
        wanted: &ReferencedBytes,
        is_named: &mut IsNamed<'_>,
        before: SystemTime,
        is_rehearsal: bool,
    ) -> Result<Removed, BlobError> {
        let mut removed = Removed::default();
        self.each(|workspace, digest| {
            let is_wanted = wanted.names(&(workspace, digest)) || is_named(workspace, &digest)?;
            let gone = match is_wanted {
                true => None,
                false => self.remove_old(workspace, &digest, before, is_rehearsal),
            };
            removed.kept += u64::from(gone.is_none());
            removed.add(gone);
            Ok(())
        })?;
        Ok(removed)
    }

    fn each(
        &self,
        mut look: impl FnMut(WorkspaceId, BlobId) -> Result<(), BlobError>,
    ) -> Result<(), BlobError> {
        if let Some(remote) = &self.remote {
            return remote.each(look);
        }
        for workspace in entries(&self.root).map_err(BlobError::Io)? {
            // Uploads in progress have no workspace, and other entries do not belong to Muster.
            let Ok(id) = workspace.parse::<WorkspaceId>() else { continue };
            for shard in entries(&self.root.join(&workspace)).map_err(BlobError::Io)? {
                let folder = self.root.join(&workspace).join(&shard);
                for name in entries(&folder).map_err(BlobError::Io)? {
                    let Ok(digest) = name.parse::<BlobId>() else { continue };
                    look(id, digest)?;
                }
            }
        }
        Ok(())
    }

    /// The number of bytes that the files of a workspace take.
    pub(super) fn measure(&self, workspace: WorkspaceId) -> Result<u64, BlobError> {
        if let Some(remote) = &self.remote {
            return remote.measure(workspace);
        }
        let home = self.root.join(workspace.to_string());
        let mut bytes = 0;
        for shard in entries(&home).map_err(BlobError::Io)? {
            for name in entries(&home.join(&shard)).map_err(BlobError::Io)? {
                // A file that is deleted in the meantime takes no space.
                bytes += fs::metadata(home.join(&shard).join(name)).as_ref().map_or(0, taken_by);
            }
        }
        Ok(bytes)
    }

    /// Returns how many bytes were freed; `None` if the file is too young or is held.
    pub fn remove_old(
        &self,
        workspace: WorkspaceId,
        digest: &BlobId,
        before: SystemTime,
        is_rehearsal: bool,
    ) -> Option<u64> {
        let key = (workspace, *digest);
        let remove = || match &self.remote {
            Some(remote) => self
                .gate
                .remove_elsewhere(key, before, || remote.remove_old(&key, before, is_rehearsal)),
            None => self.remove_here(key, before, is_rehearsal),
        };
        let removed = match is_rehearsal {
            true => remove(),
            false => self.usage.removing(workspace, remove),
        };
        if removed.is_none() {
            // A file that is too young must be examined again later.
            self.doubt(workspace, *digest);
        }
        removed
    }

    fn remove_here(&self, key: Key, before: SystemTime, is_rehearsal: bool) -> Option<u64> {
        let path = self.path(key.0, &key.1);
        let state = self.gate.lock();
        let found = match fs::metadata(&path) {
            Ok(found) => found,
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Some(0),
            Err(_) => return None,
        };
        let is_old = found.modified().is_ok_and(|at| at < before);
        let is_gone =
            is_old && !state.is_held(&key) && (is_rehearsal || fs::remove_file(&path).is_ok());
        is_gone.then(|| taken_by(&found))
    }
}

impl Removed {
    pub fn add(&mut self, bytes: Option<u64>) {
        self.files += u64::from(bytes.is_some());
        self.bytes += bytes.unwrap_or(0);
    }
}

/// The names in a folder; none if the folder does not exist.
fn entries(folder: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(folder) {
        Ok(found) => {
            let names = found.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
            names.collect()
        }
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}
