//! The certificates that are served, and who keeps them fresh while the server runs.
//!
//! Every handshake takes what is there at that moment: a new certificate is for new connections, and those that are
//! open go on with theirs. A new one that cannot be used is told in the log, and the old one stays.

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

/// A few small files are read again; ours is renewed a month before its end.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What handshakes are answered with.
#[derive(Debug)]
struct Served {
    ours: Arc<CertifiedKey>,
    own: Option<Arc<CertifiedKey>>,
}

#[derive(Debug)]
struct Resolver(RwLock<Served>);

impl ResolvesServerCert for Resolver {
    /// The operator's for the hosts that it names; ours for the rest, such as nodes of this machine.
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

/// Knows where certificates come from.
pub struct CertificateSource {
    dir: PathBuf,
    names: Names,
    own: Option<OwnFiles>,
    resolver: Arc<Resolver>,
}

/// What the start is told.
pub struct Opened {
    pub certificates: CertificateSource,
    pub identity: pki::Identity,
    pub bundle: pki::Bundle,
}

impl CertificateSource {
    /// Reads or makes everything; here, at start, nothing may be wrong.
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

    /// Looks again, and serves what is new. Whether anything is.
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

/// Looks again and again, and whenever `hangup` says so.
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
                    info!("a new certificate is served");
                } else if is_asked {
                    info!("asked to look for new certificates: there is none");
                }
                None
            }
            Ok(Err(why)) => Some(ErrorChain(&why).to_string()),
            Err(_) => Some("a bug of ours".to_owned()),
        };
        // Once for each thing that is wrong, not every ten seconds.
        if let Some(why) =
            failure.as_ref().filter(|why| is_asked || Some(*why) != last_failure.as_ref())
        {
            error!(error = %why, "certificates could not be renewed; the old ones are still served");
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
