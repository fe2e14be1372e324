//! Applies commands one after the other in one transaction. Each checks first and writes only when it can no longer be
//! refused, so a refused command leaves nothing half done.

use std::collections::BTreeSet;
use std::path::Path;

use muster_core::ids::WorkspaceId;
use muster_core::model::{BlobId, WorkspaceKey};
use muster_core::time::Wall;
use rusqlite::{Connection, Params};

use super::{container, digest_of, doc, reads};
use crate::sqlite::fault::Doing;
use crate::storage::{
    About, AboutChange, Blob, BlobPart, BlobRef, BlockRef, Container, ContainerId, Done, Folder,
    Guard, Holds, Refusal, STAGED_MAX, StorageCommand, StorageResult, Tag,
};
use crate::{Revision, StoreError};

pub(super) const DOING: &str = "committing blobs";

pub(super) struct CommandRunner<'t> {
    connection: &'t Connection,
    path: &'t Path,
    now: Wall,
    last_tag: u64,
    /// The last tag before these commands.
    first_tag: u64,
}

pub(super) fn last_tag(connection: &Connection, path: &Path) -> Result<u64, StoreError> {
    connection.query_row("SELECT last_tag FROM meta", [], |row| row.get(0)).doing(DOING, path)
}

impl<'t> CommandRunner<'t> {
    pub(super) fn new(
        connection: &'t Connection,
        path: &'t Path,
        now: Wall,
    ) -> Result<CommandRunner<'t>, StoreError> {
        let last_tag = last_tag(connection, path)?;
        Ok(CommandRunner { connection, path, now, last_tag, first_tag: last_tag })
    }

    /// The last tag is the revision of the batch, so a batch takes one even if it assigns none to a blob.
    pub(super) fn finish(mut self) -> Result<Revision, StoreError> {
        if self.last_tag == self.first_tag {
            self.next_tag();
        }
        self.run("UPDATE meta SET last_tag = ?1", (self.last_tag,))?;
        Ok(Revision(self.last_tag))
    }

    pub(super) fn carry_out(
        &mut self,
        command: &StorageCommand,
    ) -> Result<StorageResult, StoreError> {
        match command {
            StorageCommand::MakeContainer { name, workspace, owner } => {
                self.make_container(name, *workspace, owner)
            }
            StorageCommand::DeleteContainer { id } => self.delete_container(*id),
            StorageCommand::ForgetWorkspace(workspace) => self.forget(*workspace),
            StorageCommand::Put { at, segment, about, guard } => {
                let checked = self.may_write(at, guard)?;
                self.unless_refused(at, &[*segment], checked, |runner, before| {
                    runner.write(at, before, &[(None, *segment)], about)
                })
            }
            StorageCommand::Stage { at, block, segment } => {
                let checked = self.may_stage(at)?;
                self.unless_refused(at, &[*segment], checked, |runner, ()| {
                    runner.stage(at, block, *segment)
                })
            }
            StorageCommand::Commit { at, blocks, about, guard } => {
                let checked = match self.may_write(at, guard)? {
                    Ok(before) => self.has_blocks(at, before.as_ref(), blocks)?.map(|()| before),
                    Err(refused) => Err(refused),
                };
                self.unless_refused(at, &[], checked, |runner, before| {
                    let parts: Vec<_> =
                        blocks.iter().map(|(block, found)| (Some(&*block.id), *found)).collect();
                    runner.write(at, before, &parts, about)
                })
            }
            StorageCommand::Change { at, change, guard } => match self.present(at, guard)? {
                Ok((id, blob)) => self.change(id, blob, change),
                Err(refused) => Ok(Err(refused)),
            },
            StorageCommand::Delete { at, guard } => match self.present(at, guard)? {
                Ok((id, _)) => self.delete(at, id),
                Err(refused) => Ok(Err(refused)),
            },
            StorageCommand::Publish { workspace, folders } => self.publish(*workspace, folders),
            StorageCommand::DropStaged { at } => self.drop_upload(at),
            StorageCommand::ExpireStaged { before } => self.expire(*before),
            StorageCommand::Settle { files, before } => {
                for (workspace, digest) in files {
                    let sql = "DELETE FROM unreferenced
                               WHERE workspace = ?1 AND digest = ?2 AND since_us < ?3";
                    self.run(sql, (workspace.0, &digest.0[..], before.0))?;
                }
                Ok(Ok(Done::Nothing))
            }
        }
    }

    fn run(&self, sql: &str, params: impl Params) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(sql).doing(DOING, self.path)?;
        statement.execute(params).map(drop).doing(DOING, self.path)
    }

    fn next_tag(&mut self) -> Tag {
        self.last_tag = self.now.0.max(self.last_tag + 1);
        Tag(self.last_tag)
    }

    /// The files of a refused command are already on disk, but nothing references them.
    fn unless_refused<T>(
        &mut self,
        at: &BlobRef,
        brought: &[BlobPart],
        checked: Result<T, Refusal>,
        then: impl FnOnce(&mut Self, T) -> Result<StorageResult, StoreError>,
    ) -> Result<StorageResult, StoreError> {
        match checked {
            Ok(found) => then(self, found),
            Err(refused) => {
                for segment in brought {
                    self.unreferenced(at.workspace, &segment.digest)?;
                }
                Ok(Err(refused))
            }
        }
    }

    fn unreferenced(&self, workspace: WorkspaceId, digest: &BlobId) -> Result<(), StoreError> {
        self.run(
            "INSERT INTO unreferenced (workspace, digest, since_us) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET since_us = excluded.since_us",
            (workspace.0, &digest.0[..], self.now.0),
        )
    }

    fn has_container(&self, at: &BlobRef) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM containers WHERE id = ?1)";
        let mut statement = self.connection.prepare_cached(sql).doing(DOING, self.path)?;
        let found = statement.query_row((doc::key(at.container.0),), |row| row.get(0));
        found.doing(DOING, self.path)
    }

    fn look(&self, at: &BlobRef) -> Result<Option<(u64, Blob)>, StoreError> {
        super::blob(self.connection, self.path, at.container, &at.name)
    }

    /// Checks a command that creates or replaces a blob, and returns the existing one.
    fn may_write(
        &self,
        at: &BlobRef,
        guard: &Guard,
    ) -> Result<Result<Option<(u64, Blob)>, Refusal>, StoreError> {
        if !self.has_container(at)? {
            return Ok(Err(Refusal::NoContainer));
        }
        let found = self.look(at)?;
        if guard.may_only_create && found.is_some() {
            return Ok(Err(Refusal::MayOnlyCreate));
        }
        let seen = found.as_ref().map(|(_, blob)| (blob.tag, blob.changed));
        Ok(match guard.check(seen) {
            Holds::Yes => Ok(found),
            Holds::NotModified if guard.if_none_match == Some(crate::storage::Match::Any) => {
                Err(Refusal::Exists)
            }
            Holds::NotModified | Holds::No => Err(Refusal::Condition),
        })
    }

    /// Checks a command that changes a blob, which must exist.
    fn present(
        &self,
        at: &BlobRef,
        guard: &Guard,
    ) -> Result<Result<(u64, Blob), Refusal>, StoreError> {
        let Some((id, blob)) = self.look(at)? else { return Ok(Err(Refusal::NoBlob)) };
        Ok(match guard.check(Some((blob.tag, blob.changed))) {
            Holds::Yes => Ok((id, blob)),
            Holds::NotModified | Holds::No => Err(Refusal::Condition),
        })
    }

    fn make_container(
        &self,
        name: &str,
        workspace: WorkspaceId,
        owner: &WorkspaceKey,
    ) -> Result<StorageResult, StoreError> {
        if let Some(found) = container(self.connection, self.path, name)? {
            return Ok(match found.workspace == workspace {
                true => Ok(Done::Container(found)),
                false => Err(Refusal::ContainerTaken),
            });
        }
        let sql =
            "INSERT INTO containers (name, workspace, made_us, owner) VALUES (?1, ?2, ?3, ?4)";
        self.run(sql, (name, workspace.0, self.now.0, doc::encode(owner)))?;
        let id = u64::try_from(self.connection.last_insert_rowid()).unwrap_or_default();
        let (name, owner) = (name.into(), owner.clone());
        let container = Container { id: ContainerId(id), name, workspace, owner, made: self.now };
        Ok(Ok(Done::Container(container)))
    }

    fn delete_container(&self, id: ContainerId) -> Result<StorageResult, StoreError> {
        let id = doc::key(id.0);
        for from in [
            "segments WHERE blob IN (SELECT id FROM blobs WHERE container = ?1)",
            "staged WHERE container = ?1",
        ] {
            self.run(
                &format!(
                    "INSERT INTO unreferenced (workspace, digest, since_us)
                     SELECT workspace, digest, ?2 FROM {from}
                     ON CONFLICT DO UPDATE SET since_us = excluded.since_us"
                ),
                (id, self.now.0),
            )?;
            self.run(&format!("DELETE FROM {from}"), (id,))?;
        }
        self.run("DELETE FROM blobs WHERE container = ?1", (id,))?;
        self.run("DELETE FROM containers WHERE id = ?1", (id,))?;
        Ok(Ok(Done::Nothing))
    }

    fn forget(&self, workspace: WorkspaceId) -> Result<StorageResult, StoreError> {
        let sql = "SELECT id FROM containers WHERE workspace = ?1";
        let ids = doc::rows(self.connection, self.path, sql, (doc::key(workspace.0),), |row| {
            row.get(0).map(ContainerId).doing(DOING, self.path)
        })?;
        for id in ids {
            self.delete_container(id)?.ok();
        }
        Ok(Ok(Done::Nothing))
    }

    /// Replaces the files of the blob with these.
    fn write(
        &mut self,
        at: &BlobRef,
        before: Option<(u64, Blob)>,
        parts: &[(Option<&str>, BlobPart)],
        about: &About,
    ) -> Result<StorageResult, StoreError> {
        let (tag, changed) = (self.next_tag(), self.now);
        let bytes: u64 = parts.iter().map(|(_, segment)| segment.bytes).sum();
        let about = doc::encode(about);
        let id = match before {
            Some((id, _)) => {
                self.drop_segments(id)?;
                self.run(
                    "UPDATE blobs SET tag = ?2, changed_us = ?3, bytes = ?4, doc = ?5 WHERE id = ?1",
                    (id, tag.0, changed.0, bytes, about),
                )?;
                id
            }
            None => {
                self.run(
                    "INSERT INTO blobs (container, name, tag, made_us, changed_us, bytes, doc)
                     VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6)",
                    (at.container.0, at.name.as_bytes(), tag.0, changed.0, bytes, about),
                )?;
                u64::try_from(self.connection.last_insert_rowid()).unwrap_or_default()
            }
        };
        let mut starts = 0;
        for (place, (block, segment)) in (0u64..).zip(parts) {
            self.run(
                "INSERT INTO segments (blob, place, starts, bytes, workspace, digest, block)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                (id, place, starts, segment.bytes, at.workspace.0, &segment.digest.0[..], *block),
            )?;
            starts += segment.bytes;
        }
        // The blocks that were staged for this blob are now part of it, or never will be.
        self.drop_staged("container = ?1 AND name = ?2", (at.container.0, at.name.as_bytes()))?;
        Ok(Ok(Done::Blob { tag, changed }))
    }

    fn drop_segments(&self, blob: u64) -> Result<(), StoreError> {
        let sql = "SELECT workspace, digest FROM segments WHERE blob = ?1";
        self.all_unreferenced(sql, (blob,))?;
        self.run("DELETE FROM segments WHERE blob = ?1", (blob,))
    }

    fn drop_staged(&self, which: &str, params: impl Params + Copy) -> Result<(), StoreError> {
        self.all_unreferenced(
            &format!("SELECT workspace, digest FROM staged WHERE {which}"),
            params,
        )?;
        self.run(&format!("DELETE FROM staged WHERE {which}"), params)
    }

    fn all_unreferenced(&self, sql: &str, params: impl Params) -> Result<(), StoreError> {
        let files = doc::rows(self.connection, self.path, sql, params, |row| {
            let workspace = WorkspaceId(row.get(0).doing(DOING, self.path)?);
            Ok((workspace, digest_of(row, 1, self.path)?))
        })?;
        files.iter().try_for_each(|(workspace, digest)| self.unreferenced(*workspace, digest))
    }

    fn may_stage(&self, at: &BlobRef) -> Result<Result<(), Refusal>, StoreError> {
        if !self.has_container(at)? {
            return Ok(Err(Refusal::NoContainer));
        }
        // Counted no further than necessary.
        let sql = "SELECT count(*) FROM (SELECT 1 FROM staged
                   WHERE container = ?1 AND name = ?2 LIMIT ?3)";
        let mut statement = self.connection.prepare_cached(sql).doing(DOING, self.path)?;
        let params = (at.container.0, at.name.as_bytes(), STAGED_MAX);
        let count: u64 = statement.query_row(params, |row| row.get(0)).doing(DOING, self.path)?;
        Ok(if count < STAGED_MAX { Ok(()) } else { Err(Refusal::TooManyStaged) })
    }

    fn stage(
        &self,
        at: &BlobRef,
        block: &str,
        segment: BlobPart,
    ) -> Result<StorageResult, StoreError> {
        let (container, name) = (at.container.0, at.name.as_bytes());
        let sql = "SELECT workspace, digest FROM staged
                   WHERE container = ?1 AND name = ?2 AND block = ?3";
        self.all_unreferenced(sql, (container, name, block))?;
        self.run(
            "INSERT INTO staged (container, name, block, staged_us, bytes, workspace, digest)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE SET
             staged_us = excluded.staged_us, bytes = excluded.bytes, digest = excluded.digest",
            (
                container,
                name,
                block,
                self.now.0,
                segment.bytes,
                at.workspace.0,
                &segment.digest.0[..],
            ),
        )?;
        Ok(Ok(Done::Nothing))
    }

    /// Whether all blocks exist and are still the same files.
    fn has_blocks(
        &self,
        at: &BlobRef,
        before: Option<&(u64, Blob)>,
        blocks: &[(BlockRef, BlobPart)],
    ) -> Result<Result<(), Refusal>, StoreError> {
        let blob = before.map(|(id, _)| *id);
        let name = at.name.as_bytes();
        for (block, expected) in blocks {
            let found = reads::block(self.connection, self.path, at.container, name, blob, block)?;
            if found != Some(*expected) {
                return Ok(Err(Refusal::NoBlock { id: block.id.clone() }));
            }
        }
        Ok(Ok(()))
    }

    fn change(
        &mut self,
        id: u64,
        blob: Blob,
        change: &AboutChange,
    ) -> Result<StorageResult, StoreError> {
        let mut about = blob.about;
        match change {
            AboutChange::Metadata(metadata) => about.metadata = metadata.clone(),
            AboutChange::Headers(headers) => about.headers = headers.clone(),
        }
        let (tag, changed) = (self.next_tag(), self.now);
        self.run(
            "UPDATE blobs SET tag = ?2, changed_us = ?3, doc = ?4 WHERE id = ?1",
            (id, tag.0, changed.0, doc::encode(&about)),
        )?;
        Ok(Ok(Done::Blob { tag, changed }))
    }

    fn delete(&self, at: &BlobRef, id: u64) -> Result<StorageResult, StoreError> {
        self.drop_segments(id)?;
        self.drop_staged("container = ?1 AND name = ?2", (at.container.0, at.name.as_bytes()))?;
        self.run("DELETE FROM blobs WHERE id = ?1", (id,))?;
        Ok(Ok(Done::Nothing))
    }

    fn publish(
        &mut self,
        workspace: WorkspaceId,
        folders: &[Folder],
    ) -> Result<StorageResult, StoreError> {
        let at = |folder: &Folder, name: String| BlobRef {
            container: folder.container,
            workspace,
            name: name.into(),
        };
        for folder in folders {
            if !self.has_container(&at(folder, String::new()))? {
                return Ok(Err(Refusal::NoContainer));
            }
        }
        for folder in folders {
            if folder.is_all {
                self.clear(folder)?;
            }
            for (name, segment) in &folder.files {
                let at = match folder.name.is_empty() {
                    true => at(folder, name.to_string()),
                    false => at(folder, format!("{}/{name}", folder.name)),
                };
                let before = self.look(&at)?;
                // Readers of several parts rely on its tag, so it is only changed with the content.
                if !self.is_same(before.as_ref(), segment)? {
                    self.write(&at, before, &[(None, *segment)], &About::default())?.ok();
                }
            }
        }
        Ok(Ok(Done::Nothing))
    }

    /// Whether a blob already consists of just this file.
    fn is_same(&self, before: Option<&(u64, Blob)>, file: &BlobPart) -> Result<bool, StoreError> {
        let Some((id, blob)) = before else { return Ok(false) };
        if blob.bytes != file.bytes {
            return Ok(false);
        }
        let sql = "SELECT count(*) = 1 AND max(digest) = ?2 FROM segments WHERE blob = ?1";
        let mut statement = self.connection.prepare_cached(sql).doing(DOING, self.path)?;
        let found: Option<bool> = statement
            .query_row((id, &file.digest.0[..]), |row| row.get(0))
            .doing(DOING, self.path)?;
        Ok(found.unwrap_or(false))
    }

    /// Deletes the blobs below a folder that are not to be kept.
    fn clear(&self, folder: &Folder) -> Result<(), StoreError> {
        let stays: BTreeSet<&[u8]> = folder.files.iter().map(|(name, _)| name.as_bytes()).collect();
        // '0' is the character after '/'.
        let (from, to) = (format!("{}/", folder.name), format!("{}0", folder.name));
        let sql = "SELECT id, name FROM blobs WHERE container = ?1 AND name >= ?2 AND name < ?3";
        let params = (doc::key(folder.container.0), from.as_bytes(), to.as_bytes());
        let found = doc::rows(self.connection, self.path, sql, params, |row| {
            let id: u64 = row.get(0).doing(DOING, self.path)?;
            let name: Vec<u8> = row.get(1).doing(DOING, self.path)?;
            Ok((id, name))
        })?;
        for (id, name) in found {
            if !stays.contains(&name[from.len()..]) {
                self.drop_segments(id)?;
                self.run("DELETE FROM blobs WHERE id = ?1", (id,))?;
            }
        }
        Ok(())
    }

    fn drop_upload(&self, at: &BlobRef) -> Result<StorageResult, StoreError> {
        let params = (doc::key(at.container.0), at.name.as_bytes());
        let sql = "SELECT digest, staged_us FROM staged WHERE container = ?1 AND name = ?2";
        let dropped = doc::rows(self.connection, self.path, sql, params, |row| {
            let staged = row.get(1).map(Wall).doing(DOING, self.path)?;
            Ok((digest_of(row, 0, self.path)?, staged))
        })?;
        self.drop_staged("container = ?1 AND name = ?2", params)?;
        Ok(Ok(Done::Dropped(dropped)))
    }

    fn expire(&self, before: Wall) -> Result<StorageResult, StoreError> {
        self.drop_staged("staged_us < ?1", (doc::key(before.0),))?;
        Ok(Ok(Done::Nothing))
    }
}
