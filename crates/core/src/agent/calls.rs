//! The bodies and queries of an agent's calls to the server, for both ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Desired, NodeUsage, Report, RunFacts};
use crate::ids::Epoch;
use crate::model::{BlobId, JobSpec, TreeId};

/// Where the calls of agents are, below the server's address.
pub const AGENT_PATH: &str = "/agent/v1";
/// The header with the name of the node that calls.
pub const NODE_HEADER: &str = "x-muster-node";

/// A report, and how long the server may wait for news before it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncRequest {
    /// The number of the report, from 1.
    pub sequence: u64,
    pub report: Report,
    pub wait_ms: u64,
    /// The usage, if it was measured since the last report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<NodeUsage>,
    /// The whole logs of attempts that ended, if they are short and nothing of them was sent by itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub logs: BTreeMap<Epoch, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyncAnswer {
    /// The number of the report that is answered.
    pub sequence: u64,
    pub desired: Desired,
    /// The specifications of some assignments that the node has not started, by their hashes. It requests the others.
    #[serde(default)]
    pub specs: BTreeMap<String, JobSpec>,
    /// The facts of some attempts that the node has not started. It requests those of the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<Epoch, RunFacts>,
    /// Whether logs may be sent with a report.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_logs: bool,
    /// Logs that could not be stored. The node sends them by themselves, and reports the ends of their attempts again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_logs: Vec<Epoch>,
}

/// Which part of a log is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPart {
    pub offset: u64,
    /// 1 for the last lines of a log whose remaining bytes are discarded.
    #[serde(default)]
    pub last: u8,
}

/// How much of a log the server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReceived {
    pub next: u64,
}

/// The list of files that the same member of a job left last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftTree {
    pub saved: Option<TreeId>,
}

/// Why a list of files is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreePurpose {
    /// How the attempt ended, if this is its last list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<AttemptEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptEnd {
    Well,
    Badly,
}

/// The files of a list that the server does not have. If there are none, the list is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingFiles {
    pub missing: Vec<BlobId>,
}

/// How a file is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileForm {
    /// Whether it is sent as frames, without its holes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub packed: bool,
}

/// Which file of the code or of an input is requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataQuery {
    pub path: String,
}

/// The state of the Python environment of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum EnvironmentAnswer {
    /// It is in the folder of environments, under this name.
    Ready {
        folder: String,
        #[serde(default)]
        notes: Vec<String>,
    },
    Building {
        #[serde(default)]
        said: Vec<String>,
    },
    Failed {
        message: String,
        #[serde(default)]
        said: Vec<String>,
    },
}
