//! The bundle that clients are pointed at: the public CAs of this machine and ours.

use std::path::{Path, PathBuf};

use muster_providers::trust;

use super::{PkiError, files};

/// The public CAs and ours, in the folder of certificates.
pub const BUNDLE_FILE: &str = "ca-bundle.pem";

/// The written bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    pub path: PathBuf,
    /// The file that the public CAs were taken from; none when the bundle holds only our CA.
    pub public_from: Option<PathBuf>,
    pub public_count: usize,
}

/// Writes `dir/ca-bundle.pem`.
pub fn write_bundle(dir: &Path, ca_pem: &str) -> Result<Bundle, PkiError> {
    files::ensure_dir(dir)?;
    let path = dir.join(BUNDLE_FILE);
    let trust::Bundle { content, public_from, public_count } = trust::bundle(&path, ca_pem);
    // A start on a full disk needs no space for what is there already.
    if std::fs::read(&path).ok().as_deref() != Some(content.as_bytes()) {
        files::write(&path, content.as_bytes(), files::PUBLIC)?;
    }
    Ok(Bundle { path, public_from, public_count })
}
