//! The way from a node's socket to the server, on another machine. Bytes pass as they are: the node's agent and the server
//! see each other's certificates and secrets, and we do not.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use muster_providers::walled::Opened;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};

use crate::client::Server;

/// More callers of one node at a time wait.
const CONNECTIONS_MAX: usize = 256;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What was sent and not acknowledged for this long will not arrive; without it, calls into a cut network pile up.
const UNHEARD_MAX: Duration = Duration::from_secs(30);

/// Serves the sockets of all nodes, each until its node is gone.
pub(crate) async fn run(mut opened: mpsc::UnboundedReceiver<Opened>, server: Server) {
    while let Some(Opened { listener, closed, .. }) = opened.recv().await {
        let listener = match UnixListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "cannot listen for a node; it will end itself");
                continue;
            }
        };
        let server = server.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = accept(listener, server) => {}
                _ = closed => {}
            }
        });
    }
}

async fn accept(listener: UnixListener, server: Server) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((caller, _)) => {
                let server = server.clone();
                tokio::spawn(async move {
                    if let Err(error) = pass_on(caller, &server).await {
                        tracing::debug!(%error, "a node's call to the server broke off");
                    }
                    drop(place);
                });
            }
            // Out of descriptors, say: others have to end first.
            Err(error) => {
                tracing::warn!(%error, "cannot take a node's call to the server");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn pass_on(mut caller: UnixStream, server: &Server) -> io::Result<()> {
    let connected = TcpStream::connect((server.host(), server.port()));
    let mut stream = tokio::time::timeout(CONNECT_TIMEOUT, connected).await??;
    // Small messages both ways: waiting for more to send would only be slow.
    stream.set_nodelay(true)?;
    let unheard = u32::try_from(UNHEARD_MAX.as_millis()).expect("seconds");
    rustix::net::sockopt::set_tcp_user_timeout(&stream, unheard)?;
    tokio::io::copy_bidirectional(&mut caller, &mut stream).await?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;

    use muster_providers::walled::{Relays as _, Sockets};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_node_reaches_the_server_until_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = server.local_addr().unwrap().port();
        let (sockets, opened) = Sockets::new(dir.path().to_owned());
        tokio::spawn(run(opened, format!("https://127.0.0.1:{port}").parse().unwrap()));
        sockets.open("pool-1", Ipv4Addr::LOCALHOST).unwrap();
        let socket = dir.path().join("pool-1").join(muster_sandbox::node::RELAY_SOCKET);

        let mut caller = UnixStream::connect(&socket).await.unwrap();
        caller.write_all(b"hello").await.unwrap();
        let (mut call, _) = server.accept().await.unwrap();
        let mut heard = [0; 5];
        call.read_exact(&mut heard).await.unwrap();
        call.write_all(b"you").await.unwrap();
        call.shutdown().await.unwrap();
        let mut answer = String::new();
        caller.read_to_string(&mut answer).await.unwrap();
        assert_eq!((&heard, answer.as_str()), (b"hello", "you"));

        sockets.close("pool-1");
        assert!(UnixStream::connect(&socket).await.is_err());
    }
}
