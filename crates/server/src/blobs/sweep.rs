//! Removes the bytes that nobody names any more.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use muster_core::ids::WorkspaceId;
use muster_core::model::{BlobId, TreeId};
use muster_trees::Tree;
use tracing::warn;

use super::{BlobError, Blobs};

/// What a sweep came to, or would.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    pub files: u64,
    pub bytes: u64,
}

/// Who names files beside lists of files. An error stops the sweep.
pub type IsNamed<'a> = dyn FnMut(WorkspaceId, &BlobId) -> Result<bool, BlobError> + 'a;

impl Blobs {
    /// Whether lists of files were sent or asked for since this was last asked.
    pub fn take_news(&self) -> bool {
        self.has_news.swap(false, Ordering::Relaxed)
    }

    /// Everything on these lists, and the lists. One that cannot be read is an error: what is on it is not known.
    pub fn files_of_trees(
        &self,
        wanted: &[(WorkspaceId, TreeId)],
    ) -> Result<BTreeSet<(WorkspaceId, BlobId)>, BlobError> {
        let mut kept = BTreeSet::new();
        for (workspace, tree) in wanted {
            let Some(text) = self.tree(*workspace, tree)? else {
                warn!(%workspace, %tree, "a job's list of files is lost");
                continue;
            };
            let files = Tree::parse(&text)?;
            let digests = files.files().iter().map(|file| file.digest).chain([BlobId(tree.0)]);
            kept.extend(digests.map(|digest| (*workspace, digest)));
        }
        Ok(kept)
    }

    /// Looks at every file, and removes those that are on none of these lists, that nobody else names, and that were not
    /// asked for since. A rehearsal only counts them.
    pub fn sweep(
        &self,
        wanted: &[(WorkspaceId, TreeId)],
        is_named: &mut IsNamed<'_>,
        before: SystemTime,
        is_rehearsal: bool,
    ) -> Result<Removed, BlobError> {
        let kept = self.files_of_trees(wanted)?;
        let mut removed = Removed::default();
        for workspace in entries(&self.root).map_err(BlobError::Io)? {
            // What is on its way has no workspace; what is not ours is left alone.
            let Ok(id) = workspace.parse::<WorkspaceId>() else { continue };
            for shard in entries(&self.root.join(&workspace)).map_err(BlobError::Io)? {
                let folder = self.root.join(&workspace).join(&shard);
                for name in entries(&folder).map_err(BlobError::Io)? {
                    let Ok(digest) = name.parse::<BlobId>() else { continue };
                    if !kept.contains(&(id, digest)) && !is_named(id, &digest)? {
                        removed.add(self.remove_old(id, &digest, before, is_rehearsal));
                    }
                }
            }
        }
        Ok(removed)
    }

    /// How many bytes went; `None` if it is too young, or somebody is about to name it.
    pub fn remove_old(
        &self,
        workspace: WorkspaceId,
        digest: &BlobId,
        before: SystemTime,
        is_rehearsal: bool,
    ) -> Option<u64> {
        let path = self.path(workspace, digest);
        let held = self.lock();
        let is_held = held.contains_key(&(workspace, *digest));
        let found = match fs::metadata(&path) {
            Ok(found) => found,
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Some(0),
            Err(_) => return None,
        };
        let is_old = found.modified().is_ok_and(|at| at < before);
        let is_gone = is_old && !is_held && (is_rehearsal || fs::remove_file(&path).is_ok());
        // What is too young will be old.
        self.has_news.fetch_or(!is_gone, Ordering::Relaxed);
        is_gone.then_some(found.len())
    }
}

impl Removed {
    pub fn add(&mut self, bytes: Option<u64>) {
        self.files += u64::from(bytes.is_some());
        self.bytes += bytes.unwrap_or(0);
    }
}

/// The names in a folder; none where there is no folder.
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
