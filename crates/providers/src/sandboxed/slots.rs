//! Assigns addresses, users and GPUs to nodes. No two nodes have the same at the same time.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::ids::ClusterId;
use muster_sandbox::network::{HOSTS_MAX, NETWORKS_MAX};
use muster_sandbox::protocol::{NODES_MAX, NodeSlot, Taken};

#[derive(Debug, Default)]
pub(super) struct Slots {
    taken: BTreeMap<String, NodeSlot>,
    /// The range of users that is tried first.
    first_users: u16,
}

/// What nodes of other servers on this host have, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    pub users: BTreeSet<u16>,
    pub gpus: BTreeSet<u16>,
}

impl Elsewhere {
    pub fn add(&mut self, slot: &NodeSlot, taken: Taken) {
        self.users.extend(taken.users.then_some(slot.users));
        self.gpus.extend(taken.gpus);
    }
}

/// What a new node needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotRequest {
    pub cluster: ClusterId,
    pub gpus: u32,
    /// Whether the node accepts fewer GPUs if not enough are free.
    pub may_lack: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoSlot {
    Full,
    Gpus { free: usize },
}

impl Slots {
    pub fn starting_at(first_users: u16) -> Slots {
        Slots { first_users, ..Slots::default() }
    }

    pub fn keep(&mut self, node: &str, slot: NodeSlot) {
        self.taken.insert(node.to_owned(), slot);
    }

    /// Returns the slot of this node, a free one if it is new. `machine` lists the GPUs of the host; the last argument
    /// lists the users that others have.
    pub fn take(
        &mut self,
        node: &str,
        request: SlotRequest,
        machine: &[u16],
        elsewhere: &BTreeSet<u16>,
    ) -> Result<NodeSlot, NoSlot> {
        if let Some(slot) = self.taken.get(node) {
            return Ok(slot.clone());
        }
        let gpus = self.free_gpus(request, machine)?;
        let slot = self.somewhere(request.cluster, gpus, elsewhere).ok_or(NoSlot::Full)?;
        self.keep(node, slot.clone());
        Ok(slot)
    }

    fn free_gpus(&self, request: SlotRequest, machine: &[u16]) -> Result<Vec<u16>, NoSlot> {
        let taken: BTreeSet<u16> =
            self.taken.values().flat_map(|slot| &slot.gpus).copied().collect();
        let mut free: Vec<u16> =
            machine.iter().filter(|gpu| !taken.contains(gpu)).copied().collect();
        let wanted = usize::try_from(request.gpus).unwrap_or(usize::MAX);
        if free.len() < wanted && !request.may_lack {
            return Err(NoSlot::Gpus { free: free.len() });
        }
        free.truncate(wanted);
        Ok(free)
    }

    fn somewhere(
        &self,
        cluster: ClusterId,
        gpus: Vec<u16>,
        elsewhere: &BTreeSet<u16>,
    ) -> Option<NodeSlot> {
        let of_cluster = |slot: &&NodeSlot| slot.cluster == cluster.0;
        let network = match self.taken.values().find(of_cluster) {
            Some(neighbour) => neighbour.network,
            None => free(0..NETWORKS_MAX, self.taken.values().map(|slot| slot.network))?,
        };
        let neighbours = self.taken.values().filter(|slot| slot.network == network);
        let host = free(1..HOSTS_MAX + 1, neighbours.map(|slot| slot.host))?;
        let all = (self.first_users..NODES_MAX).chain(0..self.first_users);
        let users = self.taken.values().map(|slot| slot.users).chain(elsewhere.iter().copied());
        let users = free(all, users)?;
        Some(NodeSlot { cluster: cluster.0, network, host, users, gpus })
    }

    pub fn free(&mut self, node: &str) {
        self.taken.remove(node);
    }
}

fn free(mut all: impl Iterator<Item = u16>, taken: impl Iterator<Item = u16>) -> Option<u16> {
    let taken: BTreeSet<u16> = taken.collect();
    all.find(|number| !taken.contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cluster: u64, gpus: u32) -> SlotRequest {
        SlotRequest { cluster: ClusterId(cluster), gpus, may_lack: false }
    }

    #[test]
    fn nodes_of_a_cluster_share_a_network_and_nothing_else() {
        let mut slots = Slots::default();
        let mut take =
            |node, cluster| slots.take(node, request(cluster, 0), &[], &BTreeSet::new()).unwrap();
        let (a1, a2, b1) = (take("a-1", 10), take("a-2", 10), take("b-1", 11));
        assert_eq!(take("a-1", 10), a1, "asked twice");
        assert_eq!((a1.network, a2.network), (a1.network, a1.network));
        assert_ne!(a1.network, b1.network);
        assert_ne!(a1.host, a2.host);
        let users: std::collections::BTreeSet<u16> = [&a1, &a2, &b1].map(|slot| slot.users).into();
        assert_eq!(users.len(), 3);
        slots.free("a-1");
        slots.free("a-2");
        assert_eq!(
            slots.take("c-1", request(12, 0), &[], &BTreeSet::new()).unwrap().network,
            a1.network,
            "used again"
        );
    }

    #[test]
    fn a_full_host_is_reported() {
        let mut slots = Slots::default();
        for number in 0..NETWORKS_MAX {
            let node = format!("n-{number}");
            assert!(slots.take(&node, request(number.into(), 0), &[], &BTreeSet::new()).is_ok());
        }
        assert_eq!(
            slots.take("one-more", request(9999, 0), &[], &BTreeSet::new()),
            Err(NoSlot::Full)
        );
        assert!(slots.take("neighbour", request(1, 0), &[], &BTreeSet::new()).is_ok());
    }

    #[test]
    fn what_others_have_is_left_to_them() {
        let mut slots = Slots::starting_at(NODES_MAX - 1);
        let mut elsewhere = Elsewhere::default();
        let first = slots.take("a", request(1, 0), &[], &elsewhere.users).unwrap();
        assert_eq!(first.users, NODES_MAX - 1);
        elsewhere.add(&first, Taken { users: true, gpus: vec![3] });
        slots.free("a");
        assert_eq!(slots.take("a", request(1, 0), &[], &elsewhere.users).unwrap().users, 0);
        assert_eq!(slots.take("b", request(1, 0), &[], &elsewhere.users).unwrap().users, 1);
        assert!(elsewhere.gpus.contains(&3));
    }

    #[test]
    fn a_gpu_is_with_one_node_until_that_is_gone() {
        let mut slots = Slots::default();
        let machine = [0, 1, 2, 5];
        let first = slots.take("a", request(1, 2), &machine, &BTreeSet::new()).unwrap();
        let second = slots.take("b", request(1, 1), &machine, &BTreeSet::new()).unwrap();
        assert_eq!((first.gpus.as_slice(), second.gpus.as_slice()), (&[0, 1][..], &[2][..]));
        assert_eq!(
            slots.take("c", request(1, 2), &machine, &BTreeSet::new()),
            Err(NoSlot::Gpus { free: 1 })
        );
        let content = SlotRequest { may_lack: true, ..request(1, 2) };
        assert_eq!(slots.take("c", content, &machine, &BTreeSet::new()).unwrap().gpus, [5]);
        assert!(slots.take("d", content, &machine, &BTreeSet::new()).unwrap().gpus.is_empty());
        slots.free("a");
        let again = slots.take("d", request(1, 0), &machine, &BTreeSet::new()).unwrap();
        assert!(again.gpus.is_empty(), "it keeps its slot");
        assert_eq!(
            slots.take("e", request(1, 2), &machine, &BTreeSet::new()).unwrap().gpus,
            [0, 1]
        );
    }
}
