//! What the machine has.

use std::fmt;
use std::path::Path;

use muster_core::model::Capacity;

/// A node is never given more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    pub cores: u32,
    pub memory_bytes: u64,
    /// That its driver shows; nodes are not given their devices yet.
    pub gpus: u32,
}

impl Machine {
    pub fn this() -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let memory = rustix::system::sysinfo();
        Machine {
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            memory_bytes: memory.totalram * u64::from(memory.mem_unit),
            gpus: gpus(Path::new("/proc/driver/nvidia/gpus"), Path::new("/dev")),
        }
    }

    /// As a host's.
    pub fn capacity(self) -> Capacity {
        let Machine { cores, memory_bytes, gpus } = self;
        Capacity { gpus, vcpus: cores, memory_mb: memory_bytes >> 20 }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.memory_bytes >> 20;
        let (whole, tenth) = (megabytes / 1024, megabytes % 1024 * 10 / 1024);
        write!(f, "{} cores, {whole}.{tenth} GB of memory, {} GPUs", self.cores, self.gpus)
    }
}

/// A folder for each in the driver's list, or else their devices: `nvidia0`, `nvidia1`, …
fn gpus(driver: &Path, devices: &Path) -> u32 {
    let count = |folder: &Path, is_one: fn(&str) -> bool| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_str().is_some_and(is_one)).count()
    };
    let is_device = |name: &str| {
        let number = name.strip_prefix("nvidia");
        number.is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let listed = count(driver, |_| true);
    let found = if listed > 0 { listed } else { count(devices, is_device) };
    u32::try_from(found).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_counted_by_the_driver_or_by_their_devices() {
        let dir = tempfile::tempdir().unwrap();
        let (driver, devices) = (dir.path().join("gpus"), dir.path().join("dev"));
        assert_eq!(gpus(&driver, &devices), 0);
        std::fs::create_dir(&devices).unwrap();
        for name in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia", "sda1"] {
            std::fs::write(devices.join(name), "").unwrap();
        }
        assert_eq!(gpus(&driver, &devices), 2);
        std::fs::create_dir_all(driver.join("0000:01:00.0")).unwrap();
        assert_eq!(gpus(&driver, &devices), 1);
    }
}
