//! Hosts: the machines that nodes run on, and the tokens with which new ones join.
//!
//! The server's own host is called `local`. Others join with a token that is valid once and determines whose nodes they
//! take; from then on they authenticate with a key of their own.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{BadName, Capacity, KeyDigest, RecipeMark, Scope};
use crate::limits;
use crate::time::Wall;

/// The name of a host: lower-case letters, digits and dashes, with neither a leading nor a trailing dash.
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

    /// The server's own host.
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

/// Nodes that are older than the concept of hosts are on the server's own host.
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
    /// The real capacity of the host.
    pub capacity: Capacity,
    /// It takes nodes of the clusters within this scope: of one cluster, of a workspace, or of all.
    pub intent: Scope,
    pub state: HostState,
    /// The key that it authenticates with. The server's own host has none, nor has one that is being removed.
    pub key: Option<KeyDigest>,
    /// The join token that it used, so that it may repeat the request if the answer was lost.
    pub ticket: Option<KeyDigest>,
    pub joined_at: Wall,
    /// It has not reported for a while: its nodes are assumed to still exist, but no new ones are created there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_silent: bool,
    /// The last environments of jobs that started there, the newest last. This is a hint: the host may have deleted
    /// some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<RecipeMark>,
}

/// How many environments are remembered for each host.
pub const HOST_ENVIRONMENTS_MAX: usize = 64;

impl Host {
    pub fn has_environment(&self, mark: RecipeMark) -> bool {
        self.environments.contains(&mark)
    }

    /// Whether new nodes can be created there.
    pub fn takes_nodes(&self) -> bool {
        self.state.is_open() && !self.is_silent
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HostState {
    Open,
    /// No new nodes are created there, and its nodes start no new jobs.
    Cordoned,
    /// Like cordoned, and its nodes are deleted as soon as they hold no job.
    Draining,
    /// Given up together with the jobs on it. It is removed as soon as the leases of its nodes have certainly expired.
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

/// A permission to join, valid once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTokenRecord {
    /// The digest of the secret. The secret itself is not stored.
    pub digest: KeyDigest,
    pub intent: Scope,
    /// If set, only a host with this name may use it.
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
