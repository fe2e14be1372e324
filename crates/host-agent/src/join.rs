//! Exchanges a join token for a key of this host's own.

use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::model::Capacity;
use muster_providers::joined::protocol::{JoinRequest, VERSION};
use muster_providers::trust;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::client::{CallError, Card, Client, offered_ca};
use crate::host_files::{CA_BUNDLE, HostFiles, Membership, digest_of, hex, sha256};
use crate::{HostAgentConfig, HostAgentError};

const RETRY_AFTER: Duration = Duration::from_secs(2);

pub(crate) struct Member {
    pub membership: Membership,
    pub client: Client,
    pub card: Card,
}

/// Joins, unless this host has joined already. Waits for as long as the server cannot be reached.
pub(crate) async fn join(
    files: &HostFiles,
    config: &HostAgentConfig,
    capacity: Capacity,
) -> Result<Member, HostAgentError> {
    let known = files.membership()?;
    let ca_pem = match (&config.ca_file, &known) {
        (Some(path), _) => {
            let read = std::fs::read_to_string(path);
            read.map_err(|source| HostAgentError::File { path: path.clone(), source })?
        }
        (None, Some(_)) => renewed_ca(files, config).await?,
        (None, None) => first_ca(config).await?,
    };
    files.write("ca.pem", ca_pem.as_bytes())?;
    let bundle = trust::bundle(&files.path(CA_BUNDLE), &ca_pem);
    files.write(CA_BUNDLE, bundle.content.as_bytes())?;
    let client = Client::new(&config.server, &ca_pem)?;
    let key = files.key()?;
    let membership = match known {
        Some(known) => known,
        None => {
            let token = config.token.as_ref().ok_or(HostAgentError::NoToken)?;
            let request = JoinRequest {
                version: VERSION,
                secret: token.secret.clone(),
                name: config.name.clone(),
                capacity,
                key: digest_of(&key),
            };
            let welcome = patiently(async || client.join(&request).await).await?;
            Membership { name: welcome.name, terms: welcome.terms }
        }
    };
    files.join(&membership)?;
    let card = Card { name: membership.name.to_string(), key };
    Ok(Member { membership, client, card })
}

/// Fetches the authority that the token names.
async fn first_ca(config: &HostAgentConfig) -> Result<String, HostAgentError> {
    let token = config.token.as_ref().ok_or(HostAgentError::NoToken)?;
    let offered = patiently(async || offered_ca(&config.server).await).await?;
    match authority(&offered) {
        Some(found) if found == token.authority => Ok(offered),
        _ => Err(HostAgentError::UnknownHost { server: config.server.to_string() }),
    }
}

/// Returns the authority that was trusted before, with its newest certificate if the server can provide it.
async fn renewed_ca(files: &HostFiles, config: &HostAgentConfig) -> Result<String, HostAgentError> {
    let damaged = || HostAgentError::Damaged { path: files.path("ca.pem") };
    let known = files.read("ca.pem")?.ok_or_else(damaged)?;
    let trusted = authority(&known).ok_or_else(damaged)?;
    match offered_ca(&config.server).await {
        Ok(offered) if authority(&offered).as_ref() == Some(&trusted) => Ok(offered),
        Ok(_) => Err(HostAgentError::UnknownHost { server: config.server.to_string() }),
        Err(_) => Ok(known),
    }
}

/// Returns the public key of the only certificate in there, as a token names it. A second certificate could be an
/// attacker's.
fn authority(pem: &str) -> Option<String> {
    let mut found = CertificateDer::pem_slice_iter(pem.as_bytes());
    let (Some(Ok(der)), None) = (found.next(), found.next()) else { return None };
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    Some(hex(&sha256(certificate.public_key().raw)))
}

/// Retries until there is a response, even if it is a refusal.
async fn patiently<T>(call: impl AsyncFn() -> Result<T, CallError>) -> Result<T, HostAgentError> {
    let mut is_told = false;
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(CallError::Refused { message, .. }) => {
                return Err(HostAgentError::Refused { message });
            }
            Err(error) => {
                if !is_told {
                    let error = ErrorChain(&error);
                    tracing::warn!(%error, "cannot join yet; retrying");
                    is_told = true;
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn an_authority_is_known_by_its_key_and_not_by_its_certificate() {
        let key = KeyPair::generate().unwrap();
        let made = |name: &str, key: &KeyPair| {
            CertificateParams::new([name.to_owned()]).unwrap().self_signed(key).unwrap().pem()
        };
        let first = authority(&made("one", &key)).unwrap();
        assert_eq!(authority(&made("two", &key)).unwrap(), first);
        assert_ne!(authority(&made("one", &KeyPair::generate().unwrap())).unwrap(), first);
        assert_eq!(authority("no certificate"), None);
        let another = made("one", &KeyPair::generate().unwrap());
        assert_eq!(
            authority(&format!("{}{another}", made("one", &key))),
            None,
            "only one is allowed"
        );
    }
}
