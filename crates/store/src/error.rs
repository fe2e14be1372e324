//! What can go wrong with durable state, and what to do about it.

use std::path::PathBuf;

type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written, and nothing will ever be written through this handle.
    #[error(
        "another server took over the store (epoch {now}, this one had {held}); stop this server, or \
         restart it to take over again"
    )]
    Fenced { held: u64, now: u64 },

    /// The store was never claimed, or the claim was given up after a commit with an unknown outcome.
    #[error("the store is not claimed by this handle; open it again, claim it and reload its rows")]
    NotClaimed,

    #[error(
        "{} is damaged ({what}); it was not changed: restore a backup (`muster restore`), or move the \
         whole state directory away to start with an empty one",
        path.display()
    )]
    Damaged { path: PathBuf, what: String },

    /// Only a caller who knows that the file existed gets this error; otherwise a new file is created.
    #[error(
        "{} {what}, although it existed before; no new file was created: put it back, or restore a backup",
        path.display()
    )]
    Missing { path: PathBuf, what: &'static str },

    #[error(
        "{} was written by a newer version of muster (its format is {found}, this one knows up to \
         {known}); it was not changed: use the newer version, or a backup from before the upgrade",
        path.display()
    )]
    TooNew { path: PathBuf, found: u32, known: u32 },

    /// Only readers return this error; a writer upgrades the file.
    #[error(
        "{} still has format {found}, and this version of muster reads {known}; start `muster serve` \
         or `muster up` once to upgrade it",
        path.display()
    )]
    TooOld { path: PathBuf, found: u32, known: u32 },

    #[error(
        "{} is not a muster store ({what}); it was not changed: name another file, or move this \
         one away",
        path.display()
    )]
    NotOurs { path: PathBuf, what: &'static str },

    #[error(
        "cannot open {}; check that its folder exists and that this user may read and write both",
        path.display()
    )]
    CannotOpen {
        path: PathBuf,
        #[source]
        source: Cause,
    },

    #[error(
        "{doing}: {} is locked by another process; make sure that no other muster or database tool has it \
         open, and try again",
        path.display()
    )]
    Busy { doing: &'static str, path: PathBuf },

    #[error(
        "{doing}: there is no space left for {}; nothing was written: free some space and try again",
        path.display()
    )]
    Full { doing: &'static str, path: PathBuf },

    #[error(
        "{doing}: the file system of {} is read-only, so nothing was written; see the kernel's log for the reason \
         (`dmesg`), repair the disk if it has errors, mount it again with write access, then try again",
        path.display()
    )]
    ReadOnly { doing: &'static str, path: PathBuf },

    #[error(
        "the clock says {unix_ms} ms since 1970, later than any epoch that can be used; set the \
         clock and start again"
    )]
    Clock { unix_ms: u64 },

    /// What happened after this revision is only in the rows.
    #[error(
        "the event log begins after revision {floor}, and entries after revision {after} were requested; older entries \
         were deleted: read the current state, and follow the log from revision {floor} or later"
    )]
    EventsPruned { after: u64, floor: u64 },

    #[error("{token:?} is not a page of this list; start from the first page")]
    BadPage { token: String },

    #[error("{doing} failed; check the disk, then open the store again")]
    Io {
        doing: &'static str,
        #[source]
        source: std::io::Error,
    },

    #[error("{doing} failed; open the store again to see what was written")]
    Sqlite {
        doing: &'static str,
        #[source]
        source: rusqlite::Error,
    },
}
