//! Files that are transferred: a folder as a list of its contents ([`Tree`]), and folders that are read and written
//! without ever leaving them ([`Folder`]).
//!
//! A tree lists each file with its path, whether it is executable, its size and the digest of its contents (BLAKE3).
//! Its own id is the digest of its text, so equal folders are one tree, and the id is enough to check everything else.
//!
//! This crate knows nothing about jobs, HTTP, or where bytes are stored.

mod digest;
mod direct;
mod folder;
mod install;
mod manifest;
mod pieces;
mod snapshot;
mod sparse;

pub use digest::{Hasher, blob_of, tree_of};
pub use direct::{BufferPool, PIECE_BYTES, Piece, Target};
pub use folder::{Folder, Found, Listing, Skipped, Stamp};
pub use install::{FileInstall, InstallError};
pub use manifest::{
    BadTree, FILE_BYTES_MAX, FILES_MAX, File, MANIFEST_BYTES_MAX, TREE_BYTES_MAX, Tree,
};
pub use pieces::pieces;
pub use snapshot::{HOLES_BYTES_MAX, Memory, Snapshot, SnapshotError, glance, snapshot};
pub use sparse::{Extent, Packed, Run, Unpacking, extent};
