//! `GET {workspace}/providers/Muster.History/computes/{name}`: how a compute or one of its nodes was used over time.
//! Azure has no such resource, so the format is Muster's own.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeHistory {
    pub compute: String,
    /// The node, if the history of a node was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub step_seconds: u64,
    /// The beginnings of all intervals with values, in seconds since 1970.
    pub timestamps: Vec<u64>,
    pub series: Vec<HistorySeries>,
    /// The nodes of the compute that have a history of their own.
    pub nodes: Vec<HistoryNode>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistorySeries {
    pub metric: String,
    pub unit: String,
    /// The mean of each interval; `null` if there is no value.
    pub mean: Vec<Option<f64>>,
    pub max: Vec<Option<f64>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryNode {
    pub name: String,
    /// When its values begin and end.
    pub from: String,
    pub to: String,
}
