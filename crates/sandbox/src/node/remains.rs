//! Examines what is left of a node before it is removed.

use std::io;

use super::files::write_whole;
use super::{NodeError, NodeFactory};
use crate::disk_space::DiskSpace;
use crate::logs;
use crate::protocol::{End, LOG_TAIL_MAX, Remains};

const END: &str = "end";

impl NodeFactory {
    /// Records how the first process of a node ended, which only its parent can learn, and only once.
    pub fn note_end(&self, node: &str, end: End) -> io::Result<()> {
        write_whole(&self.config.nodes.join(node).join(END), &serde_json::to_vec(&end)?)
    }

    /// Collects what is known about a node. Whatever cannot be read is left out, so that removal never has to wait.
    pub fn examine(&self, node: &str) -> Result<Remains, NodeError> {
        let folder = self.config.nodes.join(node);
        let end = std::fs::read(folder.join(END)).ok();
        let group = self.groups.open(&self.config.instance, node).ok();
        let disk = DiskSpace::of(&self.config.nodes).ok();
        Ok(Remains {
            end: end.and_then(|text| serde_json::from_slice(&text).ok()),
            usage: group.and_then(|group| group.usage().ok()),
            disk_free_bytes: disk.map(|disk| disk.free_bytes),
            log: logs::tail(&folder.join("agent.log"), LOG_TAIL_MAX).unwrap_or_default(),
        })
    }
}
