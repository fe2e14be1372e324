//! The capacity of a node, and the part of it that a job takes.

use serde::{Deserialize, Serialize};

/// Cores, memory and GPUs: of a node, of a job's share of one, or of what is left.
///
/// Capacities are ordered by GPUs, then cores, then memory. The scarcest comes first, so the first node in this order
/// on which a job fits is the one that wastes the least of what is expensive.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Capacity {
    pub gpus: u32,
    pub vcpus: u32,
    pub memory_mb: u64,
}

impl Capacity {
    pub fn fits_into(self, room: Capacity) -> bool {
        self.gpus <= room.gpus && self.vcpus <= room.vcpus && self.memory_mb <= room.memory_mb
    }

    pub fn without(self, taken: Capacity) -> Capacity {
        Capacity {
            gpus: self.gpus.saturating_sub(taken.gpus),
            vcpus: self.vcpus.saturating_sub(taken.vcpus),
            memory_mb: self.memory_mb.saturating_sub(taken.memory_mb),
        }
    }

    pub fn with(self, more: Capacity) -> Capacity {
        Capacity {
            gpus: self.gpus.saturating_add(more.gpus),
            vcpus: self.vcpus.saturating_add(more.vcpus),
            memory_mb: self.memory_mb.saturating_add(more.memory_mb),
        }
    }

    /// How many such shares fit into this capacity.
    pub fn holds(self, share: Capacity) -> u32 {
        let times = |all: u64, each: u64| all.checked_div(each).unwrap_or(u64::MAX);
        let fits = times(self.gpus.into(), share.gpus.into())
            .min(times(self.vcpus.into(), share.vcpus.into()))
            .min(times(self.memory_mb, share.memory_mb));
        u32::try_from(fits).unwrap_or(u32::MAX)
    }

    /// The part of a node of this capacity that a share represents: the mean of its parts of everything that the node
    /// has. Because no resource is given out twice, the parts of all shares on a node never exceed the whole, whatever
    /// is requested.
    pub fn part(self, share: Capacity) -> Part {
        let kinds = [
            (u64::from(share.gpus), u64::from(self.gpus)),
            (u64::from(share.vcpus), u64::from(self.vcpus)),
            (share.memory_mb, self.memory_mb),
        ];
        let there = kinds.into_iter().filter(|(_, all)| *all > 0);
        let (sum, count) = there.fold((0u128, 0u128), |(sum, count), (taken, all)| {
            let part = u128::from(taken) * u128::from(Part::WHOLE.0) / u128::from(all);
            (sum + part, count + 1)
        });
        let mean = sum.checked_div(count).unwrap_or(u128::from(Part::WHOLE.0));
        Part(u32::try_from(mean).unwrap_or(u32::MAX)).min(Part::WHOLE)
    }
}

/// Millionths of a node, for which a line of the ledger is posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Part(pub u32);

impl Part {
    pub const NONE: Part = Part(0);
    pub const WHOLE: Part = Part(1_000_000);
}

impl Default for Part {
    fn default() -> Part {
        Part::WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Capacity = Capacity { gpus: 4, vcpus: 24, memory_mb: 448 * 1024 };

    #[test]
    fn parts_of_a_node_never_exceed_it() {
        let quarter = Capacity { gpus: 1, vcpus: 6, memory_mb: 112 * 1024 };
        assert_eq!(NODE.part(quarter), Part(250_000));
        assert_eq!(NODE.part(NODE), Part::WHOLE);
        // Two shares that need different things: neither is billed for more than it keeps from others.
        let cores = Capacity { gpus: 0, vcpus: 24, memory_mb: 1024 };
        let rest = NODE.without(cores);
        assert!(NODE.part(cores).0 + NODE.part(rest).0 <= Part::WHOLE.0);
        let no_gpus = Capacity { gpus: 0, vcpus: 4, memory_mb: 1024 };
        assert_eq!(no_gpus.part(Capacity { gpus: 0, vcpus: 2, memory_mb: 512 }), Part(500_000));
    }

    #[test]
    fn a_node_holds_as_many_shares_as_its_scarcest_kind_allows() {
        assert_eq!(NODE.holds(Capacity { gpus: 1, vcpus: 6, memory_mb: 1024 }), 4);
        assert_eq!(NODE.holds(Capacity { gpus: 0, vcpus: 1, memory_mb: 1 }), 24);
        assert_eq!(NODE.holds(Capacity { gpus: 5, vcpus: 1, memory_mb: 1 }), 0);
    }
}
