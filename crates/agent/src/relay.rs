//! Access to the server for every process in the node: the server's address, on this node's own loopback.
//!
//! Bytes are forwarded unchanged, so TLS is end to end, and the server knows by the socket which node calls.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use muster_sandbox::network::JobNetwork;
use muster_sandbox::node::RELAY_SOCKET as SOCKET;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;

use crate::sandboxed::AbortOnDrop;

/// Further connections from one node wait.
const CONNECTIONS_MAX: usize = 256;

/// Listens on the port of `server`. Returns when connections are accepted.
pub(crate) async fn start(server: &str, folder: &Path) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port_of(server)?)).await?;
    tokio::spawn(accept(listener, folder.join(SOCKET)));
    Ok(())
}

/// The same in the network of a job, for as long as the result is held.
pub(crate) fn start_in(
    network: &JobNetwork,
    server: &str,
    folder: &Path,
) -> io::Result<AbortOnDrop> {
    let port = port_of(server)?;
    let listener = network.inside(|| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)))?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    Ok(AbortOnDrop(tokio::spawn(accept(listener, folder.join(SOCKET)))))
}

fn port_of(server: &str) -> io::Result<u16> {
    let port = server.trim_end_matches('/').rsplit_once(':');
    let port = port.and_then(|(_, port)| port.parse().ok());
    port.ok_or_else(|| io::Error::other(format!("{server} names no port")))
}

async fn accept(listener: TcpListener, socket: PathBuf) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((caller, _)) => {
                let socket = socket.clone();
                tokio::spawn(async move {
                    if let Err(error) = pass_on(caller, &socket).await {
                        tracing::debug!(%error, "a connection to the server was interrupted");
                    }
                    drop(place);
                });
            }
            // We may be out of descriptors, for example; other connections have to end first.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the server");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn pass_on(mut caller: TcpStream, socket: &Path) -> io::Result<()> {
    // Messages are small in both directions, so waiting for more data would only be slow.
    caller.set_nodelay(true)?;
    let mut server = UnixStream::connect(socket).await?;
    tokio::io::copy_bidirectional(&mut caller, &mut server).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn calls_reach_the_socket_of_today() {
        let dir = tempfile::tempdir().unwrap();
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        start(&format!("https://127.0.0.1:{port}"), dir.path()).await.unwrap();
        for word in ["one", "two"] {
            // A server that restarts replaces the old socket.
            let _ = std::fs::remove_file(dir.path().join(SOCKET));
            let server = UnixListener::bind(dir.path().join(SOCKET)).unwrap();
            let mut caller = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            caller.write_all(word.as_bytes()).await.unwrap();
            caller.shutdown().await.unwrap();
            let (mut call, _) = server.accept().await.unwrap();
            let mut heard = String::new();
            call.read_to_string(&mut heard).await.unwrap();
            assert_eq!(heard, word);
            call.write_all(b"yes").await.unwrap();
            drop(call);
            heard.clear();
            caller.read_to_string(&mut heard).await.unwrap();
            assert_eq!(heard, "yes");
        }
        let mut caller = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        std::fs::remove_file(dir.path().join(SOCKET)).unwrap();
        let mut heard = String::new();
        let _ = caller.read_to_string(&mut heard).await;
        assert_eq!(heard, "", "without a server there is no connection");
    }
}
