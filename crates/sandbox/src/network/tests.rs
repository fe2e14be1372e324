//! Tests against the real kernel. A namespace belongs to a thread, so a test runs on a thread in the hub and looks into
//! a node from another thread. Namespaces end when nothing holds them open.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::*;

const INSIDE: &str = "MUSTER_TEST_IN_USER_NAMESPACE";
/// The first packet on a new cable may be lost on a busy host and is sent again after a second.
const ANSWER: Duration = Duration::from_secs(20);
/// Long enough to see that packets which are sent twice do not arrive.
const NO_ANSWER: Duration = Duration::from_millis(1500);

/// Runs `scenario` in a new hub: as real root if we are root, and again in a separate user namespace.
fn in_new_hub(name: &str, scenario: impl Fn(&Hub) + Send + Sync) {
    let is_inside = std::env::var_os(INSIDE).is_some();
    if is_inside || rustix::process::geteuid().is_root() {
        thread::scope(|scope| {
            let hub = scope.spawn(|| scenario(&Hub::enter_new().unwrap()));
            hub.join().unwrap();
        });
    } else {
        muster_testing::skip_or_fail("not root: tested in a user namespace only");
    }
    if is_inside {
        return;
    }
    // Only a process with one thread may create a user namespace, so this test is run again, between fork and exec.
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", &format!("network::tests::{name}"), "--nocapture"]);
    again.env(INSIDE, "1");
    become_root_of_a_new_user_namespace(&mut again, UnshareFlags::empty());
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let both = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "in a user namespace: {both}");
}

fn become_root_of_a_new_user_namespace(command: &mut Command, more: UnshareFlags) {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let users = format!("0 {} 1", user.as_raw());
    let groups = format!("0 {} 1", group.as_raw());
    // SAFETY: only system calls; the strings were allocated before, and the short paths are on the stack.
    unsafe {
        command.pre_exec(move || {
            unshare_unsafe(UnshareFlags::NEWUSER | more)?;
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", &users)?;
            fs::write("/proc/self/gid_map", &groups)
        })
    };
}

/// Creates the namespace of a node, which exists as long as it is held open.
fn new_node() -> OwnedFd {
    let made = thread::spawn(|| {
        // SAFETY: only this thread's network changes.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        OwnedFd::from(fs::File::open("/proc/thread-self/ns/net").unwrap())
    });
    made.join().unwrap()
}

fn inside<T: Send>(node: &OwnedFd, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let within = scope.spawn(|| {
            move_into_link_name_space(node.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        within.join().unwrap()
    })
}

fn connected(hub: &Hub, network: u16, host: u16) -> (OwnedFd, Address) {
    let (node, address) = (new_node(), Address::of(network, host).unwrap());
    hub.connect(address, node.as_fd()).unwrap();
    (node, address)
}

/// Returns the reply to a message that `from` sends to a listener at `ip` inside `to`.
fn echo(from: &OwnedFd, to: &OwnedFd, ip: Ipv4Addr, within: Duration) -> io::Result<String> {
    let listener = inside(to, || TcpListener::bind((ip, 0))).unwrap();
    let at = listener.local_addr().unwrap();
    let mut stream = inside(from, || TcpStream::connect_timeout(&at, within))?;
    stream.write_all(b"bytes")?;
    let (mut served, _) = listener.accept()?;
    let mut bytes = [0; 5];
    served.read_exact(&mut bytes)?;
    served.write_all(&bytes)?;
    let mut text = [0; 5];
    stream.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn names_inside(node: &OwnedFd) -> Vec<String> {
    let links = inside(node, || Netlink::open().unwrap().links().unwrap());
    links
        .into_iter()
        .map(|link| link.name)
        .filter(|name| name == "lo" || name == NAME_INSIDE)
        .collect()
}

#[test]
fn nodes_of_one_network_reach_each_other_and_themselves() {
    in_new_hub("nodes_of_one_network_reach_each_other_and_themselves", |hub| {
        let (first, _) = connected(hub, 5, 1);
        let (second, at) = connected(hub, 5, 4093);
        assert_eq!(echo(&first, &second, at.ip(), ANSWER).unwrap(), "bytes");
        assert_eq!(echo(&second, &second, Ipv4Addr::LOCALHOST, ANSWER).unwrap(), "bytes");
        let networks = hub.networks().unwrap();
        assert_eq!(networks, [Network { slot: 5, hosts: vec![1, 4093] }]);
    });
}

#[test]
fn a_node_reaches_no_other_network_even_with_an_address_of_it() {
    in_new_hub("a_node_reaches_no_other_network_even_with_an_address_of_it", |hub| {
        let (liar, _) = connected(hub, 0, 1);
        let (other, at) = connected(hub, 1, 1);
        let error = echo(&liar, &other, at.ip(), NO_ANSWER).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EHOSTUNREACH), "the network is isolated");
        // The node is root in its own network and assigns itself an address of the other network.
        inside(&liar, || {
            let mut netlink = Netlink::open().unwrap();
            let end = netlink.link(NAME_INSIDE).unwrap().unwrap();
            netlink.set_address(end.index, Address::of(1, 2).unwrap()).unwrap();
        });
        let error = echo(&liar, &other, at.ip(), NO_ANSWER).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable));
    });
}

#[test]
fn the_hub_has_nothing_that_a_node_could_reach() {
    in_new_hub("the_hub_has_nothing_that_a_node_could_reach", |hub| {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (node, at) = connected(hub, 2, 1);
        for (name, value) in CLOSED {
            let Ok(found) = fs::read_to_string(format!("/proc/sys/net/{name}")) else {
                assert!(name.starts_with("ipv6"), "{name}");
                continue;
            };
            assert_eq!(found.trim(), value, "{name}");
        }
        for name in ["forwarding", "route_localnet", "proxy_arp"] {
            let found = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/net2/{name}")).unwrap();
            assert_eq!(found.trim(), "0", "{name} of the bridge");
        }
        let gateway = SocketAddr::from((at.gateway(), port));
        assert!(inside(&node, || TcpStream::connect_timeout(&gateway, NO_ANSWER)).is_err());
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let addresses = fs::read_to_string("/proc/thread-self/net/fib_trie").unwrap();
        assert!(!addresses.contains("100."), "the hub has an address: {addresses}");
        let ipv6 = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
        assert_eq!(ipv6, "", "the hub has an IPv6 address");
    });
}

#[test]
fn a_second_connect_changes_nothing_and_a_half_made_one_is_finished() {
    in_new_hub("a_second_connect_changes_nothing_and_a_half_made_one_is_finished", |hub| {
        let (first, _) = connected(hub, 3, 1);
        let (node, at) = (new_node(), Address::of(3, 2).unwrap());
        // The state after a crash: the cable exists, but the end inside has no address.
        let mut netlink = Netlink::open().unwrap();
        let bridge = netlink.link("net3").unwrap().unwrap();
        netlink.add_cable(at, bridge.index, node.as_fd(), NAME_INSIDE).unwrap();
        let addresses = || fs::read_to_string("/proc/thread-self/net/fib_trie").unwrap();
        assert!(!inside(&node, addresses).contains("100.64.48.3"));
        for _ in 0..2 {
            hub.connect(at, node.as_fd()).unwrap();
            assert_eq!(names_inside(&node), ["lo", "eth0"]);
            assert_eq!(hub.networks().unwrap(), [Network { slot: 3, hosts: vec![1, 2] }]);
        }
        assert_eq!(echo(&first, &node, at.ip(), ANSWER).unwrap(), "bytes");
    });
}

#[test]
fn an_address_is_given_once_and_a_node_has_one() {
    in_new_hub("an_address_is_given_once_and_a_node_has_one", |hub| {
        let (first, at) = connected(hub, 4, 1);
        let second = new_node();
        let error = hub.connect(at, second.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(error.to_string(), "address 100.64.64.2 belongs to another node");
        let error = hub.connect(Address::of(4, 2).unwrap(), first.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(hub.networks().unwrap(), [Network { slot: 4, hosts: vec![1] }]);
        // Once freed, the address can be given to the other node.
        hub.disconnect(at).unwrap();
        assert_eq!(names_inside(&first), ["lo"]);
        hub.connect(at, second.as_fd()).unwrap();
    });
}

#[test]
fn nothing_remains_of_a_network_without_nodes() {
    in_new_hub("nothing_remains_of_a_network_without_nodes", |hub| {
        let (_first, one) = connected(hub, 6, 1);
        let (_second, two) = connected(hub, 6, 2);
        hub.disconnect(one).unwrap();
        assert_eq!(hub.networks().unwrap(), [Network { slot: 6, hosts: vec![2] }]);
        hub.disconnect(two).unwrap();
        hub.disconnect(two).unwrap();
        assert_eq!(hub.networks().unwrap(), []);
        // This is a bridge that was created before a crash and that no node is connected to.
        Netlink::open().unwrap().add_bridge("net7").unwrap();
        let (_third, _) = connected(hub, 8, 1);
        hub.remove_unused().unwrap();
        assert_eq!(hub.networks().unwrap(), [Network { slot: 8, hosts: vec![1] }]);
    });
}

#[test]
fn the_next_process_joins_the_hub_and_finds_its_networks() {
    in_new_hub("the_next_process_joins_the_hub_and_finds_its_networks", |hub| {
        let (node, at) = connected(hub, 9, 1);
        let held = hub.namespace().try_clone_to_owned().unwrap();
        let later = thread::spawn(move || {
            let hub = Hub::join(held.as_fd()).unwrap();
            let other = connected(&hub, 9, 2).0;
            (hub.networks().unwrap(), other)
        });
        let (networks, other) = later.join().unwrap();
        assert_eq!(networks, [Network { slot: 9, hosts: vec![1, 2] }]);
        assert_eq!(echo(&other, &node, at.ip(), ANSWER).unwrap(), "bytes");
    });
}

/// A process that sleeps in its own user and network namespaces until this is dropped.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_node_that_is_root_of_its_own_users_is_connected_too() {
    in_new_hub("a_node_that_is_root_of_its_own_users_is_connected_too", |hub| {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        become_root_of_a_new_user_namespace(&mut command, UnshareFlags::NEWNET);
        let sleeper = Sleeper(command.spawn().unwrap());
        let path = format!("/proc/{}/ns/net", sleeper.0.id());
        let node = OwnedFd::from(fs::File::open(path).unwrap());
        let at = Address::of(1023, 7).unwrap();
        hub.connect(at, node.as_fd()).unwrap();
        let (other, _) = connected(hub, 1023, 8);
        assert_eq!(echo(&other, &node, at.ip(), ANSWER).unwrap(), "bytes");
    });
}
