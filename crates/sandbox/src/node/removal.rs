//! Removes what a node leaves behind when it has ended, and frees what it held.

use std::io;

use super::{Doing, NodeError, NodeFactory, address_of, disk, quota};
use crate::logs;
use crate::protocol::{Seen, Stop, check_name};

impl NodeFactory {
    /// Removes what is left of a node that has ended.
    pub fn remove(&self, node: &str) -> Result<(), NodeError> {
        if self.alive(node)?.is_some() {
            return Err(NodeError::new(format!("{node} is still alive; it has to end first")));
        }
        self.remove_group(node).doing("cannot remove the node's cgroup")?;
        if let Some(slot) = self.slot(node) {
            let gone = self.hub.disconnect(address_of(&slot)?);
            gone.doing("cannot remove the node's cable")?;
        }
        let folder = self.config.nodes.join(node);
        if let Err(error) = logs::keep(&folder.join("agent.log"), node, &self.config.logs) {
            tracing::warn!(node, %error, "cannot keep the log of a node's agent");
        }
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.doing("cannot remove the node's folder"),
        }
    }

    /// Frees the disk space of a node that has ended, and keeps the rest of it for examination.
    pub fn empty(&self, node: &str) -> Result<(), NodeError> {
        if self.alive(node)?.is_some() {
            return Err(NodeError::new(format!("{node} is still alive; it has to end first")));
        }
        let folder = self.config.nodes.join(node);
        disk::remove(&folder).doing("cannot remove the node's disk")?;
        disk::remove_home(&folder).doing("cannot remove the node's own folder")?;
        quota::release(&self.config.nodes);
        Ok(())
    }

    /// Allocates again the space that the node's disk has given back to the host's disk. If there is not enough space,
    /// the node is ended at once, because otherwise one of its writes would fail halfway.
    pub fn refill(&self, node: &str) -> Result<(), NodeError> {
        disk::fill_holes(&self.config.nodes.join(node)).or_else(|error| {
            tracing::error!(node, %error, "cannot restore the space of a node's disk; the node is ended");
            self.signal(node, Stop::Kill)
        })
    }

    /// Removes the groups and disks of nodes that ended while no helper was running.
    pub fn remove_orphans(&self) -> Result<(), NodeError> {
        for Seen { node, is_alive, .. } in self.list()? {
            if !is_alive && let Err(error) = self.empty(&node) {
                tracing::warn!(
                    node,
                    error = error.describe(),
                    "cannot delete the disk of a dead node"
                );
            }
        }
        let what = "cannot list the groups of deleted nodes";
        for node in self.groups.list(&self.config.instance).doing(what)? {
            if check_name(&node).is_ok() && self.alive(&node)?.is_none() {
                self.remove_group(&node).doing("cannot remove the group of a deleted node")?;
            }
        }
        self.hub.remove_unused().doing("cannot remove networks without nodes")
    }

    fn remove_group(&self, node: &str) -> io::Result<()> {
        let group = self.groups.open(&self.config.instance, node)?;
        group.kill()?;
        group.remove()
    }
}
