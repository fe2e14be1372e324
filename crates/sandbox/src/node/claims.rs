//! Claims on what no two nodes of a host may share, whichever server they belong to: ranges of users, and GPUs.
//!
//! Each claim is a file that a node's first process holds locked. A claim therefore exists exactly as long as its node,
//! even if servers or helpers end or restart meanwhile, and needs no cleanup.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::files::check_owner;
use super::{NodeFactory, Users};
use crate::protocol::{NodePlan, NodeSlot, Taken};

/// Cleared when the host boots, like the nodes.
const FOLDER: &str = "/run/muster-claims";

impl NodeFactory {
    /// Claims what this node needs for its lifetime, or returns what another node holds.
    pub(super) fn claims(&self, plan: &NodePlan) -> Result<Vec<OwnedFd>, Taken> {
        match self.users {
            Users::Ranges => take(&plan.slot).unwrap_or_else(|error| {
                // A host on which nothing can be claimed usually runs only one server.
                tracing::warn!(node = plan.node, %error, "cannot claim a node's users and GPUs");
                Ok(Vec::new())
            }),
            // The node has no users of its own, and there is no folder in which other servers would look for GPU
            // claims.
            Users::One => Ok(Vec::new()),
        }
    }
}

/// Locks a range of users, unless a node has it.
pub(super) fn take_users(slot: u16) -> io::Result<Option<Vec<OwnedFd>>> {
    let slot = NodeSlot { cluster: 0, network: 0, host: 0, users: slot, gpus: Vec::new() };
    Ok(take(&slot)?.ok())
}

/// Locks everything that this slot needs.
fn take(slot: &NodeSlot) -> io::Result<Result<Vec<OwnedFd>, Taken>> {
    take_in(Path::new(FOLDER), slot)
}

fn take_in(folder: &Path, slot: &NodeSlot) -> io::Result<Result<Vec<OwnedFd>, Taken>> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    // Another owner of the folder could hold any lock.
    let options = || {
        let mut options = OpenOptions::new();
        options.custom_flags(libc::O_NOFOLLOW);
        options
    };
    check_owner(options().read(true).open(folder)?, Some(rustix::process::geteuid().as_raw()))?;
    let mut claims = Vec::new();
    let mut taken = Taken::default();
    let mut claim = |name: String| {
        let file = options().write(true).create(true).mode(0o600).open(folder.join(name))?;
        let is_ours = lock(&file)?;
        claims.extend(is_ours.then(|| OwnedFd::from(file)));
        Ok::<bool, io::Error>(is_ours)
    };
    taken.users = !claim(format!("users-{}", slot.users))?;
    for gpu in &slot.gpus {
        if !claim(format!("gpu-{gpu}"))? {
            taken.gpus.push(*gpu);
        }
    }
    Ok(if taken == Taken::default() { Ok(claims) } else { Err(taken) })
}

fn lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_one_nodes_until_it_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("claims");
        let slot = |users, gpus: &[u16]| NodeSlot {
            cluster: 1,
            network: 0,
            host: 1,
            users,
            gpus: gpus.to_vec(),
        };
        let first = take_in(&folder, &slot(0, &[0, 1])).unwrap().unwrap();
        assert_eq!(first.len(), 3);
        let taken = take_in(&folder, &slot(0, &[1, 2])).unwrap().unwrap_err();
        assert_eq!(taken, Taken { users: true, gpus: vec![1] });
        let second = take_in(&folder, &slot(1, &[2])).unwrap().unwrap();
        drop(first);
        assert!(take_in(&folder, &slot(0, &[0, 1])).unwrap().is_ok(), "free again");
        assert!(take_in(&folder, &slot(0, &[2])).unwrap().is_err(), "the second still holds it");
        drop(second);
    }
}
