//! TLS connections in, one HTTP service for all of them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use super::login::Source;

/// Open connections; the next one waits to be accepted.
const CONNECTIONS_MAX: usize = 4_096;
/// A client that is slower than this with its handshake or headers is dropped.
const PATIENCE: Duration = Duration::from_secs(10);
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
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    tokio::pin!(shutdown);
    loop {
        let permit = connections.clone().acquire_owned().await.expect("never closed");
        let (stream, source) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => (stream, Source(from.ip())),
                Err(failed) => {
                    // Out of file descriptors, most likely: give others time to close theirs.
                    debug!(error = %failed, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = &mut shutdown => break,
        };
        let (acceptor, router, watcher) = (acceptor.clone(), router.clone(), graceful.watcher());
        tokio::spawn(async move {
            converse(stream, source, acceptor, router, watcher).await;
            drop(permit);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}

async fn converse(
    stream: TcpStream,
    source: Source,
    acceptor: TlsAcceptor,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Answers are small and wanted at once.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(failed)) => return debug!(error = %failed, "no TLS"),
        Err(_) => return debug!("the TLS handshake took too long"),
    };
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request| {
        request.extensions_mut().insert(source);
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(failed) = watcher.watch(connection).await {
        debug!(error = %failed, "the connection ended early");
    }
}
