//! The usage of nodes and jobs, as last reported by their agents. It is only in memory: it is neither a row nor an
//! event, no decision depends on it, and after a restart it is available again as soon as the nodes have reported.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_core::agent::{GpuUsage, NodeUsage, Usage};
use muster_core::ids::{ClusterId, Epoch};

/// The usage of a node that has not reported for longer than this is unknown.
const FRESH_FOR: Duration = Duration::from_secs(60);

/// By the names of nodes.
#[derive(Default)]
pub struct Usages {
    nodes: BTreeMap<Arc<str>, Measured>,
}

struct Measured {
    received: Instant,
    usage: NodeUsage,
    /// The cores that were recently busy, in thousandths.
    millicores: Option<u64>,
}

/// One node, with the names of its jobs.
pub struct MeasuredNode {
    pub name: Arc<str>,
    pub cluster: ClusterId,
    pub usage: Usage,
    /// The cores that were recently busy, in thousandths.
    pub millicores: Option<u64>,
    pub disk_size_bytes: Option<u64>,
    pub gpus: Vec<MeasuredGpu>,
    pub jobs: Vec<(Arc<str>, Usage)>,
}

pub struct MeasuredGpu {
    pub usage: GpuUsage,
    pub job: Option<Arc<str>>,
}

/// The load that a list of nodes shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeLoad {
    pub millicores: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
    pub disk_size_bytes: Option<u64>,
}

impl Usages {
    /// A report may arrive after a later one, or twice. The clock of a host starts again after a reboot, so a stored
    /// report counts as later only while it is fresh.
    pub fn take(&mut self, node: &Arc<str>, report: NodeUsage) {
        let usage = report.bounded();
        let before = self.nodes.get(node).filter(|measured| measured.is_fresh());
        if before.is_some_and(|before| before.usage.at_us >= usage.at_us) {
            return;
        }
        let millicores = before.and_then(|before| usage.millicores_since(&before.usage));
        let measured = Measured { received: Instant::now(), usage, millicores };
        self.nodes.insert(Arc::clone(node), measured);
    }

    pub fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.nodes.retain(|node, _| is_there(node));
    }

    pub fn load_of(&self, node: &str) -> Option<NodeLoad> {
        let measured = self.nodes.get(node).filter(|measured| measured.is_fresh())?;
        let NodeUsage { node: usage, disk_size_bytes, .. } = &measured.usage;
        Some(NodeLoad {
            millicores: measured.millicores,
            memory_bytes: usage.memory_bytes,
            disk_bytes: usage.disk_bytes,
            disk_size_bytes: *disk_size_bytes,
        })
    }

    /// `job_on` returns the name of the job that has this epoch, if the job runs on this node.
    pub fn all(
        &self,
        cluster_of: impl Fn(&str) -> Option<ClusterId>,
        job_on: impl Fn(Epoch, &str) -> Option<Arc<str>>,
    ) -> Vec<MeasuredNode> {
        let fresh = self.nodes.iter().filter(|(_, measured)| measured.is_fresh());
        let shown = fresh.filter_map(|(name, Measured { usage, millicores, .. })| {
            let gpu = |gpu: &GpuUsage| {
                let job = gpu.held_by.and_then(|epoch| job_on(epoch, name));
                MeasuredGpu { usage: gpu.clone(), job }
            };
            // A node can report only its own jobs.
            let jobs = usage
                .attempts
                .iter()
                .filter_map(|attempt| job_on(attempt.epoch, name).map(|job| (job, attempt.usage)));
            // A series has one value.
            let jobs: BTreeMap<Arc<str>, Usage> = jobs.collect();
            let gpus: BTreeMap<u16, MeasuredGpu> =
                usage.gpus.iter().map(|one| (one.number, gpu(one))).collect();
            Some(MeasuredNode {
                name: Arc::clone(name),
                cluster: cluster_of(name)?,
                usage: usage.node,
                millicores: *millicores,
                disk_size_bytes: usage.disk_size_bytes,
                gpus: gpus.into_values().collect(),
                jobs: jobs.into_iter().collect(),
            })
        });
        shown.collect()
    }
}

impl Measured {
    fn is_fresh(&self) -> bool {
        self.received.elapsed() <= FRESH_FOR
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use muster_core::agent::AttemptUsage;

    use super::*;

    fn reported(at_us: u64, cpu_us: u64, epochs: &[u64]) -> NodeUsage {
        let usage = Usage { cpu_us: Some(cpu_us), ..Usage::default() };
        let gpu = |held_by| GpuUsage { number: 3, busy_percent: None, memory_bytes: None, held_by };
        NodeUsage {
            at_us,
            node: usage,
            gpus: vec![gpu(None), gpu(epochs.first().map(|epoch| Epoch(*epoch)))],
            attempts: epochs
                .iter()
                .map(|epoch| AttemptUsage { epoch: Epoch(*epoch), usage })
                .collect(),
            ..NodeUsage::default()
        }
    }

    #[test]
    fn the_last_two_looks_tell_how_busy_a_node_is() {
        let (mut usages, node) = (Usages::default(), Arc::from("n"));
        usages.take(&node, reported(1_000_000, 0, &[]));
        assert_eq!(usages.load_of("n").unwrap().millicores, None);
        usages.take(&node, reported(3_000_000, 1_000_000, &[]));
        assert_eq!(usages.load_of("n").unwrap().millicores, Some(500));
        // Reports that were delayed in transit change nothing.
        usages.take(&node, reported(2_000_000, 0, &[]));
        usages.take(&node, reported(3_000_000, 1_000_000, &[]));
        assert_eq!(usages.load_of("n").unwrap().millicores, Some(500));
        usages.take(&node, reported(4_000_000, 1_100_000, &[]));
        assert_eq!(usages.load_of("n").unwrap().millicores, Some(100));
        // After a while, a clock that started again is accepted.
        let measured = usages.nodes.get_mut("n").unwrap();
        measured.received = Instant::now().checked_sub(FRESH_FOR * 2).unwrap();
        usages.take(&node, reported(1_000, 0, &[]));
        usages.take(&node, reported(1_001_000, 250_000, &[]));
        assert_eq!(usages.load_of("n").unwrap().millicores, Some(250));
        usages.forget("n");
        assert_eq!(usages.load_of("n"), None);
    }

    #[test]
    fn a_node_reports_its_own_jobs_and_counts_only_while_it_reports() {
        let (mut usages, node) = (Usages::default(), Arc::from("n"));
        // One epoch twice, one of another node, and one that has ended.
        usages.take(&node, reported(1, 1, &[7, 7, 8, 9]));
        let cluster_of = |node: &str| (node == "n").then_some(ClusterId(1));
        let job_on = |epoch: Epoch, node: &str| {
            (epoch == Epoch(7) && node == "n").then(|| Arc::from("train"))
        };
        let [shown] = <[MeasuredNode; 1]>::try_from(usages.all(cluster_of, job_on)).ok().unwrap();
        let jobs: Vec<&str> = shown.jobs.iter().map(|(job, _)| &**job).collect();
        assert_eq!(jobs, ["train"]);
        let gpus: Vec<_> = shown.gpus.iter().map(|gpu| gpu.job.as_deref()).collect();
        assert_eq!(gpus, [Some("train")]);
        usages.take(&Arc::from("gone"), reported(1, 1, &[]));
        assert_eq!(
            usages.all(cluster_of, job_on).len(),
            1,
            "nodes that World does not know are left out"
        );
        let measured = usages.nodes.get_mut("n").unwrap();
        measured.received = Instant::now().checked_sub(FRESH_FOR * 2).unwrap();
        assert!(usages.all(cluster_of, job_on).is_empty());
        assert_eq!(usages.load_of("n"), None);
        usages.retain(|_| false);
        assert!(usages.nodes.is_empty());
    }
}
