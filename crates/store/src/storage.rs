//! The rows of the blob storage, in a database file of their own: containers, blobs, the files that they consist of,
//! and staged blocks. The bytes are files of the server, identified here by their digests.
//!
//! The conditions of a request on the existing blob ([`Guard`]) are checked in the transaction that changes it.

use std::collections::BTreeMap;

use muster_core::ids::WorkspaceId;
use muster_core::model::{BlobId, WorkspaceKey};
pub use muster_core::storage::{
    About, Blob, BlobPart, BlockFrom, BlockRef, Blocks, ContentHeaders, Guard, Holds, Listed,
    Match, Span, Tag,
};
use muster_core::time::Wall;

use crate::size::DatabaseSize;
use crate::{Revision, StoreError};

/// The most staged blocks of one blob.
pub const STAGED_MAX: u64 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerId(pub u64);

/// The name of a container is unique on the whole server, and shows which workspace it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: ContainerId,
    pub name: Box<str>,
    pub workspace: WorkspaceId,
    /// The workspace by name, for decisions that depend on roles.
    pub owner: WorkspaceKey,
    pub made: Wall,
}

/// The blob that a command is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobRef {
    pub container: ContainerId,
    pub workspace: WorkspaceId,
    pub name: Box<str>,
}

/// The blobs of a folder, each of which is a single file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    pub container: ContainerId,
    /// Without a slash at the end.
    pub name: Box<str>,
    /// The files by their names relative to the folder.
    pub files: Vec<(Box<str>, BlobPart)>,
    /// Whether other blobs below the folder are deleted.
    pub is_all: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AboutChange {
    Metadata(BTreeMap<Box<str>, Box<str>>),
    Headers(ContentHeaders),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageCommand {
    /// Creates a container, or returns the existing one.
    MakeContainer {
        name: Box<str>,
        workspace: WorkspaceId,
        owner: WorkspaceKey,
    },
    DeleteContainer {
        id: ContainerId,
    },
    /// Deletes all containers of a workspace.
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
        /// The blocks with the files that they were when those were confirmed to be on disk.
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
    /// Adds blobs for files that exist already, in all of these folders or in none.
    Publish {
        workspace: WorkspaceId,
        folders: Vec<Folder>,
    },
    /// Drops the staged blocks of this blob, because their upload was refused and will not be completed.
    DropStaged {
        at: BlobRef,
    },
    /// Drops staged blocks that have not been committed since.
    ExpireStaged {
        before: Wall,
    },
    /// These files were deleted or are referenced again, so they are no longer listed as unreferenced, unless they were
    /// marked again since.
    Settle {
        files: Vec<(WorkspaceId, BlobId)>,
        before: Wall,
    },
}

impl StorageCommand {
    /// Whether the command is accepted while the store runs on its reserve: only commands that delete something are.
    pub fn is_taken_on_reserve(&self) -> bool {
        match self {
            StorageCommand::DeleteContainer { .. }
            | StorageCommand::ForgetWorkspace(_)
            | StorageCommand::Delete { .. }
            | StorageCommand::DropStaged { .. }
            | StorageCommand::ExpireStaged { .. }
            | StorageCommand::Settle { .. } => true,
            // Without files it only deletes; this is how the blobs of a deleted job are deleted.
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
    /// The blob after the command.
    Blob {
        tag: Tag,
        changed: Wall,
    },
    /// The files of blocks that were dropped, and when each was staged.
    Dropped(Vec<(BlobId, Wall)>),
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no such container any more")]
    NoContainer,
    #[error("the container's name is taken; choose another one")]
    ContainerTaken,
    #[error("there is no blob with this name")]
    NoBlob,
    #[error("there is already a blob with this name")]
    Exists,
    #[error("the blob already exists, and the caller may only create new blobs")]
    MayOnlyCreate,
    #[error("the blob does not meet the condition of the request")]
    Condition,
    #[error("block {id:?} does not exist; send it again")]
    NoBlock { id: Box<str> },
    #[error("the blob has {STAGED_MAX} uncommitted blocks, which is the limit; commit them first")]
    TooManyStaged,
}

pub type StorageResult = Result<Done, Refusal>;

/// The writer's side.
pub trait Storage: Send {
    /// Applies all commands in one transaction, which is on disk when this returns. A refused command changes nothing,
    /// and its files count as unreferenced. After an error, [`Storage::revision`] tells whether the commands are on
    /// disk; open the storage again before anything else is applied.
    fn apply(&mut self, commands: &[StorageCommand], now: Wall) -> Result<Applied, NotApplied>;
    /// The revision of the last batch on disk. Every batch has a revision of its own, even an empty one.
    fn revision(&mut self) -> Result<Revision, StoreError>;
}

/// A batch that is on disk.
#[derive(Debug, PartialEq, Eq)]
pub struct Applied {
    pub results: Vec<StorageResult>,
    pub revision: Revision,
}

/// A batch that may or may not be on disk.
#[derive(Debug)]
pub struct NotApplied {
    pub failed: StoreError,
    /// The results of the commands if this revision is on disk after all. `None` if the commit was not even attempted.
    pub at_commit: Option<Applied>,
}

impl From<StoreError> for NotApplied {
    fn from(failed: StoreError) -> NotApplied {
        NotApplied { failed, at_commit: None }
    }
}

/// The bytes of a workspace. Identical files count once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stored {
    pub blob_bytes: u64,
    /// The bytes of blocks that are in no blob.
    pub uncommitted_bytes: u64,
}

/// A blob, and the files that contain the requested part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub blob: Blob,
    /// The position in the blob at which the first file begins.
    pub starts: u64,
    pub segments: Vec<BlobPart>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    pub prefix: Box<str>,
    pub delimiter: Option<Box<str>>,
    /// The `next` of an earlier list.
    pub after: Option<Vec<u8>>,
    pub limit: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    pub items: Vec<Listed>,
    pub next: Option<Vec<u8>>,
}

/// The readers' side: every result is one snapshot.
pub trait StorageReader: Send {
    fn container(&mut self, name: &str) -> Result<Option<Container>, StoreError>;
    fn containers(&mut self) -> Result<Vec<Container>, StoreError>;
    /// When something was last put into the container, or when it was created; `None` if it does not exist.
    fn touched(&mut self, container: ContainerId) -> Result<Option<Wall>, StoreError>;
    fn content(
        &mut self,
        container: ContainerId,
        name: &str,
        span: Span,
    ) -> Result<Option<Content>, StoreError>;
    fn blob(&mut self, container: ContainerId, name: &str) -> Result<Option<Blob>, StoreError>;
    /// Sorted by name, byte by byte.
    fn list(&mut self, container: ContainerId, query: &ListQuery) -> Result<Listing, StoreError>;
    fn blocks(&mut self, container: ContainerId, name: &str) -> Result<Blocks, StoreError>;
    /// The file of each of these blocks; `None` for a block that does not exist.
    fn find_blocks(
        &mut self,
        container: ContainerId,
        name: &str,
        blocks: &[BlockRef],
    ) -> Result<Vec<Option<BlobPart>>, StoreError>;
    /// Whether any blob or staged block references this file.
    fn is_named(&mut self, workspace: WorkspaceId, digest: &BlobId) -> Result<bool, StoreError>;
    /// The total size of the blobs of a workspace, and of its uncommitted blocks.
    fn stored(&mut self, workspace: WorkspaceId) -> Result<Stored, StoreError>;
    /// Files that may have been unreferenced since before then.
    fn unreferenced(
        &mut self,
        before: Wall,
        limit: usize,
    ) -> Result<Vec<(WorkspaceId, BlobId)>, StoreError>;
    /// The size of the database by content, without the bytes of blobs.
    fn size(&mut self) -> Result<DatabaseSize, StoreError>;
}
