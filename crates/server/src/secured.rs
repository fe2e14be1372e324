//! The keys and certificates of the server, with which it proves its identity and checks that of others.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use crate::address::Address;
use crate::certificates::{CertificateSource, Opened};
use crate::config::{ServeError, ServerConfig};
use crate::pki;
use crate::state_dir::StateDir;
use crate::tokens::{self, Keyring};

pub struct Secured {
    pub tls: Arc<rustls::ServerConfig>,
    pub ca_file: PathBuf,
    pub ca_bundle: PathBuf,
    pub ca_pem: String,
    /// The fingerprint by which a join token identifies the server's CA.
    pub authority: String,
    pub keyring: Arc<Keyring>,
    pub has_own_certificate: bool,
    /// Notes for the operator.
    pub notes: Vec<String>,
}

/// Reads the keys and certificates, and creates missing ones.
pub fn secure(
    config: &ServerConfig,
    state_dir: &StateDir,
    address: &Address,
) -> Result<(Secured, CertificateSource), ServeError> {
    let own = config.certificate.clone();
    let own = own.map(|(cert, key)| pki::OwnFiles { cert, key, host: address.host.clone() });
    let has_own_certificate = own.is_some();
    let names = pki::Names::for_host(&address.host_name, Some(&address.host));
    let opened = CertificateSource::open(state_dir.pki(), names, own, SystemTime::now())?;
    let Opened { certificates, identity, bundle } = opened;
    let keyring = Arc::new(tokens::load_or_create(&state_dir.keys())?);
    let notes = notes(&identity, &bundle, keyring.owner_key_made());
    let tls = certificates.tls()?;
    let pki::Identity { ca_pem, ca_path: ca_file, authority, .. } = identity;
    let ca_bundle = bundle.path;
    let secured =
        Secured { tls, ca_file, ca_bundle, ca_pem, authority, keyring, has_own_certificate, notes };
    Ok((secured, certificates))
}

fn notes(identity: &pki::Identity, bundle: &pki::Bundle, is_first_start: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if identity.renewed == pki::Renewed::CaAndLeaf && !is_first_start {
        notes.push(
            "created a new certificate authority: run `muster env` again in open shells".into(),
        );
    }
    if bundle.public_from.is_none() {
        notes.push(
            "found no public certificate authorities on this machine: programs that use `muster env` \
             reach only this server (install ca-certificates, then start again)"
                .into(),
        );
    }
    notes
}
