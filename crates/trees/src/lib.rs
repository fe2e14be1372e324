//! Files that travel: a folder as a list of what is in it ([`Tree`]), and folders that are read and written
//! without ever leaving them ([`Folder`]).
//!
//! A tree names each file by its path, whether it may be run, its size and the digest of its bytes (BLAKE3). Its own id is the
//! digest of its text, so equal folders are one tree, and whoever has the id can check everything else.
//!
//! It knows nothing of jobs, of HTTP, or of where bytes are kept.

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
