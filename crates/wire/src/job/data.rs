//! The inputs and outputs of a job, and the URIs that they name.

use std::collections::BTreeMap;

use muster_core::model::{
    ARTIFACT_DATASTORE, DataKind, DataLocation, Distribution, InputMode, JobEnvironment, JobInput,
    JobOutput, OutputMode, Registration, Source, WorkspaceKey,
};
use serde::{Deserialize, Serialize};

use crate::asset::{self, Reference};
use crate::error::ArmError;
use crate::json::{Field, shorten};
use crate::path::strip_prefix;

const LITERAL: &str = "literal";
const KINDS: [(&str, DataKind); 6] = [
    ("uri_file", DataKind::UriFile),
    ("uri_folder", DataKind::UriFolder),
    ("mltable", DataKind::MlTable),
    ("custom_model", DataKind::CustomModel),
    ("mlflow_model", DataKind::MlflowModel),
    ("triton_model", DataKind::TritonModel),
];
/// A table is evaluated by the program itself, as with Azure's library.
const INPUT_MODES: [(&str, InputMode); 5] = [
    ("ReadOnlyMount", InputMode::ReadOnlyMount),
    ("Download", InputMode::Download),
    ("Direct", InputMode::Direct),
    ("EvalMount", InputMode::ReadOnlyMount),
    ("EvalDownload", InputMode::Download),
];
const OUTPUT_MODES: [(&str, OutputMode); 3] = [
    ("ReadWriteMount", OutputMode::ReadWriteMount),
    ("Upload", OutputMode::Upload),
    ("Direct", OutputMode::Direct),
];
/// The default path of an output. A file is put in a folder of its own.
const OUTPUT_PATH: &str = "azureml/${{name}}/${{output_name}}";
const OUTPUT_FILE_PATH: &str = "azureml/${{name}}/${{output_name}}/${{output_name}}";

/// The spelling of a type in azure-ai-ml.
pub fn kind_text(kind: DataKind) -> &'static str {
    let found = KINDS.iter().find(|(_, known)| *known == kind);
    found.map(|(text, _)| *text).expect("the table contains every kind")
}

/// The same for versions before 1.35.
pub fn older_kind_text(kind: DataKind) -> &'static str {
    match kind {
        DataKind::UriFile => "UriFile",
        DataKind::UriFolder => "UriFolder",
        DataKind::MlTable => "MLTable",
        DataKind::CustomModel => "CustomModel",
        DataKind::MlflowModel => "MLFlowModel",
        DataKind::TritonModel => "TritonModel",
    }
}

/// What a data URI refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataUri {
    DataLocation(asset::AssetLocation),
    /// A data asset or a model.
    Asset(Reference),
}

/// Resolves the names in a job that only the server knows. An error is a message for the submitter.
pub trait Resolve {
    fn code(&self, id: &str) -> Result<DataLocation, String>;
    fn environment(&self, id: &str) -> Result<JobEnvironment, String>;
    fn source(&self, kind: DataKind, uri: &DataUri) -> Result<Source, String>;
    fn output(&self, datastore: Option<&str>, path: &str) -> Result<DataLocation, String>;
    /// Checks whether an output may be registered as this version of an asset.
    fn registration(&self, kind: DataKind, wanted: &Registration) -> Result<(), String>;
}

impl DataUri {
    pub fn parse(text: &str, kind: DataKind, workspace: &WorkspaceKey) -> Result<DataUri, String> {
        let bare = strip_prefix(text);
        let is_place = text.contains("://") || bare.starts_with('.') || is_local(bare);
        if is_place {
            let place =
                asset::AssetLocation::parse(text, workspace).map_err(|why| why.to_string())?;
            return Ok(DataUri::DataLocation(place));
        }
        let reference =
            Reference::parse(kind.asset(), text, workspace).map_err(|why| why.to_string())?;
        Ok(DataUri::Asset(reference))
    }
}

/// Whether this is a path on a local machine rather than an ARM id.
fn is_local(text: &str) -> bool {
    let is_id = text.get(..15).is_some_and(|start| start.eq_ignore_ascii_case("/subscriptions/"));
    text.starts_with('/') && !is_id
}

pub(super) fn parse_environment(
    field: &Field<'_>,
    resolve: &dyn Resolve,
) -> Result<Option<Box<JobEnvironment>>, ArmError> {
    let Some(id) = field.text()?.filter(|id| !id.is_empty()) else { return Ok(None) };
    let said = |why| field.invalid(format!("{} is '{}': {why}", field.path, shorten(&id)));
    Ok(Some(Box::new(resolve.environment(&id).map_err(said)?)))
}

pub(super) fn parse_inputs(
    field: &Field<'_>,
    workspace: &WorkspaceKey,
    resolve: &dyn Resolve,
) -> Result<BTreeMap<String, JobInput>, ArmError> {
    let mut inputs = BTreeMap::new();
    for (name, field) in field.entries()?.unwrap_or_default() {
        if field.is_present() {
            inputs.insert(name.to_owned(), parse_input(&field, workspace, resolve)?);
        }
    }
    Ok(inputs)
}

fn parse_input(
    field: &Field<'_>,
    workspace: &WorkspaceKey,
    resolve: &dyn Resolve,
) -> Result<JobInput, ArmError> {
    let kind = field.get("jobInputType")?;
    let is_literal = kind.string()?.is_none_or(|kind| kind.eq_ignore_ascii_case(LITERAL));
    let literal = field.get("value")?;
    if is_literal && (literal.is_present() || kind.is_present()) {
        let Some(text) = literal.scalar()? else {
            return Err(literal.missing("give the value of the input"));
        };
        return Ok(JobInput::Literal(text.into()));
    }
    let kind = kind.choice(&KINDS)?.unwrap_or(DataKind::UriFolder);
    let mode = field.get("mode")?;
    if mode.string()?.is_some_and(|mode| mode.eq_ignore_ascii_case("ReadWriteMount")) {
        return Err(mode.invalid(format!(
            "{} is ReadWriteMount, but inputs are read-only; use an output instead",
            mode.path
        )));
    }
    let mode = mode.choice(&INPUT_MODES)?.unwrap_or(InputMode::ReadOnlyMount);
    let at = field.get("uri")?;
    let Some(uri) = at.text()?.filter(|uri| !uri.is_empty()) else {
        return Err(at.missing("give the location of its data"));
    };
    let said = |why: String| at.invalid(format!("{} is '{}': {why}", at.path, shorten(&uri)));
    let parsed = DataUri::parse(&uri, kind, workspace).map_err(said)?;
    let source = match resolve.source(kind, &parsed) {
        // The program reads the data itself, so any URL is accepted.
        Err(_) if mode == InputMode::Direct && is_elsewhere(&parsed) => Source::Url,
        found => found.map_err(said)?,
    };
    Ok(JobInput::Data { kind, mode, uri, source })
}

fn is_elsewhere(uri: &DataUri) -> bool {
    matches!(uri, DataUri::DataLocation(asset::AssetLocation::Url(_)))
}

pub(super) fn parse_outputs(
    field: &Field<'_>,
    workspace: &WorkspaceKey,
    job: &str,
    resolve: &dyn Resolve,
) -> Result<BTreeMap<String, JobOutput>, ArmError> {
    let mut outputs = BTreeMap::new();
    for (name, field) in field.entries()?.unwrap_or_default() {
        if field.is_present() && !is_artifacts(name, &field)? {
            let output = parse_output(&field, workspace, (job, name), resolve)?;
            outputs.insert(name.to_owned(), output);
        }
    }
    Ok(outputs)
}

/// Whether this is the entry in which Azure shows all files that a job leaves. Clients that resubmit a job send it
/// back.
fn is_artifacts(name: &str, field: &Field<'_>) -> Result<bool, ArmError> {
    let at = format!("azureml://datastores/{ARTIFACT_DATASTORE}/");
    let uri = field.get("uri")?.string()?.unwrap_or("");
    Ok(name == "default" && uri.starts_with(&at))
}

fn parse_output(
    field: &Field<'_>,
    workspace: &WorkspaceKey,
    (job, name): (&str, &str),
    resolve: &dyn Resolve,
) -> Result<JobOutput, ArmError> {
    let kind = field.get("jobOutputType")?.choice(&KINDS)?.unwrap_or(DataKind::UriFolder);
    let mode = field.get("mode")?.choice(&OUTPUT_MODES)?.unwrap_or(OutputMode::ReadWriteMount);
    let register = parse_registration(field, kind, resolve)?;
    let at = field.get("uri")?;
    let uri = at.text()?.filter(|uri| !uri.is_empty());
    let shown = uri.as_deref().unwrap_or("").to_owned();
    let said = |why: String| at.invalid(format!("{} is '{}': {why}", at.path, shorten(&shown)));
    let filled = |text: &str| text.replace("${{name}}", job).replace("${{output_name}}", name);
    let to = match &uri {
        None if kind.is_file() => resolve.output(None, &filled(OUTPUT_FILE_PATH)),
        None => resolve.output(None, &filled(OUTPUT_PATH)),
        Some(uri) => {
            let uri = filled(uri).replace("${{default_datastore}}", "workspaceblobstore");
            match DataUri::parse(&uri, kind, workspace).map_err(said)? {
                DataUri::DataLocation(asset::AssetLocation::Datastore { path, .. })
                    if kind.is_file() && path.trim_end_matches('/').is_empty() =>
                {
                    Err("an output of type uri_file needs the name of the file after /paths/"
                        .to_owned())
                }
                DataUri::DataLocation(asset::AssetLocation::Datastore { datastore, path }) => {
                    resolve.output(Some(&datastore), path.trim_end_matches('/'))
                }
                DataUri::DataLocation(_) | DataUri::Asset(_) => {
                    Err("give the location of an output as azureml://datastores/NAME/paths/PATH"
                        .to_owned())
                }
            }
        }
    };
    Ok(JobOutput { kind, mode, uri, to: to.map_err(said)?, register })
}

fn parse_registration(
    field: &Field<'_>,
    kind: DataKind,
    resolve: &dyn Resolve,
) -> Result<Option<Box<Registration>>, ArmError> {
    let at = field.get("assetName")?;
    let version = field.get("assetVersion")?;
    let filled = |text: &str| !text.is_empty();
    let wanted_version = version.number_or_text()?.filter(|text| filled(text)).map(Into::into);
    let Some(name) = at.string()?.map(strip_prefix).filter(|name| filled(name)) else {
        return match wanted_version {
            None => Ok(None),
            Some(_) => Err(at.missing("give the name of the asset, because assetVersion is given")),
        };
    };
    let wanted = Registration { name: name.into(), version: wanted_version };
    resolve
        .registration(kind, &wanted)
        .map_err(|why| at.invalid(format!("{} is '{}': {why}", at.path, shorten(&wanted.name))))?;
    Ok(Some(Box::new(wanted)))
}

pub(super) fn parse_distribution(field: &Field<'_>) -> Result<Option<Distribution>, ArmError> {
    let at = field.get("distributionType")?;
    let Some(kind) = at.string()? else { return Ok(None) };
    let count = |name: &str| field.get(name)?.count();
    let processes = |count: Option<u32>| count.unwrap_or(1);
    Ok(Some(match kind.to_ascii_lowercase().as_str() {
        "pytorch" => {
            Distribution::PyTorch { processes: processes(count("processCountPerInstance")?) }
        }
        "mpi" => Distribution::Mpi { processes: processes(count("processCountPerInstance")?) },
        "tensorflow" => Distribution::TensorFlow {
            workers: count("workerCount")?.unwrap_or(1),
            parameter_servers: count("parameterServerCount")?.unwrap_or(0),
        },
        _ => {
            return Err(at.unknown(kind, &["PyTorch", "Mpi", "TensorFlow"]));
        }
    }))
}

/// `inputs.NAME` as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputEntry {
    pub job_input_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

impl InputEntry {
    pub(super) fn of(input: &JobInput) -> InputEntry {
        match input {
            JobInput::Literal(value) => InputEntry {
                job_input_type: LITERAL.to_owned(),
                value: Some(value.to_string()),
                uri: None,
                mode: None,
            },
            JobInput::Data { kind, mode, uri, .. } => {
                let mode = INPUT_MODES.iter().find(|(_, known)| known == mode);
                InputEntry {
                    job_input_type: kind_text(*kind).to_owned(),
                    value: None,
                    uri: Some(uri.to_string()),
                    mode: mode.map(|(text, _)| (*text).to_owned()),
                }
            }
        }
    }
}

/// `outputs.NAME` as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputEntry {
    pub job_output_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asset_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asset_version: Option<String>,
}

impl OutputEntry {
    pub(super) fn of(output: &JobOutput) -> OutputEntry {
        let mode = OUTPUT_MODES.iter().find(|(_, known)| *known == output.mode);
        OutputEntry {
            job_output_type: kind_text(output.kind).to_owned(),
            uri: output.uri.as_deref().map(str::to_owned),
            mode: mode.map(|(text, _)| (*text).to_owned()),
            asset_name: output.register.as_ref().map(|wanted| wanted.name.to_string()),
            asset_version: output
                .register
                .as_ref()
                .and_then(|wanted| wanted.version.as_deref().map(str::to_owned)),
        }
    }
}

/// `distribution` as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DistributionEntry {
    pub distribution_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_count_per_instance: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_server_count: Option<u32>,
}

impl DistributionEntry {
    pub(super) fn of(distribution: Distribution) -> DistributionEntry {
        let (kind, processes, workers) = match distribution {
            Distribution::PyTorch { processes } => ("PyTorch", Some(processes), None),
            Distribution::Mpi { processes } => ("Mpi", Some(processes), None),
            Distribution::TensorFlow { workers, parameter_servers } => {
                ("TensorFlow", None, Some((workers, parameter_servers)))
            }
        };
        DistributionEntry {
            distribution_type: kind.to_owned(),
            process_count_per_instance: processes,
            worker_count: workers.map(|(workers, _)| workers),
            parameter_server_count: workers.map(|(_, servers)| servers),
        }
    }
}
