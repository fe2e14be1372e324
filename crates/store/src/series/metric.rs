//! The metrics that are recorded.

use std::str::FromStr;

use muster_core::model::Category;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    NodesStarting,
    NodesIdle,
    NodesBusy,
    NodesLeaving,
    JobsQueued,
    JobsRunning,
    /// The current price of the nodes, or parts of nodes, that are in this category.
    Cost(Category),
    Cpu,
    Memory,
    Gpu,
    GpuMemory,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no metric {name:?}")]
pub struct UnknownMetric {
    pub name: String,
}

const MIB: f64 = 1_048_576.0;

impl Metric {
    pub const ALL: [Metric; 17] = [
        Metric::NodesStarting,
        Metric::NodesIdle,
        Metric::NodesBusy,
        Metric::NodesLeaving,
        Metric::JobsQueued,
        Metric::JobsRunning,
        Metric::Cost(Category::Start),
        Metric::Cost(Category::Prepare),
        Metric::Cost(Category::Run),
        Metric::Cost(Category::Idle),
        Metric::Cost(Category::Floor),
        Metric::Cost(Category::Stop),
        Metric::Cost(Category::Unusable),
        Metric::Cpu,
        Metric::Memory,
        Metric::Gpu,
        Metric::GpuMemory,
    ];

    /// The number in the database, which never changes.
    pub fn code(self) -> u8 {
        match self {
            Metric::NodesStarting => 1,
            Metric::NodesIdle => 2,
            Metric::NodesBusy => 3,
            Metric::NodesLeaving => 4,
            Metric::JobsQueued => 5,
            Metric::JobsRunning => 6,
            Metric::Cpu => 7,
            Metric::Memory => 8,
            Metric::Gpu => 9,
            Metric::GpuMemory => 10,
            Metric::Cost(Category::Start) => 20,
            Metric::Cost(Category::Prepare) => 21,
            Metric::Cost(Category::Run) => 22,
            Metric::Cost(Category::Idle) => 23,
            Metric::Cost(Category::Floor) => 24,
            Metric::Cost(Category::Stop) => 25,
            Metric::Cost(Category::Unusable) => 26,
        }
    }

    pub fn of_code(code: u8) -> Option<Metric> {
        Metric::ALL.into_iter().find(|metric| metric.code() == code)
    }

    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Metric::NodesStarting => "nodes.starting",
            Metric::NodesIdle => "nodes.idle",
            Metric::NodesBusy => "nodes.busy",
            Metric::NodesLeaving => "nodes.leaving",
            Metric::JobsQueued => "jobs.queued",
            Metric::JobsRunning => "jobs.running",
            Metric::Cost(Category::Start) => "cost.start",
            Metric::Cost(Category::Prepare) => "cost.prepare",
            Metric::Cost(Category::Run) => "cost.run",
            Metric::Cost(Category::Idle) => "cost.idle",
            Metric::Cost(Category::Floor) => "cost.floor",
            Metric::Cost(Category::Stop) => "cost.stop",
            Metric::Cost(Category::Unusable) => "cost.unusable",
            Metric::Cpu => "cpu",
            Metric::Memory => "memory",
            Metric::Gpu => "gpu",
            Metric::GpuMemory => "gpuMemory",
        }
    }

    /// The unit in the API.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::NodesStarting
            | Metric::NodesIdle
            | Metric::NodesBusy
            | Metric::NodesLeaving => "nodes",
            Metric::JobsQueued | Metric::JobsRunning => "jobs",
            Metric::Cost(_) => "USD/hour",
            Metric::Cpu => "cores",
            Metric::Gpu => "GPUs",
            Metric::Memory | Metric::GpuMemory => "bytes",
        }
    }

    /// How many units of the API one stored unit is: means are stored as integers, so counts are stored in hundredths.
    pub fn scale(self) -> f64 {
        match self {
            Metric::NodesStarting
            | Metric::NodesIdle
            | Metric::NodesBusy
            | Metric::NodesLeaving
            | Metric::JobsQueued
            | Metric::JobsRunning
            | Metric::Gpu => 0.01,
            Metric::Cost(_) => 0.000_001,
            Metric::Cpu => 0.001,
            Metric::Memory | Metric::GpuMemory => MIB,
        }
    }
}

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Metric, UnknownMetric> {
        let found = Metric::ALL.into_iter().find(|metric| metric.as_str() == name);
        found.ok_or_else(|| UnknownMetric { name: name.to_owned() })
    }
}
