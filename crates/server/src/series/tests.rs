use std::time::Duration;

use muster_core::agent::{GpuUsage, Usage};
use muster_store::series::{Metric, Query, Subject};

use super::*;
use crate::metrics::Present;
use crate::state_dir::StateDir;
use crate::usage::{MeasuredGpu, MeasuredNode};

const AT_S: u64 = 1_700_000_400;

fn subject() -> Subject {
    Subject { cluster: ClusterId(1), node: None }
}

fn minute(value: u64) -> Minute {
    let values = [(Metric::JobsQueued, value)].into();
    let samples = vec![Sample { subject: subject(), at_s: AT_S, values }];
    Minute { samples, existing: [ClusterId(1)].into(), now_s: AT_S + 60 }
}

/// The value after the writer has stopped.
fn written(folder: &Path, value: u64, on_reserve: bool) -> Result<Option<u64>, StoreError> {
    let state_dir = StateDir::new(folder);
    let reserve = ReserveFile::of(&state_dir);
    reserve.used().set(on_reserve);
    let path = state_dir.series();
    let (series, thread) = Series::start(path.clone(), Retention::default(), &reserve)?;
    series.add(minute(value));
    series.stop();
    thread.join().expect("the writer ends");
    let query = Query {
        subject: subject(),
        from_s: AT_S,
        to_s: AT_S + 60,
        step_s: 60,
        metrics: [Metric::JobsQueued].into(),
    };
    let found = SqliteSeriesReader::open(&path)?.read(&query)?;
    let points = found.get(&Metric::JobsQueued);
    Ok(points.and_then(|points| points.values().next()).map(|point| point.max))
}

#[test]
fn a_minute_is_on_disk_when_the_writer_has_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(written(folder.path(), 3, false).expect("a result"), Some(3));
}

#[test]
fn a_file_that_cannot_be_used_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = StateDir::new(folder.path()).series();
    for bytes in [b"not a database".repeat(1_000), vec![0; 8_192]] {
        fs::write(&path, &bytes).expect("a damaged file");
        assert_eq!(written(folder.path(), 5, false).expect("a result"), Some(5));
        let aside = fs::read(beside(&path, ".unusable")).expect("the old file is kept");
        assert_eq!(aside, bytes);
    }
}

#[test]
fn on_the_reserve_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(written(folder.path(), 3, true).is_err(), "there is no file");
    assert_eq!(written(folder.path(), 3, false).expect("a result"), Some(3));
    assert_eq!(written(folder.path(), 4, true).expect("a result"), Some(3));
}

#[test]
fn a_slow_writer_is_not_waited_for() {
    let (sender, receiver) = sync_channel(QUEUE_MAX);
    let readers: Readers<dyn SeriesReader> =
        Readers::new(PathBuf::new(), |path| Ok(Box::new(SqliteSeriesReader::open(path)?)));
    let series = Series { sender, readers };
    let started = std::time::Instant::now();
    (0..QUEUE_MAX as u64 + 5).for_each(|value| series.add(minute(value)));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(receiver.try_iter().count(), QUEUE_MAX);
}

#[test]
fn a_cluster_has_the_sum_of_its_nodes() {
    let node = |name: &str, cluster, percents: &[u8]| MeasuredNode {
        name: name.into(),
        cluster: ClusterId(cluster),
        usage: Usage { memory_bytes: Some(3 << 20), ..Usage::default() },
        millicores: (name != "new").then_some(1_500),
        disk_size_bytes: None,
        gpus: percents
            .iter()
            .map(|percent| MeasuredGpu {
                usage: GpuUsage {
                    number: 0,
                    busy_percent: Some(*percent),
                    memory_bytes: Some(1 << 30),
                    held_by: None,
                },
                job: None,
            })
            .collect(),
        jobs: Vec::new(),
    };
    let present = Present::with_empty_cluster(ClusterId(1));
    let nodes = [node("a", 1, &[50, 100]), node("new", 1, &[]), node("other", 2, &[])];
    let samples = sampler::samples(&present, &nodes, AT_S);
    let of = |name: Option<&str>| {
        let is_it = |sample: &&Sample| sample.subject.node.as_deref() == name;
        samples.iter().find(is_it).map(|sample| sample.values.clone())
    };
    let cluster = of(None).expect("the cluster");
    assert_eq!(cluster[&Metric::Cpu], 1_500);
    assert_eq!(cluster[&Metric::Memory], 6);
    assert_eq!(cluster[&Metric::Gpu], 150);
    assert_eq!(cluster[&Metric::GpuMemory], 2_048);
    assert_eq!(cluster[&Metric::NodesIdle], 0);
    assert_eq!(of(Some("new")).expect("the node"), [(Metric::Memory, 3)].into());
    assert_eq!(of(Some("other")), None, "its cluster is not known");
}
