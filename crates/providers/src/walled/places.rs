//! Which node has which address and which users. No two at a time have the same.

use std::collections::BTreeMap;

use muster_core::ids::ClusterId;
use muster_sandbox::network::{HOSTS_MAX, NETWORKS_MAX};
use muster_sandbox::protocol::{NODES_MAX, Place};

#[derive(Debug, Default)]
pub(super) struct Places {
    taken: BTreeMap<String, Place>,
}

impl Places {
    pub fn keep(&mut self, node: &str, place: Place) {
        self.taken.insert(node.to_owned(), place);
    }

    /// The place of this node, a free one if it is new; `None` if there is none left.
    pub fn take(&mut self, node: &str, cluster: ClusterId) -> Option<Place> {
        if let Some(place) = self.taken.get(node) {
            return Some(*place);
        }
        let of_cluster = |place: &&Place| place.cluster == cluster.0;
        let network = match self.taken.values().find(of_cluster) {
            Some(neighbour) => neighbour.network,
            None => free(0..NETWORKS_MAX, self.taken.values().map(|place| place.network))?,
        };
        let neighbours = self.taken.values().filter(|place| place.network == network);
        let host = free(1..HOSTS_MAX + 1, neighbours.map(|place| place.host))?;
        let users = free(0..NODES_MAX, self.taken.values().map(|place| place.users))?;
        let place = Place { cluster: cluster.0, network, host, users };
        self.keep(node, place);
        Some(place)
    }

    pub fn free(&mut self, node: &str) {
        self.taken.remove(node);
    }
}

fn free(mut all: std::ops::Range<u16>, taken: impl Iterator<Item = u16>) -> Option<u16> {
    let taken: std::collections::BTreeSet<u16> = taken.collect();
    all.find(|number| !taken.contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_cluster_share_a_network_and_nothing_else() {
        let mut places = Places::default();
        let a1 = places.take("a-1", ClusterId(10)).unwrap();
        let a2 = places.take("a-2", ClusterId(10)).unwrap();
        let b1 = places.take("b-1", ClusterId(11)).unwrap();
        assert_eq!(places.take("a-1", ClusterId(10)), Some(a1), "asked twice");
        assert_eq!((a1.network, a2.network), (a1.network, a1.network));
        assert_ne!(a1.network, b1.network);
        assert_ne!(a1.host, a2.host);
        let users: std::collections::BTreeSet<u16> = [a1, a2, b1].map(|place| place.users).into();
        assert_eq!(users.len(), 3);
        places.free("a-1");
        places.free("a-2");
        assert_eq!(places.take("c-1", ClusterId(12)).unwrap().network, a1.network, "used again");
    }

    #[test]
    fn a_full_machine_says_so() {
        let mut places = Places::default();
        for number in 0..NETWORKS_MAX {
            let node = format!("n-{number}");
            assert!(places.take(&node, ClusterId(number.into())).is_some());
        }
        assert_eq!(places.take("one-more", ClusterId(9999)), None);
        assert!(places.take("neighbour", ClusterId(1)).is_some());
    }
}
