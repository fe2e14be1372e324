//! What one client may take: connections, time and bytes. Every number that bounds a connection is here; the size of a
//! body belongs to its route.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Open connections, if the system gives as many descriptors. The next one waits to be accepted; whoever does
/// nothing with theirs loses it within [`PATIENCE`].
const CONNECTIONS_MAX: u64 = 16_384;
/// Descriptors for everything else: the store, logs, the nodes' processes.
const DESCRIPTORS_KEPT: u64 = 512;
/// Even where descriptors are few.
const CONNECTIONS_MIN: u64 = 16;

/// What a server asks the system for, and what it cannot do without.
pub const DESCRIPTORS_WANTED: u64 = CONNECTIONS_MAX + DESCRIPTORS_KEPT;
pub const DESCRIPTORS_MIN: u64 = CONNECTIONS_MIN + DESCRIPTORS_KEPT;

/// A client that is slower than this with its handshake, with its headers, or with its next request is dropped.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// For a whole body. The largest takes a second on a slow line.
pub const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// A client that takes nothing of its answer for this long is dropped.
pub const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// Of a request's line and headers together; also what is read ahead of a body.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
pub const HEADERS_MAX: usize = 100;

/// How many connections there may be, after asking the system for the descriptors that they need. Nodes and their jobs
/// inherit the higher soft limit, so it is no higher than needed.
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

/// A stream whose writes fail when the other side takes nothing for a while.
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

    /// Whether what was tried is done, still waits, or has waited for too long.
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
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no answer")))
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
    async fn a_client_that_takes_nothing_is_given_up() {
        let (near, _far) = tokio::io::duplex(16);
        let started = std::time::Instant::now();
        let failed = Patient::new(near, PATIENCE).write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= PATIENCE);
    }

    #[tokio::test]
    async fn a_client_that_takes_a_little_now_and_then_is_not() {
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
