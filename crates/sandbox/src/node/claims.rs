//! What no two nodes of a machine may share, whichever server they are of: ranges of users and GPUs.
//!
//! Each is a file that a node's first process holds locked. So a claim lives exactly as long as its node, whoever of
//! us ends or starts again meanwhile, and needs no tidying up.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::files::check_owner;
use super::{NodeFactory, Users};
use crate::protocol::{NodePlan, NodeSlot, Taken};

/// Gone with the machine's boot, as the nodes are.
const FOLDER: &str = "/run/muster-claims";

impl NodeFactory {
    /// What this node is given for as long as it lives, or what of it another one has.
    pub(super) fn claims(&self, plan: &NodePlan) -> Result<Vec<OwnedFd>, Taken> {
        match self.users {
            Users::Ranges => take(&plan.slot).unwrap_or_else(|error| {
                // A machine where nothing can be claimed has one server, as a rule.
                tracing::warn!(node = plan.node, %error, "cannot claim a node's users and GPUs");
                Ok(Vec::new())
            }),
            // It has no users of its own, and has no place to claim GPUs where others would look.
            Users::One => Ok(Vec::new()),
        }
    }
}

/// Locks a range of users that no node has.
pub(super) fn take_users(slot: u16) -> io::Result<Option<Vec<OwnedFd>>> {
    let slot = NodeSlot { cluster: 0, network: 0, host: 0, users: slot, gpus: Vec::new() };
    Ok(take(&slot)?.ok())
}

/// Locks all that this place needs.
fn take(slot: &NodeSlot) -> io::Result<Result<Vec<OwnedFd>, Taken>> {
    take_in(Path::new(FOLDER), slot)
}

fn take_in(folder: &Path, slot: &NodeSlot) -> io::Result<Result<Vec<OwnedFd>, Taken>> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    // Whoever made it could hold any lock.
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
        assert!(take_in(&folder, &slot(0, &[2])).unwrap().is_err(), "the second's still");
        drop(second);
    }
}
