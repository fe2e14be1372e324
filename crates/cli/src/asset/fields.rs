//! The fields of Azure's schemas for versioned assets.

use crate::document::{Field, Fields, Kind, field};
use crate::failure::{CliResult, Failure, quoted};
use crate::nearest;

const NO_AUTO_DELETE: &str = "versions are never deleted automatically; remove this field";
const NO_TEMPLATES: &str = "deployments are not supported; remove this field";

const BUILD: [Field; 2] = [field("path", Kind::Text), field("dockerfile_path", Kind::Text)];
const INFERENCE_ROUTE: [Field; 2] = [field("port", Kind::Whole), field("path", Kind::Text)];
pub const INFERENCE: [Field; 3] = [
    field("liveness_route", Kind::Object(&INFERENCE_ROUTE)),
    field("readiness_route", Kind::Object(&INFERENCE_ROUTE)),
    field("scoring_route", Kind::Object(&INFERENCE_ROUTE)),
];
pub const ENVIRONMENT: &[Field] = &[
    field("name", Kind::Text),
    field("version", Kind::Word),
    field("description", Kind::Text),
    field("tags", Kind::Texts),
    field("image", Kind::Text),
    field("build", Kind::Object(&BUILD)),
    field("conda_file", Kind::Any),
    field("inference_config", Kind::Object(&INFERENCE)),
    field("os_type", Kind::Text),
    field("datastore", Kind::Text),
    field("auto_delete_setting", Kind::Refused(NO_AUTO_DELETE)),
    field("id", Kind::Shown),
    field("creation_context", Kind::Shown),
    field("latest_version", Kind::Shown),
    field("intellectual_property", Kind::Shown),
    field("resourceGroup", Kind::Shown),
];

pub const DATA: &[Field] = &[
    field("name", Kind::Text),
    field("version", Kind::Word),
    field("description", Kind::Text),
    field("tags", Kind::Texts),
    field("path", Kind::Text),
    field("type", Kind::Text),
    field("datastore", Kind::Text),
    field(
        "source",
        Kind::Refused(
            "importing from databases is not supported; give a path, and remove this field",
        ),
    ),
    field("auto_delete_setting", Kind::Refused(NO_AUTO_DELETE)),
    field("properties", Kind::Shown),
    field("id", Kind::Shown),
    field("creation_context", Kind::Shown),
    field("latest_version", Kind::Shown),
    field("resourceGroup", Kind::Shown),
];

pub const MODEL: &[Field] = &[
    field("name", Kind::Text),
    field("version", Kind::Word),
    field("description", Kind::Text),
    field("tags", Kind::Texts),
    field("properties", Kind::Texts),
    field("path", Kind::Text),
    field("type", Kind::Text),
    field("stage", Kind::Text),
    field("flavors", Kind::Any),
    field("datastore", Kind::Text),
    field("system_metadata", Kind::Refused("it has no effect; remove this field")),
    field("default_deployment_template", Kind::Refused(NO_TEMPLATES)),
    field("allowed_deployment_templates", Kind::Refused(NO_TEMPLATES)),
    field("id", Kind::Shown),
    field("creation_context", Kind::Shown),
    field("utc_time_created", Kind::Shown),
    field("job_name", Kind::Shown),
    field("latest_version", Kind::Shown),
    field("intellectual_property", Kind::Shown),
    field("resourceGroup", Kind::Shown),
];

const PORT: [Field; 8] = [
    field("type", Kind::Text),
    field("description", Kind::Text),
    field("optional", Kind::Bool),
    field("default", Kind::Any),
    field("min", Kind::Any),
    field("max", Kind::Any),
    field("enum", Kind::Any),
    field("mode", Kind::Text),
];
/// An output of a pipeline may be that of one of its jobs.
const OUTPUT: [Field; 5] = [
    field("type", Kind::Text),
    field("description", Kind::Text),
    field("mode", Kind::Text),
    field("is_control", Kind::Bool),
    field("early_available", Kind::Bool),
];
const RESOURCES: [Field; 7] = [
    field("instance_count", Kind::Any),
    field("instance_type", Kind::Text),
    field("properties", Kind::Any),
    field("locations", Kind::Any),
    field("shm_size", Kind::Text),
    field("max_instance_count", Kind::Any),
    field("docker_args", Kind::Any),
];
const DISTRIBUTION: [Field; 10] = [
    field("type", Kind::Text),
    field("process_count_per_instance", Kind::Any),
    field("parameter_server_count", Kind::Any),
    field("worker_count", Kind::Any),
    field("port", Kind::Any),
    field("address", Kind::Text),
    field("include_dashboard", Kind::Any),
    field("dashboard_port", Kind::Any),
    field("head_node_additional_args", Kind::Text),
    field("worker_node_additional_args", Kind::Text),
];

/// The common fields of all components, followed by those of the type.
macro_rules! component {
    ($($own:expr),* $(,)?) => {
        &[
            field("$schema", Kind::Text),
            field("name", Kind::Text),
            field("version", Kind::Word),
            field("type", Kind::Text),
            field("display_name", Kind::Text),
            field("description", Kind::Text),
            field("tags", Kind::Texts),
            field("properties", Kind::Any),
            field("is_deterministic", Kind::Bool),
            field("inputs", Kind::Named(&PORT)),
            field("outputs", Kind::Named(&OUTPUT)),
            field("auto_delete_setting", Kind::Refused(NO_AUTO_DELETE)),
            field("id", Kind::Shown),
            field("creation_context", Kind::Shown),
            field("latest_version", Kind::Shown),
            field("intellectual_property", Kind::Shown),
            field("resourceGroup", Kind::Shown),
            $($own),*
        ]
    };
}

const COMMAND: &[Field] = component![
    field("command", Kind::Text),
    field("code", Kind::Text),
    field("environment", Kind::Any),
    field("environment_variables", Kind::Any),
    field("resources", Kind::Object(&RESOURCES)),
    field("distribution", Kind::Object(&DISTRIBUTION)),
    field("queue_settings", Kind::Any),
    field("additional_includes", Kind::Any),
];
const PARALLEL: &[Field] = component![
    field("task", Kind::Any),
    field("mini_batch_size", Kind::Word),
    field("partition_keys", Kind::Any),
    field("input_data", Kind::Text),
    field("retry_settings", Kind::Any),
    field("logging_level", Kind::Text),
    field("max_concurrency_per_instance", Kind::Any),
    field("error_threshold", Kind::Any),
    field("mini_batch_error_threshold", Kind::Any),
    field("resources", Kind::Object(&RESOURCES)),
    field("environment_variables", Kind::Any),
    field("code", Kind::Text),
    field("additional_includes", Kind::Any),
];
const PIPELINE: &[Field] = component![field("jobs", Kind::Any), field("settings", Kind::Any)];
const SWEEP: &[Field] = component![
    field("trial", Kind::Any),
    field("search_space", Kind::Any),
    field("sampling_algorithm", Kind::Any),
    field("objective", Kind::Any),
    field("early_termination", Kind::Any),
    field("limits", Kind::Any),
    field("queue_settings", Kind::Any),
    field("resources", Kind::Object(&RESOURCES)),
];
const SPARK: &[Field] = component![
    field("code", Kind::Text),
    field("entry", Kind::Any),
    field("py_files", Kind::Any),
    field("jars", Kind::Any),
    field("files", Kind::Any),
    field("archives", Kind::Any),
    field("conf", Kind::Any),
    field("environment", Kind::Any),
    field("args", Kind::Text),
    field("additional_includes", Kind::Any),
];

const COMPONENTS: [(&str, &[Field]); 5] = [
    ("command", COMMAND),
    ("parallel", PARALLEL),
    ("pipeline", PIPELINE),
    ("sweep", SWEEP),
    ("spark", SPARK),
];

/// The fields of a component, which depend on its type; without a type it is a command.
pub fn component(document: &Fields) -> CliResult<&'static [Field]> {
    let Some(word) = document.get("type") else { return Ok(COMMAND) };
    let text = word.as_str().map_or_else(|| word.to_string(), str::to_owned);
    let found = COMPONENTS.iter().find(|(known, _)| *known == text);
    found.map(|(_, fields)| *fields).ok_or_else(|| {
        let known: Vec<String> = COMPONENTS.iter().map(|(known, _)| (*known).to_owned()).collect();
        let failure = Failure::refused(format!("unknown component type {}", quoted(&text)));
        failure.hint(match nearest::nearest(&text, &known) {
            Some(nearest) => format!("did you mean {}?", quoted(nearest)),
            None => format!("the types are {}", known.join(", ")),
        })
    })
}
