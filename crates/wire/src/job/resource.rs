//! A job as it is shown.

use std::collections::BTreeMap;

use muster_core::ids::NodeId;
use muster_core::model::{
    AttemptRecord, CancelReason, Carrying, Exit, Failure, Job, JobSpec, JobState, Scarce,
    WorkspaceKey,
};
use muster_core::time::Wall;
use muster_core::why::Reason;
use serde::{Deserialize, Serialize};

use super::request::{compute_id, job_properties};
use super::services::{ServiceEntry, services};
use super::wants::shared_memory_text;
use super::{
    DistributionEntry, Family, IdentityEntry, InputEntry, NodeShare, OutputEntry, QueueSettings,
    property,
};
use crate::path::workspace_id;
use crate::{SystemData, duration, notes, spelling, timestamp};

/// What is known about a job when it is shown.
#[derive(Debug, Clone, Copy)]
pub struct JobFacts<'a> {
    pub workspace: &'a WorkspaceKey,
    pub job: &'a Job,
    pub spec: &'a JobSpec,
    /// The name of the user who submitted it.
    pub submitted_by: Option<&'a str>,
    /// Attempts that have ended, oldest first.
    pub attempts: &'a [AttemptRecord],
    /// Why it waits, if it does.
    pub waits: Option<&'a Waits>,
    pub is_archived: bool,
    /// Notes about the compute that the job runs on.
    pub notes: &'a [String],
    pub family: Family<'a>,
}

/// Why a job waits: every reason, the most fundamental first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// One reason per line.
    pub words: String,
    /// The codes of the reasons, separated by commas.
    pub codes: String,
}

impl Waits {
    /// `None` if there are no reasons.
    pub fn of(reasons: &[Reason]) -> Option<Waits> {
        let words: Vec<String> = reasons.iter().map(spelling::reason).collect();
        let mut codes: Vec<&str> = reasons.iter().map(Reason::code).collect();
        codes.dedup();
        let waits = Waits { words: words.join("\n"), codes: codes.join(",") };
        (!reasons.is_empty()).then_some(waits)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobResource {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub resource_type: String,
    pub properties: CommandJob,
    #[serde(default)]
    pub system_data: Option<SystemData>,
}

/// Clients dereference `services`, `properties`, `tags`, `inputs` and `outputs`: they are never `null`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandJob {
    pub job_type: String,
    pub status: JobStatus,
    #[serde(default)]
    pub display_name: Option<String>,
    #[serde(default)]
    pub experiment_name: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub command: Option<String>,
    #[serde(default)]
    pub compute_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<DistributionEntry>,
    #[serde(default)]
    pub resources: Option<JobResources>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_settings: Option<QueueSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityEntry>,
    #[serde(default)]
    pub limits: Option<JobLimits>,
    #[serde(default)]
    pub environment_variables: BTreeMap<String, String>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    #[serde(default)]
    pub services: BTreeMap<String, ServiceEntry>,
    #[serde(default)]
    pub inputs: BTreeMap<String, InputEntry>,
    #[serde(default)]
    pub outputs: BTreeMap<String, OutputEntry>,
    #[serde(default)]
    pub is_archived: bool,
    #[serde(default)]
    pub creation_context: Option<CreationContext>,
}

/// The value type of maps that are always empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotYet {}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobStatus {
    NotStarted,
    Queued,
    Preparing,
    Provisioning,
    Starting,
    Running,
    Finalizing,
    CancelRequested,
    Completed,
    Failed,
    Canceled,
    NotResponding,
    Paused,
    #[serde(other)]
    Unknown,
}

impl JobStatus {
    /// Every status that Azure defines.
    pub const ALL: [JobStatus; 13] = [
        JobStatus::NotStarted,
        JobStatus::Queued,
        JobStatus::Preparing,
        JobStatus::Provisioning,
        JobStatus::Starting,
        JobStatus::Running,
        JobStatus::Finalizing,
        JobStatus::CancelRequested,
        JobStatus::Completed,
        JobStatus::Failed,
        JobStatus::Canceled,
        JobStatus::NotResponding,
        JobStatus::Paused,
    ];

    pub fn of(state: &JobState) -> JobStatus {
        match state {
            JobState::Queued => JobStatus::Queued,
            // The outcome is decided, but its processes are still being stopped.
            JobState::Starting(attempt) | JobState::Running(attempt)
                if attempt.verdict.is_some() =>
            {
                JobStatus::Finalizing
            }
            JobState::Starting(_) => JobStatus::Starting,
            JobState::Running(_) => JobStatus::Running,
            JobState::CancelRequested(_) => JobStatus::CancelRequested,
            JobState::Parent(parent) if parent.ending.is_some() => JobStatus::CancelRequested,
            JobState::Parent(_) => JobStatus::Running,
            JobState::Completed { .. } => JobStatus::Completed,
            JobState::Failed { .. } => JobStatus::Failed,
            JobState::Canceled { .. } => JobStatus::Canceled,
        }
    }

    pub fn is_terminal(self) -> bool {
        match self {
            JobStatus::Completed | JobStatus::Failed | JobStatus::Canceled => true,
            JobStatus::NotStarted
            | JobStatus::Queued
            | JobStatus::Preparing
            | JobStatus::Provisioning
            | JobStatus::Starting
            | JobStatus::Running
            | JobStatus::Finalizing
            | JobStatus::CancelRequested
            | JobStatus::NotResponding
            | JobStatus::Paused
            | JobStatus::Unknown => false,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            JobStatus::NotStarted => "NotStarted",
            JobStatus::Queued => "Queued",
            JobStatus::Preparing => "Preparing",
            JobStatus::Provisioning => "Provisioning",
            JobStatus::Starting => "Starting",
            JobStatus::Running => "Running",
            JobStatus::Finalizing => "Finalizing",
            JobStatus::CancelRequested => "CancelRequested",
            JobStatus::Completed => "Completed",
            JobStatus::Failed => "Failed",
            JobStatus::Canceled => "Canceled",
            JobStatus::NotResponding => "NotResponding",
            JobStatus::Paused => "Paused",
            JobStatus::Unknown => "Unknown",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobResources {
    #[serde(default)]
    pub instance_count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    #[serde(default)]
    pub properties: NodeShare,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm_size: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobLimits {
    #[serde(default)]
    pub job_limits_type: Option<String>,
    #[serde(default)]
    pub timeout: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreationContext {
    #[serde(default)]
    pub created_at: Option<String>,
    #[serde(default)]
    pub created_by: Option<String>,
    #[serde(default)]
    pub created_by_type: Option<String>,
}

pub fn resource(facts: &JobFacts<'_>) -> JobResource {
    let (job, spec) = (facts.job, facts.spec);
    let workspace = workspace_id(facts.workspace);
    let changed_at = facts.ended_at().or(facts.started_at()).unwrap_or(job.submitted_at);
    JobResource {
        id: format!("{workspace}/jobs/{}", job.name),
        name: job.name.to_string(),
        resource_type: "Microsoft.MachineLearningServices/workspaces/jobs".into(),
        properties: CommandJob {
            job_type: "Command".into(),
            status: JobStatus::of(&job.state),
            display_name: Some(spec.display_name.as_ref().unwrap_or(&job.name).to_string()),
            experiment_name: Some(spec.experiment_name.to_string()),
            description: spec.description.as_deref().map(str::to_owned),
            command: Some(spec.command.to_string()),
            compute_id: compute_id(spec, facts.workspace),
            environment_id: spec.environment.as_ref().map(|named| named.id.to_string()),
            code_id: spec.code_asset.as_ref().map(|code| code.id.to_string()),
            distribution: spec.distribution.map(DistributionEntry::of),
            resources: Some(JobResources {
                instance_count: Some(spec.nodes),
                instance_type: spec.instance_type.as_deref().map(str::to_owned),
                properties: NodeShare::of(spec.share),
                shm_size: spec.shared_memory_mb.map(shared_memory_text),
            }),
            queue_settings: QueueSettings::of(spec),
            identity: spec.identity.as_deref().map(IdentityEntry::of),
            limits: spec.timeout.map(|timeout| JobLimits {
                job_limits_type: Some("Command".into()),
                timeout: Some(duration::format(timeout)),
            }),
            environment_variables: spec.environment_variables.clone(),
            tags: spec.tags.clone(),
            properties: facts.properties(),
            services: services(facts),
            inputs: named(&spec.inputs, InputEntry::of),
            outputs: named(&spec.outputs, OutputEntry::of),
            is_archived: facts.is_archived,
            creation_context: Some(CreationContext {
                created_at: Some(timestamp::format(job.submitted_at)),
                created_by: facts.submitted_by.map(str::to_owned),
                created_by_type: facts.submitted_by.map(|_| "User".to_owned()),
            }),
        },
        system_data: Some(SystemData::new(job.submitted_at, facts.submitted_by, changed_at)),
    }
}

pub(super) fn named<T, E>(
    map: &BTreeMap<String, T>,
    entry: impl Fn(&T) -> E,
) -> BTreeMap<String, E> {
    map.iter().map(|(name, value)| (name.clone(), entry(value))).collect()
}

impl JobFacts<'_> {
    /// When the process of the current attempt started, or else that of the last attempt.
    pub(super) fn started_at(&self) -> Option<Wall> {
        match (&self.job.state, self.job.attempt()) {
            (JobState::Parent(parent), _) => Some(parent.since),
            (_, Some(attempt)) => attempt.started_at,
            (_, None) => self.attempts.last().and_then(|attempt| attempt.started_at),
        }
    }

    pub(super) fn ended_at(&self) -> Option<Wall> {
        match self.job.state {
            JobState::Completed { at }
            | JobState::Failed { at, .. }
            | JobState::Canceled { at, .. } => Some(at),
            JobState::Queued
            | JobState::Starting(_)
            | JobState::Running(_)
            | JobState::CancelRequested(_)
            | JobState::Parent(_) => None,
        }
    }

    pub(super) fn properties(&self) -> BTreeMap<String, String> {
        let mut properties = job_properties(self.spec);
        properties.insert(property::ATTEMPTS.to_owned(), self.job.attempts.to_string());
        let suits = notes::at_low_priority(self.spec).to_owned();
        properties.insert(property::LOW_PRIORITY.to_owned(), suits);
        self.family.write_on(&mut properties);
        for note in self.notes {
            notes::add(&mut properties, note.clone());
        }
        if let Some(waits) = self.waits {
            properties.insert(property::WAIT_REASON.to_owned(), waits.words.clone());
            properties.insert(property::WAIT_CODE.to_owned(), waits.codes.clone());
        }
        match &self.job.state {
            JobState::Failed { why, .. } => {
                let class = why.class().as_str().to_owned();
                properties.insert(property::FAILURE_CLASS.to_owned(), class);
                properties.insert(property::FAILURE.to_owned(), failure_text(why, self.spec));
            }
            JobState::Canceled { why: CancelReason::ClusterDeleted, .. } => {
                let text = "its compute was deleted".to_owned();
                properties.insert(property::CANCEL_REASON.to_owned(), text);
            }
            JobState::Canceled { why: CancelReason::InstanceStopped, .. } => {
                let text = "its compute was stopped".to_owned();
                properties.insert(property::CANCEL_REASON.to_owned(), text);
            }
            JobState::Canceled { why: CancelReason::ParentTimedOut, .. } => {
                let text = "the time limit of its array was reached".to_owned();
                properties.insert(property::CANCEL_REASON.to_owned(), text);
            }
            JobState::Canceled { why: CancelReason::Asked, .. }
            | JobState::Parent(_)
            | JobState::Queued
            | JobState::Starting(_)
            | JobState::Running(_)
            | JobState::CancelRequested(_)
            | JobState::Completed { .. } => {}
        }
        properties
    }
}

fn gigabytes(bytes: u64) -> String {
    if bytes < 1 << 30 {
        return format!("{} MiB", bytes >> 20);
    }
    let tenths = bytes / (1 << 30) * 10 + bytes % (1 << 30) * 10 / (1 << 30);
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

/// Why a job failed. For a job on several nodes, the text names the node.
pub(super) fn failure_text(why: &Failure, spec: &JobSpec) -> String {
    let place = |node: &NodeId, rank: &u32| match spec.nodes {
        1 => format!("node {}", spec.cluster_name().of_node(*node)),
        _ => format!("node {} (rank {rank})", spec.cluster_name().of_node(*node)),
    };
    match why {
        Failure::Exit { node, rank, exit } => {
            let node = place(node, rank);
            match exit {
                Exit::Code(code) => {
                    format!("the command ended with exit code {code} on {node}; see its log")
                }
                Exit::Signal(signal) => {
                    format!("the command was killed by signal {signal} on {node}; see its log")
                }
                Exit::Stopped => format!("the command was stopped on {node}"),
                Exit::Evicted => format!("the command ended because {node} was evicted"),
                Exit::TimedOut => format!(
                    "the command was stopped on {node} because it exceeded its timeout; \
                     raise limits.timeout"
                ),
                Exit::OverLimit { of: Scarce::Memory, most } => format!(
                    "the command exceeded its memory on {node}, {}, and was killed; \
                     use less memory, request more (--memory), or use a cluster with a larger VM size",
                    gigabytes(*most)
                ),
                Exit::OverLimit { of: Scarce::Disk, most } => format!(
                    "the command wrote more to its folder on {node} than the {} that it may use, and was killed; \
                     write less, or ask the operator to free disk space (a node gets an eighth of the space left for nodes, at most \
                     job-disk-gb)",
                    gigabytes(*most)
                ),
                Exit::OverLimit { of: Scarce::Files, most } => format!(
                    "the command created more files in its folder on {node} than the {most} that it may have, and was killed; \
                     pack them into fewer files, or ask the operator to free disk space (a node gets an eighth of the space left for nodes, at \
                     most job-disk-gb)"
                ),
                Exit::OverLimit { of: Scarce::FileLength, most } => format!(
                    "the command created a file on {node} longer than the {} that it may be, and was killed; holes count towards a \
                     file's length, as with `truncate`: make the file shorter, split it, or ask the operator to raise job-disk-gb",
                    gigabytes(*most)
                ),
                Exit::NotStarted { message } => {
                    format!("the command could not be started on {node}: {message}")
                }
                Exit::Data { doing: Carrying::Fetch, message } => {
                    format!(
                        "its files could not be fetched to {node}, so the command was never started: {message}"
                    )
                }
                Exit::Data { doing: Carrying::Save, message } => {
                    format!(
                        "the command succeeded on {node}, but its outputs could not be saved: {message}"
                    )
                }
            }
        }
        Failure::Evicted { node } => format!(
            "its node {} was evicted, and the job is set to fail in that case; \
             leave {} out to have it retried",
            spec.cluster_name().of_node(*node),
            property::ON_EVICTION
        ),
        Failure::NodesLost { attempts } => format!(
            "its nodes were lost in {attempts} attempts, so it is not retried; \
             it may need more memory than a node has; muster compute list-post-mortems shows why they were lost"
        ),
        Failure::Children { failed, of, first } => format!(
            "{failed} of its {of} tasks failed, the first of them was '{first}'; `muster job show --name {first}` \
             shows why"
        ),
        Failure::TreeTimedOut => {
            "its tasks did not end within the time limit of the array, so the remaining ones were \
             canceled; raise the limit"
                .to_owned()
        }
    }
}
