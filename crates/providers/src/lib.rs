//! Where nodes come from.
//!
//! A provider makes and removes nodes by the names that we give them, and says what is there. It
//! decides nothing: when a node is made or removed is the core's business. Every provider passes
//! [`conformance`].

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

/// All calls block, some for many seconds; calls about different nodes may run side by side.
pub trait Provider: Send + Sync {
    fn name(&self) -> &'static str;

    /// Makes the node that `request.name` names. The same order twice makes one node.
    fn create(&self, request: &NodeRequest) -> Result<(), CreateError>;

    /// Removes the node. `Ok` only when nothing of it is left (its processes are gone), or it never
    /// was.
    fn delete(&self, node_name: &str) -> Result<(), DeleteError>;

    /// The names of all nodes of which anything exists now.
    fn list(&self) -> Result<Vec<String>, ListError>;

    /// The nodes that were made and of which surely nothing runs any more. Looks often and must be cheap; a provider
    /// that cannot tell says none, and their leases tell later.
    fn ended(&self) -> Result<Vec<String>, ListError>;

    /// What is left of a node that is about to be deleted, for whoever wants to know what became of it; nothing if it is
    /// elsewhere, or nothing is left.
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
    #[error("cannot make the sandbox of node {node}")]
    Enforcement { node: String, source: LinkError },
    #[error("cannot listen for node {node}")]
    Relay { node: String, source: io::Error },
    #[error("there is no address or no range of users left for node {node} on this machine")]
    Full { node: String },
    #[error(
        "node {node} needs {wanted} GPUs and {free} of this machine are free; it is tried again"
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
    #[error("cannot ask the helper for its nodes")]
    Enforcement { source: LinkError },
    #[error("cannot read the folder of nodes {dir}")]
    Folder { dir: PathBuf, source: io::Error },
    #[error("cannot look through the processes of this machine")]
    Processes { source: io::Error },
}

/// Names become folders, arguments and labels, so only what our own names are made of is let
/// through.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a node's name: a to z, 0 to 9 and dashes, not first, at most {NAME_MAX}")]
pub struct BadName {
    pub name: String,
}

/// Long enough for any cluster's name and an id, short enough for a file's name with an ending.
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
