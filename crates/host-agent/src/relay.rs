//! Forwards connections from a node's socket to the server on another host. The server is told from which node's socket
//! a connection came. The bytes are forwarded unchanged: the node's agent and the server see each other's certificates
//! and secrets, but we do not.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use muster_providers::sandboxed::Opened;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};

/// Further connections from one node wait.
const CONNECTIONS_MAX: usize = 256;
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a new connection to the server for this node.
pub(crate) trait Upstream: Clone + Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send;

    fn open(&self, node: &Arc<str>) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// Serves the sockets of all nodes, each until its node is deleted.
pub(crate) async fn run(mut opened: mpsc::UnboundedReceiver<Opened>, way: impl Upstream) {
    while let Some(Opened { listener, node, closed, .. }) = opened.recv().await {
        let listener = match UnixListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "cannot listen for a node; it will end by itself");
                continue;
            }
        };
        let way = way.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = accept(listener, node, way) => {}
                _ = closed => {}
            }
        });
    }
}

async fn accept(listener: UnixListener, node: Arc<str>, way: impl Upstream) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((caller, _)) => {
                let (node, way) = (node.clone(), way.clone());
                tokio::spawn(async move {
                    if let Err(error) = pass_on(caller, &node, &way).await {
                        tracing::debug!(%error, %node, "a node's connection to the server was interrupted");
                    }
                    drop(slot);
                });
            }
            // We may be out of descriptors, for example; other connections have to end first.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a node's connection to the server");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn pass_on(mut caller: UnixStream, node: &Arc<str>, way: &impl Upstream) -> io::Result<()> {
    let mut stream = tokio::time::timeout(OPEN_TIMEOUT, way.open(node)).await??;
    tokio::io::copy_bidirectional(&mut caller, &mut stream).await?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;

    use muster_providers::sandboxed::{Relays as _, Sockets};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[derive(Clone)]
    struct Port(u16);

    impl Upstream for Port {
        type Stream = TcpStream;

        async fn open(&self, node: &Arc<str>) -> io::Result<TcpStream> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.0)).await?;
            stream.write_all(node.as_bytes()).await?;
            Ok(stream)
        }
    }

    #[tokio::test]
    async fn a_node_reaches_the_server_until_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = server.local_addr().unwrap().port();
        let (sockets, opened) = Sockets::new(dir.path().to_owned());
        tokio::spawn(run(opened, Port(port)));
        sockets.open("pool-1", Ipv4Addr::LOCALHOST).unwrap();
        let socket = dir.path().join("pool-1").join(muster_sandbox::node::RELAY_SOCKET);

        let mut caller = UnixStream::connect(&socket).await.unwrap();
        caller.write_all(b"hello").await.unwrap();
        let (mut call, _) = server.accept().await.unwrap();
        let mut heard = [0; 11];
        call.read_exact(&mut heard).await.unwrap();
        call.write_all(b"you").await.unwrap();
        call.shutdown().await.unwrap();
        let mut answer = String::new();
        caller.read_to_string(&mut answer).await.unwrap();
        assert_eq!((&heard, answer.as_str()), (b"pool-1hello", "you"));

        sockets.close("pool-1");
        assert!(UnixStream::connect(&socket).await.is_err());
    }
}
