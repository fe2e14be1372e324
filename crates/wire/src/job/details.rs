//! Run history's view of a job: what clients poll while they stream its log.

use std::collections::BTreeMap;

use muster_core::model::{FailureClass, JobState};
use serde::{Deserialize, Serialize};

use super::resource::{JobFacts, JobStatus, NotYet, failure_text};
use super::services::{ServiceEntry, services};
use crate::error::ErrorDetail;
use crate::timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunDetails {
    pub run_id: String,
    #[serde(default)]
    pub target: Option<String>,
    pub status: JobStatus,
    #[serde(default)]
    pub start_time_utc: Option<String>,
    #[serde(default)]
    pub end_time_utc: Option<String>,
    #[serde(default)]
    pub services: BTreeMap<String, ServiceEntry>,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    #[serde(default)]
    pub input_datasets: Vec<NotYet>,
    #[serde(default)]
    pub output_datasets: Vec<NotYet>,
    /// File name → a URL that needs no token. Clients stream `user_logs/std_log.txt`.
    #[serde(default)]
    pub log_files: BTreeMap<String, String>,
    #[serde(default)]
    pub submitted_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
}

/// Why a run failed: an error inside an error, as in Azure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunError {
    pub error: ErrorDetail,
    #[serde(default)]
    pub time: Option<String>,
    #[serde(default)]
    pub component_name: Option<String>,
}

/// `log_files` maps file names to URLs. The last response must include the complete log, because a client that sees a
/// final status reads the log once more and exits.
pub fn details(facts: &JobFacts<'_>, log_files: &BTreeMap<String, String>) -> RunDetails {
    RunDetails {
        run_id: facts.job.name.to_string(),
        target: Some(facts.spec.compute.to_string()),
        status: JobStatus::of(&facts.job.state),
        start_time_utc: facts.started_at().map(timestamp::format),
        end_time_utc: facts.ended_at().map(timestamp::format),
        services: services(facts),
        properties: facts.properties(),
        input_datasets: Vec::new(),
        output_datasets: Vec::new(),
        log_files: log_files.clone(),
        submitted_by: facts.submitted_by.map(str::to_owned),
        error: error(facts),
    }
}

fn error(facts: &JobFacts<'_>) -> Option<RunError> {
    let JobState::Failed { at, why } = &facts.job.state else { return None };
    let code = match why.class() {
        FailureClass::UserCode => "UserError",
        FailureClass::Provision
        | FailureClass::Prepare
        | FailureClass::Node
        | FailureClass::Data => "SystemError",
    };
    Some(RunError {
        error: ErrorDetail::new(code, failure_text(why, facts.spec)),
        time: Some(timestamp::format(*at)),
        component_name: Some("muster".to_owned()),
    })
}
