//! Creates nodes. Each is a tree of processes in a sandbox, with a folder of its own.
//!
//! ```text
//! NODES/NAME/init        the first process, as the host sees it
//! NODES/NAME/place       its network, address and users
//! NODES/NAME/given/      what it is given: its secret, the certificates, its names; read-only inside
//! NODES/NAME/agent.log   the output of its agent, written by the first process; only its end is kept
//! NODES/NAME/end         how its first process ended, if the helper saw it
//! NODES/NAME/disk        its own disk: `/node` inside
//! NODES/NAME/home/       the same if it has no disk of its own, with a quota if there are quotas
//! NODES.disks/           empty disks to start from
//! ```
//!
//! Everything except `home` and the contents of the disk belongs to the helper. The helper never opens anything by name
//! in those two, because the node controls what is there.

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

/// The server's socket in the folder of a node's relay. The folder, not the socket, is shared with the node, because a
/// server that restarts creates a new socket there.
pub const RELAY_SOCKET: &str = "server";

/// The paths that the helper uses. They are fixed when the helper starts; requests cannot name any.
#[derive(Debug, Clone)]
pub struct HelperConfig {
    /// Distinguishes our groups from those of other servers on this host.
    pub instance: String,
    /// Contains one folder per node.
    pub nodes: PathBuf,
    /// Contains one folder per node, with the socket that leads to the server.
    pub relays: PathBuf,
    /// The folder for the logs of removed nodes.
    pub logs: PathBuf,
    /// The `muster` program.
    pub binary: PathBuf,
    pub ca_file: PathBuf,
    /// The same CA together with the public ones, for programs in jobs that call the server.
    pub ca_bundle: Option<PathBuf>,
    /// Paths of the host that a node sees, read-only, in addition to the usual folders.
    pub shown: Vec<PathBuf>,
    /// Contains a folder for each cluster, with the Python environments that the server has built for it. The cluster's
    /// nodes see that folder as [`ENVIRONMENTS`], including what is added to it later.
    pub environments: Option<PathBuf>,
    /// The required owner of the certificates, the environments and the socket folders, if that owner has fewer
    /// privileges than we have. Nothing else is read on its behalf.
    pub owner: Option<u32>,
}

/// Everything that is needed to create nodes.
#[derive(Debug)]
pub struct NodeFactory {
    pub config: HelperConfig,
    pub server: Server,
    pub users: Users,
    pub groups: Groups,
    /// How the disk space of nodes is limited.
    pub bound: Bound,
    pub hub: Hub,
    pub slirp: Slirp,
}

/// What failed, and why.
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

    /// Returns both in one line, as a reply to the client.
    pub fn describe(&self) -> String {
        match &self.source {
            Some(source) => format!("{}: {source}", self.what),
            None => self.what.clone(),
        }
    }
}

/// Adds to an error what was being done when it occurred.
trait Doing<T> {
    fn doing(self, what: impl Into<String>) -> Result<T, NodeError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl Into<String>) -> Result<T, NodeError> {
        self.map_err(|source| NodeError { what: what.into(), source: Some(source.into()) })
    }
}

impl NodeFactory {
    /// Creates the node and returns the PID of its first process. A node that is alive is left as it is. Nothing is
    /// created if other servers' nodes hold what it needs.
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
        let group = group.doing("cannot create the node's cgroup")?;
        let (uid, gid) = self.users.root_of(plan.slot.users);
        group.delegate(uid_of(uid), gid_of(gid)).doing("cannot give the node its cgroup")?;

        let (leash, held) = pipe()?;
        let home = self.home(&folder, plan)?;
        let mut enforcement = self.inside(&folder, plan, home, group.folders(), held)?;
        enforcement.claims = claims;
        let (go_in, go) = pipe()?;
        let (report, report_out) = pipe()?;
        let Some(child) = fork_in_sandbox().doing("cannot create the node's namespaces")? else {
            drop((leash, go, report));
            init::live(go_in, report_out, enforcement)
        };
        drop((go_in, report_out, enforcement));
        let made = self.finish(plan, child, &group, Threads { leash, go, report });
        if made.is_err() {
            // All other processes of the node end with its first.
            let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
            let _ = waitpid(Some(child), WaitOptions::empty());
        }
        made.map(Ok)
    }

    /// Does everything that must be done to the new process from outside, then lets it continue.
    fn finish(
        &self,
        plan: &NodePlan,
        child: Pid,
        group: &Group,
        threads: Threads,
    ) -> Result<u32, NodeError> {
        let Threads { leash, go, report } = threads;
        let pid = child.as_raw_nonzero().get().unsigned_abs();
        self.users.map(pid, plan.slot.users).doing("cannot map the node's users")?;
        group.add(child).doing("cannot put the node into its cgroup")?;
        let namespace =
            File::open(format!("/proc/{pid}/ns/net")).doing("cannot find the node's network")?;
        self.hub
            .connect(address_of(&plan.slot)?, namespace.as_fd())
            .doing("cannot connect the node's network")?;
        if plan.has_internet {
            let out = self.slirp.let_out(pid, leash.as_fd());
            out.doing("cannot give the node internet access; set egress = false to do without")?;
        }
        let identity = Identity::of(pid).doing("cannot examine the new node")?;
        let identity = identity.ok_or_else(|| NodeError::new("the new node ended at once"))?;
        let record = self.config.nodes.join(&plan.node).join("init");
        identity.write(&record).doing("cannot record the node")?;
        rustix::io::write(&go, b"g").doing("the new node does not respond")?;
        drop(go);
        let mut said = String::new();
        // The pipe is closed when the agent's program has started; otherwise it delivers the reason why not.
        File::from(report)
            .take(4096)
            .read_to_string(&mut said)
            .doing("cannot read from the new node")?;
        if said.is_empty() { Ok(pid) } else { Err(NodeError::new(said)) }
    }

    pub fn signal(&self, node: &str, signal: Stop) -> Result<(), NodeError> {
        let Some(init) = self.alive(node)? else { return Ok(()) };
        let Some(handle) = init.open().doing("cannot open the node's process")? else {
            return Ok(());
        };
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

    /// Returns the first process of the node, if it is alive.
    pub fn alive(&self, node: &str) -> Result<Option<Identity>, NodeError> {
        let record = Identity::read(&self.config.nodes.join(node).join("init"));
        let record = record.doing("cannot read the node's record")?;
        Ok(record.filter(Identity::is_alive))
    }
}

/// The helper's ends of the pipes into a new node.
struct Threads {
    /// Closed when the node ends.
    leash: OwnedFd,
    go: OwnedFd,
    report: OwnedFd,
}

/// Creates a pipe: the end to read from, and the end to write to.
fn pipe() -> Result<(OwnedFd, OwnedFd), NodeError> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).doing("cannot create a pipe")
}

fn address_of(slot: &NodeSlot) -> Result<Address, NodeError> {
    Address::of(slot.network, slot.host).doing("the node has no valid address")
}

/// Forks a child into its own namespaces. Returns `None` in the child itself. For a process with one thread only.
fn fork_in_sandbox() -> io::Result<Option<Pid>> {
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::SIGCHLD;
    // SAFETY: as with fork, no memory is shared and the stack is copied, and we have one thread.
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
