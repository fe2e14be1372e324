//! Nodes on this machine behind walls: each has its own address, users, processes and limits, and runs the same agent as
//! anywhere. The walls are made by a helper; this is who tells it which.

mod places;

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::NodeOrder;
use muster_sandbox::cgroup::Limits;
use muster_sandbox::identity::Identity;
use muster_sandbox::link::{Link, LinkError};
use muster_sandbox::network::Address;
use muster_sandbox::protocol::{MEMORY_MIN, NodePlan, Place, Seen, Stop, Walls};

use crate::local::stop::{LOGS_MAX, drop_oldest};
use crate::turns::Turns;
use crate::{CreateError, DeleteError, ListError, Provider, check_name};
use places::Places;

/// From asking a node to leave to killing it. Longer than its agent gives its jobs.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// What was killed is gone in an instant, unless it waits in the kernel, for a disk say.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// Processes and threads of a node, for each of its cores and once more.
const PIDS_PER_CORE: u32 = 2048;

pub struct WalledConfig {
    pub link: Link,
    /// Where the helper keeps the nodes; only their records are read here.
    pub nodes_dir: PathBuf,
    /// Where it keeps the logs of nodes that are gone.
    pub logs_dir: PathBuf,
    /// What the node of this name proves itself with.
    pub node_secret: Box<dyn Fn(&str) -> String + Send + Sync>,
    pub relays: Box<dyn Relays>,
    pub machine: Machine,
    /// Whether nodes may reach more than their cluster and the server.
    pub has_way_out: bool,
    /// The most that a job may write to its folder, where the disk has that much.
    pub job_disk_bytes: u64,
}

/// What the machine has. A node is never given more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    pub cores: u32,
    pub memory_bytes: u64,
}

impl Machine {
    pub fn this() -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let memory = rustix::system::sysinfo();
        Machine {
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            memory_bytes: memory.totalram * u64::from(memory.mem_unit),
        }
    }
}

/// The sockets on which nodes find the server.
pub trait Relays: Send + Sync {
    /// Listens for the node of this name; what it said before it said nothing.
    fn open(&self, node: &str, address: Ipv4Addr) -> io::Result<()>;
    fn close(&self, node: &str);
}

pub struct Walled {
    config: WalledConfig,
    stop_grace: Duration,
    turns: Turns,
    places: Mutex<Places>,
}

impl Walled {
    /// Finds what is there already, and opens its way to the server again.
    pub fn start(mut config: WalledConfig) -> Result<(Walled, Walls), LinkError> {
        let walls = config.link.walls()?;
        config.has_way_out &= walls.no_way_out.is_none();
        let mut places = Places::default();
        for Seen { node, place, is_alive } in config.link.list()? {
            let Some(place) = place else { continue };
            places.keep(&node, place);
            let opened = address_of(place).and_then(|address| config.relays.open(&node, address));
            if is_alive && let Err(error) = opened {
                tracing::error!(node, %error, "cannot listen for a node; it will end itself");
            }
        }
        let (turns, places) = (Turns::default(), Mutex::new(places));
        Ok((Walled { config, stop_grace: STOP_GRACE, turns, places }, walls))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limits(&self, order: &NodeOrder) -> Limits {
        let machine = self.config.machine;
        let cores = order.capacity.vcpus.clamp(1, machine.cores.max(1));
        let memory = order.capacity.memory_mb * 1024 * 1024;
        Limits {
            millicores: cores * 1000,
            memory_bytes: memory.min(machine.memory_bytes).max(MEMORY_MIN),
            pids: PIDS_PER_CORE * (cores + 1),
        }
    }

    /// A part of what is free now: the server needs room as well.
    fn job_disk(&self) -> u64 {
        let wanted = self.config.job_disk_bytes;
        rustix::fs::statvfs(&self.config.nodes_dir)
            .map_or(wanted, |disk| wanted.min(disk.f_bavail * disk.f_frsize / 2))
    }

    /// Waits for the end of the node's first process, and with it of everything in the node.
    fn has_ended(&self, node: &str, within: Duration) -> io::Result<bool> {
        let record = Identity::read(&self.config.nodes_dir.join(node).join("init"))?;
        match record.map(|init| init.open()).transpose()?.flatten() {
            Some(init) => init.wait(within),
            None => Ok(true),
        }
    }

    fn make(&self, name: &str, place: Place, limits: Limits) -> Result<(), CreateError> {
        let failed = |source| CreateError::Relay { node: name.to_owned(), source };
        let address = address_of(place).map_err(failed)?;
        self.config.relays.open(name, address).map_err(failed)?;
        let secret = (self.config.node_secret)(name);
        let has_way_out = self.config.has_way_out;
        let plan = NodePlan {
            node: name.to_owned(),
            secret,
            place,
            limits,
            job_disk_bytes: self.job_disk(),
            has_way_out,
        };
        let failed = |source| CreateError::Walls { node: name.to_owned(), source };
        self.config.link.make(plan).map_err(failed)
    }
}

fn address_of(place: Place) -> io::Result<Ipv4Addr> {
    Ok(Address::of(place.network, place.host)?.ip())
}

impl Provider for Walled {
    fn name(&self) -> &'static str {
        "local"
    }

    fn create(&self, order: &NodeOrder) -> Result<(), CreateError> {
        check_name(&order.name)?;
        let _turn = self.turns.take(&order.name);
        let place = self.places().take(&order.name, order.cluster);
        let place = place.ok_or_else(|| CreateError::Full { node: order.name.to_string() })?;
        self.make(&order.name, place, self.limits(order))
    }

    fn delete(&self, node_name: &str) -> Result<(), DeleteError> {
        check_name(node_name)?;
        let _turn = self.turns.take(node_name);
        let node = || node_name.to_owned();
        let processes = |source| DeleteError::Processes { node: node(), source };
        let walls = |source| DeleteError::Walls { node: node(), source };
        for (signal, within) in [(Stop::Terminate, self.stop_grace), (Stop::Kill, KILLED_WITHIN)] {
            self.config.link.signal(node_name, signal).map_err(walls)?;
            if self.has_ended(node_name, within).map_err(processes)? {
                break;
            }
        }
        self.config.link.remove(node_name).map_err(walls)?;
        if let Err(error) = drop_oldest(&self.config.logs_dir, LOGS_MAX) {
            tracing::warn!(%error, "cannot remove old logs of nodes");
        }
        self.config.relays.close(node_name);
        self.places().free(node_name);
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>, ListError> {
        let seen = self.config.link.list().map_err(|source| ListError::Walls { source })?;
        Ok(seen.into_iter().map(|seen| seen.node).collect())
    }

    /// The kernel ends a node's first process after everything else in the node, so its end is theirs.
    fn ended(&self) -> Result<Vec<String>, ListError> {
        let dir = &self.config.nodes_dir;
        let failed = |source| ListError::Folder { dir: dir.clone(), source };
        let mut ended = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Without a record it is not made yet, or nearly removed.
            let init = Identity::read(&entry.path().join("init")).map_err(failed)?;
            if init.is_some_and(|init| !init.is_alive()) {
                ended.extend(entry.file_name().into_string());
            }
        }
        Ok(ended)
    }
}
