//! Rows of the blob storage, in a database file of its own: containers, blobs, what they are made of, and blocks that
//! wait to be put together. The bytes are files of the server's, known here by their digests.
//!
//! What a request demands of the blob that is there ([`Guard`]) is decided in the transaction that changes it.

use std::collections::BTreeMap;

use muster_core::ids::WorkspaceId;
use muster_core::model::{BlobId, WorkspaceKey};
pub use muster_core::storage::{
    About, Blob, BlobPart, BlockFrom, BlockRef, Blocks, ContentHeaders, Guard, Holds, Listed,
    Match, Span, Tag,
};
use muster_core::time::Wall;

use crate::{Revision, StoreError};

/// Blocks of one blob that wait.
pub const STAGED_MAX: u64 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerId(pub u64);

/// A container's name is its own on the whole server, and says whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: ContainerId,
    pub name: Box<str>,
    pub workspace: WorkspaceId,
    /// The same by its name, for what is decided by roles.
    pub owner: WorkspaceKey,
    pub made: Wall,
}

/// Which blob an order is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobRef {
    pub container: ContainerId,
    pub workspace: WorkspaceId,
    pub name: Box<str>,
}

/// What is to be found below a name, each blob a whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    pub container: ContainerId,
    /// Without a slash at its end.
    pub name: Box<str>,
    /// By their names below the folder.
    pub files: Vec<(Box<str>, BlobPart)>,
    /// Whether other blobs below the folder go.
    pub is_all: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AboutChange {
    Metadata(BTreeMap<Box<str>, Box<str>>),
    Headers(ContentHeaders),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageCommand {
    /// Makes it, or finds that it is there.
    MakeContainer {
        name: Box<str>,
        workspace: WorkspaceId,
        owner: WorkspaceKey,
    },
    DeleteContainer {
        id: ContainerId,
    },
    /// With every container in it.
    ForgetWorkspace(WorkspaceId),
    Put {
        at: BlobRef,
        segment: BlobPart,
        about: About,
        guard: Guard,
    },
    Stage {
        at: BlobRef,
        block: Box<str>,
        segment: BlobPart,
    },
    Commit {
        at: BlobRef,
        /// With the files that they were when it was made sure that these are on disk.
        blocks: Vec<(BlockRef, BlobPart)>,
        about: About,
        guard: Guard,
    },
    Change {
        at: BlobRef,
        change: AboutChange,
        guard: Guard,
    },
    Delete {
        at: BlobRef,
        guard: Guard,
    },
    /// Names files that are there already, in all of these folders or in none.
    Publish {
        workspace: WorkspaceId,
        folders: Vec<Folder>,
    },
    /// Forgets the blocks that wait for this blob: their upload was refused, and will not be finished.
    DropStaged {
        at: BlobRef,
    },
    /// Forgets blocks that nobody put together since.
    ExpireStaged {
        before: Wall,
    },
    /// These files are gone, or wanted again: nobody needs to look after them, unless they became unwanted since.
    Settle {
        files: Vec<(WorkspaceId, BlobId)>,
        before: Wall,
    },
}

impl StorageCommand {
    /// Whether rows that live on the store's reserve take this: only what removes something.
    pub fn is_taken_on_reserve(&self) -> bool {
        match self {
            StorageCommand::DeleteContainer { .. }
            | StorageCommand::ForgetWorkspace(_)
            | StorageCommand::Delete { .. }
            | StorageCommand::DropStaged { .. }
            | StorageCommand::ExpireStaged { .. }
            | StorageCommand::Settle { .. } => true,
            // Without files it only removes: so go the blobs of a deleted job.
            StorageCommand::Publish { folders, .. } => {
                folders.iter().all(|folder| folder.files.is_empty())
            }
            StorageCommand::MakeContainer { .. }
            | StorageCommand::Put { .. }
            | StorageCommand::Stage { .. }
            | StorageCommand::Commit { .. }
            | StorageCommand::Change { .. } => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    Container(Container),
    /// What the blob is now.
    Blob {
        tag: Tag,
        changed: Wall,
    },
    /// The files of blocks that were forgotten, and when each was staged.
    Dropped(Vec<(BlobId, Wall)>),
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no such container any more")]
    NoContainer,
    #[error("the container's name is taken; choose another one")]
    ContainerTaken,
    #[error("there is no blob of this name")]
    NoBlob,
    #[error("there is a blob of this name already")]
    Exists,
    #[error("the blob is there, and whoever asks may only make new ones")]
    MayOnlyCreate,
    #[error("the blob is not as the request wants it")]
    Condition,
    #[error("block {id:?} is not there; send it again")]
    NoBlock { id: Box<str> },
    #[error(
        "the blob has {STAGED_MAX} blocks that wait, the most there may be; put them together first"
    )]
    TooManyStaged,
}

pub type StorageResult = Result<Done, Refusal>;

/// The writer's side.
pub trait Storage: Send {
    /// Carries out all orders in one transaction, on disk when it returns. A refused one changes nothing; what it
    /// brought counts as unwanted. After an error, [`Storage::revision`] says whether the orders are on disk; open anew
    /// before anything else is applied.
    fn apply(&mut self, commands: &[StorageCommand], now: Wall) -> Result<Applied, NotApplied>;
    /// What is on disk, by the last batch that is. Every batch has a revision of its own, an empty one too.
    fn revision(&mut self) -> Result<Revision, StoreError>;
}

/// A batch that is on disk.
#[derive(Debug, PartialEq, Eq)]
pub struct Applied {
    pub results: Vec<StorageResult>,
    pub revision: Revision,
}

/// A batch of which it is not known whether it is on disk.
#[derive(Debug)]
pub struct NotApplied {
    pub failed: StoreError,
    /// What became of the orders, if this revision is on disk after all. `None` if the commit was not even tried.
    pub at_commit: Option<Applied>,
}

impl From<StoreError> for NotApplied {
    fn from(failed: StoreError) -> NotApplied {
        NotApplied { failed, at_commit: None }
    }
}

/// How many bytes of a workspace are where. The same bytes count once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stored {
    pub blob_bytes: u64,
    /// Of blocks that are in no blob.
    pub uncommitted_bytes: u64,
}

/// A blob, and the files that a part of it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub blob: Blob,
    /// Of the blob, at which the first file begins.
    pub starts: u64,
    pub segments: Vec<BlobPart>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    pub prefix: Box<str>,
    pub delimiter: Option<Box<str>>,
    /// What an earlier listing gave as its `next`.
    pub after: Option<Vec<u8>>,
    pub limit: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    pub items: Vec<Listed>,
    pub next: Option<Vec<u8>>,
}

/// The readers' side: every answer is one snapshot.
pub trait StorageReader: Send {
    fn container(&mut self, name: &str) -> Result<Option<Container>, StoreError>;
    fn containers(&mut self) -> Result<Vec<Container>, StoreError>;
    /// When something was put there last, or when it was made; `None` if it is gone.
    fn touched(&mut self, container: ContainerId) -> Result<Option<Wall>, StoreError>;
    fn content(
        &mut self,
        container: ContainerId,
        name: &str,
        span: Span,
    ) -> Result<Option<Content>, StoreError>;
    fn blob(&mut self, container: ContainerId, name: &str) -> Result<Option<Blob>, StoreError>;
    /// By name, byte by byte.
    fn list(&mut self, container: ContainerId, query: &ListQuery) -> Result<Listing, StoreError>;
    fn blocks(&mut self, container: ContainerId, name: &str) -> Result<Blocks, StoreError>;
    /// The file of each of these blocks; `None` for one that is not there.
    fn find_blocks(
        &mut self,
        container: ContainerId,
        name: &str,
        blocks: &[BlockRef],
    ) -> Result<Vec<Option<BlobPart>>, StoreError>;
    /// Whether any blob or waiting block is made of this file.
    fn is_named(&mut self, workspace: WorkspaceId, digest: &BlobId) -> Result<bool, StoreError>;
    /// How many bytes the blobs of a workspace have, and its uncommitted blocks.
    fn stored(&mut self, workspace: WorkspaceId) -> Result<Stored, StoreError>;
    /// Files that may be unwanted since before then.
    fn unreferenced(
        &mut self,
        before: Wall,
        limit: usize,
    ) -> Result<Vec<(WorkspaceId, BlobId)>, StoreError>;
}
