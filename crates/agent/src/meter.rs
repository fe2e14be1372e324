//! Measures what this node and its jobs use, for display.
//!
//! This is done on a separate thread, because a driver or a disk that does not respond must not block the agent. The
//! next report includes the latest measurement; none is sent just for it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use muster_core::agent::{AttemptUsage, GpuUsage, NodeUsage, Usage};
use muster_core::ids::Epoch;
use muster_sandbox::cgroup::{Group, Groups, Load};
use muster_sandbox::disk_space::DiskSpace;
use nvml_wrapper::Nvml;

use crate::clock;
use crate::gpus::Gpu;
use crate::limits::Memory;

/// The interval between two measurements, and therefore the minimum between two reports that contain one.
const LOOK_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Meter {
    /// The node's own control group, if it has one.
    group: Option<Group>,
    /// A folder on the node's disk.
    folder: PathBuf,
    devices: Vec<Gpu>,
    /// The agent waits for this lock, so it is never held during a measurement.
    attempts: Mutex<BTreeMap<Epoch, Arc<Metered>>>,
    /// The measurement that no report has included yet.
    latest: Mutex<Option<NodeUsage>>,
}

#[derive(Debug)]
pub(crate) struct Metered {
    pub(crate) counted: Counted,
    /// How much of the disk its folder uses, if that is measured.
    pub(crate) disk_bytes: Option<Arc<AtomicU64>>,
    /// The numbers of its devices.
    pub(crate) gpus: Vec<u16>,
}

/// Where an attempt's cores and memory are counted.
#[derive(Debug)]
pub(crate) enum Counted {
    /// The group may have had another job before.
    InItsGroup {
        group: Group,
        cpu_before_us: u64,
    },
    /// The attempt has the node to itself, so the node's use is its own from its start.
    WithItsNode {
        cpu_before_us: u64,
    },
    Nowhere,
}

/// An attempt is measured until this is dropped.
#[derive(Debug)]
pub(crate) struct Following<'a> {
    meter: &'a Meter,
    epoch: Epoch,
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        lock(&self.meter.attempts).remove(&self.epoch);
    }
}

impl Meter {
    /// Without `is_sandboxed`, the agent is in a group with other processes of the host, whose use says nothing.
    pub(crate) fn new(folder: PathBuf, devices: Vec<Gpu>, is_sandboxed: bool) -> Meter {
        let group = Groups::look().of_this_node();
        // Without limits of its own this may be the host's group.
        let is_own = || group.millicores().is_some() || Memory::of_this_node().is_some();
        let group = (is_sandboxed && is_own()).then_some(group);
        Meter { group, folder, devices, attempts: Mutex::default(), latest: Mutex::default() }
    }

    /// Measures every few seconds, for as long as this meter exists.
    pub(crate) fn start(self: &Arc<Meter>) {
        let meter = Arc::downgrade(self);
        let looking = std::thread::Builder::new().name("usage".to_owned());
        if let Err(error) = looking.spawn(move || look_on(&meter)) {
            tracing::warn!(%error, "cannot measure what this node uses");
        }
    }

    /// Takes what was measured since the last call.
    pub(crate) fn take(&self) -> Option<NodeUsage> {
        lock(&self.latest).take()
    }

    pub(crate) fn follow(&self, epoch: Epoch, metered: Metered) -> Following<'_> {
        lock(&self.attempts).insert(epoch, Arc::new(metered));
        Following { meter: self, epoch }
    }

    /// Where an attempt without a group of its own is counted.
    pub(crate) fn counted_with_node(&self) -> Counted {
        match self.load().cpu_us {
            Some(cpu_before_us) => Counted::WithItsNode { cpu_before_us },
            None => Counted::Nowhere,
        }
    }

    fn load(&self) -> Load {
        self.group.as_ref().and_then(|group| group.load().ok()).unwrap_or_default()
    }

    fn look(&self, driver: impl Fn(&Gpu) -> Option<GpuUsage>) -> NodeUsage {
        let gpus: Vec<GpuUsage> = self.devices.iter().filter_map(driver).collect();
        let disk = DiskSpace::of(&self.folder).ok();
        let load = self.load();
        let attempts = lock(&self.attempts).clone();
        let holder = |number: u16| {
            let mut holders = attempts.iter().filter(|(_, one)| one.gpus.contains(&number));
            holders.next().map(|(epoch, _)| *epoch)
        };
        NodeUsage {
            at_us: clock::now().0,
            node: Usage {
                cpu_us: load.cpu_us,
                memory_bytes: load.memory_bytes,
                disk_bytes: disk.map(|disk| disk.bytes.saturating_sub(disk.free_bytes)),
            },
            disk_size_bytes: disk.map(|disk| disk.bytes),
            gpus: gpus
                .into_iter()
                .map(|gpu| GpuUsage { held_by: holder(gpu.number), ..gpu })
                .collect(),
            attempts: attempts
                .iter()
                .map(|(epoch, one)| AttemptUsage { epoch: *epoch, usage: one.usage(load) })
                .collect(),
        }
    }
}

impl Metered {
    fn usage(&self, node: Load) -> Usage {
        let since = |before_us: u64, load: Load| Load {
            cpu_us: load.cpu_us.map(|cpu_us| cpu_us.saturating_sub(before_us)),
            ..load
        };
        let load = match &self.counted {
            Counted::InItsGroup { group, cpu_before_us } => {
                since(*cpu_before_us, group.load().unwrap_or_default())
            }
            Counted::WithItsNode { cpu_before_us } => since(*cpu_before_us, node),
            Counted::Nowhere => Load::default(),
        };
        Usage {
            cpu_us: load.cpu_us,
            memory_bytes: load.memory_bytes,
            disk_bytes: self.disk_bytes.as_ref().map(|bytes| bytes.load(Ordering::Relaxed)),
        }
    }
}

fn look_on(meter: &Weak<Meter>) {
    let mut library = None;
    while let Some(meter) = meter.upgrade() {
        if library.is_none() && !meter.devices.is_empty() {
            library = Nvml::init().ok();
        }
        let usage = meter.look(|gpu| usage_of(library.as_ref()?, gpu));
        *lock(&meter.latest) = Some(usage);
        drop(meter);
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Returns `None` for a GPU that the driver's library does not know.
fn usage_of(library: &Nvml, gpu: &Gpu) -> Option<GpuUsage> {
    let device = match &gpu.uuid {
        Some(uuid) => library.device_by_uuid(uuid.as_str()).ok()?,
        None => (0..library.device_count().ok()?)
            .filter_map(|index| library.device_by_index(index).ok())
            .find(|device| device.minor_number().ok() == Some(u32::from(gpu.number)))?,
    };
    let busy = device.utilization_rates().ok().and_then(|rates| u8::try_from(rates.gpu).ok());
    let memory_bytes = device.memory_info().ok().map(|memory| memory.used);
    Some(GpuUsage { number: gpu.number, busy_percent: busy, memory_bytes, held_by: None })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves nothing half-done here: a map has one entry more or less, or one number changes.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn gpu(number: u16) -> Gpu {
        Gpu { number, uuid: None }
    }

    fn busy(gpu: &Gpu) -> Option<GpuUsage> {
        let number = gpu.number;
        let seen = GpuUsage { number, busy_percent: Some(50), memory_bytes: None, held_by: None };
        (number != 7).then_some(seen)
    }

    #[test]
    fn an_attempt_is_measured_from_its_start_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let devices = vec![gpu(0), gpu(1), gpu(7)];
        let meter = Meter::new(dir.path().to_owned(), devices, false);
        let metered = Metered {
            counted: Counted::WithItsNode { cpu_before_us: 3 },
            disk_bytes: Some(Arc::new(AtomicU64::new(4096))),
            gpus: vec![1],
        };
        assert_eq!(
            metered.usage(Load { cpu_us: Some(10), memory_bytes: Some(5) }),
            Usage { cpu_us: Some(7), memory_bytes: Some(5), disk_bytes: Some(4096) }
        );
        let following = meter.follow(Epoch(8), metered);
        let usage = meter.look(busy);
        // A process of the host itself does not know which part of its group's use is its own.
        let unknown = Usage { disk_bytes: Some(4096), ..Usage::default() };
        assert_eq!(usage.attempts, [AttemptUsage { epoch: Epoch(8), usage: unknown }]);
        assert_eq!((usage.node.cpu_us, usage.node.memory_bytes), (None, None));
        assert!(usage.node.disk_bytes.unwrap() <= usage.disk_size_bytes.unwrap());
        let held: Vec<_> = usage.gpus.iter().map(|gpu| (gpu.number, gpu.held_by)).collect();
        assert_eq!(
            held,
            [(0, None), (1, Some(Epoch(8)))],
            "a GPU that does not respond is left out"
        );
        drop(following);
        assert_eq!(meter.look(busy).attempts, []);
    }

    #[test]
    fn a_driver_that_does_not_answer_holds_up_no_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let meter = Meter::new(dir.path().to_owned(), vec![gpu(0)], false);
        let (asked, is_asked) = mpsc::channel();
        let (answer, is_answered) = mpsc::channel::<()>();
        let (followed, is_followed) = mpsc::channel();
        let metered = Metered { counted: Counted::Nowhere, disk_bytes: None, gpus: vec![0] };
        std::thread::scope(|scope| {
            let meter = &meter;
            scope.spawn(move || {
                meter.look(|_| {
                    asked.send(()).unwrap();
                    is_answered.recv().ok();
                    None
                })
            });
            is_asked.recv().unwrap();
            scope.spawn(move || {
                drop(meter.follow(Epoch(8), metered));
                followed.send(()).unwrap();
            });
            let followed = is_followed.recv_timeout(Duration::from_secs(10));
            drop(answer);
            assert_eq!(followed, Ok(()), "it waited for the driver");
        });
    }

    #[test]
    fn a_look_is_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let meter = Arc::new(Meter::new(dir.path().to_owned(), Vec::new(), false));
        assert_eq!(meter.take(), None);
        let seen = meter.look(busy);
        *lock(&meter.latest) = Some(seen.clone());
        assert_eq!(meter.take(), Some(seen));
        assert_eq!(meter.take(), None);
        meter.start();
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while meter.take().is_none() {
            assert!(std::time::Instant::now() < deadline, "nothing is measured");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
