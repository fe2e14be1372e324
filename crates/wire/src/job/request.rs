//! A job as requested by a client.

use std::collections::BTreeMap;

use muster_core::model::{CodeAsset, JobSpec, SERVERLESS, WorkspaceKey};
use muster_core::time::Span;
use serde_json::json;

use super::array::{array_properties, parse_array};
use super::data::{parse_distribution, parse_environment, parse_inputs, parse_outputs};
use super::identity::{IdentityEntry, identity_note, parse_identity};
use super::resource::named;
use super::services::{ServiceEntry, parse_services};
use super::wants::{
    NodeShare, QueueSettings, on_eviction_text, parse_code, parse_job_tier, parse_on_eviction,
    parse_priority, parse_share, parse_shared_memory, shared_memory_text,
};
use super::{DistributionEntry, InputEntry, OutputEntry, Resolve, property};
use crate::compute::without_nulls;
use crate::error::ArmError;
use crate::json::{Field, Reads, Unreadable, parse_object, shorten};
use crate::notes;
use crate::path::{parse_id, strip_prefix, workspace_id};
use crate::unserved::Unserved;

/// Large enough for the longest command and environment with every character escaped.
pub const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The experiment of a job that does not name one.
pub const DEFAULT_EXPERIMENT: &str = "Default";

const JOB_TYPE: &str = "Command";
/// These properties decide what is run. Without them the job would do something else, so it is refused until they are
/// supported.
const LATER: [&str; 1] = ["componentId"];

/// Properties that clients send back as they were shown, and properties that state what is always the case.
const HARMLESS: [&str; 15] = [
    "id",
    "name",
    "type",
    "systemData",
    "properties.limits.jobLimitsType",
    "properties.status",
    "properties.creationContext",
    "properties.endTimeUtc",
    "properties.startTimeUtc",
    "properties.services.*.endpoint",
    "properties.services.*.status",
    "properties.services.*.errorMessage",
    // Every job is shown with these services and this output.
    "properties.services.Studio.*",
    "properties.services.Tracking.*",
    "properties.outputs.default.*",
];

/// Reads the body of a PUT for a job with this name in `workspace`.
pub fn parse_request(
    body: &[u8],
    workspace: &WorkspaceKey,
    name: &str,
    resolve: &dyn Resolve,
) -> Result<JobSpec, ArmError> {
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let reads = Reads::default();
    let job = Field::noted(&value, &reads).get("properties")?;
    if !job.is_present() {
        return Err(job.missing("give the properties of the job"));
    }
    check_type(&job.get("jobType")?)?;
    for later in LATER {
        refuse_if_filled(&job.get(later)?)?;
    }
    let resources = job.get("resources")?;
    for arguments in ["dockerArgs", "dockerArgsList"] {
        refuse_if_filled(&resources.get(arguments)?)?;
    }
    // The value matters only for a job that exists.
    job.get("isArchived")?.boolean()?;
    refuse_local(&resources.get("properties")?)?;
    let command = job.get("command")?;
    let Some(command) = command.text()? else {
        return Err(command.missing("give the command to run"));
    };
    let properties = job.get("properties")?;
    let code = job.get("codeId")?;
    let code_asset = match code.text()?.filter(|id| !id.is_empty()) {
        None => None,
        Some(id) => {
            let said = |why| code.invalid(format!("{} is '{}': {why}", code.path, shorten(&id)));
            let at = resolve.code(&id).map_err(said)?;
            Some(Box::new(CodeAsset { id, at }))
        }
    };
    let mut spec = JobSpec {
        command,
        compute: one_spelling(compute_name(&job.get("computeId")?, workspace)?),
        instance_type: resources.get("instanceType")?.text()?.filter(|name| !name.is_empty()),
        nodes: resources.get("instanceCount")?.count()?.unwrap_or(1),
        display_name: job.get("displayName")?.text()?,
        experiment_name: job
            .get("experimentName")?
            .text()?
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| DEFAULT_EXPERIMENT.into()),
        description: job.get("description")?.text()?,
        tags: job.get("tags")?.string_map()?.unwrap_or_default(),
        environment_variables: job.get("environmentVariables")?.string_map()?.unwrap_or_default(),
        timeout: parse_timeout(&job.get("limits")?)?,
        priority: parse_priority(&job.get("queueSettings")?.get("priority")?)?,
        job_tier: parse_job_tier(&job.get("queueSettings")?.get("jobTier")?)?,
        identity: parse_identity(&job.get("identity")?)?,
        share: parse_share(&resources.get("properties")?)?,
        on_eviction: parse_on_eviction(&properties.get(property::ON_EVICTION)?)?,
        code: parse_code(&properties.get(property::CODE)?)?,
        checkpoint: properties.get(property::CHECKPOINT)?.text()?,
        code_asset,
        inputs: parse_inputs(&job.get("inputs")?, workspace, resolve)?,
        outputs: parse_outputs(&job.get("outputs")?, workspace, name, resolve)?,
        distribution: parse_distribution(&job.get("distribution")?)?,
        shared_memory_mb: parse_shared_memory(&resources.get("shmSize")?)?,
        properties: notes_of(&properties)?,
        workspace: Some(Box::new(workspace.clone())),
        environment: parse_environment(&job.get("environmentId")?, resolve)?,
        services: parse_services(&job.get("services")?)?,
        array: parse_array(&properties)?,
    };
    let unread = notes::without_effect(&reads.unread(&value, &HARMLESS));
    let notes = unread.into_iter().chain(identity_note(&spec));
    if let Some(note) = notes::joined(notes) {
        spec.properties.insert(property::NOTE.to_owned(), note);
    }
    Ok(spec)
}

/// Whether a PUT archives or restores a job.
pub fn is_archived(body: &[u8]) -> Result<Option<bool>, ArmError> {
    let value = parse_object(body, BODY_BYTES_MAX)?;
    Field::root(&value).get("properties")?.get("isArchived")?.boolean()
}

/// Refuses a run on the client's own machine: the client would start a container there, which needs data that only
/// Azure sends.
fn refuse_local(properties: &Field<'_>) -> Result<(), ArmError> {
    let local = properties.get("IsLocal")?;
    if !local.is_filled() {
        return Ok(());
    }
    let message = format!(
        "{} asks to run the job on the submitter's own machine, which is not supported; name a compute, \
         or leave the compute out to run a serverless job",
        local.path
    );
    Err(ArmError::not_supported(&local.path, message))
}

/// The properties that clients store with a job. Muster's own properties are read elsewhere.
fn notes_of(properties: &Field<'_>) -> Result<BTreeMap<String, String>, ArmError> {
    let mut notes = properties.string_map()?.unwrap_or_default();
    notes.retain(|key, _| !key.starts_with(property::OURS));
    Ok(notes)
}

fn check_type(field: &Field<'_>) -> Result<(), ArmError> {
    match field.string()? {
        None => Err(field.missing(&format!("give '{JOB_TYPE}'"))),
        Some(kind) if kind.eq_ignore_ascii_case(JOB_TYPE) => Ok(()),
        Some(kind) => {
            let words = match Unserved::of_job_type(kind) {
                Some(thing) => format!("{thing} ({} is '{}')", field.path, shorten(kind)),
                None => format!("{} is '{}'; give '{JOB_TYPE}'", field.path, shorten(kind)),
            };
            Err(ArmError::not_supported(&field.path, words))
        }
    }
}

fn refuse_if_filled(field: &Field<'_>) -> Result<(), ArmError> {
    if field.is_filled() { Err(unsupported(field)) } else { Ok(()) }
}

pub(super) fn unsupported(field: &Field<'_>) -> ArmError {
    let path = &field.path;
    ArmError::not_supported(path, format!("{path} is not supported in this version; leave it out"))
}

fn parse_timeout(limits: &Field<'_>) -> Result<Option<Span>, ArmError> {
    limits.get("jobLimitsType")?.choice(&[(JOB_TYPE, ())])?;
    limits.get("timeout")?.duration()
}

/// The one spelling of the compute of serverless jobs.
fn one_spelling(compute: Box<str>) -> Box<str> {
    if compute.eq_ignore_ascii_case(SERVERLESS) { SERVERLESS.into() } else { compute }
}

/// The name in the ARM id of a compute, or the name alone.
fn compute_name(field: &Field<'_>, workspace: &WorkspaceKey) -> Result<Box<str>, ArmError> {
    let Some(text) = field.string()?.filter(|text| !text.is_empty()) else {
        return Ok(SERVERLESS.into());
    };
    // `azureml:` may precede the whole id or the name.
    let text = strip_prefix(text);
    if !text.contains('/') && !text.is_empty() {
        return Ok(text.into());
    }
    let parsed = parse_id(text);
    let (key, name) = match parsed.as_ref().map(|(key, rest)| (key, rest.as_slice())) {
        Some((key, [computes, name]))
            if computes.eq_ignore_ascii_case("computes") && !strip_prefix(name).is_empty() =>
        {
            (key, strip_prefix(name))
        }
        Some(_) | None => {
            return Err(field.invalid(format!(
                "{} is '{}'; give the name of a compute, or its id, {}/computes/<name>",
                field.path,
                shorten(text),
                workspace_id(workspace)
            )));
        }
    };
    if key.folded() != workspace.folded() {
        return Err(field.invalid(format!(
            "{} is in workspace '{}' of resource group '{}', but the job is submitted to '{}' of '{}'; \
             name a compute of the same workspace",
            field.path,
            shorten(&key.name),
            shorten(&key.resource_group),
            workspace.name,
            workspace.resource_group
        )));
    }
    Ok(name.into())
}

/// The body of a PUT that [`parse_request`] reads back as `spec`.
pub fn request_json(spec: &JobSpec, workspace: &WorkspaceKey) -> String {
    let limits = spec.timeout.map(
        |timeout| json!({ "jobLimitsType": JOB_TYPE, "timeout": crate::duration::format(timeout) }),
    );
    let share = Some(NodeShare::of(spec.share)).filter(|share| !share.is_whole());
    let properties = job_properties(spec);
    let body = json!({
        "properties": {
            "jobType": JOB_TYPE,
            "properties": Some(properties).filter(|properties| !properties.is_empty()),
            "command": spec.command,
            "computeId": compute_id(spec, workspace),
            "identity": spec.identity.as_deref().map(IdentityEntry::of),
            "environmentId": spec.environment.as_ref().map(|environment| &environment.id),
            "codeId": spec.code_asset.as_ref().map(|code| &code.id),
            "inputs": named(&spec.inputs, InputEntry::of),
            "outputs": named(&spec.outputs, OutputEntry::of),
            "distribution": spec.distribution.map(DistributionEntry::of),
            "services": Some(named(&spec.services, ServiceEntry::of)).filter(|all| !all.is_empty()),
            "resources": {
                "instanceCount": spec.nodes,
                "instanceType": spec.instance_type,
                "properties": share,
                "shmSize": spec.shared_memory_mb.map(shared_memory_text),
            },
            "queueSettings": QueueSettings::of(spec),
            "displayName": spec.display_name,
            "experimentName": spec.experiment_name,
            "description": spec.description,
            "tags": spec.tags,
            "environmentVariables": spec.environment_variables,
            "limits": limits,
        },
    });
    without_nulls(body).to_string()
}

/// `None` for a serverless job, as in Azure.
pub(super) fn compute_id(spec: &JobSpec, workspace: &WorkspaceKey) -> Option<String> {
    let id = || format!("{}/computes/{}", workspace_id(workspace), spec.compute);
    (!spec.is_serverless()).then(id)
}

/// The client's own properties, and the settings of the specification that are kept in Muster's properties.
pub(super) fn job_properties(spec: &JobSpec) -> BTreeMap<String, String> {
    let said = [
        (property::ON_EVICTION, on_eviction_text(spec.on_eviction).map(str::to_owned)),
        (property::CODE, spec.code.map(|code| code.to_string())),
        (property::CHECKPOINT, spec.checkpoint.as_deref().map(str::to_owned)),
    ];
    let said = said.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let array = array_properties(spec.array.as_deref());
    let ours = said.chain(array).map(|(key, value)| (key.to_owned(), value));
    spec.properties.clone().into_iter().chain(ours).collect()
}

/// The specification as text. Equal specifications have equal text; it is hashed, stored and fetched by agents.
pub fn spec_text(spec: &JobSpec) -> String {
    crate::to_json(spec)
}

/// Reads the text that [`spec_text`] wrote.
pub fn parse_spec_text(text: &str) -> Result<JobSpec, Unreadable> {
    crate::from_json(text.as_bytes())
}
