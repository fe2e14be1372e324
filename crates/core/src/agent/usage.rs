//! What a node and the jobs on it use, as the node's agent measures it.
//!
//! It is sent to the server beside the report and is no part of it: a changed figure is not a reason to report, and no
//! decision depends on it.

use serde::{Deserialize, Serialize};

use crate::ids::Epoch;

/// No node has more jobs or GPUs than this. Anything beyond it in a node's message is dropped.
pub const MEASURED_MAX: usize = 256;
/// No node has more memory or disk than this (one pebibyte), nor more cores than the next constant.
const BYTES_MAX: u64 = 1 << 50;
const MILLICORES_MAX: u64 = 100_000_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUsage {
    /// When it was measured, in microseconds of a monotonic clock of the node.
    pub at_us: u64,
    pub node: Usage,
    /// The size of the disk that holds the node's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUsage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptUsage>,
}

/// What is in use. A value is `None` if the node cannot measure it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time since the node or the attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptUsage {
    pub epoch: Epoch,
    pub usage: Usage,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUsage {
    /// The `N` of `/dev/nvidiaN`.
    pub number: u16,
    /// For how much of the last sampling period it was computing, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The attempt that holds it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<Epoch>,
}

impl Usage {
    fn bounded(self) -> Usage {
        let most = |bytes: Option<u64>| bytes.map(|bytes| bytes.min(BYTES_MAX));
        let (memory_bytes, disk_bytes) = (most(self.memory_bytes), most(self.disk_bytes));
        Usage { memory_bytes, disk_bytes, ..self }
    }
}

impl NodeUsage {
    /// The usage without implausible values: a node's message is not trusted.
    pub fn bounded(mut self) -> NodeUsage {
        self.gpus.truncate(MEASURED_MAX);
        self.attempts.truncate(MEASURED_MAX);
        self.node = self.node.bounded();
        self.disk_size_bytes = self.disk_size_bytes.map(|bytes| bytes.min(BYTES_MAX));
        for attempt in &mut self.attempts {
            attempt.usage = attempt.usage.bounded();
        }
        for gpu in &mut self.gpus {
            gpu.busy_percent = gpu.busy_percent.map(|percent| percent.min(100));
            gpu.memory_bytes = gpu.memory_bytes.map(|bytes| bytes.min(BYTES_MAX));
        }
        self
    }

    /// The average number of busy cores since `before`, in thousandths.
    pub fn millicores_since(&self, before: &NodeUsage) -> Option<u64> {
        let span_us = self.at_us.checked_sub(before.at_us).filter(|span_us| *span_us > 0)?;
        let used_us = self.node.cpu_us?.checked_sub(before.node.cpu_us?)?;
        let millicores = used_us.checked_mul(1000)?.checked_div(span_us)?;
        (millicores <= MILLICORES_MAX).then_some(millicores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(at_us: u64, cpu_us: Option<u64>) -> NodeUsage {
        NodeUsage { at_us, node: Usage { cpu_us, ..Usage::default() }, ..NodeUsage::default() }
    }

    #[test]
    fn busy_cores_are_known_between_two_looks_that_make_sense() {
        let first = measured(1_000_000, Some(500_000));
        let millicores = |at_us, cpu_us| measured(at_us, cpu_us).millicores_since(&first);
        assert_eq!(millicores(3_000_000, Some(3_500_000)), Some(1500));
        assert_eq!(millicores(3_000_000, Some(500_000)), Some(0));
        assert_eq!(millicores(3_000_000, None), None);
        assert_eq!(millicores(1_000_000, Some(600_000)), None, "no time has passed");
        assert_eq!(millicores(900_000, Some(600_000)), None, "another clock");
        assert_eq!(millicores(3_000_000, Some(1)), None, "another count");
        assert_eq!(millicores(u64::MAX, Some(u64::MAX)), None, "too large to be true");
        let (second, most) = (1_000_000, 500_000 + 100_000 * 1_000_000);
        assert_eq!(millicores(2 * second, Some(most)), Some(100_000_000));
        assert_eq!(millicores(2 * second, Some(most + second)), None, "no node has so many");
    }

    #[test]
    fn a_node_cannot_say_more_than_a_node_can_have() {
        let gpu =
            GpuUsage { number: 1, busy_percent: Some(255), memory_bytes: None, held_by: None };
        let attempt = AttemptUsage { epoch: Epoch(1), usage: Usage::default() };
        let said = NodeUsage {
            gpus: vec![gpu; MEASURED_MAX + 1],
            attempts: vec![attempt; MEASURED_MAX + 1],
            ..NodeUsage::default()
        };
        let taken = said.bounded();
        assert_eq!((taken.gpus.len(), taken.attempts.len()), (MEASURED_MAX, MEASURED_MAX));
        assert_eq!(taken.gpus[0].busy_percent, Some(100));
        let most = Some(u64::MAX);
        let usage = Usage { cpu_us: most, memory_bytes: most, disk_bytes: most };
        let gpu = GpuUsage { number: 1, busy_percent: None, memory_bytes: most, held_by: None };
        let said = NodeUsage {
            at_us: 1,
            node: usage,
            disk_size_bytes: most,
            gpus: vec![gpu],
            attempts: vec![AttemptUsage { epoch: Epoch(1), usage }],
        };
        let taken = said.bounded();
        let pebibyte = Some(1 << 50);
        for usage in [taken.node, taken.attempts[0].usage] {
            assert_eq!((usage.memory_bytes, usage.disk_bytes), (pebibyte, pebibyte));
        }
        assert_eq!((taken.disk_size_bytes, taken.gpus[0].memory_bytes), (pebibyte, pebibyte));
    }
}
