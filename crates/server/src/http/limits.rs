//! The limits of one client: connections, time and bytes. Every number that bounds a connection is here; the maximum
//! size of a body belongs to its route.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The number of open connections, if the system provides enough file descriptors. Further ones wait to be accepted;
/// idle ones are closed after [`PATIENCE`].
const CONNECTIONS_MAX: u64 = 16_384;
/// File descriptors for everything else: the store, logs, the processes of nodes.
const DESCRIPTORS_KEPT: u64 = 512;
/// The number of connections even if there are few file descriptors.
const CONNECTIONS_MIN: u64 = 16;

/// The number of file descriptors that a server requests from the system, and the number that it needs.
pub const DESCRIPTORS_WANTED: u64 = CONNECTIONS_MAX + DESCRIPTORS_KEPT;
pub const DESCRIPTORS_MIN: u64 = CONNECTIONS_MIN + DESCRIPTORS_KEPT;

/// A client that takes longer for its handshake, its headers or its next request is disconnected.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The time for a whole body. The largest takes a second on a slow line.
pub const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// A client that reads nothing of its response for this long is disconnected.
pub const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// The maximum size of the request line and headers together; also how much is read ahead of a body.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
pub const HEADERS_MAX: usize = 100;

/// The number of connections, after requesting the file descriptors for them from the system. Nodes and their jobs
/// inherit the higher soft limit, so it is not higher than necessary.
pub fn connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = DESCRIPTORS_WANTED;
    let reachable = limit.maximum.unwrap_or(wanted).min(wanted);
    let mut soft = limit.current.unwrap_or(wanted);
    if soft < reachable
        && setrlimit(Resource::Nofile, Rlimit { current: Some(reachable), ..limit }).is_ok()
    {
        soft = reachable;
    }
    let places = soft.saturating_sub(DESCRIPTORS_KEPT).clamp(CONNECTIONS_MIN, CONNECTIONS_MAX);
    usize::try_from(places).expect("clamped")
}

/// A stream whose writes fail if the peer reads nothing for a while.
pub struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub fn new(stream: S, patience: Duration) -> Patient<S> {
        Patient { stream, patience, waiting: None }
    }

    /// Whether an operation is complete, still waits, or has waited too long.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        tried: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if tried.is_ready() {
            self.waiting = None;
            return tried;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not read the response",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, tried)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let tried = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.bounded(context, tried)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tried = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, tried)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(400);

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_disconnected() {
        let (near, _far) = tokio::io::duplex(16);
        let started = std::time::Instant::now();
        let failed = Patient::new(near, PATIENCE).write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= PATIENCE);
    }

    #[tokio::test]
    async fn a_client_that_reads_slowly_is_not_disconnected() {
        let (near, mut far) = tokio::io::duplex(16);
        let reader = tokio::spawn(async move {
            for _ in 0..6 {
                tokio::time::sleep(PATIENCE / 4).await;
                far.read_exact(&mut [0; 16]).await.unwrap();
            }
        });
        Patient::new(near, PATIENCE).write_all(&[0; 96]).await.unwrap();
        reader.await.unwrap();
    }

    #[test]
    fn there_are_places_and_descriptors_for_them() {
        let places = connections() as u64;
        assert!((CONNECTIONS_MIN..=CONNECTIONS_MAX).contains(&places));
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(places == CONNECTIONS_MIN || places + DESCRIPTORS_KEPT <= descriptors);
    }
}
