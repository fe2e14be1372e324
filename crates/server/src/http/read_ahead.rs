//! Reads from a socket in large pieces while much data arrives.
//!
//! Rustls reads four kilobytes at a time, so a gigabyte would take a quarter of a million calls. A peer that fills such
//! a read is sending more, so the next read takes as much as is available. An idle connection has no buffer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const AHEAD_BYTES: usize = 128 << 10;

pub struct ReadAhead<S> {
    stream: S,
    ahead: Vec<u8>,
    /// The range of the buffer that has not been returned yet.
    from: usize,
    to: usize,
    /// Whether the last read filled its buffer completely.
    is_more: bool,
}

impl<S> ReadAhead<S> {
    pub fn new(stream: S) -> ReadAhead<S> {
        ReadAhead { stream, ahead: Vec::new(), from: 0, to: 0, is_more: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.from == this.to {
            if !this.is_more || into.remaining() >= AHEAD_BYTES {
                let (before, room) = (into.filled().len(), into.remaining());
                let read = Pin::new(&mut this.stream).poll_read(context, into);
                this.is_more = read.is_ready() && into.filled().len() - before == room;
                return read;
            }
            this.ahead.resize(AHEAD_BYTES, 0);
            let mut ahead = ReadBuf::new(&mut this.ahead);
            let read = Pin::new(&mut this.stream).poll_read(context, &mut ahead);
            (this.from, this.to) = (0, ahead.filled().len());
            if this.to == 0 {
                (this.ahead, this.is_more) = (Vec::new(), false);
                return read;
            }
            ready!(read)?;
        }
        let bytes = into.remaining().min(this.to - this.from);
        into.put_slice(&this.ahead[this.from..this.from + bytes]);
        this.from += bytes;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn everything_comes_in_its_order_and_nothing_is_held_at_the_end() {
        let (mut far, near) = tokio::io::duplex(64 << 10);
        let sent: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
        let copy = sent.clone();
        let sender = tokio::spawn(async move {
            for piece in copy.chunks(37_123) {
                far.write_all(piece).await.unwrap();
            }
            far
        });
        let mut near = ReadAhead::new(near);
        let mut received = Vec::new();
        let mut buffer = [0; 4096];
        while received.len() < sent.len() {
            let got = near.read(&mut buffer).await.unwrap();
            received.extend_from_slice(&buffer[..got]);
        }
        assert!(received == sent);
        let mut far = sender.await.unwrap();
        assert!(waits(&mut near, &mut buffer).await, "there is no more data");
        assert_eq!(near.ahead.capacity(), 0);
        far.write_all(b"more").await.unwrap();
        drop(far);
        let got = near.read(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..got], b"more");
        assert_eq!(near.read(&mut buffer).await.unwrap(), 0, "the end of the stream");
    }

    async fn waits<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut [u8]) -> bool {
        let read = stream.read(buffer);
        tokio::time::timeout(std::time::Duration::from_millis(50), read).await.is_err()
    }
}
