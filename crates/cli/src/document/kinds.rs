//! What a YAML file describes, according to its schema, its type or its fields: if a file is given to the wrong
//! command, the error names the right one.

use std::path::Path;

use muster_wire::unserved::Unserved;

use crate::env::shell_quoted;
use crate::failure::{CliResult, Failure, quoted};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Job,
    Compute,
    Workspace,
    Environment,
    Data,
    Model,
    Component,
    Datastore,
    /// One of az's nouns that this version does not support, or a type of job.
    Other(&'static str),
}

/// Access to the file: the text of a field, and whether a field exists.
pub trait Look {
    fn text(&self, field: &str) -> Option<String>;
    fn has(&self, field: &str) -> bool;
}

impl Look for super::Fields {
    fn text(&self, field: &str) -> Option<String> {
        self.get(field)?.as_str().map(str::to_owned)
    }

    fn has(&self, field: &str) -> bool {
        self.contains_key(field)
    }
}

impl Look for muster_wire::yaml::tree::Node {
    fn text(&self, field: &str) -> Option<String> {
        self.get(field)?.as_text().map(str::to_owned)
    }

    fn has(&self, field: &str) -> bool {
        self.get(field).is_some()
    }
}

/// Names of schemas, in lower case and without `.schema.json`. The first one that the name contains applies.
const SCHEMAS: [(&str, FileKind); 22] = [
    ("component", FileKind::Component),
    ("schedule", FileKind::Other("schedule")),
    ("onlineendpoint", FileKind::Other("online-endpoint")),
    ("onlinedeployment", FileKind::Other("online-deployment")),
    ("batchendpoint", FileKind::Other("batch-endpoint")),
    ("batchdeployment", FileKind::Other("batch-deployment")),
    ("modelbatchdeployment", FileKind::Other("batch-deployment")),
    ("serverlessendpoint", FileKind::Other("serverless-endpoint")),
    ("featurestoreentity", FileKind::Other("feature-store-entity")),
    ("featurestore", FileKind::Other("feature-store")),
    ("featureset", FileKind::Other("feature-set")),
    ("registry", FileKind::Other("registry")),
    ("connection", FileKind::Other("connection")),
    ("job", FileKind::Job),
    ("amlcompute", FileKind::Compute),
    ("computeinstance", FileKind::Compute),
    ("compute", FileKind::Compute),
    ("environment", FileKind::Environment),
    ("datastore", FileKind::Datastore),
    ("workspace", FileKind::Workspace),
    ("model", FileKind::Model),
    ("data", FileKind::Data),
];
/// Schemas of datastores whose names only mention the kind of storage.
const DATASTORES: [&str; 5] =
    ["azureblob", "azurefile", "azuredatalakegen1", "azuredatalakegen2", "onelake"];

/// Values of `type`, in lower case, that identify the file.
const TYPES: [(&str, FileKind); 18] = [
    ("amlcompute", FileKind::Compute),
    ("computeinstance", FileKind::Compute),
    ("virtualmachine", FileKind::Compute),
    ("kubernetes", FileKind::Compute),
    ("synapsespark", FileKind::Compute),
    ("azure_blob", FileKind::Datastore),
    ("azure_file", FileKind::Datastore),
    ("azure_data_lake_gen1", FileKind::Datastore),
    ("azure_data_lake_gen2", FileKind::Datastore),
    ("one_lake", FileKind::Datastore),
    ("uri_file", FileKind::Data),
    ("uri_folder", FileKind::Data),
    ("mltable", FileKind::Data),
    ("custom_model", FileKind::Model),
    ("mlflow_model", FileKind::Model),
    ("triton_model", FileKind::Model),
    ("sweep", FileKind::Job),
    ("automl", FileKind::Job),
];

/// Fields that only one kind of file has. The first one that the file has applies.
const FIELDS: [(&str, FileKind); 21] = [
    ("trigger", FileKind::Other("schedule")),
    ("create_job", FileKind::Other("schedule")),
    ("auth_mode", FileKind::Other("online-endpoint")),
    ("endpoint_name", FileKind::Other("online-deployment")),
    ("is_deterministic", FileKind::Component),
    ("jobs", FileKind::Job),
    ("trial", FileKind::Job),
    ("search_space", FileKind::Job),
    ("min_instances", FileKind::Compute),
    ("max_instances", FileKind::Compute),
    ("idle_time_before_scale_down", FileKind::Compute),
    ("account_name", FileKind::Datastore),
    ("container_name", FileKind::Datastore),
    ("file_share_name", FileKind::Datastore),
    ("command", FileKind::Job),
    ("conda_file", FileKind::Environment),
    ("image", FileKind::Environment),
    ("build", FileKind::Environment),
    ("storage_account", FileKind::Workspace),
    ("hbi_workspace", FileKind::Workspace),
    ("managed_network", FileKind::Workspace),
];

impl FileKind {
    /// The kind of file, if it can be determined.
    pub fn of(file: &dyn Look) -> Option<FileKind> {
        let schema = file.text("$schema").and_then(|schema| of_schema(&schema));
        schema.or_else(|| of_type(file)).or_else(|| {
            let is_there = |(field, _): &&(&str, FileKind)| file.has(field);
            FIELDS.iter().find(is_there).map(|(_, kind)| *kind)
        })
    }

    /// Refuses a file that is certainly of another kind.
    pub fn check(self, file: &dyn Look, path: &Path) -> CliResult {
        let Some(found) = FileKind::of(file).filter(|found| *found != self) else { return Ok(()) };
        // Without a schema, a component may have only fields that a job has too.
        let says = |schema: String| of_schema(&schema).is_some();
        let is_sure = found != FileKind::Job || file.text("$schema").is_some_and(says);
        if self == FileKind::Component && !is_sure {
            return Ok(());
        }
        let name = quoted(&path.display().to_string());
        if let FileKind::Other(noun) = found {
            let Some(thing) = Unserved::of_noun(noun) else { return Ok(()) };
            let text = format!("{name} is not {}: {}", self.with_article(), thing.sentence());
            return Err(Failure::refused(text).hint(thing.instead));
        }
        let (wanted, found_kind) = (self.with_article(), found.with_article());
        let text = format!("{name} is not {wanted}: it describes {found_kind}");
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let path = shell_quoted(&path.display().to_string());
        Err(Failure::refused(text)
            .hint(format!("use `muster {} create --file {path}`", found.noun())))
    }

    fn noun(self) -> &'static str {
        match self {
            FileKind::Job => "job",
            FileKind::Compute => "compute",
            FileKind::Workspace => "workspace",
            FileKind::Environment => "environment",
            FileKind::Data => "data",
            FileKind::Model => "model",
            FileKind::Component => "component",
            FileKind::Datastore => "datastore",
            FileKind::Other(noun) => noun,
        }
    }

    fn words(self) -> &'static str {
        match self {
            FileKind::Data => "data asset",
            other => other.noun(),
        }
    }

    fn with_article(self) -> String {
        let words = self.words();
        let article = if words.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        format!("{article} {words}")
    }
}

fn of_schema(address: &str) -> Option<FileKind> {
    let name = address.rsplit('/').next().unwrap_or(address).to_ascii_lowercase();
    let name = name.strip_suffix(".schema.json")?;
    if DATASTORES.contains(&name) {
        return Some(FileKind::Datastore);
    }
    SCHEMAS.iter().find(|(part, _)| name.contains(part)).map(|(_, kind)| *kind)
}

/// Both jobs and components have `type: command`.
fn of_type(file: &dyn Look) -> Option<FileKind> {
    let kind = file.text("type")?.to_ascii_lowercase();
    TYPES.iter().find(|(word, _)| *word == kind).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(file: serde_json::Value) -> Option<FileKind> {
        let serde_json::Value::Object(fields) = file else { panic!("an object") };
        FileKind::of(&fields)
    }

    fn schema(name: &str) -> Option<FileKind> {
        kind(
            json!({"$schema": format!("https://azuremlschemas.azureedge.net/latest/{name}.schema.json")}),
        )
    }

    #[test]
    fn a_schema_says_what_a_file_is() {
        for (name, wanted) in [
            ("commandJob", FileKind::Job),
            ("pipelineJob", FileKind::Job),
            ("sweepJob", FileKind::Job),
            ("commandComponent", FileKind::Component),
            ("pipelineComponent", FileKind::Component),
            ("amlCompute", FileKind::Compute),
            ("computeInstance", FileKind::Compute),
            ("environment", FileKind::Environment),
            ("data", FileKind::Data),
            ("model", FileKind::Model),
            ("azureBlob", FileKind::Datastore),
            ("workspace", FileKind::Workspace),
            ("schedule", FileKind::Other("schedule")),
            ("managedOnlineEndpoint", FileKind::Other("online-endpoint")),
            ("managedOnlineDeployment", FileKind::Other("online-deployment")),
            ("batchEndpoint", FileKind::Other("batch-endpoint")),
            ("modelBatchDeployment", FileKind::Other("batch-deployment")),
        ] {
            assert_eq!(schema(name), Some(wanted), "{name}");
        }
        assert_eq!(schema("unheardOf"), None);
        for (_, kind) in SCHEMAS.iter().chain(&TYPES).chain(&FIELDS) {
            if let FileKind::Other(noun) = kind {
                assert!(Unserved::of_noun(noun).is_some(), "{noun}");
            }
        }
    }

    #[test]
    fn a_component_may_look_like_a_job() {
        let file = json!({"command": "true", "name": "train"});
        let serde_json::Value::Object(fields) = file else { panic!("an object") };
        let path = Path::new("f.yml");
        assert!(FileKind::Component.check(&fields, path).is_ok());
        assert!(FileKind::Job.check(&fields, path).is_ok());
        let refused = FileKind::Data.check(&fields, path).expect_err("no data").to_string();
        assert_eq!(refused, "'f.yml' is not a data asset: it describes a job");
    }

    #[test]
    fn without_a_schema_its_type_or_its_fields_do() {
        for (file, wanted) in [
            (json!({"type": "amlcompute", "size": "x"}), Some(FileKind::Compute)),
            (json!({"name": "x", "min_instances": 0}), Some(FileKind::Compute)),
            (json!({"type": "uri_file", "path": "x"}), Some(FileKind::Data)),
            (json!({"type": "command", "command": "true"}), Some(FileKind::Job)),
            (json!({"command": "true", "is_deterministic": true}), Some(FileKind::Component)),
            (json!({"command": "true", "environment": {"image": "x"}}), Some(FileKind::Job)),
            (json!({"image": "x"}), Some(FileKind::Environment)),
            (json!({"trigger": {}, "create_job": "x"}), Some(FileKind::Other("schedule"))),
            (json!({"name": "x"}), None),
            (json!({"commands": "x"}), None),
        ] {
            assert_eq!(kind(file.clone()), wanted, "{file}");
        }
    }
}
