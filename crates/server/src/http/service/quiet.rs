//! Time limits for silence: bodies and connections on which no data moves are given up.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A body that fails when its next piece takes too long.
pub struct Paced {
    body: Body,
    patience: Duration,
    waiting: Pin<Box<Sleep>>,
}

impl Paced {
    pub fn new(body: Body, patience: Duration) -> Paced {
        Paced { body, patience, waiting: Box::pin(tokio::time::sleep(patience)) }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no data arrived for {} s", .0.as_secs())]
pub struct TooSlow(pub Duration);

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.waiting.as_mut().reset(Instant::now() + this.patience);
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(this.waiting.as_mut().poll(context));
        Poll::Ready(Some(Err(TooSlow(this.patience).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Forwards bytes in both directions until either side closes the connection, or both have been silent for too long.
pub async fn pass_on(
    near: impl AsyncRead + AsyncWrite + Unpin,
    mut far: impl AsyncRead + AsyncWrite + Unpin,
    idle_max: Duration,
) -> io::Result<()> {
    let moved = Arc::new(AtomicU64::new(0));
    let mut near = Counted { stream: near, moved: moved.clone() };
    let silence = async {
        let mut seen = moved.load(Ordering::Relaxed);
        loop {
            tokio::time::sleep(idle_max).await;
            let now = moved.load(Ordering::Relaxed);
            if now == seen {
                return;
            }
            seen = now;
        }
    };
    tokio::select! {
        ended = tokio::io::copy_bidirectional(&mut near, &mut far) => ended.map(drop),
        () = silence => Err(io::Error::new(io::ErrorKind::TimedOut, "no data moved for too long")),
    }
}

/// Counts the bytes in both directions.
struct Counted<S> {
    stream: S,
    moved: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, into));
        self.moved.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        self.moved.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(written)
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
    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn a_body_that_stops_is_given_up_and_a_slow_one_is_not() {
        let pieces = |pauses: &'static [u64]| {
            let stream = futures_util::stream::unfold(pauses.iter(), |mut left| async move {
                let pause = left.next()?;
                tokio::time::sleep(Duration::from_millis(*pause)).await;
                Some((Ok::<_, io::Error>(Bytes::from_static(b"x")), left))
            });
            Paced::new(Body::from_stream(stream), PATIENCE)
        };
        let whole = pieces(&[100, 100, 100, 100]).collect().await.expect("in time").to_bytes();
        assert_eq!(&whole[..], b"xxxx");
        let stopped = pieces(&[10, 5_000]).collect().await.expect_err("too slow");
        assert!(stopped.is::<TooSlow>(), "{stopped}");
    }

    #[tokio::test]
    async fn a_connection_on_which_nothing_moves_is_closed() {
        let ((mut caller, near), (far, mut service)) =
            (tokio::io::duplex(64), tokio::io::duplex(64));
        let passing = tokio::spawn(pass_on(near, far, PATIENCE));
        for _ in 0..4 {
            tokio::time::sleep(PATIENCE / 2).await;
            caller.write_all(b"ping").await.expect("open");
            let mut heard = [0; 4];
            service.read_exact(&mut heard).await.expect("open");
        }
        let ended = passing.await.expect("no panic").expect_err("silence");
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        assert_eq!(service.read(&mut [0; 4]).await.expect("closed"), 0);
    }
}
