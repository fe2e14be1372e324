//! The state directory: where a server keeps everything, and where its owner's commands find it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use muster_sandbox::private;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::pki::files::{self, FileError};

/// Names of files and folders at the top of a state directory that are used in more than one place.
pub mod names {
    pub const DATABASE: &str = "muster.db";
    /// The rows of the blob storage.
    pub const STORAGE: &str = "storage.db";
    /// The history of computes.
    pub const SERIES: &str = "series.db";
    pub const BLOBS: &str = "blobs";
    /// In the folder of blobs: uploads in progress.
    pub const INCOMING: &str = "incoming";
    /// Contains the address of the object store, if the bytes of blobs are there and not here.
    pub const ELSEWHERE: &str = "blobs/elsewhere";
    /// The same file, relative to the folder of blobs.
    pub const ELSEWHERE_IN_BLOBS: &str = "elsewhere";
    pub const KEYS: &str = "keys";
    pub const PKI: &str = "pki";
    pub const LOGS: &str = "logs";
    pub const POST_MORTEMS: &str = "post-mortems";
    /// The latest time at which anything was signed.
    pub const CLOCK: &str = "clock";
    /// The configuration, if no other file is given.
    pub const CONFIG: &str = "muster.toml";
    /// How the server was last reached.
    pub const CONNECTION: &str = "connection.json";
    /// The command with which the server of this directory is started.
    pub const MODE: &str = "mode";
    /// Locked by the running server.
    pub const LOCK: &str = "lock";
}

#[derive(Debug, Clone)]
pub struct StateDir {
    root: PathBuf,
}

/// How the server was last reached, for `muster env` and every command on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    pub url: String,
    pub port: u16,
    /// The port of the second listener.
    #[serde(default)]
    pub files_port: u16,
    pub pid: u32,
    /// Whether the server presents the operator's own certificate, so that its own CA is not enough to trust it.
    #[serde(default)]
    pub has_own_certificate: bool,
}

/// How workspaces are created, and so who a server is for. A state directory is for one of these modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workspaces {
    /// When a user with the right to create workspaces first uses one: for one person.
    OnFirstUse,
    /// When a user creates one explicitly: for many users, whose typing errors must not become workspaces.
    ByHand,
}

impl Workspaces {
    /// The command that starts such a server, which is also what the state directory records.
    pub fn command(self) -> &'static str {
        match self {
            Workspaces::OnFirstUse => "up",
            Workspaces::ByHand => "serve",
        }
    }

    /// What the mode means for users of the server.
    fn meaning(self) -> &'static str {
        match self {
            Workspaces::OnFirstUse => "workspaces are created on first use",
            Workspaces::ByHand => "workspaces are created explicitly and users have roles",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    #[error("the state directory {} cannot be used", path.display())]
    Unusable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "another server is using the state directory {}; stop it, or give another one with --state-dir",
        path.display()
    )]
    Taken { path: PathBuf },
    #[error(
        "the state directory {} belongs to `muster {}`, where {}; start it with: muster {} --state-dir {}; or \
         add --change-mode to convert it to `muster {}`, where {}",
        path.display(), mode.command(), mode.meaning(), mode.command(), path.display(), wanted.command(),
        wanted.meaning()
    )]
    OtherMode { path: PathBuf, mode: Workspaces, wanted: Workspaces },
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "no server has been started with the state directory {}; start one with `muster up`, or give \
         its directory with --state-dir or MUSTER_STATE_DIR",
        path.display()
    )]
    NeverStarted { path: PathBuf },
    #[error("{} is damaged; start the server again to recreate it", path.display())]
    Damaged { path: PathBuf },
}

impl StateDir {
    pub fn new(root: &Path) -> StateDir {
        // Absolute, because agents and users with another working folder get paths into it.
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        StateDir { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn database(&self) -> PathBuf {
        self.root.join(names::DATABASE)
    }

    pub fn storage(&self) -> PathBuf {
        self.root.join(names::STORAGE)
    }

    pub fn series(&self) -> PathBuf {
        self.root.join(names::SERIES)
    }

    pub fn pki(&self) -> PathBuf {
        self.root.join(names::PKI)
    }

    pub fn keys(&self) -> PathBuf {
        self.root.join(names::KEYS)
    }

    pub fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// The same as [`nodes`](Self::nodes), for sandboxed nodes. Their helper manages it.
    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    pub fn relays(&self) -> PathBuf {
        self.root.join("relays")
    }

    pub fn node_logs(&self) -> PathBuf {
        self.root.join("node-logs")
    }

    /// An identifier of this directory, which distinguishes the nodes of this server from those of other servers on the
    /// same machine.
    pub fn instance(&self) -> String {
        let path = self.root.canonicalize().unwrap_or_else(|_| self.root.clone());
        let digest = crate::secrets::sha256(path.as_os_str().as_encoded_bytes());
        digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join(names::LOGS)
    }

    pub fn post_mortems(&self) -> PathBuf {
        self.root.join(names::POST_MORTEMS)
    }

    pub fn blobs(&self) -> PathBuf {
        self.root.join(names::BLOBS)
    }

    pub fn environments(&self) -> PathBuf {
        self.root.join("environments")
    }

    /// The part of it that nodes see.
    pub fn environments_shown(&self) -> PathBuf {
        self.environments().join("shown")
    }

    pub fn clock(&self) -> PathBuf {
        self.root.join(names::CLOCK)
    }

    fn mode_file(&self) -> PathBuf {
        self.root.join(names::MODE)
    }

    /// The command with which its server is started. `None` if no server that records it has been started with this
    /// directory yet.
    pub fn mode(&self) -> Option<Workspaces> {
        let text = files::read(&self.mode_file(), files::FILE_BYTES_MAX).ok()??;
        let word = String::from_utf8(text).ok()?;
        let modes = [Workspaces::OnFirstUse, Workspaces::ByHand];
        modes.into_iter().find(|mode| mode.command() == word.trim())
    }

    /// The command that starts its server, for hints.
    pub fn start_command(&self) -> String {
        format!("muster {}", self.mode().unwrap_or(Workspaces::OnFirstUse).command())
    }

    /// Refuses a directory of the other command, unless `may_change` is true.
    pub fn check_mode(&self, wanted: Workspaces, may_change: bool) -> Result<(), StateDirError> {
        match self.mode() {
            Some(mode) if mode != wanted && !may_change => {
                Err(StateDirError::OtherMode { path: self.root.clone(), mode, wanted })
            }
            Some(_) | None => Ok(()),
        }
    }

    pub fn write_mode(&self, mode: Workspaces) -> Result<(), StateDirError> {
        if self.mode() == Some(mode) {
            return Ok(());
        }
        let text = format!("{}\n", mode.command());
        Ok(files::write(&self.mode_file(), text.as_bytes(), files::PRIVATE)?)
    }

    pub fn connection_file(&self) -> PathBuf {
        self.root.join(names::CONNECTION)
    }

    /// Locked by the running server.
    pub fn lock_file(&self) -> PathBuf {
        self.root.join(names::LOCK)
    }

    /// Creates the folder, for the owner only, if it does not exist, and keeps other servers out of it for as long as
    /// the returned file is open. A folder that contains files of another user is refused.
    pub fn take(&self) -> Result<File, StateDirError> {
        let unusable = |source| StateDirError::Unusable { path: self.root.clone(), source };
        private::adopt(&self.root).map_err(unusable)?;
        let lock = File::create(self.lock_file()).map_err(unusable)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(lock),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(StateDirError::Taken { path: self.root.clone() })
            }
            Err(other) => Err(unusable(other.into())),
        }
    }

    /// For a command that trusts the contents of this folder: refuses it if another user may have written to it. `also`
    /// is one more user that is trusted.
    pub fn check_unshared(&self, also: Option<u32>) -> Result<(), StateDirError> {
        let [keys, pki] = [self.keys(), self.pki()];
        let decisive = [
            self.root.clone(),
            self.connection_file(),
            keys.join(crate::tokens::OWNER_KEY_FILE),
            pki.join(crate::pki::CA_FILE),
            pki.join(crate::pki::BUNDLE_FILE),
            keys,
            pki,
        ];
        private::check_way(&self.root, also)
            .and_then(|()| decisive.iter().try_for_each(|path| private::check_unshared(path, also)))
            .map_err(|source| StateDirError::Unusable { path: self.root.clone(), source })
    }

    pub fn write_connection(&self, connection: &Connection) -> Result<(), StateDirError> {
        let text =
            serde_json::to_vec_pretty(connection).expect("the connection has only plain fields");
        Ok(files::write(&self.connection_file(), &text, files::PRIVATE)?)
    }

    pub fn read_connection(&self) -> Result<Connection, StateDirError> {
        let path = self.connection_file();
        let text = files::read(&path, files::FILE_BYTES_MAX)?
            .ok_or_else(|| StateDirError::NeverStarted { path: self.root.clone() })?;
        serde_json::from_slice(&text).map_err(|_| StateDirError::Damaged { path })
    }
}
