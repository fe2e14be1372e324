//! Files on their way in: written aside, hashed, and given their name when they are whole.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use md5::{Digest as _, Md5};
use muster_core::ids::WorkspaceId;
use muster_core::model::BlobId;
use muster_trees::{FILE_BYTES_MAX, Hasher, Piece, Run, Target, Unpacking};

use super::{BlobError, Blobs, Held, usage};

impl Blobs {
    /// Begins to take in a file, of this length if it is known.
    pub fn begin(self: &Arc<Self>, bytes: Option<u64>) -> Result<Incoming, BlobError> {
        self.begin_up_to(FILE_BYTES_MAX, bytes, None)
    }

    /// The same with another limit, and with the MD5 digest that it must have.
    pub fn begin_up_to(
        self: &Arc<Self>,
        limit: u64,
        bytes: Option<u64>,
        md5: Option<[u8; 16]>,
    ) -> Result<Incoming, BlobError> {
        let announced = bytes.unwrap_or(0);
        if announced > limit {
            return Err(BlobError::TooLarge { limit });
        }
        self.check_room(announced)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join("incoming").join(number.to_string());
        // What goes elsewhere is read again.
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = Target::new(file.map_err(|why| self.failed(why))?, bytes);
        let (hasher, md5) = (Hasher::default(), md5.map(|wanted| (Md5::new(), wanted)));
        let (blobs, unpacking, bytes, has_name) = (self.clone(), None, 0, false);
        Ok(Incoming { blobs, path, file, hasher, md5, unpacking, bytes, limit, has_name })
    }

    /// The same for a file that comes in frames, without its holes: so many bytes are on their way.
    pub fn begin_packed(self: &Arc<Self>, bytes: Option<u64>) -> Result<Incoming, BlobError> {
        let mut incoming = self.begin(bytes)?;
        incoming.unpacking = Some(Unpacking::default());
        Ok(incoming)
    }
}

/// A file on its way in. Dropped before it is kept, it is gone.
pub struct Incoming {
    blobs: Arc<Blobs>,
    path: PathBuf,
    file: Target,
    hasher: Hasher,
    md5: Option<(Md5, [u8; 16])>,
    /// Of what comes in frames.
    unpacking: Option<Unpacking>,
    bytes: u64,
    limit: u64,
    /// It is where it belongs.
    has_name: bool,
}

impl Incoming {
    pub fn write(&mut self, mut piece: &[u8]) -> Result<(), BlobError> {
        let Some(mut unpacking) = self.unpacking.take() else { return self.write_data(piece) };
        while let Some(run) = unpacking.next(&mut piece) {
            match run {
                Run::Data(data) => self.write_data(data)?,
                Run::Hole(bytes) => self.write_hole(bytes)?,
            }
        }
        self.unpacking = Some(unpacking);
        Ok(())
    }

    fn grow(&mut self, bytes: u64) -> Result<(), BlobError> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > self.limit {
            true => Err(BlobError::TooLarge { limit: self.limit }),
            false => Ok(()),
        }
    }

    /// Takes no room.
    fn write_hole(&mut self, bytes: u64) -> Result<(), BlobError> {
        self.grow(bytes)?;
        self.hasher.add_hole(bytes);
        self.file.write_hole(bytes).map_err(|why| self.blobs.failed(why))
    }

    fn write_data(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        self.grow(piece.len() as u64)?;
        self.blobs.check_room(piece.len() as u64)?;
        self.hasher.add(piece);
        if let Some((md5, _)) = &mut self.md5 {
            md5.update(piece);
        }
        self.file.write(piece).map_err(|why| self.blobs.failed(why))
    }

    /// The same, and others may use its memory.
    pub fn take(&mut self, piece: Piece) -> Result<(), BlobError> {
        self.write(&piece)?;
        self.blobs.pieces.give(piece);
        Ok(())
    }

    /// All of it is here.
    pub fn keep(mut self, workspace: WorkspaceId, wanted: &BlobId) -> Result<(), BlobError> {
        let found = std::mem::take(&mut self.hasher).finish();
        if found != *wanted {
            let (wanted, found) = (wanted.to_string(), found.to_string());
            return Err(BlobError::WrongDigest { wanted, found });
        }
        if self.blobs.remote.is_some() {
            self.blobs.gate.ask(workspace, found);
        }
        self.settle(workspace, &found)?;
        self.blobs.gate.doubt(workspace, found);
        Ok(())
    }

    /// All of it is here, whatever it is. The name of the file is not on disk before its folder is.
    pub fn keep_as_found(mut self, workspace: WorkspaceId) -> Result<Held, BlobError> {
        if self.md5.take().is_some_and(|(md5, wanted)| md5.finalize()[..] != wanted) {
            return Err(BlobError::WrongMd5);
        }
        let digest = std::mem::take(&mut self.hasher).finish();
        let held = Held::new(&self.blobs, workspace, digest, self.bytes);
        self.settle(workspace, &digest)?;
        Ok(held)
    }

    /// Its bytes are on disk, and then it has its name.
    fn settle(&mut self, workspace: WorkspaceId, digest: &BlobId) -> Result<(), BlobError> {
        let usage = &self.blobs.usage;
        let is_there = usage.is_limited() && self.blobs.size(workspace, digest)?.is_some();
        if let Some(remote) = &self.blobs.remote {
            let bytes = if is_there { 0 } else { self.bytes };
            self.blobs.check_share(workspace, bytes)?;
            let file = self.file.file().map_err(BlobError::Io)?;
            remote.put(workspace, digest, file, self.bytes)?;
            usage.came(workspace, bytes);
            return Ok(());
        }
        self.file.sync().map_err(|why| self.blobs.failed(why))?;
        let taken = usage::taken_by(&fs::metadata(&self.path).map_err(BlobError::Io)?);
        self.blobs.check_share(workspace, if is_there { 0 } else { taken })?;
        let path = self.blobs.path(workspace, digest);
        let name = || {
            let _gate = self.blobs.gate.lock();
            // Another may have brought the same at the same time.
            let is_new = !path.exists();
            fs::rename(&self.path, &path)?;
            usage.came(workspace, if is_new { taken } else { 0 });
            Ok::<(), io::Error>(())
        };
        let named = match (name(), path.parent()) {
            // The first of its folder.
            (Err(missing), Some(folder)) if missing.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(folder).and_then(|()| name())
            }
            (named, _) => named,
        };
        named.map_err(|why| self.blobs.failed(why))?;
        self.has_name = true;
        Ok(())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.has_name {
            let _ = fs::remove_file(&self.path);
        }
    }
}
