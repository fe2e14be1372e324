//! Looks at clusters and nodes every ten seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_core::ids::ClusterId;
use muster_store::series::{Metric, Sample, Subject};

use super::{Minute, Series};
use crate::clock;
use crate::live::Live;
use crate::metrics::Present;
use crate::usage::MeasuredNode;
use crate::writer::{Handle, Unavailable};

const EVERY_S: u64 = 10;
const MINUTE_S: u64 = 60;

pub async fn run(live: Arc<Live>, writer: Handle, series: Series) {
    let mut minute = Vec::new();
    loop {
        let wait_s = EVERY_S - clock::unix_seconds() % EVERY_S;
        tokio::time::sleep(Duration::from_secs(wait_s)).await;
        let present = match writer.present().await {
            Ok(present) => present,
            Err(Unavailable::Stopping) => return,
            // Without World there is nothing to record.
            Err(_) => continue,
        };
        let now_s = clock::unix_seconds();
        let is_over = |sample: &Sample| sample.at_s / MINUTE_S != now_s / MINUTE_S;
        if minute.first().is_some_and(is_over) {
            let existing: BTreeSet<ClusterId> = present.clusters().collect();
            series.add(Minute { samples: std::mem::take(&mut minute), existing, now_s });
        }
        minute.extend(samples(&present, &live.usage(), now_s));
    }
}

/// The values of all clusters and nodes.
pub fn samples(present: &Present, nodes: &[MeasuredNode], at_s: u64) -> Vec<Sample> {
    let mut clusters: BTreeMap<ClusterId, BTreeMap<Metric, u64>> = present.values().collect();
    let mut samples = Vec::new();
    for node in nodes {
        let Some(of_cluster) = clusters.get_mut(&node.cluster) else { continue };
        let values = usage(node);
        for (metric, value) in &values {
            *of_cluster.entry(*metric).or_default() += value;
        }
        let subject = Subject { cluster: node.cluster, node: Some((&*node.name).into()) };
        if !values.is_empty() {
            samples.push(Sample { subject, at_s, values });
        }
    }
    samples.extend(clusters.into_iter().map(|(cluster, values)| Sample {
        subject: Subject { cluster, node: None },
        at_s,
        values,
    }));
    samples
}

/// What a node uses. Values that it cannot measure are left out.
fn usage(node: &MeasuredNode) -> BTreeMap<Metric, u64> {
    let gpus = || node.gpus.iter().map(|gpu| &gpu.usage);
    let busy: Option<u64> =
        gpus().filter_map(|gpu| gpu.busy_percent).map(u64::from).reduce(|a, b| a + b);
    let gpu_bytes = gpus().filter_map(|gpu| gpu.memory_bytes).reduce(u64::saturating_add);
    let mib = |bytes: u64| bytes >> 20;
    let values = [
        (Metric::Cpu, node.millicores),
        (Metric::Memory, node.usage.memory_bytes.map(mib)),
        (Metric::Gpu, busy),
        (Metric::GpuMemory, gpu_bytes.map(mib)),
    ];
    values.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect()
}
