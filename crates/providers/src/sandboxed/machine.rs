//! The resources of this host.

use std::fmt;

use muster_core::model::Capacity;

use super::gpus::{self, Gpu};

/// The resources of the host, which also limit every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub cores: u32,
    pub memory_bytes: u64,
    pub gpus: Vec<Gpu>,
}

impl Machine {
    pub fn this() -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let memory = rustix::system::sysinfo();
        Machine {
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            memory_bytes: memory.totalram * u64::from(memory.mem_unit),
            gpus: gpus::find().found,
        }
    }

    /// The same as the capacity of a host.
    pub fn capacity(&self) -> Capacity {
        let gpus = u32::try_from(self.gpus.len()).unwrap_or(u32::MAX);
        Capacity { gpus, vcpus: self.cores, memory_mb: self.memory_bytes >> 20 }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.memory_bytes >> 20;
        let (whole, tenth) = (megabytes / 1024, megabytes % 1024 * 10 / 1024);
        write!(f, "{} cores, {whole}.{tenth} GB of memory, {} GPUs", self.cores, self.gpus.len())
    }
}
