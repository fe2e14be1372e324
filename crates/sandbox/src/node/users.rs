//! Whose users a node has.

use std::io;

use crate::protocol::NODES_MAX;

/// Users of one node, root included.
const RANGE: u32 = 65_536;
/// Nobody else on a Linux machine gives these out: above what container tools use, below the sign bit.
const FIRST: u32 = 0x7000_0000;

const _: () = assert!(FIRST as u64 + RANGE as u64 * NODES_MAX as u64 <= 1 << 31);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Users {
    /// A range for every node: the helper is root on this machine.
    Ranges,
    /// All nodes are the one user that the helper is.
    One,
}

impl Users {
    pub fn are_ranges(self) -> bool {
        self == Users::Ranges
    }

    /// The user and the group that are root in the node, as the helper sees them.
    pub(super) fn root_of(self, slot: u16) -> (u32, u32) {
        match self {
            Users::Ranges => {
                let first = FIRST + RANGE * u32::from(slot);
                (first, first)
            }
            Users::One => (0, 0),
        }
    }

    /// Gives the namespaces of a process their users.
    pub(super) fn map(self, pid: u32, slot: u16) -> io::Result<()> {
        let (first, _) = self.root_of(slot);
        let count = if self.are_ranges() { RANGE } else { 1 };
        let map = format!("0 {first} {count}\n");
        std::fs::write(format!("/proc/{pid}/uid_map"), &map)?;
        std::fs::write(format!("/proc/{pid}/gid_map"), &map)
    }
}
