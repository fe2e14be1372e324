//! The rows of the blob storage in a SQLite file of their own: many small commits of many clients share one
//! transaction.

mod commands;
mod reads;

use std::path::{Path, PathBuf};

use muster_core::ids::WorkspaceId;
use muster_core::model::BlobId;
use muster_core::time::Wall;
use rusqlite::{Connection, Row, TransactionBehavior};

use super::checkpoint::Checkpoints;
use super::fault::Doing;
use super::{Durability, doc, open, schema, size};
use crate::size::DatabaseSize;
use crate::storage::{
    Applied, Blob, BlobPart, BlockRef, Blocks, Container, ContainerId, Content, ListQuery, Listing,
    NotApplied, Span, Storage, StorageCommand, StorageReader, Stored, Tag,
};
use crate::{Revision, StoreError};

#[derive(Debug)]
pub struct SqliteStorage {
    connection: Connection,
    path: PathBuf,
    checkpoints: Checkpoints,
}

impl SqliteStorage {
    /// Like [`SqliteStore::open`](super::SqliteStore::open).
    pub fn open(path: &Path, durability: Durability) -> Result<SqliteStorage, StoreError> {
        Ok(SqliteStorage::open_with(path, durability, open::Look::Whole)?.0)
    }

    /// Like [`SqliteStore::open_existing`](super::SqliteStore::open_existing).
    pub fn open_existing(
        path: &Path,
        durability: Durability,
    ) -> Result<(SqliteStorage, bool), StoreError> {
        SqliteStorage::open_with(path, durability, open::Look::WholeIfSmall)
    }

    /// Limits the log to about this many bytes, for a disk without room for one of the usual size.
    pub fn limit_log(&mut self, bytes: u64) {
        self.checkpoints.limit_bytes(bytes);
    }

    fn open_with(
        path: &Path,
        durability: Durability,
        look: open::Look,
    ) -> Result<(SqliteStorage, bool), StoreError> {
        let opened = open::writer(path, &schema::STORAGE, durability, look)?;
        let open::Opened { mut connection, is_check_left } = opened;
        let checkpoints = Checkpoints::watch(&mut connection).doing("opening the store", path)?;
        Ok((SqliteStorage { connection, path: path.to_owned(), checkpoints }, is_check_left))
    }
}

impl Storage for SqliteStorage {
    fn apply(&mut self, commands: &[StorageCommand], now: Wall) -> Result<Applied, NotApplied> {
        let path = &self.path;
        open::tidy_on_close(&self.connection, path)?;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .doing(commands::DOING, path)?;
        let mut runner = commands::CommandRunner::new(&transaction, path, now)?;
        let results = commands.iter().map(|command| runner.carry_out(command));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        let applied = Applied { results, revision: runner.finish()? };
        match transaction.commit().doing(commands::DOING, path) {
            Ok(()) => {
                self.checkpoints.after_commit(&self.connection);
                Ok(applied)
            }
            Err(failed) => Err(NotApplied { failed, at_commit: Some(applied) }),
        }
    }

    fn revision(&mut self) -> Result<Revision, StoreError> {
        commands::last_tag(&self.connection, &self.path).map(Revision)
    }
}

pub struct SqliteStorageReader {
    connection: Connection,
    path: PathBuf,
}

impl SqliteStorageReader {
    pub fn open(path: &Path) -> Result<SqliteStorageReader, StoreError> {
        let connection = open::reader(path, &schema::STORAGE)?;
        Ok(SqliteStorageReader { connection, path: path.to_owned() })
    }
}

impl StorageReader for SqliteStorageReader {
    fn size(&mut self) -> Result<DatabaseSize, StoreError> {
        size::measure(&self.connection, &self.path, size::STORAGE)
    }

    fn container(&mut self, name: &str) -> Result<Option<Container>, StoreError> {
        container(&self.connection, &self.path, name)
    }

    fn containers(&mut self) -> Result<Vec<Container>, StoreError> {
        let sql = "SELECT id, name, workspace, made_us, owner FROM containers ORDER BY id";
        doc::rows(&self.connection, &self.path, sql, [], |row| container_of(row, &self.path))
    }

    fn touched(&mut self, container: ContainerId) -> Result<Option<Wall>, StoreError> {
        let sql = "SELECT max(made_us, \
                   coalesce((SELECT max(changed_us) FROM blobs WHERE container = ?1), 0), \
                   coalesce((SELECT max(staged_us) FROM staged WHERE container = ?1), 0)) \
                   FROM containers WHERE id = ?1";
        let found =
            doc::rows(&self.connection, &self.path, sql, (doc::key(container.0),), |row| {
                row.get(0).map(Wall).doing("reading a row", &self.path)
            })?;
        Ok(found.into_iter().next())
    }

    fn content(
        &mut self,
        container: ContainerId,
        name: &str,
        span: Span,
    ) -> Result<Option<Content>, StoreError> {
        let transaction = self.connection.transaction().doing("reading a blob", &self.path)?;
        reads::content(&transaction, &self.path, container, name, span)
    }

    fn blob(&mut self, container: ContainerId, name: &str) -> Result<Option<Blob>, StoreError> {
        Ok(blob(&self.connection, &self.path, container, name)?.map(|(_, blob)| blob))
    }

    fn list(&mut self, container: ContainerId, query: &ListQuery) -> Result<Listing, StoreError> {
        let transaction = self.connection.transaction().doing("listing blobs", &self.path)?;
        reads::list(&transaction, &self.path, container, query)
    }

    fn blocks(&mut self, container: ContainerId, name: &str) -> Result<Blocks, StoreError> {
        let transaction = self.connection.transaction().doing("listing blocks", &self.path)?;
        reads::blocks(&transaction, &self.path, container, name)
    }

    fn find_blocks(
        &mut self,
        container: ContainerId,
        name: &str,
        blocks: &[BlockRef],
    ) -> Result<Vec<Option<BlobPart>>, StoreError> {
        let transaction = self.connection.transaction().doing("listing blocks", &self.path)?;
        let blob = blob(&transaction, &self.path, container, name)?.map(|(id, _)| id);
        let find =
            |block| reads::block(&transaction, &self.path, container, name.as_bytes(), blob, block);
        blocks.iter().map(find).collect()
    }

    fn is_named(&mut self, workspace: WorkspaceId, digest: &BlobId) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM segments WHERE workspace = ?1 AND digest = ?2)
                   OR EXISTS (SELECT 1 FROM staged WHERE workspace = ?1 AND digest = ?2)";
        let mut statement = self.connection.prepare_cached(sql).doing("reading", &self.path)?;
        let named = statement.query_row((workspace.0, &digest.0[..]), |row| row.get(0));
        named.doing("reading", &self.path)
    }

    fn stored(&mut self, workspace: WorkspaceId) -> Result<Stored, StoreError> {
        let transaction = self.connection.transaction().doing("reading", &self.path)?;
        reads::stored(&transaction, &self.path, workspace)
    }

    fn unreferenced(
        &mut self,
        before: Wall,
        limit: usize,
    ) -> Result<Vec<(WorkspaceId, BlobId)>, StoreError> {
        let sql = "SELECT workspace, digest FROM unreferenced WHERE since_us < ?1
                   ORDER BY since_us LIMIT ?2";
        let path = &self.path;
        doc::rows(&self.connection, path, sql, (doc::key(before.0), limit), |row| {
            Ok((WorkspaceId(row.get(0).doing("reading", path)?), digest_of(row, 1, path)?))
        })
    }
}

fn container(
    connection: &Connection,
    path: &Path,
    name: &str,
) -> Result<Option<Container>, StoreError> {
    let sql = "SELECT id, name, workspace, made_us, owner FROM containers WHERE name = ?1";
    let found = doc::rows(connection, path, sql, (name,), |row| container_of(row, path))?;
    Ok(found.into_iter().next())
}

fn container_of(row: &Row<'_>, path: &Path) -> Result<Container, StoreError> {
    let owner = doc::decode(row, 4, path)?;
    let read = || {
        Ok(Container {
            id: ContainerId(row.get(0)?),
            name: row.get(1)?,
            workspace: WorkspaceId(row.get(2)?),
            made: Wall(row.get(3)?),
            owner,
        })
    };
    read().doing("reading a container", path)
}

const BLOB_COLUMNS: &str = "id, name, tag, made_us, changed_us, bytes, doc";

/// A blob and the id of its row.
fn blob(
    connection: &Connection,
    path: &Path,
    container: ContainerId,
    name: &str,
) -> Result<Option<(u64, Blob)>, StoreError> {
    let sql = format!("SELECT {BLOB_COLUMNS} FROM blobs WHERE container = ?1 AND name = ?2");
    let params = (doc::key(container.0), name.as_bytes());
    let found = doc::rows(connection, path, &sql, params, |row| blob_of(row, path))?;
    Ok(found.into_iter().next())
}

fn blob_of(row: &Row<'_>, path: &Path) -> Result<(u64, Blob), StoreError> {
    let name: Vec<u8> = row.get(1).doing("reading a blob", path)?;
    let name = String::from_utf8(name).map_err(|why| doc::damaged(path, &why))?;
    let about = doc::decode(row, 6, path)?;
    let read = || {
        let blob = Blob {
            name: name.into(),
            tag: Tag(row.get(2)?),
            made: Wall(row.get(3)?),
            changed: Wall(row.get(4)?),
            bytes: row.get(5)?,
            about,
        };
        Ok((row.get(0)?, blob))
    };
    read().doing("reading a blob", path)
}

fn digest_of(row: &Row<'_>, column: usize, path: &Path) -> Result<BlobId, StoreError> {
    row.get(column).map(BlobId).doing("reading a digest", path)
}
