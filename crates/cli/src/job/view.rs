//! How jobs are displayed: the entity that `az ml job` prints, and why a job is waiting or failed.

use std::collections::BTreeMap;

use muster_core::model::SERVERLESS;
use muster_wire::duration;
use muster_wire::job::{
    CreationContext, JobResource, JobStatus, NodeShare, QueueSettings, property,
};
use serde::Serialize;

use crate::compute::resource_group;
use crate::nearest;

pub const HEADER: [&str; 6] =
    ["Name", "Status", "Experiment", "Compute target", "Job type", "Created on"];
/// An additional column if any job consists of others.
pub const TASKS: &str = "Tasks";
/// An additional column if any job is waiting.
pub const WAITS: &str = "Waits for";

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
    /// `azureml:NAME:VERSION`, the form in which az prints assets.
    code: Option<String>,
    environment: Option<String>,
    inputs: Option<BTreeMap<String, Bound>>,
    outputs: Option<BTreeMap<String, Bound>>,
    distribution: Option<Distribution>,
    /// `azureml:NAME`, the form that az prints.
    compute: Option<String>,
    resources: Option<Resources>,
    queue_settings: Option<Queue>,
    limits: Option<Limits>,
    environment_variables: Option<BTreeMap<String, String>>,
    tags: BTreeMap<String, String>,
    properties: BTreeMap<String, String>,
    created_on: Option<String>,
    creation_context: Option<Creation>,
    // The fields from here on are Muster's own.
    attempts: Option<u64>,
    wait_reasons: Option<Vec<String>>,
    /// The codes of the reasons, for programs: `QuotaReached`.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_codes: Option<Vec<String>>,
    failure: Option<String>,
    cancel_reason: Option<String>,
    /// The tasks of an array and its limit, such as `0-99%8`.
    #[serde(skip_serializing_if = "Option::is_none")]
    array: Option<String>,
    /// The job that this one is part of, and its index.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_job_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    array_index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<Children>,
}

/// The jobs that a job consists of, by what they are doing.
#[derive(Debug, Serialize)]
struct Children {
    waiting: u64,
    running: u64,
    completed: u64,
    failed: u64,
    canceled: u64,
    #[serde(skip)]
    text: String,
}

impl Job {
    /// What the children of the job are doing, if it has any.
    pub fn children(&self) -> Option<&str> {
        self.children.as_ref().map(|children| &*children.text)
    }
}

/// An input or output, in the form of a job file.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Bound {
    Literal(String),
    Data {
        #[serde(rename = "type")]
        kind: String,
        path: Option<String>,
        mode: Option<String>,
    },
}

#[derive(Debug, Serialize)]
struct Distribution {
    #[serde(rename = "type")]
    kind: String,
    process_count_per_instance: Option<u32>,
    worker_count: Option<u32>,
    parameter_server_count: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Resources {
    instance_count: Option<u32>,
    /// The share of each node: cpus, memory, gpus.
    properties: Option<NodeShare>,
}

#[derive(Debug, Serialize)]
struct Queue {
    priority: &'static str,
}

#[derive(Debug, Serialize)]
struct Limits {
    /// In seconds.
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
    let wait_codes = ours(property::WAIT_CODE);
    let failure = ours(property::FAILURE);
    let cancel_reason = ours(property::CANCEL_REASON);
    let mut count = |key: &str| ours(key).and_then(|count| count.parse().ok()).unwrap_or(0);
    let (waiting, running) = (count(property::CHILDREN_WAITING), count(property::CHILDREN_RUNNING));
    let (completed, failed) =
        (count(property::CHILDREN_COMPLETED), count(property::CHILDREN_FAILED));
    let canceled = count(property::CHILDREN_CANCELED);
    let children = ours(property::CHILDREN).map(|text| Children {
        waiting,
        running,
        completed,
        failed,
        canceled,
        text,
    });
    let (array, parent_job_name) = (ours(property::ARRAY), ours(property::PARENT));
    let array_index = ours(property::ARRAY_INDEX).and_then(|index| index.parse().ok());
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
        code: spec.code_id.as_deref().map(short),
        environment: spec.environment_id.as_deref().map(short),
        inputs: named(spec.inputs.iter().map(|(name, input)| {
            let bound = match &input.value {
                Some(value) => Bound::Literal(value.clone()),
                None => data(&input.job_input_type, &input.uri, &input.mode),
            };
            (name.clone(), bound)
        })),
        outputs: named(spec.outputs.iter().map(|(name, output)| {
            (name.clone(), data(&output.job_output_type, &output.uri, &output.mode))
        })),
        distribution: spec.distribution.as_ref().map(|it| Distribution {
            kind: it.distribution_type.to_ascii_lowercase(),
            process_count_per_instance: it.process_count_per_instance,
            worker_count: it.worker_count,
            parameter_server_count: it.parameter_server_count,
        }),
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
        wait_codes: wait_codes.map(|text| text.split(',').map(str::to_owned).collect()),
        failure,
        cancel_reason,
        array,
        parent_job_name,
        array_index,
        children,
        properties,
    }
}

/// Parses one of Azure's statuses; case makes no difference.
pub fn status(text: &str) -> Result<JobStatus, String> {
    let names = JobStatus::ALL.map(|status| status.as_str().to_owned());
    let is_it = |status: &JobStatus| status.as_str().eq_ignore_ascii_case(text);
    JobStatus::ALL.into_iter().find(is_it).ok_or_else(|| {
        let near = nearest::nearest(text, &names);
        let near = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
        format!("{near}the statuses of jobs are {}", names.join(", "))
    })
}

/// The lines below the table, for people.
pub fn notes(job: &Job) -> Vec<String> {
    let mut notes = Vec::new();
    let reasons = job.wait_reasons.as_deref().unwrap_or_default();
    if !reasons.is_empty() {
        notes.push(format!("{} is waiting because:", job.name));
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
        // For Azure's clients it is a command job.
        job.array.as_ref().map_or(job.kind.as_str(), |_| "array").to_owned(),
        or_dash(&job.created_on),
    ]
}

/// The codes of the wait reasons.
pub fn waits_for(job: &Job) -> Option<String> {
    job.wait_codes.as_ref().map(|codes| codes.join(", "))
}

fn creation(context: &CreationContext) -> Creation {
    Creation {
        created_at: context.created_at.clone(),
        created_by: context.created_by.clone(),
        created_by_type: context.created_by_type.clone(),
    }
}

fn named(all: impl Iterator<Item = (String, Bound)>) -> Option<BTreeMap<String, Bound>> {
    let all: BTreeMap<String, Bound> = all.collect();
    (!all.is_empty()).then_some(all)
}

fn data(kind: &str, path: &Option<String>, mode: &Option<String>) -> Bound {
    let modes = [
        ("ReadOnlyMount", "ro_mount"),
        ("ReadWriteMount", "rw_mount"),
        ("Download", "download"),
        ("Upload", "upload"),
        ("Direct", "direct"),
        ("EvalMount", "eval_mount"),
        ("EvalDownload", "eval_download"),
    ];
    let known = |mode: &String| modes.iter().find(|(wire, _)| wire == mode);
    let mode = mode.as_ref().map(|mode| known(mode).map_or(mode.as_str(), |(_, word)| word));
    Bound::Data {
        kind: kind.to_owned(),
        path: path.as_deref().map(short),
        mode: mode.map(str::to_owned),
    }
}

/// `…/environments/NAME/versions/VERSION` becomes `azureml:NAME:VERSION`; anything else is unchanged.
fn short(id: &str) -> String {
    let parts: Vec<&str> = id.split('/').collect();
    match parts.as_slice() {
        ["", "subscriptions", .., name, "versions", version] => format!("azureml:{name}:{version}"),
        _ => id.to_owned(),
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
        assert_eq!(notes(&entity), ["j1 is waiting because:", "1. one", "2. two"]);
        assert_eq!(
            row(&entity),
            ["j1", "Queued", "Default", "cpu", "command", "2026-11-15T19:52:12Z"]
        );
    }
}
