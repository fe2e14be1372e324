//! The certificates that clients on this host and jobs on its nodes trust: the public CAs of the host, and the server's
//! own.
//!
//! `REQUESTS_CA_BUNDLE` and `SSL_CERT_FILE` replace a client's own list; with our CA alone a user's script could no
//! longer reach the public internet.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Public lists take about 250 KiB; this leaves room and still limits what is read.
const SOURCE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Where distributions keep the public CAs: Debian, Fedora and RHEL, openSUSE, Alpine and macOS.
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The contents of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    pub content: String,
    /// The file that the public CAs were taken from. `None` if the bundle contains only our CA.
    pub public_from: Option<PathBuf>,
    pub public_count: usize,
}

/// Creates a bundle for the file `path`, with the public CAs from the first usable of `SSL_CERT_FILE` and the system's
/// files.
pub fn bundle(path: &Path, ca_pem: &str) -> Bundle {
    let from_env = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let sources: Vec<PathBuf> =
        from_env.into_iter().chain(SYSTEM_FILES.map(PathBuf::from)).collect();
    bundle_from(path, ca_pem, &sources)
}

fn bundle_from(path: &Path, ca_pem: &str, sources: &[PathBuf]) -> Bundle {
    let found = sources.iter().find_map(|source| {
        let certificates = public_certificates(source, path, ca_pem);
        (!certificates.is_empty()).then(|| (source.clone(), certificates))
    });
    let (public_from, certificates) = found.unzip();
    let certificates = certificates.unwrap_or_default();
    let mut content = certificates.join("\n");
    if !content.is_empty() {
        content.push('\n');
    }
    content.push_str(ca_pem);
    Bundle { content, public_from, public_count: certificates.len() }
}

/// Returns the certificates of a file, without ours. An unusable file has none: it belongs to the caller's environment,
/// not to our state, and the next source may work.
fn public_certificates(source: &Path, bundle: &Path, ca_pem: &str) -> Vec<String> {
    // Clients set SSL_CERT_FILE to our bundle, and may start the server with it.
    if fs::canonicalize(source).ok() == fs::canonicalize(bundle).ok() {
        return Vec::new();
    }
    let mut content = Vec::new();
    let read = File::open(source)
        .and_then(|file| file.take(SOURCE_BYTES_MAX + 1).read_to_end(&mut content));
    if read.is_err() || content.len() as u64 > SOURCE_BYTES_MAX {
        return Vec::new();
    }
    let ours: Vec<String> = certificate_blocks(ca_pem);
    let mut blocks = certificate_blocks(&String::from_utf8_lossy(&content));
    blocks.retain(|block| !ours.contains(block));
    blocks
}

/// Only complete certificates are taken: a private key in such a file must not become public, and OpenSSL refuses a
/// whole bundle because of one broken block.
pub fn certificate_blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(END) {
        let (front, after) = rest.split_at(end + END.len());
        rest = after;
        // The last beginning before the end; an earlier one belongs to a truncated block.
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
        let path = dir.path().join("bundle");
        let bundle = bundle_from(&path, OURS, &[missing, empty, source.clone()]);
        assert_eq!(bundle.public_from, Some(source));
        assert_eq!(bundle.public_count, 2);
        let public = "-----BEGIN CERTIFICATE-----\nMAEA\n-----END CERTIFICATE-----\n";
        assert_eq!(bundle.content, format!("{public}{public}{OURS}"));
    }

    #[test]
    fn without_public_cas_it_says_so_and_its_own_output_is_no_source() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("public");
        fs::write(&source, PUBLIC).unwrap();
        let path = dir.path().join("bundle");
        let first = bundle_from(&path, OURS, &[source]);
        assert_eq!(first.public_count, 1);
        fs::write(&path, first.content).unwrap();
        let again = bundle_from(&path, OURS, std::slice::from_ref(&path));
        assert_eq!(again, Bundle { content: OURS.into(), public_from: None, public_count: 0 });
    }
}
