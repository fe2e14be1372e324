//! Moves the helper into the hub, a network namespace of our own. Without real root, the hub belongs to a user
//! namespace that the helper enters as well.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::HelperError;
use crate::identity::Identity;
use crate::network::Hub;

/// The kernel's `NS_GET_USERNS`, which returns the user namespace that owns a namespace.
const OWNER: libc::c_ulong = 0xb701;

/// Moves into the hub of the running nodes, or into a new one.
pub(crate) fn enter(nodes: &Path, is_root: bool) -> Result<Hub, HelperError> {
    match living_hub(nodes) {
        Some(hub) => {
            if !is_root {
                let owner = owner_of(&hub).map_err(HelperError::Hub)?;
                move_into_link_name_space(owner.as_fd(), Some(LinkNameSpaceType::User))
                    .map_err(|error| HelperError::UserNamespace(error.into()))?;
                own_mounts().map_err(HelperError::UserNamespace)?;
            }
            Hub::join(hub.as_fd()).map_err(HelperError::Hub)
        }
        None => {
            if !is_root {
                own_users().and_then(|()| own_mounts()).map_err(HelperError::UserNamespace)?;
            }
            Hub::enter_new().map_err(HelperError::Hub)
        }
    }
}

/// Opens the hub through a running node, whose first process holds it open.
fn living_hub(nodes: &Path) -> Option<OwnedFd> {
    std::fs::read_dir(nodes).ok()?.flatten().find_map(|node| {
        let init = Identity::read(&node.path().join("init")).ok()??;
        let init = Some(init).filter(Identity::is_alive)?;
        let held = std::fs::read_dir(format!("/proc/{}/fd", init.pid)).ok()?;
        let is_network = |path: &Path| {
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("net:["))
        };
        let hub = held.flatten().find(|held| is_network(&held.path()))?;
        let hub = File::open(hub.path()).ok()?;
        init.is_alive().then(|| hub.into())
    })
}

fn owner_of(namespace: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no memory and returns a new descriptor that is ours, or -1.
    let owner = unsafe { libc::ioctl(namespace.as_raw_fd(), OWNER) };
    match owner {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just created this descriptor for us.
        owner => Ok(unsafe { OwnedFd::from_raw_fd(owner) }),
    }
}

/// Enters a new user namespace in which we are root; outside we are still the same user.
pub(crate) fn own_users() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: this process has one thread, and no descriptors are unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1\n"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1\n"))
}

/// Enters a new mount namespace with the same mounts as before, in which we may mount more.
fn own_mounts() -> io::Result<()> {
    // SAFETY: as above.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?)
}
