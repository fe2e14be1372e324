//! Checks for time series.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::ids::ClusterId;

use crate::series::{
    Metric, NODES_MAX, Point, Points, Query, Retention, Sample, Series, SeriesReader, Subject,
};

/// Time series that are empty at first, and the handles on them.
pub trait SeriesDatabase: Sync {
    fn series(&self) -> Box<dyn Series>;
    fn reader(&self) -> Box<dyn SeriesReader>;
}

const DAY_S: u64 = 86_400;
/// A Thursday, on which a block of a week begins.
const START_S: u64 = 1_700_006_400 - 1_700_006_400 % (7 * DAY_S);
const CLUSTER: ClusterId = ClusterId(7);

fn subject(cluster: ClusterId, node: Option<&str>) -> Subject {
    Subject { cluster, node: node.map(Into::into) }
}

fn sample(node: Option<&str>, at_s: u64, metric: Metric, value: u64) -> Sample {
    Sample { subject: subject(CLUSTER, node), at_s, values: [(metric, value)].into() }
}

fn query(node: Option<&str>, from_s: u64, to_s: u64, step_s: u64) -> Query {
    let metrics = Metric::ALL.into();
    Query { subject: subject(CLUSTER, node), from_s, to_s, step_s, metrics }
}

fn read(database: &impl SeriesDatabase, query: &Query, metric: Metric) -> Points {
    let mut found = database.reader().read(query).expect("the points are read");
    found.remove(&metric).unwrap_or_default()
}

/// Adds a minute at a time, as the server does.
fn add_minutes(
    series: &mut dyn Series,
    minutes: std::ops::Range<u64>,
    retention: &Retention,
    mut samples: impl FnMut(u64) -> Vec<Sample>,
) {
    for minute in minutes {
        let at_s = START_S + minute * 60;
        series
            .add(&samples(at_s), &[CLUSTER].into(), at_s + 60, retention)
            .expect("the samples are added");
    }
}

/// Six samples of a minute, whose values are the seconds since the start.
fn ramp(at_s: u64) -> Vec<Sample> {
    let times = (0..6).map(|number| at_s + number * 10);
    times.map(|at_s| sample(None, at_s, Metric::JobsQueued, at_s - START_S)).collect()
}

pub fn samples_become_minutes_and_coarser_points(database: &impl SeriesDatabase) {
    let mut series = database.series();
    add_minutes(&mut *series, 0..125, &Retention::default(), ramp);
    let points = |from_s, to_s, step_s| {
        let query = query(None, START_S + from_s, START_S + to_s, step_s);
        let points = read(database, &query, Metric::JobsQueued);
        points.into_iter().map(|(at_s, point)| (at_s - START_S, point)).collect::<Points>()
    };
    let fine = points(7_200, 7_230, 10);
    let wanted = [7_200, 7_210, 7_220].map(|at| (at, Point::sample(at)));
    assert_eq!(fine, wanted.into());
    let minute = Point { mean: 85, max: 110 };
    assert_eq!(points(60, 120, 60), [(60, minute)].into());
    // The last interval is not complete yet, and consists of the minutes so far.
    let tens = points(6_600, 7_500, 600);
    let wanted =
        [(6_600, Point { mean: 6_895, max: 7_190 }), (7_200, Point { mean: 7_345, max: 7_490 })];
    assert_eq!(tens, wanted.into());
    let hours = points(0, 7_500, 3_600);
    assert_eq!(hours[&0], Point { mean: 1_795, max: 3_590 });
    assert_eq!(hours.len(), 3);
    assert_eq!(points(0, 3_600, 1_800).len(), 2, "any interval");
    let one = Query { metrics: [Metric::Cpu].into(), ..query(None, START_S, START_S + 60, 60) };
    assert_eq!(database.reader().read(&one).expect("a result"), BTreeMap::new());
}

pub fn a_gap_has_no_points_and_ends_the_interval_before_it(database: &impl SeriesDatabase) {
    let mut series = database.series();
    add_minutes(&mut *series, 0..5, &Retention::default(), ramp);
    // Another handle, after a restart.
    let mut series = database.series();
    add_minutes(&mut *series, 65..67, &Retention::default(), ramp);
    let query = query(None, START_S, START_S + 7_200, 600);
    let points = read(database, &query, Metric::JobsQueued);
    let times: Vec<u64> = points.keys().map(|at_s| at_s - START_S).collect();
    assert_eq!(times, [0, 3_600]);
    assert_eq!(points[&START_S], Point { mean: 145, max: 290 });
}

pub fn a_minute_that_is_added_again_is_replaced(database: &impl SeriesDatabase) {
    let mut series = database.series();
    add_minutes(&mut *series, 0..1, &Retention::default(), ramp);
    add_minutes(&mut *series, 0..1, &Retention::default(), |at_s| {
        vec![sample(None, at_s, Metric::JobsQueued, 4), sample(None, at_s + 10, Metric::Cpu, 5)]
    });
    let points = |metric, step_s| {
        read(database, &query(None, START_S, START_S + 60, step_s), metric).into_values().next()
    };
    assert_eq!(points(Metric::JobsQueued, 10), Some(Point::sample(4)));
    assert_eq!(points(Metric::Cpu, 60), Some(Point::sample(5)));
}

pub fn points_are_kept_for_their_time(database: &impl SeriesDatabase) {
    let mut series = database.series();
    let retention = Retention { kept_s: 40 * DAY_S, ..Retention::default() };
    // One minute of every hour is enough to see which levels have it.
    let hourly = |at_s: u64| match (at_s - START_S).is_multiple_of(3_600) {
        true => ramp(at_s),
        false => Vec::new(),
    };
    for hour in 0..60 * 24 {
        add_minutes(&mut *series, hour * 60..hour * 60 + 1, &retention, hourly);
    }
    let last_s = START_S + (60 * 24 - 1) * 3_600;
    let points = read(database, &query(None, START_S, last_s + 60, 3_600), Metric::JobsQueued);
    let oldest_s = *points.keys().next().expect("there are points");
    // A block of hours is a week.
    assert!((40..=47).contains(&((last_s - oldest_s) / DAY_S)), "{}", last_s - oldest_s);
    let days = |kept_s: u64, step_s| {
        let from_s = last_s - kept_s * DAY_S;
        read(database, &query(None, from_s, from_s + 3_600, step_s), Metric::JobsQueued).len()
    };
    assert_eq!(days(55, 3_600), 0, "beyond the retention");
    assert_eq!(days(30, 600), 1, "in the retention");
}

pub fn nodes_have_series_of_their_own(database: &impl SeriesDatabase) {
    let mut series = database.series();
    add_minutes(&mut *series, 0..3, &Retention::default(), |at_s| {
        let mut samples = ramp(at_s);
        samples.push(sample(Some("b"), at_s, Metric::Cpu, 10));
        samples.push(sample(Some("a"), at_s, Metric::Cpu, 20));
        samples.push(sample(Some("a"), at_s + 10, Metric::Cpu, 30));
        samples
    });
    let mut reader = database.reader();
    let nodes = reader.nodes(CLUSTER).expect("the nodes are listed");
    let names: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!((nodes[1].first_s, nodes[1].last_s), (START_S, START_S + 120));
    let points = read(database, &query(Some("a"), START_S, START_S + 60, 60), Metric::Cpu);
    assert_eq!(points, [(START_S, Point { mean: 25, max: 30 })].into());
    assert!(read(database, &query(Some("c"), START_S, START_S + 60, 60), Metric::Cpu).is_empty());
}

pub fn a_deleted_cluster_leaves_nothing(database: &impl SeriesDatabase) {
    let mut series = database.series();
    add_minutes(&mut *series, 0..200, &Retention::default(), |at_s| {
        let mut samples = ramp(at_s);
        samples.push(sample(Some("a"), at_s, Metric::Cpu, 10));
        samples
    });
    let other = Sample { subject: subject(ClusterId(8), None), ..ramp(START_S).remove(0) };
    let now_s = START_S + 12_000;
    series
        .add(&[other], &[ClusterId(8)].into(), now_s, &Retention::default())
        .expect("the sample is added");
    assert!(database.reader().nodes(CLUSTER).expect("a list").is_empty());
    let query = query(None, START_S, now_s, 60);
    assert!(read(database, &query, Metric::JobsQueued).is_empty());
    let kept = Query { subject: subject(ClusterId(8), None), ..query };
    assert_eq!(read(database, &kept, Metric::JobsQueued).len(), 1);
    // A late sample of a deleted cluster is ignored.
    series
        .add(&ramp(START_S), &BTreeSet::new(), now_s, &Retention::default())
        .expect("nothing is added");
    assert!(read(database, &kept, Metric::JobsQueued).is_empty());
}

pub fn only_so_many_nodes_are_recorded(database: &impl SeriesDatabase) {
    let mut series = database.series();
    let names: Vec<String> = (0..NODES_MAX + 5).map(|number| format!("n{number:03}")).collect();
    add_minutes(&mut *series, 0..2, &Retention::default(), |at_s| {
        names.iter().map(|name| sample(Some(name), at_s, Metric::Cpu, 1)).collect()
    });
    let nodes = database.reader().nodes(CLUSTER).expect("a list");
    assert_eq!(nodes.len(), NODES_MAX);
    // Others follow when these are gone.
    add_minutes(&mut *series, 120..121, &Retention::default(), |at_s| {
        vec![sample(Some("later"), at_s, Metric::Cpu, 1)]
    });
    assert_eq!(database.reader().nodes(CLUSTER).expect("a list").len(), NODES_MAX + 1);
}

pub fn the_oldest_points_of_nodes_make_room(database: &impl SeriesDatabase) {
    let mut series = database.series();
    let retention = Retention { cluster_bytes_max: 15_000, ..Retention::default() };
    let mut noise = 42u64;
    add_minutes(&mut *series, 0..3 * 1_440, &retention, |at_s| {
        let mut samples = vec![sample(None, at_s, Metric::JobsQueued, 1)];
        for name in ["a", "b", "c"] {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            samples.push(sample(Some(name), at_s, Metric::Cpu, noise >> 48));
        }
        samples
    });
    let end_s = START_S + 3 * DAY_S;
    let first = |node: Option<&str>| {
        let metric = if node.is_some() { Metric::Cpu } else { Metric::JobsQueued };
        read(database, &query(node, START_S, end_s, 600), metric).into_keys().next()
    };
    assert_eq!(first(None), Some(START_S), "the cluster's own points are kept");
    let oldest = first(Some("a")).expect("the newest points are kept");
    assert!(oldest > START_S, "{}", oldest - START_S);
    let newest = read(database, &query(Some("c"), end_s - 60, end_s, 60), Metric::Cpu);
    assert_eq!(newest.len(), 1);
}
