//! The folder that a server keeps everything in, and that its owner's commands find it by.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use muster_sandbox::private;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::pki::files::{self, FileError};

/// What is at the top of a state directory and is known by name in more than one place.
pub mod names {
    pub const DATABASE: &str = "muster.db";
    /// The rows of the blob storage.
    pub const STORAGE: &str = "storage.db";
    pub const BLOBS: &str = "blobs";
    /// Below it: what is being sent.
    pub const INCOMING: &str = "incoming";
    /// The address of the object store, if the bytes of blobs are there and not here.
    pub const ELSEWHERE: &str = "blobs/elsewhere";
    /// The same, as it is called in the folder of blobs.
    pub const ELSEWHERE_IN_BLOBS: &str = "elsewhere";
    pub const KEYS: &str = "keys";
    pub const PKI: &str = "pki";
    pub const LOGS: &str = "logs";
    pub const POST_MORTEMS: &str = "post-mortems";
    /// The latest time that anything was signed at.
    pub const CLOCK: &str = "clock";
    /// The configuration, if none is named.
    pub const CONFIG: &str = "muster.toml";
    /// How the server was last reached.
    pub const CONNECTION: &str = "connection.json";
    /// The command that the server of a directory is started with.
    pub const MODE: &str = "mode";
    /// Held by the server that runs.
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
    /// Of the second listener.
    #[serde(default)]
    pub files_port: u16,
    pub pid: u32,
    /// Then our CA is not enough to trust it by.
    #[serde(default)]
    pub has_own_certificate: bool,
}

/// How workspaces come into being, and so whom a server is for. A state directory keeps to one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workspaces {
    /// When somebody who may make them names one: for one person.
    OnFirstUse,
    /// When somebody makes one: for many, whose slips must not become workspaces.
    ByHand,
}

impl Workspaces {
    /// The command that starts such a server, which is also what the state directory remembers.
    pub fn command(self) -> &'static str {
        match self {
            Workspaces::OnFirstUse => "up",
            Workspaces::ByHand => "serve",
        }
    }

    /// What it means for whoever uses the server.
    fn meaning(self) -> &'static str {
        match self {
            Workspaces::OnFirstUse => "workspaces exist as soon as they are named",
            Workspaces::ByHand => "workspaces are made by hand and users have roles",
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
        "another server uses the state directory {}; stop it, or name another one with --state-dir",
        path.display()
    )]
    Taken { path: PathBuf },
    #[error(
        "the state directory {} is one of `muster {}`, where {}; start it with: muster {} --state-dir {}; or \
         add --change-mode to make it one of `muster {}`, where {}",
        path.display(), mode.command(), mode.meaning(), mode.command(), path.display(), wanted.command(),
        wanted.meaning()
    )]
    OtherMode { path: PathBuf, mode: Workspaces, wanted: Workspaces },
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "no server has been started with the state directory {}; start one with `muster up`, or name \
         its directory with --state-dir or MUSTER_STATE_DIR",
        path.display()
    )]
    NeverStarted { path: PathBuf },
    #[error("{} is damaged; start the server again, it is written anew", path.display())]
    Damaged { path: PathBuf },
}

impl StateDir {
    pub fn new(root: &Path) -> StateDir {
        // Absolute, since agents and users with another working folder get paths into it.
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

    pub fn pki(&self) -> PathBuf {
        self.root.join(names::PKI)
    }

    pub fn keys(&self) -> PathBuf {
        self.root.join(names::KEYS)
    }

    pub fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// As [`nodes`](Self::nodes), of sandboxed nodes. Their helper keeps it.
    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    pub fn relays(&self) -> PathBuf {
        self.root.join("relays")
    }

    pub fn node_logs(&self) -> PathBuf {
        self.root.join("node-logs")
    }

    /// A word for this directory: tells what is ours on the machine from what is another server's.
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

    /// Which command its server is started with. `None` if none that notes it was started with this directory yet.
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

    /// Refuses a directory of the other command, unless it `may_change`.
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

    /// Locked by the server that runs.
    pub fn lock_file(&self) -> PathBuf {
        self.root.join(names::LOCK)
    }

    /// Makes the folder if it is not there, for the owner only, and keeps other servers out of it for as long
    /// as the returned file is open. One that holds something of another user's is refused.
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

    /// For a command that does what this folder says: refuses it where another user may have written what that is. `also`
    /// is one more user who is as good as us.
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
        let text = serde_json::to_vec_pretty(connection).expect("plain fields");
        Ok(files::write(&self.connection_file(), &text, files::PRIVATE)?)
    }

    pub fn read_connection(&self) -> Result<Connection, StateDirError> {
        let path = self.connection_file();
        let text = files::read(&path, files::FILE_BYTES_MAX)?
            .ok_or_else(|| StateDirError::NeverStarted { path: self.root.clone() })?;
        serde_json::from_slice(&text).map_err(|_| StateDirError::Damaged { path })
    }
}
