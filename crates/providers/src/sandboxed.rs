//! Nodes on this host in sandboxes: each has its own address, users, processes and limits, and runs the same agent as
//! anywhere. A helper creates the sandboxes; this provider instructs it.

pub mod gpus;
mod machine;
mod relays;
mod slots;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::NodeRequest;
use muster_core::model::Capacity;
use muster_sandbox::cgroup::Limits;
pub use muster_sandbox::helper::HelperConfig;
use muster_sandbox::identity::Identity;
use muster_sandbox::link::{Link, LinkError};
use muster_sandbox::network::Address;
use muster_sandbox::node::disk;
use muster_sandbox::protocol::{
    Enforcement, MEMORY_MIN, NODES_MAX, NodePlan, NodeSlot, Remains, Seen, Stop, Taken,
};

use crate::locks::NodeLocks;
use crate::{CreateError, DeleteError, ListError, Provider, check_name};
pub use machine::Machine;
pub use relays::{Opened, Sockets};
use slots::{Elsewhere, NoSlot, SlotRequest, Slots};

/// The time from asking a node to end until it is killed. Longer than its agent gives its jobs.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// A killed process ends at once, unless it is blocked in the kernel, for example by a disk.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// Processes and threads of a node, for each of its cores plus one.
const PIDS_PER_CORE: u32 = 2048;

pub struct SandboxConfig {
    pub link: Link,
    /// Returns the secret with which the node of this name authenticates.
    pub node_secret: Box<dyn Fn(&str) -> String + Send + Sync>,
    pub relays: Box<dyn Relays>,
    pub machine: Machine,
    /// Whether nodes may reach more than their cluster and the server.
    pub has_internet: bool,
    /// Whether a node may have fewer GPUs than its size if others are using them.
    pub over_commit: bool,
    /// Whether jobs share their node's sandbox instead of having one each.
    pub jobs_share: bool,
    /// The most that a job may write to its folder, if the disk has that much.
    pub job_disk_bytes: u64,
}

/// Returns the command that starts such a helper.
pub fn helper_command(helper: &HelperConfig) -> Vec<OsString> {
    let mut command: Vec<OsString> = vec![helper.binary.clone().into(), "helper".into()];
    for (flag, value) in [
        ("--instance", OsString::from(&helper.instance)),
        ("--nodes", helper.nodes.clone().into()),
        ("--relays", helper.relays.clone().into()),
        ("--logs", helper.logs.clone().into()),
        ("--binary", helper.binary.clone().into()),
        ("--ca", helper.ca_file.clone().into()),
    ] {
        command.extend([flag.into(), value]);
    }
    if let Some(bundle) = &helper.ca_bundle {
        command.extend(["--ca-bundle".into(), bundle.clone().into()]);
    }
    if let Some(environments) = &helper.environments {
        command.extend(["--environments".into(), environments.clone().into()]);
    }
    if let Some(owner) = helper.owner {
        command.extend(["--owner".into(), owner.to_string().into()]);
    }
    for shown in &helper.shown {
        command.extend(["--show".into(), shown.clone().into()]);
    }
    command
}

/// The sockets through which nodes reach the server.
pub trait Relays: Send + Sync {
    /// Listens for the node of this name, replacing any earlier socket.
    fn open(&self, node: &str, address: Ipv4Addr) -> io::Result<()>;
    fn close(&self, node: &str);
}

pub struct SandboxProvider {
    config: SandboxConfig,
    /// Nodes should have internet access, but this host lacks what is needed.
    lacks_internet: bool,
    /// Where the helper keeps the nodes. Only their records are read here.
    nodes_dir: PathBuf,
    stop_grace: Duration,
    locks: NodeLocks,
    slots: Mutex<Slots>,
    /// Nodes that have ended and whose disks were freed.
    emptied: Mutex<BTreeSet<String>>,
}

impl SandboxProvider {
    /// Finds existing nodes, and opens their access to the server again.
    pub fn start(mut config: SandboxConfig) -> Result<(SandboxProvider, Enforcement), LinkError> {
        let enforcement = config.link.enforcement()?;
        let lacks_internet = config.has_internet && enforcement.why_no_internet.is_some();
        config.has_internet &= !lacks_internet;
        let mut slots = Slots::starting_at(first_users(&enforcement.nodes));
        for Seen { node, slot, is_alive } in config.link.list()? {
            let Some(slot) = slot else { continue };
            let opened = address_of(&slot).and_then(|address| config.relays.open(&node, address));
            if is_alive && let Err(error) = opened {
                tracing::error!(node, %error, "cannot listen for a node; it will end by itself");
            }
            slots.keep(&node, slot);
        }
        let (locks, slots) = (NodeLocks::default(), Mutex::new(slots));
        let nodes_dir = enforcement.nodes.clone();
        let emptied = Mutex::default();
        let stop_grace = STOP_GRACE;
        let sandboxed = SandboxProvider {
            config,
            lacks_internet,
            nodes_dir,
            stop_grace,
            locks,
            slots,
            emptied,
        };
        Ok((sandboxed, enforcement))
    }

    /// Lists all nodes of which anything exists now, and whether they are alive.
    pub fn seen(&self) -> Result<Vec<Seen>, ListError> {
        self.config.link.list().map_err(|source| ListError::Enforcement { source })
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns the slot of a node. A node that was promised GPUs gets them or waits, unless this host promises more
    /// than it has.
    fn slot(&self, request: &NodeRequest, elsewhere: &Elsewhere) -> Result<NodeSlot, CreateError> {
        let all = self.config.machine.gpus.iter().map(|gpu| gpu.number);
        let machine: Vec<u16> = all.filter(|gpu| !elsewhere.gpus.contains(gpu)).collect();
        let gpus = request.capacity.gpus;
        let needed =
            SlotRequest { cluster: request.cluster, gpus, may_lack: self.config.over_commit };
        let node = || request.name.to_string();
        let slot = self.slots().take(&request.name, needed, &machine, &elsewhere.users).map_err(
            |none| match none {
                NoSlot::Full => CreateError::Full { node: node() },
                NoSlot::Gpus { free } => CreateError::Gpus { node: node(), wanted: gpus, free },
            },
        )?;
        let there = slot.gpus.len();
        if there as u64 != u64::from(gpus) {
            tracing::warn!(
                node = node(),
                there,
                of = gpus,
                "a node does not have all GPUs of its size"
            );
        }
        Ok(slot)
    }

    /// The UUIDs of these GPUs, if all are known.
    fn uuids(&self, numbers: &[u16]) -> Vec<String> {
        let uuid = |number: &u16| {
            let gpu = self.config.machine.gpus.iter().find(|gpu| gpu.number == *number)?;
            gpu.uuid.clone()
        };
        numbers.iter().map(uuid).collect::<Option<Vec<String>>>().unwrap_or_default()
    }

    /// Waits for the end of the node's first process, with which everything in the node has ended.
    fn has_ended(&self, node: &str, within: Duration) -> io::Result<bool> {
        let record = Identity::read(&self.nodes_dir.join(node).join("init"))?;
        record.map_or(Ok(true), |init| init.wait(within))
    }

    /// Frees the disks of nodes that have ended, at once. Removing the rest of a node waits for a commit, and the store
    /// may need this very space for one.
    fn empty(&self, ended: &[String]) {
        let mut emptied = self.emptied.lock().unwrap_or_else(PoisonError::into_inner);
        emptied.retain(|node| ended.contains(node));
        for node in ended {
            // A node that another call is creating or removing is left to that call.
            let Some(_lock) = self.locks.try_take(node) else { continue };
            if emptied.contains(node) {
                continue;
            }
            match self.config.link.empty(node) {
                Ok(()) => drop(emptied.insert(node.clone())),
                Err(error) => tracing::warn!(node, %error, "cannot free a node's disk"),
            }
        }
    }

    fn make(
        &self,
        request: &NodeRequest,
        slot: NodeSlot,
    ) -> Result<Result<(), Taken>, CreateError> {
        let name: &str = &request.name;
        let failed = |source| CreateError::Relay { node: name.to_owned(), source };
        let address = address_of(&slot).map_err(failed)?;
        self.config.relays.open(name, address).map_err(failed)?;
        let secret = (self.config.node_secret)(name);
        let has_internet = self.config.has_internet;
        let plan = NodePlan {
            node: name.to_owned(),
            secret,
            limits: limits(request.capacity, &self.config.machine),
            jobs_share: self.config.jobs_share,
            job_disk_bytes: self.config.job_disk_bytes,
            has_internet,
            lacks_internet: self.lacks_internet,
            gpu_slots: request.capacity.gpus,
            gpu_uuids: self.uuids(&slot.gpus),
            slot,
        };
        let failed = |source| CreateError::Enforcement { node: name.to_owned(), source };
        self.config.link.make(plan).map_err(failed)
    }
}

/// What a node of this size may use, which is never more than the host has.
fn limits(size: Capacity, machine: &Machine) -> Limits {
    let cores = size.vcpus.clamp(1, machine.cores.max(1));
    let memory = size.memory_mb.saturating_mul(1024 * 1024);
    Limits {
        millicores: cores.saturating_mul(1000),
        memory_bytes: memory.min(machine.memory_bytes).max(MEMORY_MIN),
        pids: PIDS_PER_CORE.saturating_mul(cores.saturating_add(1)),
    }
}

/// Servers on one host start with different numbers, so they rarely choose what another server's nodes have.
fn first_users(nodes_dir: &Path) -> u16 {
    let mut hasher = std::hash::DefaultHasher::new();
    nodes_dir.hash(&mut hasher);
    u16::try_from(hasher.finish() % u64::from(NODES_MAX)).expect("this is less than a u16")
}

fn address_of(slot: &NodeSlot) -> io::Result<Ipv4Addr> {
    Ok(Address::of(slot.network, slot.host)?.ip())
}

impl Provider for SandboxProvider {
    fn name(&self) -> &'static str {
        "local"
    }

    fn create(&self, request: &NodeRequest) -> Result<(), CreateError> {
        check_name(&request.name)?;
        let _lock = self.locks.take(&request.name);
        let mut elsewhere = Elsewhere::default();
        loop {
            let slot = self.slot(request, &elsewhere)?;
            let Err(taken) = self.make(request, slot.clone())? else { return Ok(()) };
            // Nodes of another server hold it. There is less to choose from each time, so this loop ends.
            elsewhere.add(&slot, taken);
            self.slots().free(&request.name);
        }
    }

    fn delete(&self, node_name: &str) -> Result<(), DeleteError> {
        check_name(node_name)?;
        let _lock = self.locks.take(node_name);
        let node = || node_name.to_owned();
        let processes = |source| DeleteError::Processes { node: node(), source };
        let enforcement = |source| DeleteError::Enforcement { node: node(), source };
        for (signal, within) in [(Stop::Terminate, self.stop_grace), (Stop::Kill, KILLED_WITHIN)] {
            self.config.link.signal(node_name, signal).map_err(enforcement)?;
            if self.has_ended(node_name, within).map_err(processes)? {
                break;
            }
        }
        self.config.link.remove(node_name).map_err(enforcement)?;
        self.config.relays.close(node_name);
        self.slots().free(node_name);
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>, ListError> {
        Ok(self.seen()?.into_iter().map(|seen| seen.node).collect())
    }

    fn remains(&self, node_name: &str) -> Option<Remains> {
        let examined = self.config.link.examine(node_name);
        examined.inspect_err(|error| tracing::warn!(node_name, %error, "no post-mortem")).ok()
    }

    /// The kernel ends a node's first process after everything else in the node, so its end is the end of the node.
    fn ended(&self) -> Result<Vec<String>, ListError> {
        let dir = &self.nodes_dir;
        let failed = |source| ListError::Folder { dir: dir.clone(), source };
        let mut ended = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Without a record, the node has not been created yet or is nearly removed.
            let init = Identity::read(&entry.path().join("init")).map_err(failed)?;
            if init.is_some_and(|init| init.has_surely_ended()) {
                ended.extend(entry.file_name().into_string());
            } else if disk::has_holes(&entry.path())
                && let Ok(node) = entry.file_name().into_string()
                && let Err(error) = self.config.link.refill(&node)
            {
                tracing::warn!(node, %error, "cannot restore the space of a node's disk");
            }
        }
        self.empty(&ended);
        Ok(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_larger_than_the_host_gets_the_whole_host() {
        let machine = Machine { cores: 4, memory_bytes: 8 << 30, gpus: Vec::new() };
        let size = |vcpus, memory_mb| Capacity { gpus: 0, vcpus, memory_mb };
        let (fits, whole) = (limits(size(2, 3584), &machine), limits(size(4, 8192), &machine));
        assert_eq!(fits, Limits { millicores: 2000, memory_bytes: 3584 << 20, pids: 3 * 2048 });
        assert_eq!(whole, Limits { millicores: 4000, memory_bytes: 8 << 30, pids: 5 * 2048 });
        for larger in [size(5, 8193), size(128, 2 << 20), size(u32::MAX, u64::MAX)] {
            assert_eq!(limits(larger, &machine), whole, "{larger:?}");
        }
        assert_eq!(limits(size(0, 0), &machine).memory_bytes, MEMORY_MIN);
    }
}
