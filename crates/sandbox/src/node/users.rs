//! Which users of the host a node has.

use std::io;

use crate::protocol::NODES_MAX;

/// The number of users of one node, including root.
const RANGE: u32 = 65_536;
/// Nothing else on a Linux host assigns these: above what container tools use, below the sign bit.
pub(super) const FIRST: u32 = 0x7000_0000;

const _: () = assert!(FIRST as u64 + RANGE as u64 * NODES_MAX as u64 <= 1 << 31);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Users {
    /// A range for every node, because the helper is root on this host.
    Ranges,
    /// All nodes have the helper's own user.
    One,
}

/// Returns the slot of the node whose first user this is.
pub(super) fn slot_of(user: u32) -> Option<u16> {
    let above = user.checked_sub(FIRST)?;
    let slot = u16::try_from(above / RANGE).ok()?;
    (above % RANGE == 0 && slot < NODES_MAX).then_some(slot)
}

impl Users {
    pub fn are_ranges(self) -> bool {
        self == Users::Ranges
    }

    /// Returns the user and group that are root in the node, as the helper sees them.
    pub(super) fn root_of(self, slot: u16) -> (u32, u32) {
        match self {
            Users::Ranges => {
                let first = FIRST + RANGE * u32::from(slot);
                (first, first)
            }
            Users::One => (0, 0),
        }
    }

    /// Maps the users of a process's namespaces.
    pub(super) fn map(self, pid: u32, slot: u16) -> io::Result<()> {
        let (first, _) = self.root_of(slot);
        let count = if self.are_ranges() { RANGE } else { 1 };
        let map = format!("0 {first} {count}\n");
        std::fs::write(format!("/proc/{pid}/uid_map"), &map)?;
        std::fs::write(format!("/proc/{pid}/gid_map"), &map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_first_user_tells_its_slot() {
        for slot in [0, 1, NODES_MAX - 1] {
            assert_eq!(slot_of(Users::Ranges.root_of(slot).0), Some(slot));
        }
        for other in [0, 1000, FIRST - 1, FIRST + 1, FIRST + RANGE * u32::from(NODES_MAX)] {
            assert_eq!(slot_of(other), None);
        }
    }
}
