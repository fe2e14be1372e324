//! The CA bundle for clients: the public CAs of this machine and the server's own.

use std::path::{Path, PathBuf};

use muster_providers::trust;

use super::{PkiError, files};

/// The public CAs and the server's own, in the folder of certificates.
pub const BUNDLE_FILE: &str = "ca-bundle.pem";

/// The bundle that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    pub path: PathBuf,
    /// The file with the public CAs; `None` if the bundle contains only the server's CA.
    pub public_from: Option<PathBuf>,
    pub public_count: usize,
}

/// Writes `dir/ca-bundle.pem`.
pub fn write_bundle(dir: &Path, ca_pem: &str) -> Result<Bundle, PkiError> {
    files::ensure_dir(dir)?;
    let path = dir.join(BUNDLE_FILE);
    let trust::Bundle { content, public_from, public_count } = trust::bundle(&path, ca_pem);
    // An unchanged bundle is not written again, so that a start on a full disk needs no space for it.
    if std::fs::read(&path).ok().as_deref() != Some(content.as_bytes()) {
        files::write(&path, content.as_bytes(), files::PUBLIC)?;
    }
    Ok(Bundle { path, public_from, public_count })
}
