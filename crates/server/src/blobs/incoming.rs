//! Uploads in progress: written to a temporary file, hashed, and renamed when they are complete.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use md5::{Digest as _, Md5};
use muster_core::ids::WorkspaceId;
use muster_core::model::BlobId;
use muster_trees::{FILE_BYTES_MAX, Hasher, Piece, Run, Target, Unpacking};

use super::usage::{self, Reserved, Sending};
use super::{BlobError, Blobs, Held, holes};
use crate::room::Kind;

/// A file whose length was not announced reserves its share in steps of this size.
const STEP_BYTES: u64 = 8 << 20;

impl Blobs {
    /// Begins an upload, of this length if it is known.
    pub fn begin(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        bytes: Option<u64>,
        kind: Kind,
    ) -> Result<Incoming, BlobError> {
        self.begin_up_to(workspace, FILE_BYTES_MAX, bytes, None, kind)
    }

    /// The same with another limit, and optionally with the MD5 digest that the file must have.
    pub fn begin_up_to(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        limit: u64,
        bytes: Option<u64>,
        md5: Option<[u8; 16]>,
        kind: Kind,
    ) -> Result<Incoming, BlobError> {
        let announced = bytes.unwrap_or(0);
        if announced > limit {
            return Err(BlobError::TooLarge { limit });
        }
        self.check_room(announced, kind)?;
        let reserved = Some(self.reserve(workspace, announced, kind)?);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join("incoming").join(number.to_string());
        // A file that is sent to an object store is read again.
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = Target::new(file.map_err(|why| self.failed(why, kind))?, bytes);
        let (hasher, md5) = (Hasher::default(), md5.map(|wanted| (Md5::new(), wanted)));
        let (blobs, unpacking, bytes, has_name) = (self.clone(), None, 0, false);
        Ok(Incoming {
            blobs,
            workspace,
            kind,
            reserved,
            path,
            file,
            hasher,
            md5,
            unpacking,
            left: None,
            bytes,
            limit,
            has_name,
        })
    }

    /// The same for a file that arrives as frames, without its holes. `bytes` is the length of the frames.
    pub fn begin_packed(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        bytes: Option<u64>,
        kind: Kind,
    ) -> Result<Incoming, BlobError> {
        let mut incoming = self.begin(workspace, bytes, kind)?;
        incoming.unpacking = Some(Unpacking::default());
        Ok(incoming)
    }
}

/// An upload in progress. If it is dropped before it is stored, its file is deleted.
pub struct Incoming {
    blobs: Arc<Blobs>,
    workspace: WorkspaceId,
    kind: Kind,
    /// Its part of the workspace's share, until it is stored.
    reserved: Option<Reserved>,
    path: PathBuf,
    file: Target,
    hasher: Hasher,
    md5: Option<(Md5, [u8; 16])>,
    /// The state of the frame decoder, if the file arrives as frames.
    unpacking: Option<Unpacking>,
    /// The part of the last piece that is not written yet.
    left: Option<(Piece, Rest)>,
    bytes: u64,
    limit: u64,
    /// Whether the file has been moved to its final name.
    has_name: bool,
}

/// The position of the first byte of a piece that is not written yet. A hole of `hole` bytes, which may be 0, comes
/// first.
#[derive(Default)]
struct Rest {
    hole: u64,
    at: usize,
}

impl Incoming {
    pub fn write(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        let mut rest = Rest::default();
        self.write_rest(piece, &mut rest, u64::MAX)
    }

    /// Writes the rest of a piece, but stops in a hole when `holes` bytes of holes have been hashed.
    fn write_rest(
        &mut self,
        piece: &[u8],
        rest: &mut Rest,
        mut holes: u64,
    ) -> Result<(), BlobError> {
        loop {
            let now = rest.hole.min(holes);
            self.write_hole(now)?;
            (holes, rest.hole) = (holes - now, rest.hole - now);
            if rest.hole > 0 {
                return Ok(());
            }
            let mut come = &piece[rest.at..];
            let run = match &mut self.unpacking {
                Some(unpacking) => unpacking.next(&mut come),
                None => (!come.is_empty()).then(|| Run::Data(std::mem::take(&mut come))),
            };
            rest.at = piece.len() - come.len();
            match run {
                Some(Run::Data(data)) => self.write_data(data)?,
                Some(Run::Hole(bytes)) => {
                    self.check_length(bytes)?;
                    rest.hole = bytes;
                }
                None => return Ok(()),
            }
        }
    }

    fn check_length(&self, more: u64) -> Result<(), BlobError> {
        match self.bytes.saturating_add(more) > self.limit {
            true => Err(BlobError::TooLarge { limit: self.limit }),
            false => Ok(()),
        }
    }

    fn grow(&mut self, bytes: u64) -> Result<(), BlobError> {
        self.check_length(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Adds a hole, which takes no space.
    fn write_hole(&mut self, bytes: u64) -> Result<(), BlobError> {
        if bytes == 0 {
            return Ok(());
        }
        self.grow(bytes)?;
        self.hasher.add_hole(bytes);
        self.file.write_hole(bytes).map_err(|why| self.blobs.failed(why, self.kind))
    }

    fn write_data(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        self.grow(piece.len() as u64)?;
        self.blobs.check_room(piece.len() as u64, self.kind)?;
        self.hasher.add(piece);
        if let Some((md5, _)) = &mut self.md5 {
            md5.update(piece);
        }
        self.file.write(piece).map_err(|why| self.blobs.failed(why, self.kind))?;
        let written = self.file.written();
        let reserved = self.reserved.as_mut();
        reserved.map_or(Ok(()), |reserved| reserved.grow_in_steps_to(written, STEP_BYTES))
    }

    /// The same for a buffer, which is returned to its pool. If the piece has large holes, part of it is left for
    /// [`Incoming::go_on`].
    pub fn take(&mut self, piece: Piece) -> Result<(), BlobError> {
        self.take_rest(piece, Rest::default(), holes::AT_ONCE_BYTES)
    }

    fn take_rest(&mut self, piece: Piece, mut rest: Rest, holes: u64) -> Result<(), BlobError> {
        self.write_rest(&piece, &mut rest, holes)?;
        match rest.hole {
            0 => self.blobs.pieces.give(piece),
            _ => self.left = Some((piece, rest)),
        }
        Ok(())
    }

    pub fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    /// Whether the last piece has holes that are not hashed yet.
    pub fn has_left(&self) -> bool {
        self.left.is_some()
    }

    /// Continues writing the last piece. The caller holds a permit to hash a slice.
    pub fn go_on(&mut self) -> Result<(), BlobError> {
        match self.left.take() {
            Some((piece, rest)) => self.take_rest(piece, rest, holes::SLICE_BYTES),
            None => Ok(()),
        }
    }

    /// Completes the upload of a file with a known digest.
    pub fn keep(mut self, wanted: &BlobId) -> Result<(), BlobError> {
        let found = std::mem::take(&mut self.hasher).finish();
        if found != *wanted {
            let (wanted, found) = (wanted.to_string(), found.to_string());
            return Err(BlobError::WrongDigest { wanted, found });
        }
        if self.blobs.remote.is_some() {
            self.blobs.gate.ask(self.workspace, found);
        }
        let held = Held::new(&self.blobs, self.workspace, found, self.bytes);
        self.settle(&found)?;
        self.blobs.gate.doubt(self.workspace, found);
        drop(held);
        Ok(())
    }

    /// Completes the upload of a file with any digest. The name of the file is not on disk before its folder is.
    pub fn keep_as_found(mut self) -> Result<Held, BlobError> {
        if self.md5.take().is_some_and(|(md5, wanted)| md5.finalize()[..] != wanted) {
            return Err(BlobError::WrongMd5);
        }
        let digest = std::mem::take(&mut self.hasher).finish();
        let held = Held::new(&self.blobs, self.workspace, digest, self.bytes);
        self.settle(&digest)?;
        Ok(held)
    }

    /// Flushes the bytes to disk, and then names the file. The caller holds the name, so that a file that exists is
    /// kept.
    fn settle(&mut self, digest: &BlobId) -> Result<(), BlobError> {
        let Some(reserved) = self.reserved.take() else { return Ok(()) };
        match self.blobs.remote.is_some() {
            true => self.send(digest, reserved.sending(*digest)),
            false => self.name(digest, reserved),
        }
    }

    fn is_there(&self, digest: &BlobId) -> Result<bool, BlobError> {
        // Only a limit requires this lookup.
        let is_limited = self.blobs.usage.is_limited();
        Ok(is_limited && self.blobs.size(self.workspace, digest)?.is_some())
    }

    fn send(&mut self, digest: &BlobId, mut sending: Sending) -> Result<(), BlobError> {
        let Some(remote) = &self.blobs.remote else { return Ok(()) };
        let bytes = if self.is_there(digest)? { 0 } else { self.bytes };
        sending.grow_to(bytes)?;
        let file = self.file.file().map_err(BlobError::Io)?;
        remote.put(self.workspace, digest, file, self.bytes)?;
        sending.settle(bytes);
        Ok(())
    }

    fn name(&mut self, digest: &BlobId, mut reserved: Reserved) -> Result<(), BlobError> {
        self.file.sync().map_err(|why| self.blobs.failed(why, self.kind))?;
        let taken = usage::taken_by(&fs::metadata(&self.path).map_err(BlobError::Io)?);
        if !self.is_there(digest)? {
            reserved.grow_to(taken)?;
        }
        let path = self.blobs.path(self.workspace, digest);
        let name = || {
            let _gate = self.blobs.gate.lock();
            // Another upload may have stored the same file at the same time.
            let is_new = !path.exists();
            fs::rename(&self.path, &path)?;
            Ok::<bool, io::Error>(is_new)
        };
        let named = match (name(), path.parent()) {
            // This is the first file in its folder.
            (Err(missing), Some(folder)) if missing.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(folder).and_then(|()| name())
            }
            (named, _) => named,
        };
        let is_new = named.map_err(|why| self.blobs.failed(why, self.kind))?;
        self.has_name = true;
        reserved.settle(if is_new { taken } else { 0 });
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
