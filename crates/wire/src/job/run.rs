//! A job in run history: its outputs by name, and where they are.

use std::collections::BTreeMap;

use muster_core::model::{DataKind, WorkspaceKey};
use serde::{Deserialize, Serialize};

use super::Family;
use super::data::{kind_text, older_kind_text};
use super::resource::{JobFacts, JobStatus};
use crate::error::ArmError;
use crate::json::{Field, parse_object};
use crate::timestamp;

const BODY_BYTES_MAX: usize = 256 * 1024;
/// The most ids in one request.
const VALUES_MAX: usize = 1_000;
/// Separates the name of the job from that of the output in the name of its data. Azure uses the same text.
const OUTPUT_DATA: &str = "_output_data_";

/// Since this version, azure-ai-ml spells types in lower case.
const NEWER: (u32, u32) = (1, 35);

/// How the client spells types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Newer,
    Older,
}

impl Dialect {
    pub fn of(user_agent: &str) -> Dialect {
        let version = user_agent.split("azure-ai-ml/").nth(1).unwrap_or("");
        let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < NEWER => Dialect::Older,
            _ => Dialect::Newer,
        }
    }

    fn kind(self, kind: DataKind) -> &'static str {
        match self {
            Dialect::Newer => kind_text(kind),
            Dialect::Older => older_kind_text(kind),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunData {
    pub run_metadata: Run,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Always 1, because names are unique.
    pub run_number: u32,
    pub run_id: String,
    pub root_run_id: String,
    #[serde(default)]
    pub parent_run_id: Option<String>,
    pub experiment_id: String,
    pub status: JobStatus,
    #[serde(default)]
    pub created_utc: Option<String>,
    #[serde(default)]
    pub start_time_utc: Option<String>,
    #[serde(default)]
    pub end_time_utc: Option<String>,
    #[serde(default)]
    pub display_name: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    pub data_container_id: String,
    pub hidden: bool,
    pub run_type: String,
    pub properties: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    pub outputs: BTreeMap<String, RunOutput>,
    #[serde(default)]
    pub target: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunOutput {
    pub asset_id: String,
    #[serde(rename = "type")]
    pub kind: String,
}

/// The child runs of a run, and where the next of them are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunList {
    pub value: Vec<Run>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_link: Option<String>,
}

pub fn run(facts: &JobFacts<'_>, location: &str, dialect: Dialect) -> Run {
    let (job, spec) = (facts.job, facts.spec);
    let status = JobStatus::of(&job.state);
    let output = |(name, output): (&String, &muster_core::model::JobOutput)| {
        let asset_id = asset_id(facts.workspace, location, &job.name, name);
        (name.clone(), RunOutput { asset_id, kind: dialect.kind(as_data(output.kind)).to_owned() })
    };
    let parent = match facts.family {
        Family::Child { parent, .. } => Some(parent),
        Family::Alone | Family::Parent { .. } => None,
    };
    // Only a completed job has outputs.
    let outputs = spec.outputs.iter().filter(|_| status == JobStatus::Completed).map(output);
    Run {
        run_number: 1,
        run_id: job.name.to_string(),
        root_run_id: parent.unwrap_or(&job.name).to_owned(),
        parent_run_id: parent.map(str::to_owned),
        experiment_id: spec.experiment_name.to_string(),
        status,
        created_utc: Some(timestamp::format(job.submitted_at)),
        start_time_utc: facts.started_at().map(timestamp::format),
        end_time_utc: facts.ended_at().map(timestamp::format),
        display_name: Some(spec.display_name.as_ref().unwrap_or(&job.name).to_string()),
        description: spec.description.as_deref().map(str::to_owned),
        data_container_id: format!("dcid.{}", job.name),
        hidden: facts.is_archived,
        run_type: "azureml.scriptrun".to_owned(),
        properties: facts.properties(),
        tags: spec.tags.clone(),
        outputs: outputs.collect(),
        target: Some(spec.compute.to_string()),
    }
}

/// Clients use another API for models, and versions before 1.35 fail with them. A model is also a folder, so it is
/// shown as one.
fn as_data(kind: DataKind) -> DataKind {
    match kind {
        DataKind::UriFile | DataKind::UriFolder | DataKind::MlTable => kind,
        DataKind::CustomModel | DataKind::MlflowModel | DataKind::TritonModel => {
            DataKind::UriFolder
        }
    }
}

fn asset_id(workspace: &WorkspaceKey, location: &str, job: &str, output: &str) -> String {
    let home = &workspace.name;
    format!(
        "azureml://locations/{location}/workspaces/{home}/data/azureml_{job}{OUTPUT_DATA}{output}/versions/1"
    )
}

/// The job and the output in the id of data that a job left.
pub fn parse_asset_id(id: &str) -> Option<(&str, &str)> {
    let (_, rest) = id.split_once("/data/azureml_")?;
    let (name, _) = rest.split_once("/versions/")?;
    name.rsplit_once(OUTPUT_DATA)
}

/// The run id in the body of a `rundata` request.
pub fn parse_run_id(body: &[u8]) -> Result<Box<str>, ArmError> {
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let run = Field::root(&value).get("runId")?;
    let id = run.text()?.filter(|id| !id.is_empty());
    id.ok_or_else(|| run.missing("give the id of a run"))
}

/// The ids in the body of a request.
pub fn parse_values(body: &[u8]) -> Result<Vec<String>, ArmError> {
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let values = Field::root(&value).get("values")?;
    let items = values.items()?.unwrap_or_default();
    if items.len() > VALUES_MAX {
        return Err(values
            .invalid(format!("there are {} ids; at most {VALUES_MAX} are allowed", items.len())));
    }
    let mut ids = Vec::new();
    for item in items {
        ids.extend(item.string()?.map(str::to_owned));
    }
    Ok(ids)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedUris {
    pub values: BTreeMap<String, ResolvedUri>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedUri {
    pub uri: String,
    #[serde(rename = "type")]
    pub kind: String,
}

/// The same for models, whose clients use other keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedPaths {
    pub values: BTreeMap<String, ResolvedPath>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedPath {
    pub path: String,
    #[serde(rename = "type")]
    pub kind: String,
}

impl From<ResolvedUris> for ResolvedPaths {
    fn from(uris: ResolvedUris) -> ResolvedPaths {
        let path = |uri: ResolvedUri| ResolvedPath { path: uri.uri, kind: uri.kind };
        let values = uris.values.into_iter().map(|(id, uri)| (id, path(uri)));
        ResolvedPaths { values: values.collect() }
    }
}

/// The location of a folder or a file in a datastore.
pub fn resolved(
    workspace: &WorkspaceKey,
    datastore: &str,
    path: &str,
    kind: DataKind,
    dialect: Dialect,
) -> ResolvedUri {
    let WorkspaceKey { subscription, resource_group, name } = workspace;
    let end = if kind.is_file() { "" } else { "/" };
    ResolvedUri {
        uri: format!(
            "azureml://subscriptions/{subscription}/resourcegroups/{resource_group}/workspaces/{name}/datastores/{datastore}/paths/{path}{end}"
        ),
        kind: dialect.kind(as_data(kind)).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dialect_is_known_by_the_client() {
        for (agent, dialect) in [
            ("azure-ai-ml/1.20.0 azsdk-python-mgmt", Dialect::Older),
            ("x azure-ai-ml/1.34.9", Dialect::Older),
            ("azure-ai-ml/1.35.2 azsdk", Dialect::Newer),
            ("azure-ai-ml/2.0.0", Dialect::Newer),
            ("curl/8", Dialect::Newer),
            ("azure-ai-ml/", Dialect::Newer),
        ] {
            assert_eq!(Dialect::of(agent), dialect, "{agent}");
        }
    }

    #[test]
    fn an_asset_id_leads_back_to_its_output() {
        let key = WorkspaceKey::new("s", "g", "w");
        for job in ["calm_tree", "a_output_data_b"] {
            let id = asset_id(&key, "eastus", job, "model");
            assert_eq!(parse_asset_id(&id), Some((job, "model")));
        }
        assert_eq!(parse_asset_id("azureml://locations/l/workspaces/w/data/mine/versions/1"), None);
    }
}
