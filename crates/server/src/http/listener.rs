//! TLS connections in, one HTTP service for all of them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::limits::{self, PATIENCE, Patient, WRITE_PATIENCE};

/// How long a stop waits for requests under way.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until `shutdown` resolves, then lets requests under way finish.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let connections = Arc::new(Semaphore::new(limits::connections()));
    let graceful = GracefulShutdown::new();
    tokio::pin!(shutdown);
    loop {
        let permit = tokio::select! {
            permit = place(&connections) => permit,
            () = &mut shutdown => break,
        };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(failed) => {
                    // Out of file descriptors, most likely: give others time to close theirs.
                    warn!(error = %failed, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    continue;
                }
            },
            () = &mut shutdown => break,
        };
        let (acceptor, router, watcher) = (acceptor.clone(), router.clone(), graceful.watcher());
        tokio::spawn(async move {
            converse(stream, acceptor, router, watcher).await;
            drop(permit);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}

/// The next place for a connection, as soon as there is one.
async fn place(connections: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    if connections.available_permits() == 0 {
        warn!("all places for connections are taken; the next client waits for one");
    }
    connections.clone().acquire_owned().await.expect("never closed")
}

async fn converse(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Answers are small and wanted at once.
    let _ = stream.set_nodelay(true);
    let handshake = acceptor.accept(Patient::new(stream, WRITE_PATIENCE));
    let stream = match tokio::time::timeout(PATIENCE, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(failed)) => return debug!(error = %failed, "no TLS"),
        Err(_) => return debug!("the TLS handshake took too long"),
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_headers(limits::HEADERS_MAX)
        .max_buf_size(limits::HEAD_BYTES_MAX)
        .max_header_size(limits::HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(failed) = watcher.watch(connection).await {
        debug!(error = %failed, "the connection ended early");
    }
}
