//! The netlink requests that Muster needs: links, their addresses, and the namespace at the other end of a cable.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::{Address, PREFIX_LENGTH};
use super::netlink::{Netlink, Request, attributes, u32_at};

const LINK_HEADER: usize = 16;
const NAMESPACE_HEADER: [u8; 4] = [0; 4];
const VETH_INFO_PEER: u16 = 1;
const NAMESPACE_ID: u16 = 1;
const NAMESPACE_FD: u16 = 3;
const GET_NAMESPACE_ID: u16 = 90;
const BRIDGE_MULTICAST_SNOOPING: u16 = 23;
const BRIDGE_LEARNED_MAX: u16 = 49;
const BRIDGE_PORT_ISOLATED: u16 = 33;
/// The MTU of the node's internet access.
const JOB_MTU: u32 = 65_520;
/// Counters are long, and we read none.
const SKIP_COUNTERS: u32 = 1 << 3;
const UP: u32 = libc::IFF_UP as u32;
/// A node can send from any number of hardware addresses; this limits how many the bridge remembers.
const LEARNED_MAX: u32 = 16 * 1024;
/// Links may change while they are listed; the list is then requested again.
const LIST_ATTEMPTS_MAX: u32 = 16;

/// The properties of a link that we read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) kind: String,
    /// The bridge that the link is a port of, or 0.
    pub(super) bridge: u32,
    /// For a cable: this namespace's number for the namespace of the other end.
    pub(super) peer_namespace: Option<u32>,
    pub(super) hardware: Vec<u8>,
}

/// How a link is attached to a bridge.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plug {
    pub(super) bridge: u32,
    /// No packets pass between isolated ports.
    pub(super) is_isolated: bool,
}

impl Netlink {
    /// Finds the link with this name.
    pub(super) fn link(&mut self, name: &str) -> io::Result<Option<Link>> {
        let request = Request::new(libc::RTM_GETLINK, 0, &link_header(0, 0))
            .text(libc::IFLA_IFNAME, name)
            .number(libc::IFLA_EXT_MASK, SKIP_COUNTERS);
        match self.ask(request) {
            Ok(answers) => Ok(answers.first().map(|body| read_link(body))),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn links(&mut self) -> io::Result<Vec<Link>> {
        for _ in 1..LIST_ATTEMPTS_MAX {
            match self.links_once() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
        self.links_once()
    }

    fn links_once(&mut self) -> io::Result<Vec<Link>> {
        let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &link_header(0, 0))
            .number(libc::IFLA_EXT_MASK, SKIP_COUNTERS);
        Ok(self.ask(request)?.iter().map(|body| read_link(body)).collect())
    }

    /// Creates a bridge and brings it up. Fails with `AlreadyExists` if the name is taken.
    pub(super) fn add_bridge(&mut self, name: &str) -> io::Result<()> {
        self.add_bridge_with(name, &[])
    }

    /// Like [`add_bridge`](Self::add_bridge), with this hardware address unless it is empty.
    pub(super) fn add_bridge_with(&mut self, name: &str, hardware: &[u8]) -> io::Result<()> {
        let request = new_link(0, UP).text(libc::IFLA_IFNAME, name);
        let request = match hardware {
            [] => request,
            address => request.attribute(libc::IFLA_ADDRESS, address),
        };
        let request = request.nest(libc::IFLA_LINKINFO, &[], |info| {
            info.text(libc::IFLA_INFO_KIND, "bridge").nest(libc::IFLA_INFO_DATA, &[], |data| {
                data.attribute(BRIDGE_MULTICAST_SNOOPING, &[0])
                    .number(BRIDGE_LEARNED_MAX, LEARNED_MAX)
            })
        });
        self.ask(request).map(drop)
    }

    /// Creates a cable: one end here, in the bridge and up, the other in the node's namespace. The other end cannot be
    /// up yet, because it is created before its peer.
    pub(super) fn add_cable(
        &mut self,
        address: Address,
        bridge: u32,
        node: BorrowedFd<'_>,
        name_inside: &str,
    ) -> io::Result<()> {
        let request = new_link(0, UP)
            .text(libc::IFLA_IFNAME, &address.port_name())
            .number(libc::IFLA_MASTER, bridge)
            .nest(libc::IFLA_LINKINFO, &[], |info| {
                info.text(libc::IFLA_INFO_KIND, "veth").nest(libc::IFLA_INFO_DATA, &[], |data| {
                    data.nest(VETH_INFO_PEER, &link_header(0, 0), |peer| {
                        peer.text(libc::IFLA_IFNAME, name_inside)
                            .attribute(libc::IFLA_ADDRESS, &address.mac())
                            .number(libc::IFLA_NET_NS_FD, node.as_raw_fd().cast_unsigned())
                    })
                })
            });
        self.ask(request).map(drop)
    }

    /// Creates a cable for a job: one end here, the other in the job's namespace. Neither is up yet. Fails with
    /// `AlreadyExists` if the name is taken.
    pub(super) fn add_job_cable(
        &mut self,
        name: &str,
        job: BorrowedFd<'_>,
        name_inside: &str,
    ) -> io::Result<()> {
        let request = new_link(0, 0)
            .text(libc::IFLA_IFNAME, name)
            .number(libc::IFLA_MTU, JOB_MTU)
            .nest(libc::IFLA_LINKINFO, &[], |info| {
                info.text(libc::IFLA_INFO_KIND, "veth").nest(libc::IFLA_INFO_DATA, &[], |data| {
                    data.nest(VETH_INFO_PEER, &link_header(0, 0), |peer| {
                        peer.text(libc::IFLA_IFNAME, name_inside)
                            .number(libc::IFLA_MTU, JOB_MTU)
                            .number(libc::IFLA_NET_NS_FD, job.as_raw_fd().cast_unsigned())
                    })
                })
            });
        self.ask(request).map(drop)
    }

    /// Makes a link a port of a bridge.
    pub(super) fn plug(&mut self, index: u32, plug: Plug) -> io::Result<()> {
        let request = Request::new(libc::RTM_NEWLINK, 0, &link_header(index, 0))
            .number(libc::IFLA_MASTER, plug.bridge);
        self.ask(request)?;
        if !plug.is_isolated {
            return Ok(());
        }
        let request = Request::new(libc::RTM_NEWLINK, 0, &link_header(index, 0)).nest(
            libc::IFLA_LINKINFO,
            &[],
            |info| {
                info.text(libc::IFLA_INFO_SLAVE_KIND, "bridge").nest(
                    libc::IFLA_INFO_SLAVE_DATA,
                    &[],
                    |data| data.attribute(BRIDGE_PORT_ISOLATED, &[1]),
                )
            },
        );
        self.ask(request).map(drop)
    }

    /// Gives a link this address. It is not an error if the link already has it.
    pub(super) fn set_any_address(
        &mut self,
        index: u32,
        address: Ipv4Addr,
        prefix: u8,
    ) -> io::Result<()> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        self.ask(address_request(libc::RTM_NEWADDR, flags, index, address, prefix)).map(drop)
    }

    /// Removes an address. A missing address is not an error.
    pub(super) fn remove_address(
        &mut self,
        index: u32,
        address: Ipv4Addr,
        prefix: u8,
    ) -> io::Result<()> {
        match self.ask(address_request(libc::RTM_DELADDR, 0, index, address, prefix)) {
            Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Sets the default route, replacing any other.
    pub(super) fn route_out(&mut self, index: u32, gateway: Ipv4Addr) -> io::Result<()> {
        let header = route_header(0, libc::RT_SCOPE_UNIVERSE, libc::RTN_UNICAST);
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let request = Request::new(libc::RTM_NEWROUTE, flags, &header)
            .attribute(libc::RTA_GATEWAY, &gateway.octets())
            .number(libc::RTA_OIF, index);
        self.ask(request).map(drop)
    }

    pub(super) fn set_up(&mut self, index: u32) -> io::Result<()> {
        let request = Request::new(libc::RTM_NEWLINK, 0, &link_header(index, UP));
        self.ask(request).map(drop)
    }

    /// Removes a link, or both ends of a cable. A missing link is not an error.
    pub(super) fn remove(&mut self, index: u32) -> io::Result<()> {
        match self.ask(Request::new(libc::RTM_DELLINK, 0, &link_header(index, 0))) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Gives a link its address. It is not an error if the link already has it.
    pub(super) fn set_address(&mut self, index: u32, address: Address) -> io::Result<()> {
        let mut header = [libc::AF_INET as u8, PREFIX_LENGTH, 0, 0, 0, 0, 0, 0];
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let request = Request::new(libc::RTM_NEWADDR, flags, &header)
            .attribute(libc::IFA_LOCAL, &address.ip().octets())
            .attribute(libc::IFA_ADDRESS, &address.ip().octets())
            .attribute(libc::IFA_BROADCAST, &address.broadcast().octets());
        self.ask(request).map(drop)
    }

    /// Refuses packets to these addresses at once, unless a more specific route exists. It is not an error if they are
    /// refused already.
    pub(super) fn refuse_route(&mut self, to: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let header = route_header(prefix, libc::RT_SCOPE_UNIVERSE, libc::RTN_UNREACHABLE);
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let request =
            Request::new(libc::RTM_NEWROUTE, flags, &header).attribute(libc::RTA_DST, &to.octets());
        self.ask(request).map(drop)
    }

    /// Returns this namespace's number for another namespace, or `None` if it has none.
    pub(super) fn namespace_id(&mut self, namespace: BorrowedFd<'_>) -> io::Result<Option<u32>> {
        let request = Request::new(GET_NAMESPACE_ID, 0, &NAMESPACE_HEADER)
            .number(NAMESPACE_FD, namespace.as_raw_fd().cast_unsigned());
        let answers = self.ask(request)?;
        let body = answers.first().and_then(|body| body.get(NAMESPACE_HEADER.len()..));
        let id = attributes(body.unwrap_or_default())
            .find_map(|(kind, value)| (kind == NAMESPACE_ID).then(|| u32_at(value, 0))?);
        Ok(id.filter(|id| id.cast_signed() >= 0))
    }
}

/// `struct rtmsg`: family, lengths of destination and source, tos, table, protocol, scope, kind, flags.
fn route_header(prefix: u8, scope: u8, kind: u8) -> [u8; 12] {
    let (family, protocol) = (libc::AF_INET as u8, libc::RTPROT_STATIC);
    [family, prefix, 0, 0, libc::RT_TABLE_MAIN, protocol, scope, kind, 0, 0, 0, 0]
}

fn address_request(
    kind: u16,
    flags: libc::c_int,
    index: u32,
    address: Ipv4Addr,
    prefix: u8,
) -> Request {
    let mut header = [libc::AF_INET as u8, prefix, 0, 0, 0, 0, 0, 0];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    Request::new(kind, flags, &header)
        .attribute(libc::IFA_LOCAL, &address.octets())
        .attribute(libc::IFA_ADDRESS, &address.octets())
}

fn new_link(index: u32, flags: u32) -> Request {
    let create = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    Request::new(libc::RTM_NEWLINK, create, &link_header(index, flags))
}

/// `struct ifinfomsg`: the flags that are set are also the mask of flags to change.
fn link_header(index: u32, flags: u32) -> [u8; LINK_HEADER] {
    let mut header = [0; LINK_HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}

fn read_link(body: &[u8]) -> Link {
    let mut link = Link { index: u32_at(body, 4).unwrap_or(0), ..Link::default() };
    for (kind, value) in attributes(body.get(LINK_HEADER..).unwrap_or_default()) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_ADDRESS => link.hardware = value.to_vec(),
            libc::IFLA_MASTER => link.bridge = u32_at(value, 0).unwrap_or(0),
            libc::IFLA_LINK_NETNSID => link.peer_namespace = u32_at(value, 0),
            libc::IFLA_LINKINFO => {
                let named = attributes(value).find(|(kind, _)| *kind == libc::IFLA_INFO_KIND);
                link.kind = named.map(|(_, value)| text(value)).unwrap_or_default();
            }
            _ => {}
        }
    }
    link
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}
