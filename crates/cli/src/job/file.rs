//! Jobs as files: the YAML of `az ml job create`, converted to the request that azure-ai-ml would send.
//!
//! Parsing uses nothing but the text. Whatever the text refers to on this machine or on the server (code, data, an
//! environment) stays a [`Need`] until [`settle`] uploads it or looks it up.

mod component;
mod environment;
mod git;
mod inputs;
mod parts;
mod settle;

pub use environment::Environment;
pub use settle::settle;

use environment::parse_environment;

use std::path::{Path, PathBuf};

use muster_wire::job::DEFAULT_EXPERIMENT;
use muster_wire::unserved::Unserved;
use muster_wire::yaml::tree::Node;
use serde_json::{Map, Value as Json, json};

use crate::document::kinds::FileKind;
use crate::document::reader::{self, Reader, Source};
use crate::failure::{CliResult, Failure, quoted};
use crate::upload::Includes;

const FIELDS: &[&str] = &[
    "type",
    "name",
    "display_name",
    "experiment_name",
    "description",
    "tags",
    "properties",
    "command",
    "code",
    "environment",
    "environment_variables",
    "compute",
    "inputs",
    "outputs",
    "resources",
    "distribution",
    "limits",
    "identity",
    "services",
    "queue_settings",
    "component",
    "parent_job_name",
    "array",
    "id",
    "parameters",
    "status",
    "creation_context",
    "log_files",
    "resourceGroup",
];
/// Fields that the server reports for an existing job. They are accepted, so that its output can be submitted again.
const SHOWN: [&str; 6] =
    ["id", "parameters", "status", "creation_context", "log_files", "resourceGroup"];
const COMMAND: &str = "command";

/// A job as a file describes it.
#[derive(Debug, PartialEq)]
pub struct JobDraft {
    pub name: Option<String>,
    /// The properties, except those that require a look at this machine or the server.
    pub properties: Map<String, Json>,
    pub code: Option<Code>,
    /// The additional includes of a component's code.
    pub includes: Includes,
    pub environment: Option<Environment>,
    /// Inputs whose `uri` is not known yet, by name.
    pub data: Vec<(String, Data)>,
    /// Fields that cannot be set and were ignored.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Code {
    /// A local path, to be uploaded.
    Local { path: PathBuf, at: (usize, usize), file: String },
    /// Another address, such as a repository: an asset with the address is created, and the server decides whether it
    /// can use it.
    Address(String),
    /// An ARM id, or a reference that the server resolves to one.
    Id(String),
    /// Name and version.
    Asset(String, String),
}

/// Where the data of an input comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// To be uploaded: a path, its place in the file, and the datastore.
    Local {
        path: PathBuf,
        kind: String,
        datastore: Option<String>,
        at: (usize, usize),
        file: String,
    },
    /// To be looked up: the kind of asset, a name, and a label.
    Label { is_model: bool, name: String, label: String },
    /// The kind of asset, a name, a version.
    Version { is_model: bool, name: String, version: String },
}

/// Reads a file, applies the changes of `--set`, and reads other local files that it refers to.
pub fn read(path: &Path, edits: &[String]) -> CliResult<JobDraft> {
    let (source, mut node) = reader::read_tree(path)?;
    for edit in edits {
        reader::set(&mut node, edit)?;
    }
    FileKind::Job.check(&node, path)?;
    match component::merged(&source, &node)? {
        None => parse(&source, &node),
        Some((merged, includes)) => Ok(JobDraft { includes, ..parse(&source, &merged)? }),
    }
}

/// Parses a job of any type.
pub fn parse(source: &Source, node: &Node) -> CliResult<JobDraft> {
    match kind_of(source, node)?.as_str() {
        COMMAND => command(source, node),
        other => {
            let at = node.get("type").map_or(node.place, |node| node.place);
            let place = reader::place(source, at);
            Err(match Unserved::of_job_type(other) {
                Some(thing) => {
                    Failure::refused(format!("{place}{}", thing.sentence())).hint(thing.instead)
                }
                None => Failure::refused(format!("{place}unknown type of job {}", quoted(other)))
                    .hint("use 'type: command' with a command"),
            })
        }
    }
}

/// Without a type it is a command job, unless its fields belong to another type.
fn kind_of(source: &Source, node: &Node) -> CliResult<String> {
    if let Some(kind) = node.get("type").filter(|kind| !kind.is_null()) {
        let text = kind.as_text().map(str::to_ascii_lowercase);
        return text.ok_or_else(|| reader::wrong(source, kind, "type", "a type of job: command"));
    }
    let has = |key: &str| node.get(key).is_some();
    Ok(match () {
        () if has("command") => COMMAND,
        () if has("jobs") => "pipeline",
        () if has("trial") || has("search_space") => "sweep",
        () => COMMAND,
    }
    .to_owned())
}

fn command(source: &Source, node: &Node) -> CliResult<JobDraft> {
    let job = Reader::of(source, "", node, FIELDS)?;
    let missing = |key: &str, why: &str| {
        let at = reader::place(source, node.place);
        Failure::refused(format!("{at}the field '{key}' is missing; {why}"))
    };
    let command = job.text("command")?.filter(|text| !text.trim().is_empty());
    let command = command.ok_or_else(|| missing("command", "add the command to run"))?;
    let mut properties = Map::new();
    let mut put = |key: &str, value: Option<Json>| {
        if let Some(value) = value {
            properties.insert(key.to_owned(), value);
        }
    };
    put("jobType", Some(json!("Command")));
    put("isArchived", Some(json!(false)));
    put("displayName", job.text("display_name")?.map(Json::from));
    put("description", job.text("description")?.map(Json::from));
    put("experimentName", job.text("experiment_name")?.map(Json::from));
    put("parentJobName", job.text("parent_job_name")?.map(Json::from));
    put("tags", Some(job.texts("tags")?.unwrap_or_default().into()));
    let mut own = job.texts("properties")?.unwrap_or_default();
    own.extend(parts::array(&job)?);
    put("properties", Some(own.into()));
    put("environmentVariables", parts::variables(&job)?);
    put("computeId", job.text("compute")?.map(|name| parts::without_prefix(&name).into()));
    put("resources", parts::resources(&job)?);
    put("distribution", parts::distribution(&job)?);
    put("limits", parts::limits(&job)?);
    put("identity", parts::identity(&job)?);
    put("services", parts::services(&job)?);
    put("queueSettings", parts::queue(&job)?);
    let (inputs, data) = inputs::inputs(&job)?;
    let outputs = inputs::outputs(&job)?;
    inputs::check_command(&job, &command, &inputs, &data, &outputs)?;
    put("command", Some(command.into()));
    put("inputs", Some(inputs.into()));
    put("outputs", Some(outputs.into()));
    if job.get("component").is_some() {
        return Err(missing("command", "its component was not read"));
    }
    let environment = match job.get("environment") {
        Some(node) => Some(parse_environment(source, "environment", node)?),
        None => None,
    };
    let shown = SHOWN.iter().filter(|key| job.get(key).is_some());
    Ok(JobDraft {
        name: job.text("name")?,
        properties,
        code: parts::code(&job)?,
        includes: Includes::default(),
        environment,
        data,
        notes: shown.map(|key| (*key).to_owned()).collect(),
    })
}

/// The complete request. A job without an experiment gets the one that azure-ai-ml would use: the name of the folder
/// that it is submitted from. Without a display name, its own name is shown.
pub fn body(mut properties: Map<String, Json>, name: &str) -> String {
    properties.entry("displayName").or_insert_with(|| name.into());
    if !properties.contains_key("experimentName") {
        let here = std::env::current_dir().ok();
        let name = here.as_deref().and_then(|here| here.file_stem()).and_then(|name| name.to_str());
        let name = name.unwrap_or(DEFAULT_EXPERIMENT).replace(' ', "");
        properties.insert("experimentName".to_owned(), name.into());
    }
    if let Some(Json::Object(notes)) = properties.get_mut("properties") {
        git::note(notes);
    }
    json!({ "properties": properties }).to_string()
}

/// The name of the compute, for a message about a missing one.
pub fn compute_of(body: &str) -> Option<String> {
    let body: Json = serde_json::from_str(body).ok()?;
    let id = body.get("properties")?.get("computeId")?.as_str()?;
    id.rsplit('/').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> CliResult<JobDraft> {
        let source = Source { name: "f.yml".to_owned(), folder: "/jobs".into() };
        parse(&source, &reader::parse_tree(&source, text)?)
    }

    #[test]
    fn a_file_is_the_request_that_azure_ai_ml_sends() {
        let wanted = read_text(
            "command: run ${{inputs.rate}} $[[--x ${{inputs.x}}]]\ncode: src\n\
             compute: azureml:cpu\nlimits: {timeout: 3600}\n\
             inputs: {rate: 1.0e-05, data: {type: uri_file, path: azureml:d@latest}}\n\
             outputs: {o: }\nqueue_settings: {job_tier: Spot, priority: high}\n\
             services: {s: {type: ssh, ssh_public_keys: k, nodes: all}}\n",
        )
        .unwrap();
        let body = Json::Object(wanted.properties);
        assert_eq!(body["inputs"]["rate"], json!({"jobInputType": "literal", "value": "1e-05"}));
        assert_eq!(body["outputs"]["o"], json!({"jobOutputType": "uri_folder"}));
        assert_eq!(body["limits"]["timeout"], "PT1H");
        assert_eq!(body["queueSettings"], json!({"jobTier": "Spot", "priority": 3}));
        let service = json!({"jobServiceType": "SSH", "nodes": {"nodesValueType": "All"},
                             "properties": {"sshPublicKeys": "k"}});
        assert_eq!(body["services"]["s"], service);
        let label = Data::Label { is_model: false, name: "d".into(), label: "latest".into() };
        assert_eq!(wanted.data, [("data".to_owned(), label)]);
        let Some(Code::Local { path, at, .. }) = wanted.code else { panic!("a path") };
        assert_eq!((path, at), (PathBuf::from("/jobs/src"), (2, 7)));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, wanted) in [
            ("commands: x", "'f.yml', line 1, column 1: unknown field 'commands'"),
            ("code: x", "'f.yml', line 1, column 1: the field 'command' is missing"),
            (
                "command: x\nresources:\n  instance_counts: 2",
                "'f.yml', line 3, column 3: unknown field 'resources.instance_counts'",
            ),
            (
                "command: x\nresources: {instance_count: two}",
                "'f.yml', line 2, column 29: resources.instance_count is 'two'; give a whole",
            ),
            ("command: x\ninputs:\n  1a: 3", "'f.yml', line 3, column 3: inputs has '1a'"),
            ("command: ${{outputs.o}}", "'f.yml', line 1, column 10: the command uses"),
            (
                "type: pipeline\njobs: {}",
                "'f.yml', line 1, column 7: pipeline jobs are not supported in this version",
            ),
            ("command: [", "'f.yml', line "),
        ] {
            let said = read_text(text).expect_err(text).to_string();
            assert!(said.starts_with(wanted), "{text:?}: {said}");
        }
    }
}
