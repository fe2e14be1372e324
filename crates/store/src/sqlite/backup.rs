//! Copies both files as of one moment, while others write to them, and turns such a copy into a usable store.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use muster_core::ids::WorkspaceId;
use muster_core::model::{BlobId, Job, TreeId, Workspace};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::fault::Doing;
use super::meta::{EPOCH_MAX, Meta};
use super::schema::{MAIN, SERIES, STORAGE, Schema};
use super::{Durability, SqliteStore, doc, open};
use crate::{Revision, StoreError};

/// 4 MiB at a time, so that progress can be reported.
const STEP_PAGES: i32 = 1_024;

/// How far beyond its last epoch a restored store starts to count, in milliseconds: a year. The clock may be behind
/// where it is restored, and epochs that the lost server issued after the backup must not be issued again.
const FENCE_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

/// Both files in their current state. Writers continue; only their logs grow.
pub struct Moment {
    store: Held,
    storage: Held,
    pub revision: Revision,
}

struct Held {
    connection: Connection,
    path: PathBuf,
}

impl Held {
    fn take(path: &Path, schema: &Schema<'_>) -> Result<Held, StoreError> {
        let connection = open::reader(path, schema)?;
        let doing = "holding the store for a backup";
        // A transaction begins with its first read.
        connection.execute_batch("BEGIN").doing(doing, path)?;
        connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
            .doing(doing, path)?;
        Ok(Held { connection, path: path.to_owned() })
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        let ask = |what| self.connection.pragma_query_value(None, what, |row| row.get::<_, u64>(0));
        let bytes = ask("page_count").and_then(|pages| Ok(pages * ask("page_size")?));
        bytes.doing("measuring the store", &self.path)
    }

    fn copy(&self, to: &Path, tell: &mut dyn FnMut(u64)) -> Result<(), StoreError> {
        let doing = "copying the store";
        let page_bytes: u64 = self
            .connection
            .pragma_query_value(None, "page_size", |row| row.get(0))
            .doing(doing, &self.path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut copy = Connection::open_with_flags(to, flags).doing(doing, to)?;
        let owner_only = fs::Permissions::from_mode(0o600);
        fs::set_permissions(to, owner_only).map_err(|source| StoreError::Io { doing, source })?;
        let backup = Backup::new(&self.connection, &mut copy).doing(doing, to)?;
        let mut done = 0;
        loop {
            let step = backup.step(STEP_PAGES).doing(doing, to)?;
            let progress = backup.progress();
            let now = u64::try_from(progress.pagecount - progress.remaining).unwrap_or(0);
            tell(now.saturating_sub(done) * page_bytes);
            done = now;
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                // The source is read in a transaction, and the copy belongs to this process alone, so neither can be
                // busy for long.
                _ => return Err(StoreError::Busy { doing, path: to.to_owned() }),
            }
        }
        drop(backup);
        // A single file without a log, so that it can also be read from read-only media.
        copy.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(())).doing(doing, to)
    }
}

impl Moment {
    pub fn hold(store: &Path, storage: &Path) -> Result<Moment, StoreError> {
        // The rows of blobs come second: what the store references exists before it is referenced.
        let store = Held::take(store, &MAIN)?;
        let storage = Held::take(storage, &STORAGE)?;
        let revision = Revision(Meta::read(&store.connection, &store.path)?.last_revision);
        Ok(Moment { store, storage, revision })
    }

    pub fn bytes(&self) -> Result<u64, StoreError> {
        Ok(self.store.bytes()? + self.storage.bytes()?)
    }

    /// Writes both copies; `tell` is called with the number of bytes that were copied.
    pub fn copy(
        self,
        store: &Path,
        storage: &Path,
        tell: &mut dyn FnMut(u64),
    ) -> Result<(), StoreError> {
        self.store.copy(store, tell)?;
        self.storage.copy(storage, tell)
    }
}

/// Copies the time series while they are written, and checks the copy.
pub fn copy_series(from: &Path, to: &Path, tell: &mut dyn FnMut(u64)) -> Result<(), StoreError> {
    Held::take(from, &SERIES)?.copy(to, tell)?;
    check_thoroughly(&open::reader(to, &SERIES)?, to)
}

/// Checks the copies of a backup completely, and returns the revision that they contain.
pub fn check_copies(store: &Path, storage: &Path) -> Result<Revision, StoreError> {
    let rows = open::reader(store, &MAIN)?;
    check_thoroughly(&rows, store)?;
    check_thoroughly(&open::reader(storage, &STORAGE)?, storage)?;
    Ok(Revision(Meta::read(&rows, store)?.last_revision))
}

/// Unlike the check at start, it compares indexes with their tables.
fn check_thoroughly(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let sql = "PRAGMA integrity_check(1)";
    let verdict: String =
        connection.query_row(sql, [], |row| row.get(0)).doing("checking the store", path)?;
    match verdict.as_str() {
        "ok" => Ok(()),
        _ => Err(StoreError::Damaged { path: path.to_owned(), what: verdict }),
    }
}

/// Every file of the byte store that a blob references.
pub fn each_named_file(
    storage: &Path,
    mut look: impl FnMut(WorkspaceId, BlobId),
) -> Result<(), StoreError> {
    let connection = open::reader(storage, &STORAGE)?;
    let sql = "SELECT workspace, digest FROM segments UNION SELECT workspace, digest FROM staged";
    doc::rows(&connection, storage, sql, [], |row| {
        let workspace = row.get(0).map(WorkspaceId).doing("reading a row", storage)?;
        look(workspace, row.get(1).map(BlobId).doing("reading a digest", storage)?);
        Ok(())
    })
    .map(|_: Vec<()>| ())
}

/// Finds the workspaces, blobs and jobs that use the files of the byte store.
pub struct Owners {
    store: (Connection, PathBuf),
    storage: (Connection, PathBuf),
}

impl Owners {
    pub fn open(store: &Path, storage: &Path) -> Result<Owners, StoreError> {
        Ok(Owners {
            store: (open::reader(store, &MAIN)?, store.to_owned()),
            storage: (open::reader(storage, &STORAGE)?, storage.to_owned()),
        })
    }

    /// The name of a workspace that still exists.
    pub fn workspace(&self, id: WorkspaceId) -> Result<Option<String>, StoreError> {
        let (connection, path) = &self.store;
        let sql = "SELECT doc FROM workspaces WHERE id = ?1";
        let found: Option<Workspace> = doc::one(connection, path, sql, (doc::key(id.0),))?;
        Ok(found.map(|workspace| workspace.key.name.to_string()))
    }

    /// The blobs that contain this file, as `container/name`: at most `limit`.
    pub fn blobs(
        &self,
        workspace: WorkspaceId,
        digest: &BlobId,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let (connection, path) = &self.storage;
        let sql = "SELECT containers.name, found.name FROM \
                   (SELECT blobs.container, blobs.name FROM segments JOIN blobs ON blobs.id = segments.blob \
                    WHERE segments.workspace = ?1 AND segments.digest = ?2 \
                    UNION SELECT container, name FROM staged WHERE workspace = ?1 AND digest = ?2) AS found \
                   JOIN containers ON containers.id = found.container ORDER BY 1, 2 LIMIT ?3";
        let values = (doc::key(workspace.0), &digest.0[..], doc::key(limit as u64));
        doc::rows(connection, path, sql, values, |row| {
            let container: String = row.get(0).doing("reading a row", path)?;
            let name: Vec<u8> = row.get(1).doing("reading a row", path)?;
            Ok(format!("{container}/{}", String::from_utf8_lossy(&name)))
        })
    }

    /// The names of jobs that use this tree, or have left it: at most `limit`.
    pub fn jobs(
        &self,
        workspace: WorkspaceId,
        tree: &TreeId,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let (connection, path) = &self.store;
        let sql = "SELECT DISTINCT jobs.doc FROM job_trees \
                   LEFT JOIN children ON children.id = job_trees.job \
                   JOIN jobs ON jobs.id = coalesce(children.parent, job_trees.job) \
                   WHERE job_trees.workspace = ?1 AND job_trees.tree = ?2 ORDER BY jobs.id LIMIT ?3";
        let values = (doc::key(workspace.0), tree.to_string(), doc::key(limit as u64));
        let jobs: Vec<Job> = doc::many(connection, path, sql, values)?;
        Ok(jobs.into_iter().map(|job| job.name.into()).collect())
    }
}

/// Turns a restored copy into a store of its own: it issues larger numbers than anything that the lost server issued
/// after the backup. Returns the epoch.
pub fn fence(store: &Path, unix_ms: u64) -> Result<u64, StoreError> {
    let opened = SqliteStore::open(store, Durability::Disk)?;
    let mut meta = Meta::read(&opened.connection, store)?;
    let epoch = meta.controller_epoch.max(unix_ms).saturating_add(FENCE_MS);
    if epoch > EPOCH_MAX {
        return Err(StoreError::Clock { unix_ms });
    }
    meta.controller_epoch = epoch;
    meta.write(&opened.connection, store)?;
    Ok(epoch)
}
