//! How large the databases are, and what takes the space.

use muster_core::time::Wall;

/// The size of one database, as its readers see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseSize {
    /// The name of the file.
    pub file: String,
    pub contents: Vec<ContentSize>,
    /// Pages of the file that are empty. They are used again before the file grows.
    pub unused_bytes: u64,
    /// The write-ahead log, a file of its own.
    pub log_bytes: u64,
}

/// The size of one kind of content, with its indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentSize {
    pub content: Content,
    pub bytes: u64,
    /// `None` for what consists of different entries.
    pub entries: Option<u64>,
    /// When the oldest entry was made, if that is recorded.
    pub oldest: Option<Wall>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// Jobs that are live or have ended, with their specifications and the lists of their files.
    Jobs,
    /// The tasks of arrays that have started.
    Tasks,
    Attempts,
    Ledger,
    Activity,
    Events,
    Assets,
    /// Workspaces, computes, nodes, users and everything else of which there are few.
    Other,
    /// The names of blobs, without their bytes.
    Blobs,
    /// The history of computes.
    History,
}
