//! A network for a single job on a node that it shares with other jobs: its own loopback, and the node's internet
//! access.
//!
//! Whatever is local to a network namespace (ports on 127.0.0.1, abstract sockets, the lists in `/proc/net`) then
//! belongs to the job alone. The node's internet device (`slirp::DEVICE`) becomes a port of a bridge, and a virtual
//! cable connects each job to it. The bridge passes nothing from one job to another. The namespace belongs to the node,
//! so a job has no rights over it.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::links::Plug;
use super::netlink::Netlink;
use super::{FORBIDDEN, NAME_INSIDE, bring_loopback_up, find, open};
use crate::context::cannot;
use crate::slirp;

const BRIDGE: &str = "jobs";
/// The addresses that `slirp4netns` uses: the node's own, and its gateway.
const NODE: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 100);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const PREFIX: u8 = 24;
/// The last byte of the addresses of jobs.
const FIRST: u8 = 101;
const LAST: u8 = 254;

/// The namespace ends when this is dropped and no process is left in it.
#[derive(Debug)]
pub struct JobNetwork {
    namespace: OwnedFd,
}

impl JobNetwork {
    /// Creates a network. For the agent of a node, which may change the node's network.
    pub fn make() -> io::Result<JobNetwork> {
        // On a separate thread, because a thread that enters a new network leaves its old one.
        let made = std::thread::scope(|scope| scope.spawn(make).join());
        made.unwrap_or_else(|_| Err(io::Error::other("the thread that creates a network panicked")))
    }

    pub fn namespace(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    /// Runs `work` inside the network; sockets that it opens belong to it.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let work = || {
            move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        };
        let done = std::thread::scope(|scope| scope.spawn(work).join());
        done.unwrap_or_else(|_| Err(io::Error::other("the thread in a job's network panicked")))
    }
}

fn make() -> io::Result<JobNetwork> {
    let mut node = open()?;
    // SAFETY: only the network namespace of this thread changes, and the thread does nothing else and ends soon.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|error| cannot("create a network for the job", error))?;
    let namespace = std::fs::File::open("/proc/thread-self/ns/net")
        .map_err(|error| cannot("open the job's network", error))?;
    let network = JobNetwork { namespace: namespace.into() };
    let mut job = open()?;
    bring_loopback_up(&mut job)?;
    if let Some(bridge) = bridge(&mut node)? {
        connect(&mut node, &mut job, bridge, network.namespace())
            .map_err(|error| cannot("give the job the node's internet access", error))?;
    }
    Ok(network)
}

/// Returns the bridge to the internet device, which the first job that needs it creates. `None` if the node has no
/// internet access.
fn bridge(node: &mut Netlink) -> io::Result<Option<u32>> {
    if let Some(bridge) = find(node, BRIDGE)? {
        return Ok(Some(bridge.index));
    }
    let Some(out) = find(node, slirp::DEVICE)? else { return Ok(None) };
    let mut make = || -> io::Result<u32> {
        // Uses the hardware address that is already known outside.
        node.add_bridge_with(BRIDGE, &out.hardware)?;
        let bridge = node.link(BRIDGE)?.ok_or(io::ErrorKind::NotFound)?;
        node.plug(out.index, Plug { bridge: bridge.index, is_isolated: false })?;
        node.set_any_address(bridge.index, NODE, PREFIX)?;
        node.remove_address(out.index, NODE, PREFIX)?;
        node.route_out(bridge.index, GATEWAY)?;
        Ok(bridge.index)
    };
    make().map(Some).map_err(|error| cannot("share the node's internet access between jobs", error))
}

fn connect(
    node: &mut Netlink,
    job: &mut Netlink,
    bridge: u32,
    namespace: BorrowedFd<'_>,
) -> io::Result<()> {
    for last in FIRST..=LAST {
        let name = format!("job{last}");
        match node.add_job_cable(&name, namespace, NAME_INSIDE) {
            // Another job has this address.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            done => done?,
        }
        let cable = node.link(&name)?.ok_or(io::ErrorKind::NotFound)?;
        node.plug(cable.index, Plug { bridge, is_isolated: true })?;
        node.set_up(cable.index)?;
        let end = job.link(NAME_INSIDE)?.ok_or(io::ErrorKind::NotFound)?;
        let [a, b, c, _] = NODE.octets();
        job.set_any_address(end.index, Ipv4Addr::new(a, b, c, last), PREFIX)?;
        job.set_up(end.index)?;
        job.route_out(end.index, GATEWAY)?;
        for (to, prefix) in FORBIDDEN {
            job.refuse_route(to, prefix)?;
        }
        return Ok(());
    }
    Err(io::Error::other("all addresses for jobs of this node are in use"))
}
