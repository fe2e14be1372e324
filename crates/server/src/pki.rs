//! The server's TLS identity: its own CA, and the server certificate that the CA signs.
//!
//! Users trust this CA in addition to the public ones, so it may sign only for the names of this host: its name
//! constraints are critical, and a stolen key cannot be used for any other site. Renewal replaces one file at a time
//! and keeps the keys, so a crash at any point leaves a set that the next start accepts or completes. Files that do not
//! fit together are refused, never overwritten.
//!
//! This module deliberately knows nothing about clients, listeners and HTTP.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{KeyPair, PublicKeyData};
use rustls::CipherSuite;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, DnsName, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime,
};
use rustls::server::ResolvesServerCert;
use rustls::sign::CertifiedKey;

mod bundle;
mod certs;
pub mod files;
mod look;
mod names;
mod own;

pub use bundle::{BUNDLE_FILE, Bundle, write_bundle};
pub use files::FileError;
pub use look::{Seen, look};
pub use names::Names;
pub use own::{Own, OwnError, OwnFiles};

use crate::secrets;
use names::NAMES_MAX;

/// Certificates are renewed when less than this time remains, so that a monthly restart is enough.
const RENEW_BEFORE_S: i64 = 30 * 24 * 60 * 60;

/// What was created again; after `CaAndLeaf`, clients need the new CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    None,
    Leaf,
    CaAndLeaf,
}

#[derive(Debug)]
pub struct Identity {
    pub ca_pem: String,
    pub ca_path: PathBuf,
    /// The SHA-256 digest of the CA's public key, which stays the same when its certificate is renewed.
    pub authority: String,
    pub renewed: Renewed,
    /// When the server certificate expires; a start in the 30 days before renews it.
    pub leaf_expires: SystemTime,
    leaf: CertificateDer<'static>,
    leaf_key: PrivateKeyDer<'static>,
}

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "{} exists, but {} is missing; restore it from a backup, or remove {remove} from that \
         directory and start again to create new ones",
        present.display(), missing.display()
    )]
    HalfPresent { present: PathBuf, missing: PathBuf, remove: &'static str },
    #[error(
        "{} {what}; restore it from a backup, or remove {remove} from that directory and start \
         again to create new ones",
        path.display()
    )]
    Damaged { path: PathBuf, what: &'static str, remove: &'static str },
    #[error(
        "{} is refused as a client would refuse it; restore it from a backup, or remove {LEAF} \
         from that directory and start again to create new ones",
        path.display()
    )]
    Untrusted { path: PathBuf, source: rustls::Error },
    #[error("{0:?} is not a host name; give one of letters, digits, hyphens and dots")]
    BadName(String),
    #[error(
        "the server has {dns} DNS names and {ips} addresses; a constrained CA needs at least one \
         of each, and at most {NAMES_MAX} in all"
    )]
    NameCount { dns: usize, ips: usize },
    #[error(
        "the clock is {behind_s} s before the start of {}; set the clock, or remove ca.pem, \
         ca.key, server.pem and server.key if they were created while it was wrong",
        path.display()
    )]
    BeforeCa { path: PathBuf, behind_s: i64 },
    #[error("the clock says {0} s since 1970, which a certificate cannot represent; set the clock")]
    Clock(i64),
    #[error("the operating system provided no random bytes")]
    Random,
    #[error("cannot create a certificate")]
    Sign(#[source] rcgen::Error),
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
}

/// The certificate of the server's CA, in the folder of certificates.
pub const CA_FILE: &str = "ca.pem";
const ALL: &str = "ca.pem, ca.key, server.pem and server.key";
const LEAF: &str = "server.pem and server.key";

impl Identity {
    /// The certificate and key that a listener presents.
    pub fn certified(&self) -> Result<Arc<CertifiedKey>, PkiError> {
        let (chain, key) = (vec![self.leaf.clone()], self.leaf_key.clone_key());
        CertifiedKey::from_der(chain, key, &provider()).map(Arc::new).map_err(PkiError::Tls)
    }
}

/// The server side of TLS 1.2 and 1.3, without client certificates.
pub fn server_config(
    certificates: Arc<dyn ResolvesServerCert>,
) -> Result<Arc<rustls::ServerConfig>, PkiError> {
    let mut provider = aws_lc_rs::default_provider();
    // AES-128 is safe as well, and a quarter cheaper than AES-256 for uploads of gigabytes.
    provider.cipher_suites.sort_by_key(|suite| !is_aes_128(suite.suite()));
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(PkiError::Tls)?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ignore_client_order = true;
    Ok(Arc::new(config))
}

fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

/// Reads the identity in `dir`, and creates certificates that are missing, expire soon or are for other names.
pub fn load_or_create(dir: &Path, names: &Names, now: SystemTime) -> Result<Identity, PkiError> {
    let names = names.checked()?;
    let since_1970 = now.duration_since(UNIX_EPOCH).map_err(|_| PkiError::Clock(-1))?;
    let now = i64::try_from(since_1970.as_secs()).map_err(|_| PkiError::Clock(i64::MAX))?;
    files::ensure_dir(dir)?;
    let (ca, ca_new) = load_or_make_ca(dir, &names, now)?;
    let (leaf, leaf_key, leaf_new) = load_or_make_leaf(dir, &ca, &names, now)?;
    check_chain(&ca.cert.der, &leaf.der, &names, now)
        .map_err(|source| PkiError::Untrusted { path: leaf.path.clone(), source })?;
    let expires_s = u64::try_from(leaf.facts.not_after).map_err(|_| PkiError::Clock(now))?;
    Ok(Identity {
        ca_pem: ca.cert.pem,
        ca_path: ca.cert.path,
        authority: secrets::hex(&secrets::sha256(&ca.cert.facts.public_key)),
        renewed: match (ca_new, leaf_new) {
            (true, _) => Renewed::CaAndLeaf,
            (false, true) => Renewed::Leaf,
            (false, false) => Renewed::None,
        },
        leaf_expires: UNIX_EPOCH + Duration::from_secs(expires_s),
        leaf: leaf.der,
        leaf_key: PrivatePkcs8KeyDer::from(leaf_key.serialize_der()).into(),
    })
}

struct Cert {
    path: PathBuf,
    pem: String,
    der: CertificateDer<'static>,
    facts: certs::Facts,
}

struct Ca {
    cert: Cert,
    key: KeyPair,
}

fn load_or_make_ca(dir: &Path, names: &Names, now: i64) -> Result<(Ca, bool), PkiError> {
    let (path, key_path) = (dir.join(CA_FILE), dir.join("ca.key"));
    let leaf_path = dir.join("server.pem");
    let pem = files::read(&path, files::FILE_BYTES_MAX)?;
    let key = files::read_private(&key_path)?;
    let half = |present: &Path, missing: &Path| {
        let (present, missing) = (present.to_owned(), missing.to_owned());
        PkiError::HalfPresent { present, missing, remove: ALL }
    };
    let Some(pem) = pem else {
        // A certificate without its CA was once in use. A CA key alone was not: its first start ended before the
        // certificate was written, and is completed here.
        for other in [leaf_path, dir.join("server.key")] {
            if files::read(&other, files::FILE_BYTES_MAX)?.is_some() {
                return Err(half(&other, &path));
            }
        }
        let key = key_or_new(key, &key_path, ALL)?;
        let pem = certs::make_ca(names, &key, now)?;
        files::write(&path, pem.as_bytes(), files::PUBLIC)?;
        return Ok((Ca { cert: parse(path, pem.into_bytes(), ALL)?, key }, true));
    };
    if key.is_none() {
        return Err(half(&path, &key_path));
    }
    let key = key_or_new(key, &key_path, ALL)?;
    let cert = parse(path, pem, ALL)?;
    check_key(&cert, &key, ALL)?;
    let Some(permitted) = &cert.facts.permitted else {
        let what =
            "was not created by Muster: a CA without name constraints could sign for any site";
        return Err(PkiError::Damaged { path: cert.path, what, remove: ALL });
    };
    if now < cert.facts.not_before {
        let behind_s = cert.facts.not_before - now;
        return Err(PkiError::BeforeCa { path: cert.path, behind_s });
    }
    if certs::permits(permitted, names) && now + RENEW_BEFORE_S < cert.facts.not_after {
        return Ok((Ca { cert, key }, false));
    }
    // The old server certificate is removed first: one that its CA did not sign would be refused at the next start.
    files::remove(&leaf_path)?;
    let pem = certs::make_ca(names, &key, now)?;
    files::write(&cert.path, pem.as_bytes(), files::PUBLIC)?;
    Ok((Ca { cert: parse(cert.path, pem.into_bytes(), ALL)?, key }, true))
}

fn load_or_make_leaf(
    dir: &Path,
    ca: &Ca,
    names: &Names,
    now: i64,
) -> Result<(Cert, KeyPair, bool), PkiError> {
    let (path, key_path) = (dir.join("server.pem"), dir.join("server.key"));
    let pem = files::read(&path, files::FILE_BYTES_MAX)?;
    let key = files::read_private(&key_path)?;
    if pem.is_some() && key.is_none() {
        return Err(PkiError::HalfPresent { present: path, missing: key_path, remove: LEAF });
    }
    let key = key_or_new(key, &key_path, LEAF)?;
    if let Some(pem) = pem {
        let cert = parse(path.clone(), pem, LEAF)?;
        check_key(&cert, &key, LEAF)?;
        if cert.facts.issuer != ca.cert.facts.subject {
            let what = "was not issued by the CA next to it";
            return Err(PkiError::Damaged { path, what, remove: LEAF });
        }
        let in_time = cert.facts.not_before <= now && now + RENEW_BEFORE_S < cert.facts.not_after;
        if in_time && cert.facts.names == *names {
            return Ok((cert, key, false));
        }
    }
    let ca_not_after = ca.cert.facts.not_after;
    let pem = certs::make_leaf(names, &key, &ca.cert.pem, &ca.key, ca_not_after, now)?;
    files::write(&path, pem.as_bytes(), files::PUBLIC)?;
    Ok((parse(path, pem.into_bytes(), LEAF)?, key, true))
}

/// The existing key, or a new one that is written before any certificate for it exists.
fn key_or_new(
    key: Option<Vec<u8>>,
    path: &Path,
    remove: &'static str,
) -> Result<KeyPair, PkiError> {
    let Some(pem) = key else {
        let key = KeyPair::generate().map_err(PkiError::Sign)?;
        files::write(path, key.serialize_pem().as_bytes(), files::PRIVATE)?;
        return Ok(key);
    };
    let key = std::str::from_utf8(&pem).ok().and_then(|pem| KeyPair::from_pem(pem).ok());
    key.ok_or_else(|| {
        let what = "does not contain a private key in PEM format";
        PkiError::Damaged { path: path.to_owned(), what, remove }
    })
}

fn parse(path: PathBuf, pem: Vec<u8>, remove: &'static str) -> Result<Cert, PkiError> {
    let read = || {
        let mut found = CertificateDer::pem_slice_iter(&pem);
        let der = found.next().and_then(Result::ok).ok_or("does not contain a certificate")?;
        if found.next().is_some() {
            return Err("contains more than one certificate");
        }
        certs::read(&der).map(|facts| (der, facts))
    };
    let damaged = |what| PkiError::Damaged { path: path.clone(), what, remove };
    let (der, facts) = read().map_err(damaged)?;
    let pem = String::from_utf8(pem).map_err(|_| damaged("is not text"))?;
    Ok(Cert { path, pem, der, facts })
}

fn check_key(cert: &Cert, key: &KeyPair, remove: &'static str) -> Result<(), PkiError> {
    if cert.facts.public_key == key.subject_public_key_info() {
        return Ok(());
    }
    let what = "does not match the key next to it";
    Err(PkiError::Damaged { path: cert.path.clone(), what, remove })
}

/// Performs the checks of a client before any client does: signature, validity and every name.
fn check_chain(
    ca: &CertificateDer<'static>,
    leaf: &CertificateDer<'static>,
    names: &Names,
    now: i64,
) -> Result<(), rustls::Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.clone())?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.unsigned_abs()));
    let dns = names.dns.iter().filter_map(|name| DnsName::try_from(name.as_str()).ok());
    let dns = dns.map(ServerName::DnsName);
    let ips = names.ips.iter().map(|ip| ServerName::IpAddress((*ip).into()));
    for name in dns.chain(ips) {
        verifier.verify_server_cert(leaf, &[], &name, &[], now)?;
    }
    Ok(())
}

/// The provider is named explicitly, because another crate may have set a different default for the process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

#[cfg(test)]
mod tests;
