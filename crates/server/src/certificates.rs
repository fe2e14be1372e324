//! The TLS certificates that the server presents, and the task that renews them while it runs.
//!
//! Every handshake uses the certificate of that moment: a new certificate applies to new connections, and open
//! connections continue with theirs. If a new certificate cannot be used, that is logged, and the old one is kept.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use muster_core::ErrorChain;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, DnsName, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tracing::{error, info};

use crate::ServeError;
use crate::pki::{self, Names, OwnFiles};

/// Only a few small files are read. The server's own certificate is renewed a month before it expires.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The certificates in use.
#[derive(Debug)]
struct Served {
    ours: Arc<CertifiedKey>,
    own: Option<Arc<CertifiedKey>>,
}

#[derive(Debug)]
struct Resolver(RwLock<Served>);

impl ResolvesServerCert for Resolver {
    /// Presents the operator's certificate for the hosts that it names, and the server's own one otherwise, such as to
    /// nodes on this machine.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let served = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let own = served.own.as_ref().filter(|own| {
            let leaf = own.cert.first().and_then(|leaf| ParsedCertificate::try_from(leaf).ok());
            let name = hello.server_name().and_then(|name| DnsName::try_from(name).ok());
            let (Some(leaf), Some(name)) = (leaf, name) else { return false };
            verify_server_name(&leaf, &ServerName::DnsName(name)).is_ok()
        });
        Some(Arc::clone(own.unwrap_or(&served.ours)))
    }
}

/// Reads, creates and renews certificates.
pub struct CertificateSource {
    dir: PathBuf,
    names: Names,
    own: Option<OwnFiles>,
    resolver: Arc<Resolver>,
}

/// Everything that the server needs from the certificates at start.
pub struct Opened {
    pub certificates: CertificateSource,
    pub identity: pki::Identity,
    pub bundle: pki::Bundle,
}

impl CertificateSource {
    /// Reads or creates all certificates. At start, any error is fatal.
    pub fn open(
        dir: PathBuf,
        names: Names,
        own: Option<OwnFiles>,
        now: SystemTime,
    ) -> Result<Opened, ServeError> {
        let identity = pki::load_or_create(&dir, &names, now)?;
        let read = own.as_ref().map(|own| own.read(now)).transpose()?;
        let bundle = pki::write_bundle(&dir, &trusted(&identity.ca_pem, read.as_ref()))?;
        let served = Served { ours: identity.certified()?, own: read.map(|read| read.certified) };
        let resolver = Arc::new(Resolver(RwLock::new(served)));
        Ok(Opened {
            certificates: CertificateSource { dir, names, own, resolver },
            identity,
            bundle,
        })
    }

    pub fn tls(&self) -> Result<Arc<rustls::ServerConfig>, ServeError> {
        Ok(pki::server_config(self.resolver.clone())?)
    }

    /// Reads the certificates again, and presents new ones. Returns whether there are any.
    fn refresh(&self, now: SystemTime) -> Result<bool, ServeError> {
        let identity = pki::load_or_create(&self.dir, &self.names, now)?;
        let read = self.own.as_ref().map(|own| own.read(now)).transpose()?;
        let trusted = trusted(&identity.ca_pem, read.as_ref());
        let next = Served { ours: identity.certified()?, own: read.map(|read| read.certified) };
        let is_same = {
            let served = self.resolver.0.read().unwrap_or_else(PoisonError::into_inner);
            chains(&served) == chains(&next)
        };
        if !is_same {
            pki::write_bundle(&self.dir, &trusted)?;
            *self.resolver.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        }
        Ok(!is_same)
    }
}

fn chains(served: &Served) -> [Option<&[CertificateDer<'static>]>; 2] {
    [Some(&served.ours.cert), served.own.as_ref().map(|own| &*own.cert)]
}

fn trusted(ca_pem: &str, own: Option<&pki::Own>) -> String {
    format!("{ca_pem}{}", own.map_or("", |own| &own.issuers_pem))
}

/// Refreshes the certificates periodically, and whenever a `hangup` signal arrives.
pub async fn keep(
    certificates: CertificateSource,
    mut hangup: Option<tokio::signal::unix::Signal>,
) {
    let certificates = Arc::new(certificates);
    let mut last_failure = None;
    loop {
        let is_asked = tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => false,
            () = next(&mut hangup) => true,
        };
        let looking = Arc::clone(&certificates);
        let looked = tokio::task::spawn_blocking(move || looking.refresh(SystemTime::now())).await;
        let failure = match looked {
            Ok(Ok(is_new)) => {
                if is_new {
                    info!("now using a new certificate");
                } else if is_asked {
                    info!("received SIGHUP, but found no new certificate");
                }
                None
            }
            Ok(Err(why)) => Some(ErrorChain(&why).to_string()),
            Err(_) => Some("a bug in muster".to_owned()),
        };
        // Log each problem once, not every ten seconds.
        if let Some(why) =
            failure.as_ref().filter(|why| is_asked || Some(*why) != last_failure.as_ref())
        {
            error!(error = %why, "cannot renew certificates; continuing with the old ones");
        }
        last_failure = failure;
    }
}

async fn next(hangup: &mut Option<tokio::signal::unix::Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn leaf(certificates: &CertificateSource) -> CertificateDer<'static> {
        certificates.resolver.0.read().unwrap().ours.cert[0].clone()
    }

    #[test]
    fn ours_is_renewed_a_month_before_its_end_and_not_earlier() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let day = Duration::from_secs(24 * 60 * 60);
        let names = Names::for_host("lab", None);
        let Opened { certificates, identity, .. } =
            CertificateSource::open(dir.path().to_owned(), names, None, now).unwrap();
        let first = leaf(&certificates);
        assert!(!certificates.refresh(now + 300 * day).unwrap());
        assert_eq!(leaf(&certificates), first);
        assert!(certificates.refresh(identity.leaf_expires - 29 * day).unwrap());
        assert_ne!(leaf(&certificates), first);
    }
}
