//! The addresses of nodes: 1,024 networks of 4,093 nodes each, from a range that is not routed on the internet.

use std::io;
use std::net::Ipv4Addr;

/// 100.64.0.0/10 is reserved for carriers, so office and cloud networks do not use it.
const FIRST: u32 = u32::from_be_bytes([100, 64, 0, 0]);
/// Addresses in one network: a /20.
const SIZE: u32 = 4096;
pub const PREFIX_LENGTH: u8 = 20;
pub const NETWORKS_MAX: u16 = 1024;
/// Excludes the network's own address, the gateway's and the broadcast address. A bridge has 1,023 ports, so no more
/// nodes than that are connected at one time.
pub const HOSTS_MAX: u16 = 4093;

/// The address of a node: its network and its number there, both within their limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    network: u16,
    host: u16,
}

impl Address {
    /// `network` is 0 to 1,023 and `host` 1 to 4,093.
    pub fn of(network: u16, host: u16) -> io::Result<Address> {
        if network >= NETWORKS_MAX {
            return Err(outside("network slot", network, 0, NETWORKS_MAX - 1));
        }
        if !(1..=HOSTS_MAX).contains(&host) {
            return Err(outside("host number", host, 1, HOSTS_MAX));
        }
        Ok(Address { network, host })
    }

    pub fn network(self) -> u16 {
        self.network
    }

    pub fn host(self) -> u16 {
        self.host
    }

    pub fn ip(self) -> Ipv4Addr {
        // The first address after the network's own belongs to the gateway.
        Ipv4Addr::from(self.base() + 1 + u32::from(self.host))
    }

    /// Reserved for the hub, which has no address until a feature needs one.
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from(self.base() + 1)
    }

    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from(self.base() + SIZE - 1)
    }

    /// Derived from the address, so that neighbours' ARP caches remain valid when a node is replaced.
    pub(super) fn mac(self) -> [u8; 6] {
        let [a, b, c, d] = self.ip().octets();
        [0x02, 0x4d, a, b, c, d]
    }

    /// The hub's end of the node's cable.
    pub(super) fn port_name(self) -> String {
        format!("p{}-{}", self.network, self.host)
    }

    pub(super) fn of_port(name: &str) -> Option<Address> {
        let (network, host) = name.strip_prefix('p')?.split_once('-')?;
        let address = Address::of(network.parse().ok()?, host.parse().ok()?).ok()?;
        // "+1" and "01" also parse as numbers, but they are not names of ours.
        (address.port_name() == name).then_some(address)
    }

    fn base(self) -> u32 {
        FIRST + u32::from(self.network) * SIZE
    }
}

pub(super) fn bridge_name(network: u16) -> String {
    format!("net{network}")
}

pub(super) fn network_of_bridge(name: &str) -> Option<u16> {
    let network = name.strip_prefix("net")?.parse().ok()?;
    (network < NETWORKS_MAX && bridge_name(network) == name).then_some(network)
}

fn outside(what: &str, value: u16, least: u16, most: u16) -> io::Error {
    let text = format!("{what} {value} is not between {least} and {most}");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_lie_side_by_side_and_every_address_is_inside_its_own() {
        assert_eq!(Address::of(0, 1).unwrap().ip(), Ipv4Addr::new(100, 64, 0, 2));
        assert_eq!(Address::of(0, 4093).unwrap().ip(), Ipv4Addr::new(100, 64, 15, 254));
        assert_eq!(Address::of(0, 9).unwrap().broadcast(), Ipv4Addr::new(100, 64, 15, 255));
        assert_eq!(Address::of(1, 1).unwrap().ip(), Ipv4Addr::new(100, 64, 16, 2));
        assert_eq!(Address::of(1, 7).unwrap().gateway(), Ipv4Addr::new(100, 64, 16, 1));
        assert_eq!(Address::of(1023, 4093).unwrap().ip(), Ipv4Addr::new(100, 127, 255, 254));
    }

    #[test]
    fn what_is_outside_is_refused_with_its_limits() {
        let error = Address::of(1024, 1).unwrap_err();
        assert_eq!(error.to_string(), "network slot 1024 is not between 0 and 1023");
        let error = Address::of(0, 0).unwrap_err();
        assert_eq!(error.to_string(), "host number 0 is not between 1 and 4093");
        assert!(Address::of(0, 4094).is_err());
    }

    #[test]
    fn names_fit_the_kernel_and_lead_back() {
        let last = Address::of(1023, 4093).unwrap();
        assert!(last.port_name().len() < 16);
        assert_eq!(Address::of_port(&last.port_name()), Some(last));
        assert_eq!(network_of_bridge(&bridge_name(1023)), Some(1023));
        for stranger in ["", "p", "p1", "p1-0", "p01-1", "p+1-1", "p1024-1", "net1", "eth0"] {
            assert_eq!(Address::of_port(stranger), None, "{stranger}");
        }
        for stranger in ["net", "net01", "net1024", "net-1", "p1-1", "lo"] {
            assert_eq!(network_of_bridge(stranger), None, "{stranger}");
        }
    }
}
