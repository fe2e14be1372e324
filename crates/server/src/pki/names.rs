//! The names of this host, which the certificate contains and to which the CA is restricted.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustls::pki_types::DnsName;

use super::PkiError;

/// A host has a handful of names; each one is an entry in every handshake.
pub(super) const NAMES_MAX: usize = 64;

/// The names that clients may use for this server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub dns: BTreeSet<String>,
    pub ips: BTreeSet<IpAddr>,
}

impl Names {
    /// The names of this host: its loopback names, its host name, and the host that it listens on unless that means
    /// every address.
    pub fn for_host(host_name: &str, listen_host: Option<&str>) -> Names {
        let mut names = Names {
            dns: BTreeSet::from(["localhost".to_owned()]),
            ips: BTreeSet::from([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
        };
        for host in [Some(host_name), listen_host].into_iter().flatten() {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            match host.parse::<IpAddr>() {
                Ok(ip) if ip.is_unspecified() => {}
                Ok(ip) => drop(names.ips.insert(ip)),
                Err(_) if host.is_empty() => {}
                Err(_) => drop(names.dns.insert(normal(host))),
            }
        }
        names
    }

    /// Converts the names to lower case, and checks that they suit a constrained CA.
    pub(super) fn checked(&self) -> Result<Names, PkiError> {
        let dns: BTreeSet<String> = self.dns.iter().map(|name| normal(name)).collect();
        if let Some(bad) = dns.iter().find(|name| DnsName::try_from(name.as_str()).is_err()) {
            return Err(PkiError::BadName(bad.clone()));
        }
        let (dns_count, ip_count) = (dns.len(), self.ips.len());
        // Without a name of one kind, there would be no constraint on that kind at all.
        if dns_count == 0 || ip_count == 0 || dns_count + ip_count > NAMES_MAX {
            return Err(PkiError::NameCount { dns: dns_count, ips: ip_count });
        }
        Ok(Names { dns, ips: self.ips.clone() })
    }
}

fn normal(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_names_are_gathered() {
        let found = Names::for_host("Node7.Example.org.", Some("[2001:db8::7]"));
        let dns: Vec<&str> = found.dns.iter().map(String::as_str).collect();
        assert_eq!(dns, ["localhost", "node7.example.org"]);
        let ips: Vec<String> = found.ips.iter().map(IpAddr::to_string).collect();
        assert_eq!(ips, ["127.0.0.1", "::1", "2001:db8::7"]);
        assert_eq!(Names::for_host("", Some("::")), Names::for_host("localhost", None));
    }
}
