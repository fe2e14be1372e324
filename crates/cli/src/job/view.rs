//! How jobs are shown: the entity that `az ml job` prints, and why a job waits or failed.

use std::collections::BTreeMap;

use muster_core::model::SERVERLESS;
use muster_wire::duration;
use muster_wire::job::{
    CreationContext, JobResource, JobStatus, NodeShare, QueueSettings, property,
};
use serde::Serialize;

use crate::compute::resource_group;

pub const HEADER: [&str; 6] =
    ["Name", "Status", "Experiment", "Compute target", "Job type", "Created on"];

#[derive(Debug, Serialize)]
pub struct Job {
    name: String,
    id: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "resourceGroup")]
    resource_group: Option<String>,
    status: JobStatus,
    display_name: Option<String>,
    experiment_name: Option<String>,
    description: Option<String>,
    command: Option<String>,
    /// `azureml:NAME`, as az prints it.
    compute: Option<String>,
    resources: Option<Resources>,
    queue_settings: Option<Queue>,
    limits: Option<Limits>,
    environment_variables: Option<BTreeMap<String, String>>,
    tags: BTreeMap<String, String>,
    properties: BTreeMap<String, String>,
    created_on: Option<String>,
    creation_context: Option<Creation>,
    // From here on: ours.
    attempts: Option<u64>,
    wait_reasons: Option<Vec<String>>,
    failure: Option<String>,
    cancel_reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct Resources {
    instance_count: Option<u32>,
    /// A share of each node: cpus, memory, gpus.
    properties: Option<NodeShare>,
}

#[derive(Debug, Serialize)]
struct Queue {
    priority: &'static str,
}

#[derive(Debug, Serialize)]
struct Limits {
    /// Seconds.
    timeout: u64,
}

#[derive(Debug, Serialize)]
struct Creation {
    created_at: Option<String>,
    created_by: Option<String>,
    created_by_type: Option<String>,
}

pub fn entity(job: &JobResource) -> Job {
    let spec = &job.properties;
    let mut properties = spec.properties.clone();
    let mut ours = |key: &str| properties.remove(key);
    let attempts = ours(property::ATTEMPTS).and_then(|count| count.parse().ok());
    let wait_reasons = ours(property::WAIT_REASON);
    let failure = ours(property::FAILURE);
    let cancel_reason = ours(property::CANCEL_REASON);
    let timeout = spec.limits.as_ref().and_then(|limits| limits.timeout.as_deref());
    let timeout = timeout.and_then(|text| duration::parse(text).ok());
    let created_on = spec.creation_context.as_ref().and_then(|context| context.created_at.clone());
    let created_on =
        created_on.or_else(|| job.system_data.as_ref().and_then(|data| data.created_at.clone()));
    Job {
        name: job.name.clone(),
        id: job.id.clone(),
        kind: spec.job_type.to_ascii_lowercase(),
        resource_group: resource_group(&job.id),
        status: spec.status,
        display_name: spec.display_name.clone(),
        experiment_name: spec.experiment_name.clone(),
        description: spec.description.clone(),
        command: spec.command.clone(),
        compute: spec.compute_id.as_deref().map(|id| format!("azureml:{}", last_part(id))),
        resources: spec.resources.as_ref().map(|resources| Resources {
            instance_count: resources.instance_count,
            properties: Some(resources.properties.clone()).filter(|share| !share.is_whole()),
        }),
        queue_settings: spec
            .queue_settings
            .as_ref()
            .and_then(QueueSettings::priority)
            .map(|priority| Queue { priority: priority.as_str() }),
        limits: timeout.map(|timeout| Limits { timeout: timeout.as_seconds() }),
        environment_variables: Some(spec.environment_variables.clone())
            .filter(|variables| !variables.is_empty()),
        tags: spec.tags.clone(),
        created_on,
        creation_context: spec.creation_context.as_ref().map(creation),
        attempts,
        wait_reasons: wait_reasons.map(|text| text.lines().map(str::to_owned).collect()),
        failure,
        cancel_reason,
        properties,
    }
}

/// What a person should read below the table.
pub fn notes(job: &Job) -> Vec<String> {
    let mut notes = Vec::new();
    let reasons = job.wait_reasons.as_deref().unwrap_or_default();
    if !reasons.is_empty() {
        notes.push(format!("{} waits because:", job.name));
    }
    notes.extend(reasons.iter().enumerate().map(|(index, why)| format!("{}. {why}", index + 1)));
    notes.extend(job.failure.iter().map(|why| format!("{} failed: {why}", job.name)));
    notes
}

pub fn row(job: &Job) -> Vec<String> {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let compute = job.compute.as_deref().unwrap_or(SERVERLESS);
    vec![
        job.name.clone(),
        job.status.as_str().to_owned(),
        or_dash(&job.experiment_name),
        compute.strip_prefix("azureml:").unwrap_or(compute).to_owned(),
        job.kind.clone(),
        or_dash(&job.created_on),
    ]
}

fn creation(context: &CreationContext) -> Creation {
    Creation {
        created_at: context.created_at.clone(),
        created_by: context.created_by.clone(),
        created_by_type: context.created_by_type.clone(),
    }
}

fn last_part(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = r#"{
        "id": "/subscriptions/s/resourceGroups/Rg/providers/Microsoft.MachineLearningServices/workspaces/w/jobs/j1",
        "name": "j1", "type": "Microsoft.MachineLearningServices/workspaces/jobs",
        "properties": {"jobType": "Command", "status": "Queued", "command": "true",
            "experimentName": "Default",
            "computeId": "/subscriptions/s/resourceGroups/Rg/providers/Microsoft.MachineLearningServices/workspaces/w/computes/cpu",
            "limits": {"jobLimitsType": "Command", "timeout": "PT1M30S"},
            "properties": {"muster.attempts": "2", "muster.waitReason": "one\ntwo", "mine": "x"},
            "creationContext": {"createdAt": "2026-11-15T19:52:12Z"}}}"#;

    #[test]
    fn a_job_is_shown_as_az_shows_it() {
        let job: JobResource = serde_json::from_str(SHOWN).unwrap();
        let entity = entity(&job);
        let shown = serde_json::to_value(&entity).unwrap();
        assert_eq!(shown["type"], "command");
        assert_eq!(shown["compute"], "azureml:cpu");
        assert_eq!(shown["limits"]["timeout"], 90);
        assert_eq!(shown["attempts"], 2);
        assert_eq!(shown["wait_reasons"][1], "two");
        assert_eq!(shown["properties"].to_string(), r#"{"mine":"x"}"#);
        assert_eq!(shown["created_on"], "2026-11-15T19:52:12Z");
        assert_eq!(notes(&entity), ["j1 waits because:", "1. one", "2. two"]);
        assert_eq!(
            row(&entity),
            ["j1", "Queued", "Default", "cpu", "command", "2026-11-15T19:52:12Z"]
        );
    }
}
