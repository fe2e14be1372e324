//! Tracks the connections of a listener: how many each address has, and which of them have not sent a request yet.
//!
//! One address may use only a part of the places. If no place is left, a new connection evicts one that has not sent a
//! request yet (most of these have not even completed their handshake): the oldest one of the address that has the most
//! of them.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// How many connections one address may have at least, however few places there are.
const ADDRESS_MIN: usize = 16;

/// How many of these places one address may use. `asked` is the operator's setting, where 0 means all of them.
pub fn per_address(places: usize, asked: Option<usize>) -> usize {
    match asked {
        Some(0) => places,
        Some(most) => most,
        None => (places / 4).max(ADDRESS_MIN),
    }
}

pub struct Connections {
    /// The limit per address; `None` if addresses do not distinguish clients.
    per_address: Option<usize>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    addresses: HashMap<IpAddr, Address>,
    /// Connections that have not sent a request.
    idle: HashMap<u64, IdleConnection>,
    /// The number of idle connections of each address.
    by_idle: BTreeSet<(usize, IpAddr)>,
}

#[derive(Default)]
struct Address {
    connections: usize,
    /// Ids increase, so the oldest connection is first.
    idle: BTreeSet<u64>,
}

struct IdleConnection {
    address: IpAddr,
    evict: oneshot::Sender<()>,
}

/// One connection, for as long as it is open.
pub struct ConnectionGuard {
    connections: Arc<Connections>,
    id: u64,
    address: IpAddr,
    is_active: AtomicBool,
}

/// Resolves when the connection must be closed.
pub type Eviction = oneshot::Receiver<()>;

impl Connections {
    pub fn new(per_address: Option<usize>) -> Arc<Connections> {
        Arc::new(Connections { per_address, inner: Mutex::default() })
    }

    /// Returns `None` if the address has as many connections as it may have, and all of them have sent a request.
    pub fn admit(self: &Arc<Self>, from: IpAddr) -> Option<(Arc<ConnectionGuard>, Eviction)> {
        let address = network(from);
        let mut inner = self.lock();
        let own = inner.addresses.get(&address);
        let is_full = own.zip(self.per_address).is_some_and(|(own, most)| own.connections >= most);
        if is_full {
            let first = own.and_then(|own| own.idle.first().copied())?;
            inner.evict(first);
        }
        let id = inner.next;
        inner.next += 1;
        inner.addresses.entry(address).or_default().connections += 1;
        let (evict, evicted) = oneshot::channel();
        inner.idle.insert(id, IdleConnection { address, evict });
        inner.count(address, |idle| idle.insert(id));
        let is_active = AtomicBool::new(false);
        Some((
            Arc::new(ConnectionGuard { connections: Arc::clone(self), id, address, is_active }),
            evicted,
        ))
    }

    /// Makes room for a connection by evicting another one that has not sent a request, if there is one.
    pub fn make_room_for(&self, connection: &ConnectionGuard) {
        let mut inner = self.lock();
        let most = inner.by_idle.iter().rev().take(2);
        let mut firsts = most.flat_map(|(_, address)| inner.addresses[address].idle.iter());
        if let Some(first) = firsts.find(|id| **id != connection.id).copied() {
            inner.evict(first);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here panics halfway.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn evict(&mut self, id: u64) {
        let Some(idle) = self.idle.remove(&id) else { return };
        let _ = idle.evict.send(()); // It may be closed already.
        // Its place is available to the address at once, not only when the connection has been closed.
        self.leave(idle.address, id);
    }

    fn leave(&mut self, address: IpAddr, id: u64) {
        self.count(address, |idle| idle.remove(&id));
        let Some(own) = self.addresses.get_mut(&address) else { return };
        own.connections -= 1;
        if own.connections == 0 {
            self.addresses.remove(&address);
        }
    }

    /// Changes the idle connections of an address.
    fn count(&mut self, address: IpAddr, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let Some(own) = self.addresses.get_mut(&address) else { return };
        self.by_idle.remove(&(own.idle.len(), address));
        change(&mut own.idle);
        if !own.idle.is_empty() {
            self.by_idle.insert((own.idle.len(), address));
        }
    }
}

impl ConnectionGuard {
    /// Marks the connection as active, because it has sent a request.
    pub fn mark_active(&self) {
        if self.is_active.load(Ordering::Relaxed) {
            return;
        }
        let mut inner = self.connections.lock();
        // The connection may have just been evicted.
        if inner.idle.remove(&self.id).is_some() {
            inner.count(self.address, |idle| idle.remove(&self.id));
            self.is_active.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut inner = self.connections.lock();
        let was_idle = inner.idle.remove(&self.id).is_some();
        // A connection that was evicted has been subtracted already.
        if was_idle || self.is_active.load(Ordering::Relaxed) {
            inner.leave(self.address, self.id);
        }
    }
}

/// Reduces an IPv6 address to its network, because a client that has one address usually has all of them.
fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => {
            let bits = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(bits))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn each_address_has_its_own_limit() {
        let connections = Connections::new(Some(2));
        let busy: Vec<_> = (0..2).map(|_| connections.admit(from(1)).unwrap()).collect();
        busy.iter().for_each(|(connection, _)| connection.mark_active());
        assert!(connections.admit(from(1)).is_none(), "all its connections are active");
        assert!(connections.admit(from(2)).is_some());
        drop(busy);
        assert!(connections.admit(from(1)).is_some(), "there is room again");
        assert_eq!(
            connections.lock().addresses.len(),
            0,
            "closed connections leave nothing behind"
        );
    }

    #[test]
    fn idle_connections_are_evicted_first() {
        let connections = Connections::new(Some(2));
        let (known, mut known_out) = connections.admit(from(1)).unwrap();
        let (silent, mut silent_out) = connections.admit(from(1)).unwrap();
        let (_other, mut other_out) = connections.admit(from(2)).unwrap();
        known.mark_active();
        let third = connections.admit(from(1)).unwrap();
        assert_eq!(silent_out.try_recv(), Ok(()));
        assert!(known_out.try_recv().is_err() && other_out.try_recv().is_err());
        // A request on it now comes too late, and it is not subtracted twice.
        silent.mark_active();
        drop(silent);
        assert_eq!(connections.lock().addresses[&from(1)].connections, 2);
        let (third, mut third_out) = third;
        connections.make_room_for(&third);
        assert_eq!(other_out.try_recv(), Ok(()), "it is the only other idle connection");
        connections.make_room_for(&third);
        assert!(third_out.try_recv().is_err() && known_out.try_recv().is_err());
    }

    #[test]
    fn the_address_with_the_most_idle_connections_loses_one_first() {
        let connections = Connections::new(None);
        let (_alone, mut alone_out) = connections.admit(from(1)).unwrap();
        let mut many: Vec<_> = (0..3).map(|_| connections.admit(from(2)).unwrap()).collect();
        let (next, mut next_out) = connections.admit(from(3)).unwrap();
        for (_, out) in &mut many[..2] {
            connections.make_room_for(&next);
            assert_eq!(out.try_recv(), Ok(()));
        }
        assert!(alone_out.try_recv().is_err() && next_out.try_recv().is_err());
        drop(many);
        connections.make_room_for(&next);
        assert_eq!(alone_out.try_recv(), Ok(()));
        connections.make_room_for(&next);
        assert!(next_out.try_recv().is_err());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let connections = Connections::new(Some(1));
        let (first, _) = connections.admit("2001:db8::1".parse().unwrap()).unwrap();
        first.mark_active();
        assert!(connections.admit("2001:db8::ffff:2".parse().unwrap()).is_none());
        assert!(connections.admit("2001:db8:0:1::1".parse().unwrap()).is_some());
        let (mapped, _) = connections.admit("::ffff:127.0.0.9".parse().unwrap()).unwrap();
        mapped.mark_active();
        assert!(connections.admit(from(9)).is_none());
    }

    #[test]
    fn an_address_may_use_a_quarter_unless_configured() {
        assert_eq!(per_address(8_192, None), 2_048);
        assert_eq!(per_address(8, None), 16);
        assert_eq!(per_address(8_192, Some(5)), 5);
        assert_eq!(per_address(8_192, Some(0)), 8_192);
    }
}
