//! Nodes on joined hosts. A joined host creates and removes nodes itself, with a provider of its own; this provider
//! only waits until it reports that.

pub mod protocol;
mod roster;
mod token;

use std::sync::Arc;

use muster_core::NodeRequest;
use muster_core::model::HostName;

use crate::{CreateError, DeleteError, ListError, Provider, Remains, check_name};
pub use roster::Roster;
pub use token::{BadToken, JoinToken};

/// Wraps the provider of the server's own host.
pub struct Joined {
    own: Arc<dyn Provider>,
    roster: Arc<Roster>,
}

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("host {host} has not reported for {seconds} s, so the state of node {node} is unknown")]
    Silent { host: HostName, node: String, seconds: u64 },
    #[error("host {host} reports, but node {node} is not in the desired state after {seconds} s")]
    Late { host: HostName, node: String, seconds: u64 },
    #[error("host {host} has trouble with node {node}: {trouble}")]
    Trouble { host: HostName, node: String, trouble: String },
}

impl Joined {
    pub fn new(own: Arc<dyn Provider>, roster: Arc<Roster>) -> Joined {
        Joined { own, roster }
    }
}

impl Provider for Joined {
    fn name(&self) -> &'static str {
        self.own.name()
    }

    fn create(&self, request: &NodeRequest) -> Result<(), CreateError> {
        if request.host.is_local() {
            return self.own.create(request);
        }
        check_name(&request.name)?;
        Ok(self.roster.wait_made(&request.host, &request.name)?)
    }

    fn delete(&self, node_name: &str) -> Result<(), DeleteError> {
        check_name(node_name)?;
        match self.roster.home_of(node_name) {
            Some(host) => Ok(self.roster.wait_gone(&host, node_name)?),
            None => self.own.delete(node_name),
        }
    }

    /// The nodes in the last report of a silent host count as existing. A host removes nodes that it should not have by
    /// itself.
    fn list(&self) -> Result<Vec<String>, ListError> {
        let mut listed = self.own.list()?;
        listed.append(&mut self.roster.held());
        Ok(listed)
    }

    /// What is left on another host is kept there: the agent's log is in `node-logs` of that host's folder.
    fn remains(&self, node_name: &str) -> Option<Remains> {
        let is_here = self.roster.home_of(node_name).is_none();
        is_here.then(|| self.own.remains(node_name)).flatten()
    }

    /// For a host that is silent or lost, only the leases show that its nodes have ended.
    fn ended(&self) -> Result<Vec<String>, ListError> {
        let mut ended = self.own.ended()?;
        ended.append(&mut self.roster.ended());
        Ok(ended)
    }
}
