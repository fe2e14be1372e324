//! SHA-256, piece by piece.

use aws_lc_rs::digest::{Context, SHA256};
use muster_core::model::{BlobId, TreeId};

pub struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Hasher {
        Hasher(Context::new(&SHA256))
    }
}

impl Hasher {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> BlobId {
        BlobId(self.0.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

pub fn blob_of(bytes: &[u8]) -> BlobId {
    let mut hasher = Hasher::default();
    hasher.add(bytes);
    hasher.finish()
}

/// The id of the tree with this text.
pub fn tree_of(text: &[u8]) -> TreeId {
    TreeId(blob_of(text).0)
}
