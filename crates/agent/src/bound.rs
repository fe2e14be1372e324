//! The command of a job, with the paths of its inputs and outputs in place of their names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use muster_core::agent::RunFacts;
use muster_core::binding::{BindError, Name, bind};
use muster_core::model::{JobSpec, LOG_DIR, NAMED_OUTPUTS_FOLDER};

use crate::files;

/// The paths on the node, and as the job sees them.
pub(crate) struct Places<'a> {
    /// The folder of inputs on the node.
    pub(crate) inputs: &'a Path,
    pub(crate) seen_inputs: &'a Path,
    pub(crate) seen_work: &'a Path,
}

pub(crate) struct Bound {
    pub(crate) command: String,
    /// The job's own variables, and one for each input and output.
    pub(crate) variables: BTreeMap<String, String>,
    /// The folder that each service shows, by the name of the service.
    pub(crate) log_dirs: BTreeMap<String, String>,
}

pub(crate) fn bind_all(spec: &JobSpec, places: &Places<'_>) -> Result<Bound, BindError> {
    let inputs: BTreeMap<&str, String> = spec
        .inputs
        .iter()
        .map(|(name, input)| {
            let value = files::input_value(name, input, places.inputs, places.seen_inputs);
            (name.as_str(), value)
        })
        .collect();
    let outputs: BTreeMap<&str, String> = spec
        .outputs
        .iter()
        .map(|(name, output)| {
            let mut path: PathBuf = places.seen_work.join(NAMED_OUTPUTS_FOLDER).join(name);
            if output.kind.is_file() {
                path.push(output.to.path.rsplit('/').next().unwrap_or(name));
            }
            (name.as_str(), path.to_string_lossy().into_owned())
        })
        .collect();
    let value = |name: Name<'_>| match name {
        Name::Input(name) => inputs.get(name).map(String::as_str),
        Name::Output(name) => outputs.get(name).map(String::as_str),
    };
    let mut variables = BTreeMap::new();
    for (prefix, values) in [("AZURE_ML_INPUT_", &inputs), ("AZURE_ML_OUTPUT_", &outputs)] {
        let named = values.iter().map(|(name, value)| (format!("{prefix}{name}"), value.clone()));
        variables.extend(named);
    }
    for (name, text) in &spec.environment_variables {
        variables.insert(name.clone(), bind(text, &value)?);
    }
    let mut log_dirs = BTreeMap::new();
    for (name, service) in &spec.services {
        if let Some(folder) = service.properties.get(LOG_DIR) {
            log_dirs.insert(name.clone(), bind(folder, &value)?);
        }
    }
    Ok(Bound { command: bind(&spec.command, &value)?, variables, log_dirs })
}

/// The variables that Azure's programs read to find out where they run. `root` is the job, or the one that it is part of.
pub(crate) fn about(
    spec: &JobSpec,
    root: &str,
    facts: Option<&RunFacts>,
) -> Vec<(&'static str, String)> {
    let Some(home) = &spec.workspace else { return Vec::new() };
    let mut variables = vec![
        ("AZUREML_ROOT_RUN_ID", root.to_owned()),
        ("AZUREML_ARM_SUBSCRIPTION", home.subscription.to_string()),
        ("AZUREML_ARM_RESOURCEGROUP", home.resource_group.to_string()),
        ("AZUREML_ARM_WORKSPACE_NAME", home.name.to_string()),
        ("AZUREML_ARM_PROJECT_NAME", spec.experiment_name.to_string()),
        ("AZUREML_EXPERIMENT_ID", spec.experiment_name.to_string()),
    ];
    if let Some(facts) = facts {
        let RunFacts { token, token_ends_unix, endpoint, workspace_id, identity, .. } = facts;
        variables.extend([
            ("AZUREML_RUN_TOKEN", token.to_string()),
            ("AZUREML_RUN_TOKEN_EXPIRY", token_ends_unix.to_string()),
            ("AZUREML_SERVICE_ENDPOINT", endpoint.to_string()),
            ("AZUREML_DISCOVERY_SERVICE_ENDPOINT", format!("{endpoint}/discovery")),
            ("AZUREML_WORKSPACE_ID", workspace_id.to_string()),
        ]);
        // The client id that programs pass when they request a token of the cluster's identity.
        variables.extend(
            identity.iter().map(|identity| ("DEFAULT_IDENTITY_CLIENT_ID", identity.to_string())),
        );
    }
    variables
}
