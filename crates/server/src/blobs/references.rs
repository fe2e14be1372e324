//! The files that the file lists of jobs reference. They are kept between garbage collections, so that each list is
//! read only once.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::ids::WorkspaceId;
use muster_core::model::{BlobId, TreeId};
use muster_trees::Tree;
use tracing::warn;

use super::gate::Key;
use super::{BlobError, Blobs};

/// Counts references by the first eight bytes of each digest. Two files that share these bytes are counted as one; then
/// a file may be kept longer than necessary, until the server restarts.
#[derive(Default)]
pub struct ReferencedBytes {
    lists: BTreeMap<(WorkspaceId, TreeId), Box<[u64]>>,
    /// How many lists reference each file.
    counts: BTreeMap<(WorkspaceId, u64), u32>,
}

fn short(digest: &BlobId) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&digest.0[..8]);
    u64::from_be_bytes(first)
}

impl ReferencedBytes {
    pub fn names(&self, (workspace, digest): &Key) -> bool {
        self.counts.contains_key(&(*workspace, short(digest)))
    }

    /// Makes these the current lists. Returns the files of lists that are no longer current. A list that cannot be read
    /// is an error, because its files are not known.
    pub fn follow(
        &mut self,
        blobs: &Blobs,
        now: &[(WorkspaceId, TreeId)],
    ) -> Result<BTreeSet<Key>, BlobError> {
        let present: BTreeSet<_> = now.iter().copied().collect();
        for list in now.iter().filter(|list| !self.lists.contains_key(list)).collect::<Vec<_>>() {
            let (workspace, tree) = list;
            let Some(text) = blobs.tree(*workspace, tree)? else {
                // A client may upload the list again.
                warn!(%workspace, %tree, "the file list of a job is missing");
                continue;
            };
            let read = Tree::parse(&text)?;
            let mut files = vec![short(&BlobId(tree.0))];
            files.extend(read.files().iter().map(|file| short(&file.digest)));
            for file in &files {
                *self.counts.entry((*workspace, *file)).or_default() += 1;
            }
            self.lists.insert(*list, files.into());
        }
        let left: Vec<_> =
            self.lists.keys().filter(|list| !present.contains(list)).copied().collect();
        let mut dropped = BTreeSet::new();
        for list in left {
            // Its files come first, so that a list that cannot be read now is read again later.
            let (workspace, tree) = list;
            if let Some(text) = blobs.tree(workspace, &tree)? {
                let read = Tree::parse(&text)?;
                dropped.extend(read.files().iter().map(|file| (workspace, file.digest)));
            }
            dropped.insert((workspace, BlobId(tree.0)));
            for file in self.lists.remove(&list).unwrap_or_default() {
                if let Some(count) = self.counts.get_mut(&(workspace, file)) {
                    *count -= 1;
                    if *count == 0 {
                        self.counts.remove(&(workspace, file));
                    }
                }
            }
        }
        Ok(dropped)
    }
}
