//! SQLite passes the checks for time series, and stores a month in less than a megabyte.

use std::collections::BTreeMap;
use std::path::PathBuf;

use muster_core::ids::ClusterId;
use muster_core::model::Category;
use muster_store::conformance::SeriesDatabase;
use muster_store::series::{Metric, Retention, Sample, Series, SeriesReader, Subject};
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
fn minute(noise: &mut Noise, at_s: u64, nodes: u64) -> Vec<Sample> {
    let mut samples = Vec::new();
    let cluster = ClusterId(1);
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

/// The size of the file after this many days.
fn bytes_after(days: u64, nodes: u64, every_minutes: usize) -> u64 {
    let file = fresh();
    let mut series = SqliteSeries::open(&file.path(), Durability::None).expect("the file opens");
    let (mut noise, start_s) = (Noise(42), 1_700_000_400);
    for minutes in (0..days * 1_440).step_by(every_minutes) {
        let at_s = start_s + minutes * 60;
        let samples = minute(&mut noise, at_s, nodes);
        let existing = [ClusterId(1)].into();
        series
            .add(&samples, &existing, at_s + 60, &Retention::default())
            .expect("the samples are added");
    }
    drop(series);
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
