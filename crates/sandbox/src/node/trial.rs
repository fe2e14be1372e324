//! A trial node without a folder, a group or an agent. Its sandbox is created by the same code as any other, and ends
//! at once.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::mount::OpenTreeFlags;
use rustix::process::geteuid;

use super::{Doing, NodeError, Users, fork_in_sandbox, init, pipe, root};
use crate::helper::hub;
use crate::mounts::take_up;
use crate::network::Address;

/// Any address is free in a new network namespace.
const NETWORK: u16 = 0;
const HOST: u16 = 1;
/// These users own nothing on the host.
const SLOT: u16 = 0;
/// A substitute for the node's own folders, to which nothing is written.
const SUBSTITUTE: &str = "/usr";
/// A path without nodes, so that a new hub is created.
const NO_NODES: &str = "/proc/self/no-nodes";

/// Creates a node and lets it end. For the only thread of a process that ends afterwards, because it remains in the
/// hub.
pub(crate) fn make() -> Result<(), NodeError> {
    let is_root = geteuid().is_root();
    let users = if is_root { Users::Ranges } else { Users::One };
    let hub = hub::enter(Path::new(NO_NODES), is_root).map_err(|failed| {
        let source = std::error::Error::source(&failed).map(ToString::to_string);
        NodeError::new(format!("{failed}: {}", source.unwrap_or_default()))
    })?;
    let enforcement = substitutes()?;
    let (go_in, go_out) = pipe()?;
    let (report_in, report_out) = pipe()?;
    let Some(child) = fork_in_sandbox().doing("cannot create the node's namespaces")? else {
        drop((go_out, report_in));
        live(&go_in, &report_out, &enforcement, users)
    };
    drop((go_in, report_out, enforcement));
    let pid = child.as_raw_nonzero().get().unsigned_abs();
    users.map(pid, SLOT).doing("cannot map the node's users")?;
    let namespace =
        File::open(format!("/proc/{pid}/ns/net")).doing("cannot find the node's network")?;
    let address = Address::of(NETWORK, HOST).doing("the node has no valid address")?;
    hub.connect(address, namespace.as_fd()).doing("cannot connect the node's network")?;
    rustix::io::write(&go_out, b"g").doing("the new node does not respond")?;
    let mut said = String::new();
    File::from(report_in)
        .take(4096)
        .read_to_string(&mut said)
        .doing("cannot read from the new node")?;
    if said == DONE { Ok(()) } else { Err(NodeError::new(said)) }
}

const DONE: &str = "done";

fn substitutes() -> Result<root::Root, NodeError> {
    let taken = |path: &Path| {
        take_up(path, OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
            .doing(format!("cannot open a mount of {}", path.display()))
    };
    let binary = std::env::current_exe().doing("cannot find this program's own file")?;
    let folder = || taken(Path::new(SUBSTITUTE));
    Ok(root::Root {
        home: folder()?,
        given: folder()?,
        relay: folder()?,
        binary: taken(&binary)?,
        cgroups: Vec::new(),
        replaced: Vec::new(),
        gpus: Vec::new(),
        environments: Some(folder()?),
        shown: Vec::new(),
    })
}

/// Runs the trial node. It ends when its sandbox is complete, or when its creator has died.
fn live(go: &OwnedFd, report: &OwnedFd, root: &root::Root, users: Users) -> ! {
    let mut byte = [0];
    let is_wanted = rustix::io::read(go, &mut byte).is_ok_and(|read| read == 1);
    if is_wanted {
        let made = init::become_root(users.are_ranges()).and_then(|()| {
            // SAFETY: no memory is passed. This comes last because a change of user resets it.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            root.enter()
        });
        let said = made.map_or_else(|failed| failed.describe(), |()| DONE.to_owned());
        let _ = rustix::io::write(report, said.as_bytes());
    }
    // SAFETY: exits this process at once, without running its parent's cleanup.
    unsafe { libc::_exit(0) }
}
