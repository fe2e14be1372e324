//! The history of a compute, for charts.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use axum::response::Response;
use muster_core::ids::ClusterId;
use muster_core::model::WorkspaceKey;
use muster_core::time::Wall;
use muster_store::StoreError;
use muster_store::series::{Metric, Points, Query, RecordedNode, Subject};
use muster_wire::compute_history::{ComputeHistory, HistoryNode, HistorySeries};
use muster_wire::{ArmError, timestamp};

use super::{Call, Failed, cluster};
use crate::clock;
use crate::http::respond::document;

const DAY_S: u64 = 86_400;
const STEP_S_MIN: u64 = 10;
const STEP_S_MAX: u64 = 31 * DAY_S;
/// The most intervals of one request, and how many there are at most if the request names no interval.
const INTERVALS_MAX: u64 = 2_000;
const INTERVALS_PREFERRED: u64 = 400;
/// The intervals to choose from. The first are those that are stored.
const STEPS_S: [u64; 6] = [10, 60, 600, 3_600, 6 * 3_600, DAY_S];

pub async fn get(call: &Call, workspace: WorkspaceKey, name: Box<str>) -> Result<Response, Failed> {
    let (key, wanted) = (workspace.clone(), name.clone());
    let found = call.app.readers.read(move |reader| reader.cluster(&key, &wanted)).await?;
    let found = found.ok_or_else(|| cluster::no_such(&workspace, &name))?;
    let query =
        query(found.cluster.id, &|parameter| call.query.get(parameter), clock::unix_seconds())?;
    let asked = query.clone();
    let read = call
        .app
        .series
        .readers
        .read(move |reader| Ok((reader.read(&asked)?, reader.nodes(asked.subject.cluster)?)));
    let (points, nodes) = match read.await {
        // The file is created with the first minute.
        Err(StoreError::CannotOpen { .. } | StoreError::TooOld { .. }) => Default::default(),
        read => read?,
    };
    if let Some(node) = query.subject.node.as_deref().filter(|node| !has_node(&nodes, node)) {
        let message = format!(
            "there is no history of a node {node:?} of compute '{name}'; omit `node` to see which nodes have one"
        );
        return Err(ArmError::not_found("node", message).into());
    }
    let name = found.cluster.name.as_str();
    Ok(document(StatusCode::OK, &history(name, &query, &points, &nodes)))
}

fn has_node(nodes: &[RecordedNode], name: &str) -> bool {
    nodes.iter().any(|node| &*node.name == name)
}

/// Reads the parameters of a request.
fn query<'q>(
    cluster: ClusterId,
    get: &dyn Fn(&str) -> Option<&'q str>,
    now_s: u64,
) -> Result<Query, ArmError> {
    let to_s = time(get, "to")?.unwrap_or(now_s + 1);
    let from_s = time(get, "from")?.unwrap_or(to_s.saturating_sub(DAY_S));
    if from_s >= to_s {
        return Err(ArmError::invalid_property("from", "`from` must be before `to`"));
    }
    let span_s = to_s - from_s;
    let step_s = match get("step") {
        None => {
            let is_enough = |step_s: &u64| span_s / step_s <= INTERVALS_PREFERRED;
            STEPS_S.into_iter().find(is_enough).unwrap_or(STEP_S_MAX)
        }
        Some(text) => {
            let step_s = text.parse().ok();
            let step_s = step_s.filter(|step_s| (STEP_S_MIN..=STEP_S_MAX).contains(step_s));
            step_s.ok_or_else(|| {
                let message = format!("`step` is {text:?}, but must be a number of seconds from {STEP_S_MIN} to {STEP_S_MAX}");
                ArmError::invalid_property("step", message)
            })?
        }
    };
    if span_s / step_s > INTERVALS_MAX {
        let least_s = span_s.div_ceil(INTERVALS_MAX);
        let message = format!(
            "a request may have at most {INTERVALS_MAX} intervals; increase `step` to {least_s} seconds, or request a shorter time"
        );
        return Err(ArmError::invalid_property("step", message));
    }
    let node = get("node").filter(|node| !node.is_empty()).map(Into::into);
    let subject = Subject { cluster, node };
    Ok(Query { subject, from_s, to_s, step_s, metrics: metrics(get("metrics"))? })
}

/// A time as RFC 3339 or as seconds since 1970.
fn time<'q>(
    get: &dyn Fn(&str) -> Option<&'q str>,
    parameter: &str,
) -> Result<Option<u64>, ArmError> {
    let Some(text) = get(parameter).filter(|text| !text.is_empty()) else { return Ok(None) };
    let parsed = timestamp::parse(text).map(|wall| wall.0 / 1_000_000);
    match parsed.or_else(|| text.parse().ok()).filter(|at_s| *at_s < u64::from(u32::MAX) * 16) {
        Some(at_s) => Ok(Some(at_s)),
        None => {
            let message = format!(
                "`{parameter}` is {text:?}, but must be a time such as 2026-05-01T12:00:00Z, or seconds since 1970"
            );
            Err(ArmError::invalid_property(parameter, message))
        }
    }
}

/// All metrics, or those that the request names.
fn metrics(names: Option<&str>) -> Result<BTreeSet<Metric>, ArmError> {
    let Some(names) = names.filter(|names| !names.is_empty()) else {
        return Ok(Metric::ALL.into());
    };
    let metric = |name: &str| {
        name.trim().parse().map_err(|why: muster_store::series::UnknownMetric| {
            let known = Metric::ALL.map(Metric::as_str).join(", ");
            ArmError::invalid_property("metrics", format!("{why}; the metrics are: {known}"))
        })
    };
    names.split(',').map(metric).collect()
}

fn history(
    compute: &str,
    query: &Query,
    points: &BTreeMap<Metric, Points>,
    nodes: &[RecordedNode],
) -> ComputeHistory {
    let timestamps: BTreeSet<u64> = points.values().flat_map(Points::keys).copied().collect();
    let series = |(metric, points): (&Metric, &Points)| {
        let values = |value: fn(&muster_store::series::Point) -> u64| {
            let value = |at_s: &u64| points.get(at_s).map(|point| scaled(*metric, value(point)));
            timestamps.iter().map(value).collect()
        };
        HistorySeries {
            metric: metric.as_str().to_owned(),
            unit: metric.unit().to_owned(),
            mean: values(|point| point.mean),
            max: values(|point| point.max),
        }
    };
    let moment = |at_s: u64| timestamp::format(Wall(at_s.saturating_mul(1_000_000)));
    let node = |node: &RecordedNode| HistoryNode {
        name: node.name.to_string(),
        from: moment(node.first_s),
        to: moment(node.last_s),
    };
    ComputeHistory {
        compute: compute.to_owned(),
        node: query.subject.node.as_deref().map(str::to_owned),
        step_seconds: query.step_s,
        series: points.iter().map(series).collect(),
        nodes: nodes.iter().map(node).collect(),
        timestamps: timestamps.into_iter().collect(),
    }
}

/// The value in the unit of the API, without the digits that only binary fractions have.
#[allow(clippy::cast_precision_loss, reason = "a figure for a chart")]
fn scaled(metric: Metric, value: u64) -> f64 {
    (value as f64 * metric.scale() * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use muster_store::series::Point;

    use super::*;

    fn asked(parameters: &[(&str, &'static str)]) -> Result<Query, String> {
        let get = |wanted: &str| {
            parameters.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
        };
        query(ClusterId(1), &get, 1_700_000_000).map_err(|refused| refused.to_json())
    }

    #[test]
    fn a_request_without_parameters_is_about_the_last_day() {
        let query = asked(&[]).expect("a query");
        assert_eq!((query.to_s - query.from_s, query.step_s), (86_400, 600));
        assert_eq!(query.metrics.len(), Metric::ALL.len());
        let query = asked(&[("from", "1699999400"), ("metrics", "cpu,cost.run")]).expect("a query");
        assert_eq!(query.step_s, 10);
        assert_eq!(query.metrics.len(), 2);
        let query = asked(&[("from", "2022-11-14T22:13:20Z"), ("node", "n")]).expect("a query");
        assert_eq!(query.step_s, DAY_S, "a year");
        assert_eq!(query.subject.node.as_deref(), Some("n"));
    }

    #[test]
    fn a_request_for_too_much_names_the_step_that_fits() {
        for (parameters, wanted) in [
            (&[("step", "10")][..], "to 44 seconds"),
            (&[("step", "9")][..], "from 10 to"),
            (&[("from", "yesterday")][..], "yesterday"),
            (&[("from", "1700000005")][..], "before"),
            (&[("metrics", "cpu,heat")][..], "jobs.queued"),
        ] {
            let refused = asked(parameters).expect_err("it is refused");
            assert!(refused.contains(wanted), "{refused}");
        }
        assert_eq!(asked(&[("step", "44")]).map(|query| query.step_s), Ok(44));
    }

    #[test]
    fn values_are_in_the_units_of_the_api_and_gaps_are_null() {
        let query = asked(&[]).expect("a query");
        let points = BTreeMap::from([
            (Metric::Cpu, Points::from([(600, Point { mean: 1_501, max: 2_000 })])),
            (Metric::Memory, Points::from([(1_200, Point::sample(2))])),
        ]);
        let shown = history("cpu", &query, &points, &[]);
        assert_eq!(shown.timestamps, [600, 1_200]);
        assert_eq!(shown.series[0].mean, [Some(1.501), None]);
        assert_eq!(shown.series[0].max, [Some(2.0), None]);
        assert_eq!(shown.series[1].mean, [None, Some(2_097_152.0)]);
        assert_eq!(shown.series[1].unit, "bytes");
    }
}
