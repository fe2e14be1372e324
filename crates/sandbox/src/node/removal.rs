//! Takes away what a node leaves when it has ended, and gives back what it took.

use std::io;

use super::{Doing, NodeError, NodeFactory, address_of, disk, quota};
use crate::logs;
use crate::protocol::{Seen, Stop, check_name};

impl NodeFactory {
    /// Removes what is left of a node that does not live any more.
    pub fn remove(&self, node: &str) -> Result<(), NodeError> {
        if self.alive(node)?.is_some() {
            return Err(NodeError::new(format!("{node} still lives; it has to end first")));
        }
        self.remove_group(node).doing("cannot remove the node's cgroup")?;
        if let Some(slot) = self.slot(node) {
            let gone = self.hub.disconnect(address_of(&slot)?);
            gone.doing("cannot take the node's cable away")?;
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

    /// Gives back what the disk of a node takes that does not live any more, and leaves the rest of it to be looked at.
    pub fn empty(&self, node: &str) -> Result<(), NodeError> {
        if self.alive(node)?.is_some() {
            return Err(NodeError::new(format!("{node} still lives; it has to end first")));
        }
        let folder = self.config.nodes.join(node);
        disk::remove(&folder).doing("cannot remove the node's disk")?;
        disk::remove_home(&folder).doing("cannot remove the node's own folder")?;
        quota::release(&self.config.nodes);
        Ok(())
    }

    /// Takes again what the node's disk has given back to the machine's. Who lives on space that is not its own any more would
    /// break in the middle of a write, so without that space it ends at once.
    pub fn refill(&self, node: &str) -> Result<(), NodeError> {
        disk::fill_holes(&self.config.nodes.join(node)).or_else(|error| {
            tracing::error!(node, %error, "a node's disk cannot be filled again; the node is ended");
            self.signal(node, Stop::Kill)
        })
    }

    /// Removes the groups and disks of nodes that ended while no helper was running.
    pub fn remove_orphans(&self) -> Result<(), NodeError> {
        for Seen { node, is_alive, .. } in self.list()? {
            if !is_alive && let Err(error) = self.empty(&node) {
                tracing::warn!(node, error = error.told(), "a dead node's disk stays");
            }
        }
        let what = "cannot look for groups without a node";
        for node in self.groups.list(&self.config.instance).doing(what)? {
            if check_name(&node).is_ok() && self.alive(&node)?.is_none() {
                self.remove_group(&node).doing("cannot remove a group without a node")?;
            }
        }
        self.hub.remove_unused().doing("cannot remove networks without a node")
    }

    fn remove_group(&self, node: &str) -> io::Result<()> {
        let group = self.groups.open(&self.config.instance, node)?;
        group.kill()?;
        group.remove()
    }
}
