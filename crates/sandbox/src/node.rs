//! Makes nodes: each a tree of processes in a sandbox, in a folder of its own.
//!
//! ```text
//! NODES/NAME/init        the first process, as the machine sees it
//! NODES/NAME/place       its network, address and users
//! NODES/NAME/given/      what it is given: its secret, the certificates, its names; read-only inside
//! NODES/NAME/agent.log   what its agent says, written by the first process; only its end is kept
//! NODES/NAME/end         how its first process ended, if the helper saw it
//! NODES/NAME/disk        its own disk: `/node` inside
//! NODES/NAME/home/       the same where it has no disk of its own, with a quota if there are quotas
//! NODES.disks/           empty disks to begin with
//! ```
//!
//! All but `home` and what is on the disk belong to the helper, and there it never opens anything by name: what lies
//! there is the node's word against ours.

mod claims;
pub mod disk;
mod files;
mod gpus;
mod init;
mod loops;
mod outfit;
mod quota;
mod remains;
mod removal;
mod root;
pub(crate) mod trial;
mod users;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::process::{Pid, WaitOptions, waitpid};

use crate::cgroup::{Group, Groups};
use crate::identity::Identity;
use crate::network::{Address, Hub};
use crate::protocol::{NodePlan, NodeSlot, Seen, Server, Stop, Taken, check_name};
use crate::slirp::Slirp;
use disk::Bound;
pub use root::ENVIRONMENTS;
pub use users::Users;

/// The server's socket in the folder of a node's relay. The folder is what is shared with the node: a server that starts
/// again makes a new socket there.
pub const RELAY_SOCKET: &str = "server";

/// Where things are. Given once, when the helper starts; requests name nothing of it.
#[derive(Debug, Clone)]
pub struct HelperConfig {
    /// Tells our groups from those of other servers on this machine.
    pub instance: String,
    /// Holds one folder per node.
    pub nodes: PathBuf,
    /// Holds one folder per node, with the socket that leads to the server.
    pub relays: PathBuf,
    /// Where the logs of removed nodes go.
    pub logs: PathBuf,
    /// The `muster` program.
    pub binary: PathBuf,
    pub ca_file: PathBuf,
    /// The same with the public ones, for programs in jobs that call the server.
    pub ca_bundle: Option<PathBuf>,
    /// What of the machine a node sees, read-only, beside the usual folders.
    pub shown: Vec<PathBuf>,
    /// Has a folder for each cluster, with the Python environments that the server has built for it: its nodes see that folder
    /// as [`ENVIRONMENTS`], with what is added to it
    /// later.
    pub environments: Option<PathBuf>,
    /// Whose the certificates, the environments and the folders with the sockets must be, where their owner has fewer rights than
    /// we have: then nothing but its own is read for it.
    pub owner: Option<u32>,
}

/// What nodes are made with.
#[derive(Debug)]
pub struct NodeFactory {
    pub config: HelperConfig,
    pub server: Server,
    pub users: Users,
    pub groups: Groups,
    /// How nodes are kept within their space.
    pub bound: Bound,
    pub hub: Hub,
    pub slirp: Slirp,
}

/// What went wrong, and with what.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct NodeError {
    what: String,
    source: Option<io::Error>,
}

impl NodeError {
    fn new(what: impl Into<String>) -> NodeError {
        NodeError { what: what.into(), source: None }
    }

    /// Both in one line, as an answer to whoever asked.
    pub fn told(&self) -> String {
        match &self.source {
            Some(source) => format!("{}: {source}", self.what),
            None => self.what.clone(),
        }
    }
}

/// Says what was being done when it failed.
trait Doing<T> {
    fn doing(self, what: impl Into<String>) -> Result<T, NodeError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl Into<String>) -> Result<T, NodeError> {
        self.map_err(|source| NodeError { what: what.into(), source: Some(source.into()) })
    }
}

impl NodeFactory {
    /// Makes the node and returns its first process; one that lives is left as it is. Nothing is made if another server's
    /// nodes have what it needs.
    pub fn make(&self, plan: &NodePlan) -> Result<Result<u32, Taken>, NodeError> {
        let folder = self.config.nodes.join(&plan.node);
        if let Some(init) = self.alive(&plan.node)? {
            return Ok(Ok(init.pid));
        }
        let claims = match self.claims(plan) {
            Ok(claims) => claims,
            Err(taken) => return Ok(Err(taken)),
        };
        self.prepare(&folder, plan, address_of(&plan.slot)?)
            .doing("cannot prepare the node's folder")?;
        let group = self.groups.make(&self.config.instance, &plan.node, &plan.limits);
        let group = group.doing("cannot make the node's cgroup")?;
        let (uid, gid) = self.users.root_of(plan.slot.users);
        group.delegate(uid_of(uid), gid_of(gid)).doing("cannot give the node its cgroup")?;

        let (leash, held) = pipe()?;
        let home = self.home(&folder, plan)?;
        let mut enforcement = self.inside(&folder, plan, home, group.folders(), held)?;
        enforcement.claims = claims;
        let (go_in, go) = pipe()?;
        let (told, told_out) = pipe()?;
        let Some(child) = fork_in_sandbox().doing("cannot make the node's namespaces")? else {
            drop((leash, go, told));
            init::live(go_in, told_out, enforcement)
        };
        drop((go_in, told_out, enforcement));
        let made = self.finish(plan, child, &group, Threads { leash, go, told });
        if made.is_err() {
            // Without its first process nothing of it lives.
            let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
            let _ = waitpid(Some(child), WaitOptions::empty());
        }
        made.map(Ok)
    }

    /// Everything that is done to the new process from outside, then lets it go on.
    fn finish(
        &self,
        plan: &NodePlan,
        child: Pid,
        group: &Group,
        threads: Threads,
    ) -> Result<u32, NodeError> {
        let Threads { leash, go, told } = threads;
        let pid = child.as_raw_nonzero().get().unsigned_abs();
        self.users.map(pid, plan.slot.users).doing("cannot map the node's users")?;
        group.add(child).doing("cannot put the node into its cgroup")?;
        let namespace =
            File::open(format!("/proc/{pid}/ns/net")).doing("cannot find its network")?;
        self.hub
            .connect(address_of(&plan.slot)?, namespace.as_fd())
            .doing("cannot connect the node's network")?;
        if plan.has_internet {
            let out = self.slirp.let_out(pid, leash.as_fd());
            out.doing("cannot give the node a way out; without one: egress = false")?;
        }
        let identity = Identity::of(pid).doing("cannot look at the new node")?;
        let identity = identity.ok_or_else(|| NodeError::new("the new node ended at once"))?;
        let record = self.config.nodes.join(&plan.node).join("init");
        identity.write(&record).doing("cannot record the node")?;
        rustix::io::write(&go, b"g").doing("the new node does not listen")?;
        drop(go);
        let mut said = String::new();
        // It ends when the agent's program has taken over, or with the reason why it did not.
        File::from(told).take(4096).read_to_string(&mut said).doing("the new node is not heard")?;
        if said.is_empty() { Ok(pid) } else { Err(NodeError::new(said)) }
    }

    pub fn signal(&self, node: &str, signal: Stop) -> Result<(), NodeError> {
        let Some(init) = self.alive(node)? else { return Ok(()) };
        let Some(handle) = init.open().doing("cannot hold the node")? else { return Ok(()) };
        let signal = match signal {
            Stop::Terminate => rustix::process::Signal::TERM,
            Stop::Kill => rustix::process::Signal::KILL,
        };
        handle.signal(signal).doing("cannot signal the node")
    }

    pub fn list(&self) -> Result<Vec<Seen>, NodeError> {
        let what = "cannot read the folder of nodes";
        let mut seen = Vec::new();
        for entry in std::fs::read_dir(&self.config.nodes).doing(what)? {
            let Ok(node) = entry.doing(what)?.file_name().into_string() else { continue };
            if check_name(&node).is_err() {
                continue;
            }
            let slot = self.slot(&node);
            let is_alive = self.alive(&node)?.is_some();
            seen.push(Seen { node, slot, is_alive });
        }
        Ok(seen)
    }

    fn slot(&self, node: &str) -> Option<NodeSlot> {
        let text = std::fs::read(self.config.nodes.join(node).join("place")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The first process of the node, if it lives.
    pub fn alive(&self, node: &str) -> Result<Option<Identity>, NodeError> {
        let record = Identity::read(&self.config.nodes.join(node).join("init"));
        let record = record.doing("cannot read the node's record")?;
        Ok(record.filter(Identity::is_alive))
    }
}

/// The helper's ends of what leads into a new node.
struct Threads {
    /// Ends with the node.
    leash: OwnedFd,
    go: OwnedFd,
    told: OwnedFd,
}

/// To read from, and to write to.
fn pipe() -> Result<(OwnedFd, OwnedFd), NodeError> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).doing("cannot make a pipe")
}

fn address_of(slot: &NodeSlot) -> Result<Address, NodeError> {
    Address::of(slot.network, slot.host).doing("the node has no good address")
}

/// A child in namespaces of its own; `None` in the child itself. For a process with one thread only.
fn fork_in_sandbox() -> io::Result<Option<Pid>> {
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::SIGCHLD;
    // SAFETY: as fork: no memory is shared, the stack is copied, and we have one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(i32::try_from(pid).ok().and_then(Pid::from_raw)),
    }
}

fn uid_of(uid: u32) -> rustix::fs::Uid {
    rustix::fs::Uid::from_raw(uid)
}

fn gid_of(gid: u32) -> rustix::fs::Gid {
    rustix::fs::Gid::from_raw(gid)
}
