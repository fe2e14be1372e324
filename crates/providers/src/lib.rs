//! Where nodes come from.
//!
//! A provider creates and deletes nodes by the names that we give them, and lists the existing ones. It decides
//! nothing: the core decides when a node is created or deleted. Every provider passes [`conformance`].

#[doc(hidden)]
pub mod conformance;
pub mod joined;
pub mod local;
mod locks;
pub mod sandboxed;
pub mod trust;

use std::io;
use std::path::PathBuf;

pub use local::{Local, LocalConfig};
use muster_core::NodeRequest;
use muster_sandbox::link::LinkError;
pub use muster_sandbox::protocol::{End, Remains};
pub use sandboxed::{SandboxConfig, SandboxProvider};

/// All calls block, some for many seconds. Calls about different nodes may run at the same time.
pub trait Provider: Send + Sync {
    fn name(&self) -> &'static str;

    /// Creates the node that `request.name` names. Repeating a request creates only one node.
    fn create(&self, request: &NodeRequest) -> Result<(), CreateError>;

    /// Deletes the node. Returns `Ok` only when nothing of it is left (its processes have ended), or if it never
    /// existed.
    fn delete(&self, node_name: &str) -> Result<(), DeleteError>;

    /// Lists the names of all nodes of which anything exists now.
    fn list(&self) -> Result<Vec<String>, ListError>;

    /// Lists the nodes that were created and of which certainly nothing is running any more. It is called often and
    /// must be cheap. A provider that cannot tell returns none; their leases expire later.
    fn ended(&self) -> Result<Vec<String>, ListError>;

    /// Returns what is left of a node that is about to be deleted, for a post-mortem. `None` if it is on another host,
    /// or nothing is left.
    fn remains(&self, node_name: &str) -> Option<Remains>;
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error(transparent)]
    BadName(#[from] BadName),
    #[error("cannot prepare the node's folder {dir}")]
    Folder { dir: PathBuf, source: io::Error },
    #[error("cannot start {program} as the agent of node {node}")]
    Start { node: String, program: PathBuf, source: io::Error },
    #[error("cannot create the sandbox of node {node}")]
    Enforcement { node: String, source: LinkError },
    #[error("cannot listen for node {node}")]
    Relay { node: String, source: io::Error },
    #[error("there is no address or no range of users left for node {node} on this host")]
    Full { node: String },
    #[error(
        "node {node} needs {wanted} GPUs, but only {free} of this host are free; it is retried"
    )]
    Gpus { node: String, wanted: u32, free: usize },
    #[error(transparent)]
    Host(#[from] joined::HostError),
}

#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    #[error(transparent)]
    BadName(#[from] BadName),
    #[error("cannot end the processes of node {node}")]
    Processes { node: String, source: io::Error },
    #[error("{count} processes of node {node} do not end although they were killed")]
    Remains { node: String, count: usize },
    #[error("cannot remove the node's folder {dir}")]
    Folder { dir: PathBuf, source: io::Error },
    #[error("cannot remove the sandbox of node {node}")]
    Enforcement { node: String, source: LinkError },
    #[error(transparent)]
    Host(#[from] joined::HostError),
}

#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("cannot list the nodes of the helper")]
    Enforcement { source: LinkError },
    #[error("cannot read the folder of nodes {dir}")]
    Folder { dir: PathBuf, source: io::Error },
    #[error("cannot list the processes of this host")]
    Processes { source: io::Error },
}

/// Names become folders, arguments and labels, so only the characters of our own names are accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is not a valid node name: use a to z, 0 to 9 and dashes, not starting with a dash, at most {NAME_MAX} characters"
)]
pub struct BadName {
    pub name: String,
}

/// Long enough for any cluster name with an id, and short enough for a file name with an extension.
const NAME_MAX: usize = 128;

fn check_name(name: &str) -> Result<(), BadName> {
    let is_ours = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_good =
        (1..=NAME_MAX).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(is_ours);
    if is_good { Ok(()) } else { Err(BadName { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_pass() {
        let longest = "x".repeat(NAME_MAX);
        for name in ["a", "0", "pool-1f", "a--b-", &longest] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let too_long = "x".repeat(NAME_MAX + 1);
        for name in ["", "-a", "A", "a_b", "a.b", "..", "a/b", "../a", "a b", "ä", "a\0", &too_long]
        {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
