//! Nodes on other machines that joined. A machine makes and removes them by itself, with the provider of its own; here is
//! only waited until it says so.

pub mod protocol;
mod roster;
mod token;

use std::sync::Arc;

use muster_core::NodeRequest;
use muster_core::model::HostName;

use crate::{CreateError, DeleteError, ListError, Provider, Remains, check_name};
pub use roster::Roster;
pub use token::{BadToken, JoinToken};

/// In front of the provider of the server's own machine.
pub struct Joined {
    own: Arc<dyn Provider>,
    roster: Arc<Roster>,
}

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("host {host} has said nothing for {seconds} s, so nothing is known of node {node}")]
    Silent { host: HostName, node: String, seconds: u64 },
    #[error("host {host} reports, but node {node} is not as it should be after {seconds} s")]
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

    /// What a silent host last said that it has counts as there. What a host has and should not, it removes by itself.
    fn list(&self) -> Result<Vec<String>, ListError> {
        let mut listed = self.own.list()?;
        listed.append(&mut self.roster.held());
        Ok(listed)
    }

    /// What is left on another machine stays there: its agent's log is in `node-logs` of that machine's folder.
    fn remains(&self, node_name: &str) -> Option<Remains> {
        let is_here = self.roster.home_of(node_name).is_none();
        is_here.then(|| self.own.remains(node_name)).flatten()
    }

    /// Of a machine that is silent, or gone with its nodes, only the leases tell.
    fn ended(&self) -> Result<Vec<String>, ListError> {
        let mut ended = self.own.ended()?;
        ended.append(&mut self.roster.ended());
        Ok(ended)
    }
}
