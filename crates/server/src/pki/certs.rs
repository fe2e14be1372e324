//! Creates and reads the two certificates. Files, and the time of renewal, are not handled here.
//!
//! Every CA gets its own subject, so that a client that trusts an old CA in addition to the new one does not take the
//! old one for the issuer of the new certificate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::extensions::{GeneralName, GeneralSubtree as ReadSubtree};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Names, PkiError};

const DAY_S: i64 = 24 * 60 * 60;

/// Ten years, because clients install the CA by hand.
pub const CA_LIFETIME_S: i64 = 3652 * DAY_S;

/// The longest lifetime that browsers and Apple's verifier accept, less one day.
pub const LEAF_LIFETIME_S: i64 = 397 * DAY_S;

/// Certificates start this long in the past, for clients whose clock is behind.
pub const BACKDATE_S: i64 = 60 * 60;

/// The facts about a certificate that decisions depend on.
#[derive(Debug)]
pub struct Facts {
    pub not_before: i64,
    pub not_after: i64,
    pub subject: Vec<u8>,
    pub issuer: Vec<u8>,
    pub public_key: Vec<u8>,
    /// The subject alternative names.
    pub names: Names,
    /// The names that a CA may sign for; `None` if it has no name constraints.
    pub permitted: Option<Names>,
}

/// Whether a CA with these constraints may sign for all the names.
pub fn permits(permitted: &Names, names: &Names) -> bool {
    let dns_ok = names.dns.iter().all(|name| {
        permitted.dns.iter().any(|subtree| {
            name.strip_suffix(subtree.as_str())
                .is_some_and(|front| front.is_empty() || front.ends_with('.'))
        })
    });
    dns_ok && names.ips.is_subset(&permitted.ips)
}

/// Creates a CA certificate for `key` that may sign only for these names.
pub fn make_ca(names: &Names, key: &KeyPair, now: i64) -> Result<String, PkiError> {
    let serial = random_serial()?;
    let label = serial.iter().skip(1).take(4).map(|b| format!("{b:02x}")).collect::<String>();
    let mut params = params(&format!("Muster CA {label}"), serial, now, now + CA_LIFETIME_S)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // This also restricts the usage for verifiers that check it: no client, code or mail certificates.
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let dns = names.dns.iter().cloned().map(GeneralSubtree::DnsName);
    let ips = names.ips.iter().map(|ip| {
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*ip, bits))
    });
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: dns.chain(ips).collect(),
        excluded_subtrees: Vec::new(),
    });
    Ok(params.self_signed(key).map_err(PkiError::Sign)?.pem())
}

/// Creates a server certificate for these names and `key`, signed by the CA and valid for no longer than the CA.
pub fn make_leaf(
    names: &Names,
    key: &KeyPair,
    ca_pem: &str,
    ca_key: &KeyPair,
    ca_not_after: i64,
    now: i64,
) -> Result<String, PkiError> {
    let not_after = (now - BACKDATE_S + LEAF_LIFETIME_S).min(ca_not_after);
    let mut params = params("Muster server", random_serial()?, now, not_after)?;
    // Set explicitly, because only then is the subject key identifier written.
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for name in &names.dns {
        let name = name.as_str().try_into().map_err(PkiError::Sign)?;
        params.subject_alt_names.push(SanType::DnsName(name));
    }
    params.subject_alt_names.extend(names.ips.iter().copied().map(SanType::IpAddress));
    let issuer = Issuer::from_ca_cert_pem(ca_pem, ca_key).map_err(PkiError::Sign)?;
    Ok(params.signed_by(key, &issuer).map_err(PkiError::Sign)?.pem())
}

/// Reads a certificate; the error says what is wrong with it.
pub fn read(der: &CertificateDer<'_>) -> Result<Facts, &'static str> {
    let (rest, cert) = X509Certificate::from_der(der).map_err(|_| "is not a certificate")?;
    if !rest.is_empty() {
        return Err("has data after the certificate");
    }
    let mut names = Names::default();
    let alternative = cert.subject_alternative_name().map_err(|_| "has unreadable names")?;
    for name in alternative.iter().flat_map(|extension| &extension.value.general_names) {
        add_name(&mut names, name).ok_or("has a name that is neither DNS nor address")?;
    }
    let constraints = cert.name_constraints().map_err(|_| "has unreadable name constraints")?;
    let subtrees = constraints.and_then(|extension| extension.value.permitted_subtrees.as_deref());
    Ok(Facts {
        not_before: cert.validity().not_before.timestamp(),
        not_after: cert.validity().not_after.timestamp(),
        subject: cert.subject().as_raw().to_vec(),
        issuer: cert.issuer().as_raw().to_vec(),
        public_key: cert.public_key().raw.to_vec(),
        names,
        permitted: subtrees.map(permitted_names),
    })
}

fn params(
    common_name: &str,
    serial: [u8; 16],
    now: i64,
    not_after: i64,
) -> Result<CertificateParams, PkiError> {
    let at = |unix| OffsetDateTime::from_unix_timestamp(unix).map_err(|_| PkiError::Clock(unix));
    let mut params = CertificateParams::default();
    params.not_before = at(now - BACKDATE_S)?;
    params.not_after = at(not_after)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Muster");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// A renewed certificate keeps its key and subject, so the serial number must differ each time.
fn random_serial() -> Result<[u8; 16], PkiError> {
    let mut serial = [0; 16];
    aws_lc_rs::rand::fill(&mut serial).map_err(|_| PkiError::Random)?;
    // Positive, and without a leading zero byte in DER.
    serial[0] = (serial[0] & 0x7f) | 0x40;
    Ok(serial)
}

fn add_name(names: &mut Names, name: &GeneralName<'_>) -> Option<()> {
    match name {
        GeneralName::DNSName(name) => names.dns.insert((*name).to_owned()),
        GeneralName::IPAddress(octets) => names.ips.insert(address(octets)?),
        _ => return None,
    };
    Some(())
}

/// The constraints that this module writes are names and single addresses; others permit nothing.
fn permitted_names(subtrees: &[ReadSubtree<'_>]) -> Names {
    let mut names = Names::default();
    for subtree in subtrees {
        match &subtree.base {
            GeneralName::DNSName(name) if !name.is_empty() => {
                names.dns.insert((*name).to_owned());
            }
            GeneralName::IPAddress(octets) => {
                let (ip, mask) = octets.split_at(octets.len() / 2);
                if mask.iter().all(|byte| *byte == 0xff) {
                    names.ips.extend(address(ip));
                }
            }
            _ => {}
        }
    }
    names
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustls::pki_types::pem::PemObject;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn names() -> Names {
        Names::for_host("node7.example.org", Some("192.0.2.7"))
    }

    fn facts(pem: &str) -> Facts {
        read(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let ca_pem = make_ca(&names(), &ca_key, NOW).unwrap();
        let ca = facts(&ca_pem);
        assert_eq!(ca.permitted, Some(names()));
        assert_eq!(ca.not_after, NOW + CA_LIFETIME_S);
        let leaf = facts(&make_leaf(&names(), &key, &ca_pem, &ca_key, ca.not_after, NOW).unwrap());
        assert_eq!(leaf.names, names());
        assert_eq!(leaf.issuer, ca.subject);
        assert_eq!(leaf.not_before, NOW - BACKDATE_S);
        assert_eq!(leaf.not_after - leaf.not_before, 397 * DAY_S);
        assert!(leaf.permitted.is_none());
    }

    #[test]
    fn a_leaf_does_not_outlive_its_ca_and_two_cas_differ_in_subject() {
        let key = KeyPair::generate().unwrap();
        let one = make_ca(&names(), &key, NOW).unwrap();
        let two = make_ca(&names(), &key, NOW).unwrap();
        assert_ne!(facts(&one).subject, facts(&two).subject);
        let leaf = make_leaf(&names(), &key, &one, &key, NOW + DAY_S, NOW).unwrap();
        assert_eq!(facts(&leaf).not_after, NOW + DAY_S);
    }

    #[test]
    fn a_subtree_permits_itself_and_what_is_below() {
        let check = |name: &str, expected: bool| {
            let wanted = Names { dns: [name.to_owned()].into(), ips: [].into() };
            assert_eq!(permits(&names(), &wanted), expected, "{name}");
        };
        check("node7.example.org", true);
        check("blob.node7.example.org", true);
        check("xnode7.example.org", false);
        check("example.org", false);
        let other = Names { dns: [].into(), ips: ["192.0.2.8".parse().unwrap()].into() };
        assert!(!permits(&names(), &other));
    }
}
