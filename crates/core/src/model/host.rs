//! Hosts: the machines that nodes are made on, and the tickets with which new ones join.
//!
//! The server's own machine is the host `local`. Others join with a ticket that is good once and says whose
//! nodes they take; from then on they are known by a key of their own.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{BadName, Capacity, KeyDigest, RecipeMark, Scope};
use crate::limits;
use crate::time::Wall;

/// The name of a machine: letters, digits and dashes, neither first nor last a dash; in small letters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct HostName(Arc<str>);

impl HostName {
    const LOCAL: &'static str = "local";

    pub fn new(text: &str) -> Result<HostName, BadName> {
        let max = limits::HOST_NAME_BYTES_MAX;
        if text.is_empty() {
            return Err(BadName::Empty { max });
        }
        if text.len() > max {
            return Err(BadName::TooLong { got: text.len(), max });
        }
        if let Some(got) = text.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
            return Err(BadName::Character { got, allowed: "'-'" });
        }
        if text.starts_with('-') || text.ends_with('-') {
            return Err(BadName::DashAtTheEdge);
        }
        Ok(HostName(text.to_ascii_lowercase().into()))
    }

    /// The server's own machine.
    pub fn local() -> HostName {
        HostName(HostName::LOCAL.into())
    }

    pub fn is_local(&self) -> bool {
        &*self.0 == HostName::LOCAL
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Nodes from before there were hosts are on the server's machine.
impl Default for HostName {
    fn default() -> HostName {
        HostName::local()
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for HostName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<HostName, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        HostName::new(&text).map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub name: HostName,
    /// What the machine really has.
    pub capacity: Capacity,
    /// It takes the nodes of clusters that are there: of one, of a workspace's, or of all.
    pub intent: Scope,
    pub state: HostState,
    /// What it proves itself with; the server's own machine has none, nor has one that is being removed.
    pub key: Option<KeyDigest>,
    /// The ticket that it came with, so that it may ask again for an answer that was lost.
    pub ticket: Option<KeyDigest>,
    pub joined_at: Wall,
    /// It has not said anything for a while: what it has is still there for all we know, but nothing new goes there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_silent: bool,
    /// Environments of jobs that have started there, the last ones, the newest last. A hint: it may have let go of some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<RecipeMark>,
}

/// So many are remembered of each host.
pub const HOST_ENVIRONMENTS_MAX: usize = 64;

impl Host {
    pub fn has_environment(&self, mark: RecipeMark) -> bool {
        self.environments.contains(&mark)
    }

    /// Whether new nodes can be made there.
    pub fn takes_nodes(&self) -> bool {
        self.state.is_open() && !self.is_silent
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HostState {
    Open,
    /// No new nodes, and no new jobs on those that it has.
    Cordoned,
    /// As cordoned; its nodes go as soon as they hold no job.
    Draining,
    /// Given up, with what runs on it: it goes as soon as the leases of its nodes have surely ended.
    Removing,
}

impl HostState {
    /// Whether it takes new nodes, and its nodes new jobs.
    pub fn is_open(self) -> bool {
        self == HostState::Open
    }

    pub fn as_str(self) -> &'static str {
        match self {
            HostState::Open => "open",
            HostState::Cordoned => "cordoned",
            HostState::Draining => "draining",
            HostState::Removing => "removing",
        }
    }
}

/// A one-time permission to join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTicket {
    /// Of the secret, which is nowhere here.
    pub digest: KeyDigest,
    pub intent: Scope,
    /// Only a host of this name may use it.
    pub host: Option<HostName>,
    pub issued_at: Wall,
    pub expires_at: Wall,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_can_stand_in_paths_tables_and_shells() {
        for name in ["a", "gpu-box-1", "LOCAL", "7"] {
            assert!(HostName::new(name).is_ok(), "{name}");
        }
        assert!(HostName::new("Local").is_ok_and(|name| name.is_local()));
        for name in ["", "-a", "a-", "a.b", "a b", "é", "a/b", &"a".repeat(64)] {
            assert!(HostName::new(name).is_err(), "{name}");
        }
    }
}
