//! A stored file that is read in pieces, from the local disk or an object store.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use axum::body::Bytes;
use rustix::io::{ReadWriteFlags, preadv2};

use super::remote::Object;

pub struct Content {
    source: Source,
    bytes: u64,
    /// The offset of the next piece.
    at: u64,
}

enum Source {
    File(Arc<File>),
    #[cfg_attr(not(feature = "object-store"), expect(dead_code))]
    Object(Object),
}

impl Content {
    pub(super) fn of_file(file: File) -> io::Result<Content> {
        let bytes = file.metadata()?.len();
        Ok(Content { source: Source::File(Arc::new(file)), bytes, at: 0 })
    }

    #[cfg(feature = "object-store")]
    pub(super) fn of_object(object: Object, bytes: u64) -> Content {
        Content { source: Source::Object(object), bytes, at: 0 }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn skip(&mut self, bytes: u64) {
        self.at += bytes;
    }

    /// Returns the next bytes, at most `limit`; none at the end of the file.
    pub async fn piece(&mut self, limit: usize) -> io::Result<Bytes> {
        let left = usize::try_from(self.bytes.saturating_sub(self.at)).unwrap_or(limit);
        let limit = limit.min(left);
        if limit == 0 {
            return Ok(Bytes::new());
        }
        let piece = match &mut self.source {
            Source::File(file) => read(file, self.at, limit).await?,
            Source::Object(object) => object.read(self.at, limit).await?,
        };
        self.at += piece.len() as u64;
        Ok(piece)
    }

    /// Reads the beginning of a local file. The calling thread may block.
    pub(super) fn text(self, limit: u64) -> io::Result<Vec<u8>> {
        match self.source {
            Source::File(file) => {
                let mut text = Vec::new();
                file.take(limit).read_to_end(&mut text)?;
                Ok(text)
            }
            Source::Object(_) => Err(io::Error::other("the file is in an object store")),
        }
    }
}

/// Reads from the page cache if possible; otherwise the disk is read on a blocking thread.
async fn read(file: &Arc<File>, at: u64, limit: usize) -> io::Result<Bytes> {
    let mut piece = vec![0; limit];
    let got = preadv2(file, &mut [IoSliceMut::new(&mut piece)], at, ReadWriteFlags::NOWAIT);
    let (mut piece, got) = match got {
        Ok(got) if got > 0 => (piece, got),
        // The page cache has no data, or the file system does not support such a read.
        _ => {
            let file = file.clone();
            let read = tokio::task::spawn_blocking(move || {
                let got = file.read_at(&mut piece, at)?;
                io::Result::Ok((piece, got))
            });
            read.await.map_err(io::Error::other)??
        }
    };
    piece.truncate(got);
    Ok(piece.into())
}
