//! Streams a file in chunks, so that the memory needed does not depend on its size.

use std::io;

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::io::AsyncReadExt as _;

const PIECE_BYTES: usize = 256 << 10;

/// Reads the next `bytes` of a file, or fewer if it ends before.
pub fn pieces(
    file: std::fs::File,
    bytes: u64,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let file = tokio::fs::File::from_std(file).take(bytes);
    stream::unfold(file, |mut file| async move {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        match file.read_buf(&mut piece).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(Bytes::from(piece)), file)),
            Err(error) => Some((Err(error), file)),
        }
    })
}
