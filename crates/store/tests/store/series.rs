//! SQLite passes the checks for time series, and stores a month in less than a megabyte.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use muster_core::ids::ClusterId;
use muster_core::model::Category;
use muster_store::conformance::SeriesDatabase;
use muster_store::series::{Metric, Query, Retention, Sample, Series, SeriesReader, Subject};
use muster_store::{Durability, SqliteSeries, SqliteSeriesReader};

struct File(tempfile::TempDir);

impl File {
    fn path(&self) -> PathBuf {
        self.0.path().join("series.db")
    }
}

impl SeriesDatabase for File {
    fn series(&self) -> Box<dyn Series> {
        Box::new(SqliteSeries::open(&self.path(), Durability::None).expect("the file opens"))
    }

    fn reader(&self) -> Box<dyn SeriesReader> {
        Box::new(SqliteSeriesReader::open(&self.path()).expect("the file opens"))
    }
}

fn fresh() -> File {
    File(tempfile::tempdir().expect("a folder"))
}

muster_store::series_conformance!(fresh);

struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// The samples of a minute of a cluster whose nodes are all busy and whose queue changes all the time.
fn minute(noise: &mut Noise, cluster: ClusterId, at_s: u64, nodes: u64) -> Vec<Sample> {
    let mut samples = Vec::new();
    for at_s in (0..6).map(|number| at_s + number * 10) {
        let mut total: BTreeMap<Metric, u64> = BTreeMap::new();
        for node in 0..nodes {
            let values = [
                (Metric::Cpu, 3_000 + noise.below(1_000)),
                (Metric::Memory, 20_000 + noise.below(500)),
                (Metric::Gpu, 80 + noise.below(20)),
                (Metric::GpuMemory, 70_000 + noise.below(100)),
            ];
            for (metric, value) in values {
                *total.entry(metric).or_default() += value;
            }
            let node = Some(format!("tvmps_{node:016x}_d").into());
            let subject = Subject { cluster, node };
            samples.push(Sample { subject, at_s, values: values.into() });
        }
        let busy = nodes - noise.below(2);
        total.insert(Metric::NodesStarting, 0);
        total.insert(Metric::NodesIdle, (nodes - busy) * 100);
        total.insert(Metric::NodesBusy, busy * 100);
        total.insert(Metric::NodesLeaving, 0);
        total.insert(Metric::JobsQueued, (at_s / 600 % 50 + noise.below(3)) * 100);
        total.insert(Metric::JobsRunning, busy * 100);
        total.insert(Metric::Cost(Category::Run), busy * 3_672_000);
        total.insert(Metric::Cost(Category::Idle), (nodes - busy) * 3_672_000);
        samples.push(Sample { subject: Subject { cluster, node: None }, at_s, values: total });
    }
    samples
}

const START_S: u64 = 1_700_000_400;

/// Records this many clusters for some days.
fn recorded(clusters: u64, days: u64, nodes: u64, every_minutes: usize) -> File {
    let file = fresh();
    let mut series = SqliteSeries::open(&file.path(), Durability::None).expect("the file opens");
    let mut noise = Noise(42);
    let existing: BTreeSet<ClusterId> = (1..=clusters).map(ClusterId).collect();
    for minutes in (0..days * 1_440).step_by(every_minutes) {
        let at_s = START_S + minutes * 60;
        let of_cluster = |cluster: &ClusterId| minute(&mut noise, *cluster, at_s, nodes);
        let samples: Vec<Sample> = existing.iter().flat_map(of_cluster).collect();
        series
            .add(&samples, &existing, at_s + 60, &Retention::default())
            .expect("the samples are added");
    }
    file
}

/// The size of the file after this many days.
fn bytes_after(days: u64, nodes: u64, every_minutes: usize) -> u64 {
    let file = recorded(1, days, nodes, every_minutes);
    std::fs::metadata(file.path()).expect("the file").len()
}

#[test]
fn a_month_of_a_cluster_with_four_gpu_nodes_takes_less_than_a_megabyte() {
    let bytes = bytes_after(30, 4, 1);
    println!("{bytes} bytes");
    assert!((200_000..1_000_000).contains(&bytes), "{bytes} bytes");
}

/// More nodes have a shorter history.
#[test]
fn a_large_cluster_takes_no_more() {
    let bytes = bytes_after(3, 60, 2);
    println!("{bytes} bytes");
    assert!(bytes < 1_000_000, "{bytes} bytes");
}

/// The limit is for the whole history of a cluster, however long that is.
#[test]
fn fifty_nodes_leave_less_history_of_nodes_and_all_of_the_cluster() {
    let (days, nodes) = (2, 50);
    let file = recorded(1, days, nodes, 2);
    let bytes = std::fs::metadata(file.path()).expect("the file").len();
    assert!(bytes < 1_000_000, "{bytes} bytes");
    let (mut reader, end_s) = (file.reader(), START_S + days * 86_400);
    let subject = Subject { cluster: ClusterId(1), node: None };
    let metrics = [Metric::NodesBusy].into();
    let query = Query { subject, from_s: START_S, to_s: end_s, step_s: 3_600, metrics };
    let points = reader.read(&query).expect("points").remove(&Metric::NodesBusy).expect("values");
    assert!(points.len() as u64 >= days * 24 - 1, "{} hours of the cluster", points.len());
    let recorded = reader.nodes(ClusterId(1)).expect("nodes");
    assert_eq!(recorded.len() as u64, nodes);
    assert!(recorded.iter().all(|node| end_s - node.last_s < 3_600), "every node has an end");
    assert!(recorded.iter().any(|node| node.first_s > START_S), "the limit was reached");
}

/// Clusters have a limit each, so the file grows with them, and not with the time.
#[test]
fn twenty_clusters_take_at_most_a_megabyte_each() {
    let clusters = 20;
    let bytes = std::fs::metadata(recorded(clusters, 2, 4, 4).path()).expect("the file").len();
    assert!(bytes < clusters * 1_000_000, "{bytes} bytes");
}
