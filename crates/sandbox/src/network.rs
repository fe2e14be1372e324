//! The networks and addresses of nodes.
//!
//! The hub is a network namespace without internet access. Each network (a cluster) is a bridge in it, and a virtual
//! cable connects each node to one bridge. Networks are separate because nothing connects the bridges: the hub forwards
//! nothing and has no address in any of them and no IPv6, so a node that spoofs its address still reaches only its own
//! network.
//!
//! Jobs that share a node have networks of their own within it ([`JobNetwork`]).
//!
//! Bridges and cables end with the hub, and a cable ends with its node's namespace. The hub itself exists as long as a
//! process is in it or holds it open.

mod address;
mod links;
mod netlink;
mod own;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::marker::PhantomData;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::context::cannot;
use links::Link;
use netlink::Netlink;

pub use address::{Address, HOSTS_MAX, NETWORKS_MAX, PREFIX_LENGTH};
pub use own::JobNetwork;

/// The name of the node's end of its cable, as programs expect it.
pub const NAME_INSIDE: &str = "eth0";

/// A namespace starts with a copy of the host's settings, and a host with containers forwards packets and may even
/// route to 127.0.0.1 from outside. The settings are written for `default` too, which bridges and cables inherit.
const CLOSED: [(&str, &str); 10] = [
    ("ipv4/ip_forward", "0"),
    ("ipv4/conf/default/forwarding", "0"),
    ("ipv4/conf/all/route_localnet", "0"),
    ("ipv4/conf/default/route_localnet", "0"),
    ("ipv4/conf/all/proxy_arp", "0"),
    ("ipv4/conf/default/proxy_arp", "0"),
    ("ipv4/conf/all/arp_ignore", "8"),
    ("ipv6/conf/all/forwarding", "0"),
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
];

/// Addresses that a node never reaches, even with internet access: other clusters' nodes, and the metadata services of
/// clouds.
const FORBIDDEN: [(Ipv4Addr, u8); 2] =
    [(Ipv4Addr::new(100, 64, 0, 0), 10), (Ipv4Addr::new(169, 254, 0, 0), 16)];

/// The namespace that the calling thread is in and that contains every network.
#[derive(Debug)]
pub struct Hub {
    namespace: OwnedFd,
    /// Only the thread that entered is inside.
    on_this_thread: PhantomData<*const ()>,
}

/// A network, with the numbers of the nodes that are connected to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    pub slot: u16,
    pub hosts: Vec<u16>,
}

impl Hub {
    /// Moves the calling thread into a new, closed namespace, which its later children inherit. After an error it may
    /// be in the new namespace without being isolated, so the process must end.
    pub fn enter_new() -> io::Result<Hub> {
        // SAFETY: only the network namespace changes; no memory, descriptors or files are unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
            .map_err(|error| cannot("create a network namespace", error))?;
        let hub = Hub::here()?;
        close_settings()?;
        let mut netlink = open()?;
        bring_loopback_up(&mut netlink)?;
        Ok(hub)
    }

    /// Moves the calling thread into the hub that an earlier process created.
    pub fn join(hub: BorrowedFd<'_>) -> io::Result<Hub> {
        move_into_link_name_space(hub, Some(LinkNameSpaceType::Network))
            .map_err(|error| cannot("enter the hub's network namespace", error))?;
        Hub::here()
    }

    /// Returns the namespace. A process that holds it open keeps the hub alive.
    pub fn namespace(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    /// Gives the node its address: creates the network's bridge and a cable, and brings loopback up. After a crash
    /// halfway, the same call completes the work. It changes nothing for a node that already has its address.
    ///
    /// Fails with `AddrInUse` if another node has the address ([`disconnect`](Hub::disconnect) it first), and with
    /// `AlreadyExists` if the node has another address.
    pub fn connect(&self, address: Address, node: BorrowedFd<'_>) -> io::Result<()> {
        let mut netlink = open()?;
        let bridge = find_or_add_bridge(&mut netlink, address.network())?;
        match find(&mut netlink, &address.port_name())? {
            None => {
                netlink.add_cable(address, bridge.index, node, NAME_INSIDE).map_err(|error| {
                    let ip = address.ip();
                    cannot(format_args!("create a cable for {ip} as {NAME_INSIDE}"), error)
                })?
            }
            Some(port) => {
                let there = netlink
                    .namespace_id(node)
                    .map_err(|error| cannot("compare network namespaces", error))?;
                if there.is_none() || port.peer_namespace != there {
                    let text = format!("address {} belongs to another node", address.ip());
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
                }
            }
        }
        self.inside(node, |netlink| {
            bring_loopback_up(netlink)?;
            let end = find(netlink, NAME_INSIDE)?.ok_or_else(|| {
                let text = format!("the node no longer has {NAME_INSIDE}");
                io::Error::new(io::ErrorKind::NotFound, text)
            })?;
            netlink
                .set_address(end.index, address)
                .and_then(|()| netlink.set_up(end.index))
                .map_err(|error| cannot(format_args!("set the address {}", address.ip()), error))?;
            for (to, prefix) in FORBIDDEN {
                netlink
                    .refuse_route(to, prefix)
                    .map_err(|error| cannot(format_args!("block {to}/{prefix}"), error))?;
            }
            Ok(())
        })
    }

    /// Removes the cable of an address, and with the last cable its bridge. A missing cable is not an error.
    pub fn disconnect(&self, address: Address) -> io::Result<()> {
        let mut netlink = open()?;
        let name = address.port_name();
        if let Some(port) = find(&mut netlink, &name)? {
            remove(&mut netlink, &port)?;
        }
        remove_unused(&mut netlink, |network| network == address.network())
    }

    /// Removes bridges that no longer have any nodes.
    pub fn remove_unused(&self) -> io::Result<()> {
        remove_unused(&mut open()?, |_| true)
    }

    /// Lists every network that has a bridge, in order.
    pub fn networks(&self) -> io::Result<Vec<Network>> {
        let links = list(&mut open()?)?;
        let mut networks: Vec<Network> = bridges(&links)
            .map(|(slot, bridge)| {
                let ports = links.iter().filter(|link| link.bridge == bridge.index);
                let ours = ports.filter_map(|port| Address::of_port(&port.name));
                let mut hosts: Vec<u16> = ours.map(Address::host).collect();
                hosts.sort_unstable();
                Network { slot, hosts }
            })
            .collect();
        networks.sort_unstable_by_key(|network| network.slot);
        Ok(networks)
    }

    fn here() -> io::Result<Hub> {
        let namespace = fs::File::open("/proc/thread-self/ns/net")
            .map_err(|error| cannot("open our own network namespace", error))?;
        Ok(Hub { namespace: namespace.into(), on_this_thread: PhantomData })
    }

    /// Opens a netlink socket in the node's namespace. This thread is in there only for that one system call.
    fn inside<T>(
        &self,
        node: BorrowedFd<'_>,
        work: impl FnOnce(&mut Netlink) -> io::Result<T>,
    ) -> io::Result<T> {
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(node, network)
            .map_err(|error| cannot("enter the node's network namespace", error))?;
        let opened = open();
        if let Err(error) = move_into_link_name_space(self.namespace.as_fd(), network) {
            // Every later operation would change the node's network instead of the hub's.
            eprintln!("cannot return from a node's network namespace to the hub: {error}");
            std::process::abort();
        }
        work(&mut opened?)
    }
}

fn open() -> io::Result<Netlink> {
    Netlink::open().map_err(|error| cannot("open a netlink socket", error))
}

fn find(netlink: &mut Netlink, name: &str) -> io::Result<Option<Link>> {
    netlink.link(name).map_err(|error| cannot(format_args!("find the link {name}"), error))
}

fn list(netlink: &mut Netlink) -> io::Result<Vec<Link>> {
    netlink.links().map_err(|error| cannot("list links", error))
}

fn remove(netlink: &mut Netlink, link: &Link) -> io::Result<()> {
    let done = netlink.remove(link.index);
    done.map_err(|error| cannot(format_args!("remove the link {}", link.name), error))
}

fn bring_loopback_up(netlink: &mut Netlink) -> io::Result<()> {
    // Loopback is the first link of every namespace.
    netlink.set_up(1).map_err(|error| cannot("bring loopback up", error))
}

fn find_or_add_bridge(netlink: &mut Netlink, network: u16) -> io::Result<Link> {
    let name = address::bridge_name(network);
    if let Some(bridge) = find(netlink, &name)? {
        return Ok(bridge);
    }
    netlink
        .add_bridge(&name)
        .map_err(|error| cannot(format_args!("create the bridge {name}"), error))?;
    find(netlink, &name)?.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("the bridge {name} disappeared"))
    })
}

fn remove_unused(netlink: &mut Netlink, is_meant: impl Fn(u16) -> bool) -> io::Result<()> {
    let links = list(netlink)?;
    for (slot, bridge) in bridges(&links) {
        if is_meant(slot) && !links.iter().any(|link| link.bridge == bridge.index) {
            remove(netlink, bridge)?;
        }
    }
    Ok(())
}

fn bridges(links: &[Link]) -> impl Iterator<Item = (u16, &Link)> {
    let bridges = links.iter().filter(|link| link.kind == "bridge");
    bridges.filter_map(|link| Some((address::network_of_bridge(&link.name)?, link)))
}

fn close_settings() -> io::Result<()> {
    for (name, value) in CLOSED {
        match fs::write(format!("/proc/sys/net/{name}"), value) {
            // A kernel without IPv6 has nothing to disable.
            Err(error) if error.kind() == io::ErrorKind::NotFound && name.starts_with("ipv6") => {}
            done => {
                done.map_err(|error| cannot(format_args!("set net/{name} to {value}"), error))?
            }
        }
    }
    Ok(())
}
