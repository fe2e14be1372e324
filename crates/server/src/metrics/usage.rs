//! The usage of live nodes and of the live jobs on them.

use muster_core::agent::{GpuUsage, Usage};

use super::present::{Labels, Present};
use super::text::Text;
use crate::usage::MeasuredNode;

/// A node with the labels of its cluster.
type Shown<'a> = (&'a Labels, &'a MeasuredNode);

pub fn write(text: &mut Text, nodes: &[MeasuredNode], present: &Present) {
    // A node of a cluster that has just been created is shown the next time.
    let shown = nodes.iter().filter_map(|node| Some((present.labels(node.cluster)?, node)));
    let shown: Vec<Shown<'_>> = shown.collect();
    write_nodes(text, &shown);
    write_jobs(text, &shown);
    write_gpus(text, &shown);
}

/// A family for nodes and one for jobs.
struct Figure<T> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    of: fn(&T) -> Option<f64>,
}

const FIGURES: [Figure<Usage>; 3] = [
    Figure {
        name: "cpu_seconds_total",
        kind: "counter",
        help: "CPU time used.",
        of: |usage| usage.cpu_us.map(|us| float(us) / 1e6),
    },
    Figure {
        name: "memory_bytes",
        kind: "gauge",
        help: "Memory used, without idle files in the cache.",
        of: |usage| usage.memory_bytes.map(float),
    },
    Figure {
        name: "disk_bytes",
        kind: "gauge",
        help: "Space used on the disk of the node.",
        of: |usage| usage.disk_bytes.map(float),
    },
];

const GPU_FIGURES: [Figure<GpuUsage>; 2] = [
    Figure {
        name: "gpu_busy_ratio",
        kind: "gauge",
        help: "Fraction of the last moment in which the GPU was busy, from 0 to 1.",
        of: |gpu| gpu.busy_percent.map(|percent| f64::from(percent) / 100.0),
    },
    Figure {
        name: "gpu_memory_bytes",
        kind: "gauge",
        help: "Memory of the GPU that is in use.",
        of: |gpu| gpu.memory_bytes.map(float),
    },
];

fn write_nodes(text: &mut Text, shown: &[Shown<'_>]) {
    for Figure { name, kind, help, of } in FIGURES {
        let name = format!("muster_node_{name}");
        text.family(&name, kind, help);
        for (labels, node) in shown {
            if let Some(value) = of(&node.usage) {
                text.sample(&name, &labels.with(&[("node", &node.name)]), value);
            }
        }
    }
    let name = "muster_node_disk_size_bytes";
    text.family(name, "gauge", "Size of the disk that holds the files of the node.");
    for (labels, node) in shown {
        if let Some(bytes) = node.disk_size_bytes {
            text.sample(name, &labels.with(&[("node", &node.name)]), bytes);
        }
    }
}

/// The label is `job_name`, because Prometheus adds its own label `job` to every series.
fn write_jobs(text: &mut Text, shown: &[Shown<'_>]) {
    for Figure { name, kind, help, of } in FIGURES {
        let name = format!("muster_job_{name}");
        text.family(&name, kind, help);
        for (labels, node) in shown {
            for (job, usage) in &node.jobs {
                if let Some(value) = of(usage) {
                    let more = [("node", &*node.name), ("job_name", &**job)];
                    text.sample(&name, &labels.with(&more), value);
                }
            }
        }
    }
}

fn write_gpus(text: &mut Text, shown: &[Shown<'_>]) {
    for Figure { name, kind, help, of } in GPU_FIGURES {
        let (of_node, of_job) = (format!("muster_node_{name}"), format!("muster_job_{name}"));
        text.family(&of_node, kind, help);
        for (labels, node) in shown {
            for gpu in &node.gpus {
                if let Some(value) = of(&gpu.usage) {
                    let number = gpu.usage.number.to_string();
                    let more = [("node", &*node.name), ("gpu", &*number)];
                    text.sample(&of_node, &labels.with(&more), value);
                }
            }
        }
        text.family(&of_job, kind, help);
        for (labels, node) in shown {
            for gpu in &node.gpus {
                if let (Some(value), Some(job)) = (of(&gpu.usage), &gpu.job) {
                    let number = gpu.usage.number.to_string();
                    let more = [("node", &*node.name), ("gpu", &*number), ("job_name", &**job)];
                    text.sample(&of_job, &labels.with(&more), value);
                }
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a figure for a chart")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_core::ids::{ClusterId, Epoch};

    use super::*;
    use crate::usage::MeasuredGpu;

    #[test]
    fn a_gpu_is_shown_for_its_node_and_for_the_job_that_has_it() {
        let gpu = |number, held_by: Option<u64>| GpuUsage {
            number,
            busy_percent: Some(97),
            memory_bytes: None,
            held_by: held_by.map(Epoch),
        };
        let node = MeasuredNode {
            name: "n1".into(),
            cluster: ClusterId(1),
            usage: Usage { cpu_us: Some(1_500_000), ..Usage::default() },
            millicores: None,
            disk_size_bytes: None,
            gpus: vec![
                MeasuredGpu { usage: gpu(0, None), job: None },
                MeasuredGpu { usage: gpu(1, Some(7)), job: Some(Arc::from("train")) },
            ],
            jobs: vec![(Arc::from("train"), Usage::default())],
        };
        let (mut text, labels) = (Text::default(), Labels::default());
        let shown = [(&labels, &node)];
        write_nodes(&mut text, &shown);
        write_jobs(&mut text, &shown);
        write_gpus(&mut text, &shown);
        let page = text.into_page();
        let samples: Vec<String> = page
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.replace(r#"workspace="",location="",cluster="","#, ""))
            .map(|line| line.replace(r#"resource_group="",subscription="","#, ""))
            .collect();
        // Figures that were not measured are not shown.
        let wanted = [
            r#"muster_node_cpu_seconds_total{node="n1"} 1.5"#,
            r#"muster_node_gpu_busy_ratio{node="n1",gpu="0"} 0.97"#,
            r#"muster_node_gpu_busy_ratio{node="n1",gpu="1"} 0.97"#,
            r#"muster_job_gpu_busy_ratio{node="n1",gpu="1",job_name="train"} 0.97"#,
        ];
        assert_eq!(samples, wanted);
    }
}
