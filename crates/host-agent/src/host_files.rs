//! The folder of a joined host.
//!
//! ```text
//! DIR/lock          held by the one host agent that runs here
//! DIR/key           the key with which this host authenticates
//! DIR/ca.pem        the CA that it trusts
//! DIR/ca-bundle.pem the CAs that jobs on its nodes trust
//! DIR/membership    its name and server
//! DIR/sandboxes/    its nodes, as its helper keeps them; with relays/ and node-logs/
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::{digest, rand};
use muster_core::model::{HostName, KeyDigest};
use muster_providers::joined::protocol::Terms;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::HostAgentError;

/// Allows secret scanners to recognize our keys.
const KEY_PREFIX: &str = "mhk_";
/// The CAs that jobs on its nodes trust.
pub(crate) const CA_BUNDLE: &str = "ca-bundle.pem";
const FILE_BYTES_MAX: u64 = 64 * 1024;

pub(crate) struct HostFiles {
    root: PathBuf,
    _lock: File,
}

/// What is known once a host has joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Membership {
    pub name: HostName,
    pub terms: Terms,
}

impl HostFiles {
    /// Creates the folder if it does not exist, for its owner only, and locks it.
    pub fn take(root: &Path) -> Result<HostFiles, HostAgentError> {
        let failed = |source| HostAgentError::File { path: root.to_owned(), source };
        let root = std::path::absolute(root).map_err(failed)?;
        muster_sandbox::private::adopt(&root).map_err(failed)?;
        let lock = File::create(root.join("lock")).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(HostFiles { root, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(HostAgentError::Taken { path: root }),
            Err(error) => Err(failed(error.into())),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Distinguishes what is ours on the host from what another server or host agent created.
    pub fn instance(&self) -> String {
        let path = self.root.canonicalize().unwrap_or_else(|_| self.root.clone());
        hex(&sha256(path.as_os_str().as_encoded_bytes())[..6])
    }

    /// Returns the key of this host. It is on disk before it is sent, so that a request whose reply was lost can be
    /// repeated.
    pub fn key(&self) -> Result<String, HostAgentError> {
        if let Some(key) = self.read("key")? {
            let digits = key.trim_end().strip_prefix(KEY_PREFIX).unwrap_or_default();
            let is_good = digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            let damaged = || HostAgentError::Damaged { path: self.path("key") };
            return is_good.then(|| key.trim_end().to_owned()).ok_or_else(damaged);
        }
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).map_err(|_| HostAgentError::Random)?;
        let key = format!("{KEY_PREFIX}{}", hex(&bytes));
        self.write("key", format!("{key}\n").as_bytes())?;
        Ok(key)
    }

    pub fn membership(&self) -> Result<Option<Membership>, HostAgentError> {
        let Some(text) = self.read("membership")? else { return Ok(None) };
        let damaged = |_| HostAgentError::Damaged { path: self.path("membership") };
        serde_json::from_str(&text).map(Some).map_err(damaged)
    }

    pub fn join(&self, membership: &Membership) -> Result<(), HostAgentError> {
        let text = serde_json::to_vec_pretty(membership).expect("the fields are plain");
        self.write("membership", &text)
    }

    /// Forgets the membership, because the server does not know this host: the next token starts with a new key.
    pub fn leave(&self) -> Result<(), HostAgentError> {
        for name in ["membership", "key", "ca.pem", CA_BUNDLE] {
            match std::fs::remove_file(self.path(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(HostAgentError::File { path: self.path(name), source: error });
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub fn read(&self, name: &str) -> Result<Option<String>, HostAgentError> {
        let path = self.path(name);
        let mut text = String::new();
        let read =
            File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
        match read {
            Ok(_) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(HostAgentError::Damaged { path })
            }
            Err(source) => Err(HostAgentError::File { path, source }),
        }
    }

    /// Writes a file atomically, for the owner only.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), HostAgentError> {
        let (path, new) = (self.path(name), self.path(&format!("{name}.new")));
        let written = || {
            let mut options = OpenOptions::new();
            let mut file =
                options.create(true).write(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(content)?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            File::open(&self.root)?.sync_all()
        };
        written().map_err(|source| HostAgentError::File { path: path.clone(), source })
    }
}

/// Returns the digest of a key, which is what the server stores.
pub(crate) fn digest_of(key: &str) -> KeyDigest {
    KeyDigest(sha256(key.as_bytes()))
}

pub(crate) fn random() -> Result<u64, HostAgentError> {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).map_err(|_| HostAgentError::Random)?;
    Ok(u64::from_le_bytes(bytes))
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use muster_providers::joined::protocol::EnvironmentTerms;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let files = HostFiles::take(&dir.path().join("host")).unwrap();
        let key = files.key().unwrap();
        assert_eq!(files.key().unwrap(), key);
        let mode = std::fs::metadata(files.path("key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        files.write("key", b"mhk_short\n").unwrap();
        assert!(matches!(files.key(), Err(HostAgentError::Damaged { .. })));
        files.leave().unwrap();
        assert_ne!(files.key().unwrap(), key);
    }

    #[test]
    fn only_one_host_agent_has_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let first = HostFiles::take(dir.path()).unwrap();
        assert!(matches!(HostFiles::take(dir.path()), Err(HostAgentError::Taken { .. })));
        drop(first);
        assert!(HostFiles::take(dir.path()).is_ok());
    }

    #[test]
    fn a_membership_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let files = HostFiles::take(dir.path()).unwrap();
        assert_eq!(files.membership().unwrap(), None);
        let terms = Terms {
            url: "https://lab:8443".into(),
            has_internet: false,
            job_disk_bytes: 1,
            jobs_share: false,
            environments: EnvironmentTerms::default(),
        };
        let name = HostName::new("box").unwrap();
        let membership = Membership { name, terms };
        files.join(&membership).unwrap();
        assert_eq!(files.membership().unwrap(), Some(membership));
        files.write("membership", b"{").unwrap();
        assert!(matches!(files.membership(), Err(HostAgentError::Damaged { .. })));
    }
}
