//! Accepts connections, with or without TLS, and serves HTTP on them.

use std::io;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::connections::{ConnectionGuard, Connections};
use super::limits::{self, PATIENCE, Patient, WRITE_PATIENCE};
use super::login::Source;
use super::read_ahead::ReadAhead;
use super::trees::SENT_BYTES;

/// A source of connections.
pub trait ConnectionSource {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, and its source.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Source)>> + Send;
}

impl ConnectionSource for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Source)> {
        let (stream, from) = TcpListener::accept(self).await?;
        // Responses are small and wanted at once.
        let _ = stream.set_nodelay(true);
        Ok((stream, Source { address: from.ip(), node: None }))
    }
}

/// A node's own socket: every peer that connects there is that node.
pub struct Relay {
    pub listener: UnixListener,
    pub address: Ipv4Addr,
    pub node: Arc<str>,
}

impl ConnectionSource for Relay {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Source)> {
        let (stream, _) = self.listener.accept().await?;
        Ok((stream, Source { address: self.address.into(), node: Some(self.node.clone()) }))
    }
}

/// A host's connection that has become a node's.
pub type Tunnel = TokioIo<hyper::upgrade::Upgraded>;

/// The connections of nodes on joined hosts.
pub struct Calls(pub Mutex<mpsc::Receiver<(Tunnel, Source)>>);

impl ConnectionSource for Calls {
    type Stream = Tunnel;

    async fn accept(&self) -> io::Result<(Tunnel, Source)> {
        let call = self.0.lock().await.recv().await;
        call.ok_or_else(|| io::Error::other("connections of nodes are no longer accepted"))
    }
}

/// How many connections a listener may have.
#[derive(Clone, Copy)]
pub struct Places {
    pub all: usize,
    /// The limit for one address, if addresses distinguish clients.
    pub per_address: Option<usize>,
}

/// Serves until `stop` is true, then lets requests in progress finish, for as long as `drain`. Connections without a
/// request are closed at once. A connection beyond the limit of its address is closed at once; one beyond all places
/// waits.
pub async fn serve<D: ConnectionSource>(
    incoming: D,
    tls: Option<Arc<rustls::ServerConfig>>,
    router: Router,
    places: Places,
    mut stop: watch::Receiver<bool>,
    drain: Duration,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let connections = Arc::new(Semaphore::new(places.all));
    let admitted = Connections::new(places.per_address);
    let mut logged_at: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            accepted = incoming.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        let (stream, source) = match accepted {
            Ok((stream, from)) => (Patient::new(ReadAhead::new(stream), WRITE_PATIENCE), from),
            Err(failed) => {
                // Most likely there are no file descriptors left: give others time to close theirs.
                warn!(error = %failed, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let Some((guard, evicted)) = admitted.admit(source.address) else {
            debug!(address = %source.address, "closed at once: its address has the maximum number of connections");
            continue;
        };
        let permit = tokio::select! {
            permit = place(&connections, &admitted, &guard, &mut logged_at) => permit,
            () = stopped(&mut stop) => break,
        };
        let (acceptor, router, stop) = (acceptor.clone(), router.clone(), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = receive(stream, acceptor, router, (source, guard), stop) => {}
                Ok(()) = evicted => debug!("closed: it has sent no request, and its place is needed"),
            }
            drop(permit);
        });
    }
    drop(incoming);
    // All places are free when all connections have ended.
    let all = u32::try_from(places.all).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(drain, connections.acquire_many(all)).await;
}

/// Resolves once the server is asked to stop, or has stopped.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|is_stopping| *is_stopping).await;
}

async fn receive<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    from: (Source, Arc<ConnectionGuard>),
    mut stop: watch::Receiver<bool>,
) {
    let Some(acceptor) = acceptor else {
        return converse(TokioIo::new(stream), router, from, stop).await;
    };
    let stream = tokio::select! {
        stream = handshake(stream, &acceptor) => stream,
        () = stopped(&mut stop) => None,
    };
    if let Some(stream) = stream {
        converse(TokioIo::new(stream), router, from, stop).await;
    }
}

async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    acceptor: &TlsAcceptor,
) -> Option<tokio_rustls::server::TlsStream<S>> {
    // The buffer has the size of one read, so that all bytes of a read are sent at once.
    let accept = acceptor.accept_with(stream, |tls| tls.set_buffer_limit(Some(SENT_BYTES)));
    match tokio::time::timeout(PATIENCE, accept).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(failed)) => {
            debug!(error = %failed, "no TLS");
            None
        }
        Err(_) => {
            debug!("the TLS handshake took too long");
            None
        }
    }
}

/// Waits for a place for a connection.
async fn place(
    connections: &Arc<Semaphore>,
    admitted: &Connections,
    guard: &ConnectionGuard,
    logged_at: &mut Option<Instant>,
) -> OwnedSemaphorePermit {
    if connections.available_permits() == 0 {
        admitted.make_room_for(guard);
        // Logged rarely, because thousands of connections may arrive in a second.
        if logged_at.is_none_or(|at| at.elapsed() > PATIENCE) {
            *logged_at = Some(Instant::now());
            warn!(
                "all places for connections are in use; a new connection replaces one that has sent no request, or waits"
            );
        }
    }
    connections.clone().acquire_owned().await.expect("the semaphore is never closed")
}

async fn converse(
    stream: impl Read + Write + Unpin + Send + 'static,
    router: Router,
    (source, guard): (Source, Arc<ConnectionGuard>),
    mut stop: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request| {
        guard.mark_active();
        request.extensions_mut().insert(source.clone());
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_headers(limits::HEADERS_MAX)
        .max_buf_size(limits::HEAD_BYTES_MAX)
        .max_header_size(limits::HEAD_BYTES_MAX)
        .serve_connection(stream, service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(failed) = ended {
        debug!(error = %failed, "the connection ended early");
    }
}
