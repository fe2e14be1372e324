//! Who is connected at a door: how many from each address, and who has not said anything yet.
//!
//! One address has a part of the places only. Where there is no place left, somebody who has not asked for anything yet (most have
//! not even finished their handshake) is turned out for whoever comes next: of the address that has most of these, the
//! first that came.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// What one address may have at least, however few places there are.
const ADDRESS_MIN: usize = 16;

/// How many connections one address may have of so many places. `asked` is what the operator says, 0 for as many as there are.
pub fn per_address(places: usize, asked: Option<usize>) -> usize {
    match asked {
        Some(0) => places,
        Some(most) => most,
        None => (places / 4).max(ADDRESS_MIN),
    }
}

pub struct Connections {
    /// Where it counts from which address they come.
    per_address: Option<usize>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    addresses: HashMap<IpAddr, Address>,
    /// Those that have not asked for anything.
    strangers: HashMap<u64, IdleConnection>,
    /// How many of these each address has.
    by_strangers: BTreeSet<(usize, IpAddr)>,
}

#[derive(Default)]
struct Address {
    connections: usize,
    /// Whoever came first is first.
    strangers: BTreeSet<u64>,
}

struct IdleConnection {
    address: IpAddr,
    evict: oneshot::Sender<()>,
}

/// One connection, for as long as it is there.
pub struct ConnectionGuard {
    connections: Arc<Connections>,
    id: u64,
    address: IpAddr,
    is_known: AtomicBool,
}

/// Resolves when its guest has to go.
pub type Eviction = oneshot::Receiver<()>;

impl Connections {
    pub fn new(per_address: Option<usize>) -> Arc<Connections> {
        Arc::new(Connections { per_address, inner: Mutex::default() })
    }

    /// `None` if this address has all that it may have, and each of these has asked for something.
    pub fn admit(self: &Arc<Self>, from: IpAddr) -> Option<(Arc<ConnectionGuard>, Eviction)> {
        let address = network(from);
        let mut inner = self.lock();
        let own = inner.addresses.get(&address);
        let is_full = own.zip(self.per_address).is_some_and(|(own, most)| own.connections >= most);
        if is_full {
            let first = own.and_then(|own| own.strangers.first().copied())?;
            inner.evict(first);
        }
        let id = inner.next;
        inner.next += 1;
        inner.addresses.entry(address).or_default().connections += 1;
        let (evict, turned_out) = oneshot::channel();
        inner.strangers.insert(id, IdleConnection { address, evict });
        inner.count(address, |strangers| strangers.insert(id));
        let is_known = AtomicBool::new(false);
        Some((
            Arc::new(ConnectionGuard { connections: Arc::clone(self), id, address, is_known }),
            turned_out,
        ))
    }

    /// Makes room for somebody, if anybody else is there who has not asked for anything.
    pub fn make_room_for(&self, connection: &ConnectionGuard) {
        let mut inner = self.lock();
        let most = inner.by_strangers.iter().rev().take(2);
        let mut firsts = most.flat_map(|(_, address)| inner.addresses[address].strangers.iter());
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
        let Some(stranger) = self.strangers.remove(&id) else { return };
        let _ = stranger.evict.send(()); // It may be gone already.
        // Its place at this address is the next one's now, not only when it has gone.
        self.leave(stranger.address, id);
    }

    fn leave(&mut self, address: IpAddr, id: u64) {
        self.count(address, |strangers| strangers.remove(&id));
        let Some(own) = self.addresses.get_mut(&address) else { return };
        own.connections -= 1;
        if own.connections == 0 {
            self.addresses.remove(&address);
        }
    }

    /// Changes the strangers of an address.
    fn count(&mut self, address: IpAddr, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let Some(own) = self.addresses.get_mut(&address) else { return };
        self.by_strangers.remove(&(own.strangers.len(), address));
        change(&mut own.strangers);
        if !own.strangers.is_empty() {
            self.by_strangers.insert((own.strangers.len(), address));
        }
    }
}

impl ConnectionGuard {
    /// It has asked for something.
    pub fn is_known_now(&self) {
        if self.is_known.load(Ordering::Relaxed) {
            return;
        }
        let mut inner = self.connections.lock();
        // Somebody may have turned it out just now.
        if inner.strangers.remove(&self.id).is_some() {
            inner.count(self.address, |strangers| strangers.remove(&self.id));
            self.is_known.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut inner = self.connections.lock();
        let was_stranger = inner.strangers.remove(&self.id).is_some();
        // One that was turned out has left already.
        if was_stranger || self.is_known.load(Ordering::Relaxed) {
            inner.leave(self.address, self.id);
        }
    }
}

/// Who has one address of IPv6 has a whole network of them.
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
    fn one_address_has_its_part_and_others_have_theirs() {
        let connections = Connections::new(Some(2));
        let busy: Vec<_> = (0..2).map(|_| connections.admit(from(1)).unwrap()).collect();
        busy.iter().for_each(|(connection, _)| connection.is_known_now());
        assert!(connections.admit(from(1)).is_none(), "all of its own are busy");
        assert!(connections.admit(from(2)).is_some());
        drop(busy);
        assert!(connections.admit(from(1)).is_some(), "there is room again");
        assert_eq!(connections.lock().addresses.len(), 0, "nothing is kept of those who left");
    }

    #[test]
    fn who_has_said_nothing_goes_first() {
        let connections = Connections::new(Some(2));
        let (known, mut known_out) = connections.admit(from(1)).unwrap();
        let (silent, mut silent_out) = connections.admit(from(1)).unwrap();
        let (_other, mut other_out) = connections.admit(from(2)).unwrap();
        known.is_known_now();
        let third = connections.admit(from(1)).unwrap();
        assert_eq!(silent_out.try_recv(), Ok(()));
        assert!(known_out.try_recv().is_err() && other_out.try_recv().is_err());
        // What it says now comes too late, and it does not leave twice.
        silent.is_known_now();
        drop(silent);
        assert_eq!(connections.lock().addresses[&from(1)].connections, 2);
        let (third, mut third_out) = third;
        connections.make_room_for(&third);
        assert_eq!(other_out.try_recv(), Ok(()), "there is no other");
        connections.make_room_for(&third);
        assert!(third_out.try_recv().is_err() && known_out.try_recv().is_err());
    }

    #[test]
    fn the_address_that_has_most_loses_first() {
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
        first.is_known_now();
        assert!(connections.admit("2001:db8::ffff:2".parse().unwrap()).is_none());
        assert!(connections.admit("2001:db8:0:1::1".parse().unwrap()).is_some());
        let (mapped, _) = connections.admit("::ffff:127.0.0.9".parse().unwrap()).unwrap();
        mapped.is_known_now();
        assert!(connections.admit(from(9)).is_none());
    }

    #[test]
    fn a_quarter_unless_the_operator_says_otherwise() {
        assert_eq!(per_address(8_192, None), 2_048);
        assert_eq!(per_address(8, None), 16);
        assert_eq!(per_address(8_192, Some(5)), 5);
        assert_eq!(per_address(8_192, Some(0)), 8_192);
    }
}
