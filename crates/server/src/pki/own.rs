//! A certificate that the operator provides. It is checked before it is used, so that a mistake is reported at start
//! and not by every client. Clients that do not use the public host name, such as nodes, get the server's own
//! certificate instead.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_providers::trust::certificate_blocks;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{FileError, files, provider};

/// The files of the certificate and its key, and the host that it must be valid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    pub host: String,
}

#[derive(Debug)]
pub struct Own {
    pub certified: Arc<CertifiedKey>,
    /// The certificates that clients must trust: the issuers in the file, or the certificate itself.
    pub issuers_pem: String,
}

#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the file {} of --{setting} does not exist; check the path", path.display())]
    Missing { path: PathBuf, setting: &'static str },
    #[error("{} {what}", path.display())]
    Unusable { path: PathBuf, what: &'static str },
    #[error(
        "the key {} does not match the certificate {}; give the two that were created together",
        key.display(), cert.display()
    )]
    NotMatching { cert: PathBuf, key: PathBuf },
    #[error(
        "the certificate {} expired {days} days ago, so clients refuse it; renew it, or start without \
         --tls-cert and --tls-key",
        path.display()
    )]
    Expired { path: PathBuf, days: u64 },
    #[error("the certificate {} is not valid yet; set the clock, or use another", path.display())]
    Early { path: PathBuf },
    #[error(
        "the certificate {} is not for {host} (it is for: {names}); set --public-host to one of its names, or \
         use a certificate that has this host as a subject alternative name",
        path.display()
    )]
    OtherHost { path: PathBuf, host: String, names: String },
    #[error(
        "your own certificate must be for a host name, but the public host is {0:?}; set --public-host to the \
         name that clients use"
    )]
    NoHostName(String),
    #[error("{} can be read by every user (mode {mode:04o}); run `chmod o-rwx {}`", path.display(), path.display())]
    Exposed { path: PathBuf, mode: u32 },
}

impl OwnFiles {
    pub fn read(&self, now: SystemTime) -> Result<Own, OwnError> {
        let name = DnsName::try_from(self.host.clone())
            .ok()
            .filter(|_| self.host != "localhost" && !self.host.starts_with('['))
            .ok_or_else(|| OwnError::NoHostName(self.host.clone()))?;
        let text = read(&self.cert, "tls-cert")?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect();
        let unusable = |path: &Path, what| OwnError::Unusable { path: path.to_owned(), what };
        let leaf = chain.first().cloned();
        let leaf = leaf.ok_or_else(|| {
            unusable(
                &self.cert,
                "contains no certificate in PEM format; give the whole chain, yours first",
            )
        })?;
        let key = self.read_key()?;
        let certified =
            CertifiedKey::from_der(chain, key, &provider()).map_err(|why| match why {
                rustls::Error::InconsistentKeys(_) => {
                    OwnError::NotMatching { cert: self.cert.clone(), key: self.key.clone() }
                }
                _ => unusable(
                    &self.key,
                    "contains a key of a kind that TLS does not support; use RSA, ECDSA or Ed25519",
                ),
            })?;
        self.check(&leaf, &ServerName::DnsName(name), now)?;
        Ok(Own { certified: Arc::new(certified), issuers_pem: issuers(&text) })
    }

    fn read_key(&self) -> Result<PrivateKeyDer<'static>, OwnError> {
        let text = read(&self.key, "tls-key")?;
        let mode =
            std::fs::metadata(&self.key).map_or(0, |about| about.permissions().mode() & 0o777);
        if mode & 0o004 != 0 {
            return Err(OwnError::Exposed { path: self.key.clone(), mode });
        }
        PrivateKeyDer::from_pem_slice(&text).map_err(|_| OwnError::Unusable {
            path: self.key.clone(),
            what: "contains no unencrypted private key in PEM format; give one",
        })
    }

    fn check(
        &self,
        leaf: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: SystemTime,
    ) -> Result<(), OwnError> {
        let path = || self.cert.clone();
        let unreadable = || OwnError::Unusable {
            path: path(),
            what: "contains something that is not a certificate",
        };
        let (_, read) = X509Certificate::from_der(leaf).map_err(|_| unreadable())?;
        let at = |seconds: i64| UNIX_EPOCH + Duration::from_secs(seconds.max(0).unsigned_abs());
        let ended = at(read.validity().not_after.timestamp());
        if let Ok(since) = now.duration_since(ended) {
            return Err(OwnError::Expired { path: path(), days: since.as_secs() / 86_400 });
        }
        if now < at(read.validity().not_before.timestamp()) {
            return Err(OwnError::Early { path: path() });
        }
        let parsed = ParsedCertificate::try_from(leaf).map_err(|_| unreadable())?;
        verify_server_name(&parsed, name).map_err(|_| {
            let names = read.subject_alternative_name().ok().flatten();
            let names = names.iter().flat_map(|names| &names.value.general_names);
            let names: Vec<String> = names.map(ToString::to_string).collect();
            let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
            OwnError::OtherHost { path: path(), host: self.host.clone(), names }
        })
    }
}

fn read(path: &Path, setting: &'static str) -> Result<Vec<u8>, OwnError> {
    let content = files::read(path, files::FILE_BYTES_MAX)?;
    content.ok_or_else(|| OwnError::Missing { path: path.to_owned(), setting })
}

fn issuers(text: &[u8]) -> String {
    let mut blocks = certificate_blocks(&String::from_utf8_lossy(text));
    if blocks.len() > 1 {
        blocks.remove(0);
    }
    blocks.into_iter().map(|block| block + "\n").collect()
}
