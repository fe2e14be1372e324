//! The bundle that clients are pointed at: the public CAs of this machine and ours.
//!
//! `REQUESTS_CA_BUNDLE` and `SSL_CERT_FILE` replace a client's own list; with our CA alone a
//! user's script could no longer reach the public internet.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{PkiError, files};

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Public lists are about 250 KiB; this leaves room and still bounds what is read.
const SOURCE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Where distributions keep the public CAs: Debian, Fedora and RHEL, openSUSE, Alpine and macOS.
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

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

/// Writes `dir/ca-bundle.pem` from the first usable of `SSL_CERT_FILE` and the system's files.
pub fn write_bundle(dir: &Path, ca_pem: &str) -> Result<Bundle, PkiError> {
    let from_env = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let sources: Vec<PathBuf> =
        from_env.into_iter().chain(SYSTEM_FILES.map(PathBuf::from)).collect();
    write_from(dir, ca_pem, &sources)
}

fn write_from(dir: &Path, ca_pem: &str, sources: &[PathBuf]) -> Result<Bundle, PkiError> {
    files::ensure_dir(dir)?;
    let path = dir.join(BUNDLE_FILE);
    let found = sources.iter().find_map(|source| {
        let certificates = public_certificates(source, &path, ca_pem);
        (!certificates.is_empty()).then(|| (source.clone(), certificates))
    });
    let (public_from, certificates) = found.unzip();
    let certificates = certificates.unwrap_or_default();
    let mut content = certificates.join("\n");
    if !content.is_empty() {
        content.push('\n');
    }
    content.push_str(ca_pem);
    files::write(&path, content.as_bytes(), files::PUBLIC)?;
    Ok(Bundle { path, public_from, public_count: certificates.len() })
}

/// The certificates of a file, without ours. An unusable file has none: it is the caller's
/// environment, not our state, and the next source may do.
fn public_certificates(source: &Path, bundle: &Path, ca_pem: &str) -> Vec<String> {
    // Clients are told to set SSL_CERT_FILE to our bundle, and may start the server with it.
    if fs::canonicalize(source).ok() == fs::canonicalize(bundle).ok() {
        return Vec::new();
    }
    let Ok(Some(content)) = files::read(source, SOURCE_BYTES_MAX) else {
        return Vec::new();
    };
    let ours: Vec<String> = certificate_blocks(ca_pem);
    let mut blocks = certificate_blocks(&String::from_utf8_lossy(&content));
    blocks.retain(|block| !ours.contains(block));
    blocks
}

/// Only whole certificates are taken: a private key in such a file must not become public, and
/// one broken block makes OpenSSL refuse a whole bundle.
pub(super) fn certificate_blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(END) {
        let (front, after) = rest.split_at(end + END.len());
        rest = after;
        // The last beginning before the end: an earlier one belongs to a block that was cut off.
        let Some(begin) = front.rfind(BEGIN) else {
            continue;
        };
        let block = &front[begin..];
        if CertificateDer::from_pem_slice(block.as_bytes()).is_ok() {
            blocks.push(block.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"));
        }
    }
    blocks
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const OURS: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    const PUBLIC: &str = "# Some Root\r\n-----BEGIN CERTIFICATE-----\r\nMAEA\r\n\
                          -----END CERTIFICATE-----\r\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMAIA\n-----END PRIVATE KEY-----\n";

    #[test]
    fn the_first_usable_source_is_joined_with_ours() {
        let dir = tempfile::tempdir().unwrap();
        let (missing, empty) = (dir.path().join("missing"), dir.path().join("empty"));
        let source = dir.path().join("public");
        fs::write(&empty, KEY).unwrap();
        let torn = "-----BEGIN CERTIFICATE-----\nMAEC\n";
        fs::write(&source, format!("{torn}{PUBLIC}{KEY}{OURS}{PUBLIC}{torn}")).unwrap();
        let written = write_from(dir.path(), OURS, &[missing, empty, source.clone()]).unwrap();
        assert_eq!(written.public_from, Some(source));
        assert_eq!(written.public_count, 2);
        let content = fs::read_to_string(&written.path).unwrap();
        let public = "-----BEGIN CERTIFICATE-----\nMAEA\n-----END CERTIFICATE-----\n";
        assert_eq!(content, format!("{public}{public}{OURS}"));
    }

    #[test]
    fn without_public_cas_it_says_so_and_its_own_output_is_no_source() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("public");
        fs::write(&source, PUBLIC).unwrap();
        let first = write_from(dir.path(), OURS, &[source]).unwrap();
        assert_eq!(first.public_count, 1);
        let again = write_from(dir.path(), OURS, &[first.path]).unwrap();
        assert_eq!((again.public_from, again.public_count), (None, 0));
        assert_eq!(fs::read_to_string(again.path).unwrap(), OURS);
    }
}
