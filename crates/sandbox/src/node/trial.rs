//! A node without a folder, a group and an agent: its walls are made as for any other, by the same code, and end at once.

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

/// In a namespace of networks that is new, any address is free.
const NETWORK: u16 = 0;
const HOST: u16 = 1;
/// The users are nobody's: they own nothing here.
const SLOT: u16 = 0;
/// Stands for the node's own folders, none of which is written to.
const STAND_IN: &str = "/usr";
/// No helper keeps nodes here, so a hub is made as by the first one.
const NO_NODES: &str = "/proc/self/no-nodes";

/// Makes a node and lets it go. For the only thread of a process that ends afterwards: it stays in the hub.
pub(crate) fn make() -> Result<(), NodeError> {
    let is_root = geteuid().is_root();
    let users = if is_root { Users::Ranges } else { Users::One };
    let hub = hub::enter(Path::new(NO_NODES), is_root).map_err(|failed| {
        let source = std::error::Error::source(&failed).map(ToString::to_string);
        NodeError::new(format!("{failed}: {}", source.unwrap_or_default()))
    })?;
    let enforcement = stand_ins()?;
    let (go_in, go_out) = pipe()?;
    let (told_in, told_out) = pipe()?;
    let Some(child) = fork_in_sandbox().doing("cannot make the node's namespaces")? else {
        drop((go_out, told_in));
        live(&go_in, &told_out, &enforcement, users)
    };
    drop((go_in, told_out, enforcement));
    let pid = child.as_raw_nonzero().get().unsigned_abs();
    users.map(pid, SLOT).doing("cannot map the node's users")?;
    let namespace = File::open(format!("/proc/{pid}/ns/net")).doing("cannot find its network")?;
    let address = Address::of(NETWORK, HOST).doing("the node has no good address")?;
    hub.connect(address, namespace.as_fd()).doing("cannot connect the node's network")?;
    rustix::io::write(&go_out, b"g").doing("the new node does not listen")?;
    let mut said = String::new();
    File::from(told_in).take(4096).read_to_string(&mut said).doing("the new node is not heard")?;
    if said == DONE { Ok(()) } else { Err(NodeError::new(said)) }
}

const DONE: &str = "done";

fn stand_ins() -> Result<root::Root, NodeError> {
    let taken = |path: &Path| {
        take_up(path, OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
            .doing(format!("cannot take up {}", path.display()))
    };
    let binary = std::env::current_exe().doing("cannot find this program's own file")?;
    let folder = || taken(Path::new(STAND_IN));
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

/// The node. It ends when it is whole, or when whoever made it is gone.
fn live(go: &OwnedFd, told: &OwnedFd, root: &root::Root, users: Users) -> ! {
    let mut byte = [0];
    let is_wanted = rustix::io::read(go, &mut byte).is_ok_and(|read| read == 1);
    if is_wanted {
        let made = init::become_root(users.are_ranges()).and_then(|()| {
            // SAFETY: no memory is passed. Only now: whoever changes its user loses this wish.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            root.enter()
        });
        let said = made.map_or_else(|failed| failed.told(), |()| DONE.to_owned());
        let _ = rustix::io::write(told, said.as_bytes());
    }
    // SAFETY: ends this process without running what its parent had planned for its own end.
    unsafe { libc::_exit(0) }
}
