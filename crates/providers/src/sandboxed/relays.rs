//! The sockets through which nodes without a network reach the server. The caller is known by the socket, because each
//! node sees only its own. On the server's host the server itself answers there; on a joined host the host agent
//! forwards the bytes to it.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_sandbox::node::RELAY_SOCKET as SOCKET;
use muster_sandbox::private;
use tokio::sync::{mpsc, oneshot};

use super::Relays;

/// A socket that has just started to listen.
pub struct Opened {
    pub listener: UnixListener,
    pub node: Arc<str>,
    pub address: Ipv4Addr,
    /// Resolves when the node is deleted.
    pub closed: oneshot::Receiver<()>,
}

pub struct Sockets {
    /// Contains one folder per node, which is all that the node sees of it.
    folder: PathBuf,
    opened: mpsc::UnboundedSender<Opened>,
    open: Mutex<BTreeMap<String, oneshot::Sender<()>>>,
}

impl Sockets {
    pub fn new(folder: PathBuf) -> (Sockets, mpsc::UnboundedReceiver<Opened>) {
        let (opened, doors) = mpsc::unbounded_channel();
        (Sockets { folder, opened, open: Mutex::default() }, doors)
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, oneshot::Sender<()>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, node: &str) -> io::Result<UnixListener> {
        // Other users cannot reach the socket by its path. The node, which is another user, sees only its own folder.
        private::make(&self.folder)?;
        let folder = self.folder.join(node);
        std::fs::create_dir_all(&folder)?;
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        let socket = folder.join(SOCKET);
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The address of a socket has room for only 107 bytes, but paths may be longer.
        let held = std::fs::File::open(&folder)?;
        let short = format!("/proc/self/fd/{}/{SOCKET}", held.as_raw_fd());
        let listener = UnixListener::bind(short)?;
        listener.set_nonblocking(true)?;
        std::fs::set_permissions(&socket, Permissions::from_mode(0o666))?;
        Ok(listener)
    }
}

impl Relays for Sockets {
    fn open(&self, node: &str, address: Ipv4Addr) -> io::Result<()> {
        let listener = self.listen(node)?;
        let (close, closed) = oneshot::channel();
        self.open().insert(node.to_owned(), close);
        // This fails only if the receiver is shutting down; the next one will listen.
        let _ = self.opened.send(Opened { listener, node: node.into(), address, closed });
        Ok(())
    }

    fn close(&self, node: &str) {
        self.open().remove(node);
        if let Err(error) = std::fs::remove_dir_all(self.folder.join(node))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(node, %error, "cannot remove the socket of a deleted node");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_user_reaches_a_socket_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("relays");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        let (sockets, _doors) = Sockets::new(folder.clone());
        sockets.listen("pool-1").unwrap();
        let mode = folder.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "also if it existed before");
    }
}
