//! Checks the names and values of a job's inputs and outputs, and that its command refers to no others.

use super::asset::check_asset;
use super::shorten;
use crate::binding::{BindError, Name, bind};
use crate::input::Refused;
use crate::limits;
use crate::model::{Distribution, JobInput, JobSpec, LOG_DIR};
use crate::refusal::{JobField, JobRule, Rule, Target};

pub(super) fn check(spec: &JobSpec) -> Result<(), Refused> {
    check_names(JobField::Inputs, "inputs", spec.inputs.keys())?;
    check_names(JobField::Outputs, "outputs", spec.outputs.keys())?;
    for (name, input) in &spec.inputs {
        let JobInput::Literal(text) = input else { continue };
        if text.len() > limits::LITERAL_BYTES_MAX || text.contains('\0') {
            return Err(Refused::invalid(
                below(JobField::Inputs, name),
                format!(
                    "the input '{name}' has {} bytes, or contains a NUL byte; a value may have {} bytes, so put \
                     more into a file",
                    text.len(),
                    limits::LITERAL_BYTES_MAX
                ),
            ));
        }
    }
    for (name, output) in &spec.outputs {
        let Some(wanted) = &output.register else { continue };
        check_asset(output.kind.asset(), &wanted.name, wanted.version.as_deref())
            .map_err(|refused| Refused { target: below(JobField::Outputs, name), ..refused })?;
    }
    check_named(spec)?;
    check_distribution(spec)
}

/// The names become variables and folders.
fn check_names<'n>(
    field: JobField,
    what: &str,
    names: impl ExactSizeIterator<Item = &'n String>,
) -> Result<(), Refused> {
    if names.len() > limits::JOB_INPUTS_MAX {
        return Err(Refused::invalid(
            field,
            format!(
                "there are {} {what}; at most {} are allowed",
                names.len(),
                limits::JOB_INPUTS_MAX
            ),
        ));
    }
    for name in names {
        let fits = (1..=limits::INPUT_NAME_BYTES_MAX).contains(&name.len())
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !fits {
            return Err(Refused::invalid(
                field,
                format!(
                    "{:?} is not a valid name for {what}; use up to {} letters, digits and '_', not starting with a \
                     digit",
                    shorten(name),
                    limits::INPUT_NAME_BYTES_MAX
                ),
            ));
        }
    }
    Ok(())
}

/// Checks that every input and output exists to which the command and the variables refer.
fn check_named(spec: &JobSpec) -> Result<(), Refused> {
    let value = |name: Name<'_>| match name {
        Name::Input(name) => spec.inputs.contains_key(name).then_some(""),
        Name::Output(name) => spec.outputs.contains_key(name).then_some(""),
    };
    let remedy = |error: BindError| match error {
        BindError::Missing { .. } => format!("{error}; add it to them, or correct the name"),
        BindError::Open { .. } | BindError::OpenOptional { .. } | BindError::Unknown { .. } => {
            format!("{error}; write ${{{{inputs.NAME}}}} or ${{{{outputs.NAME}}}}")
        }
    };
    bind(&spec.command, &value)
        .map_err(|error| Refused::invalid(JobField::Command, remedy(error)))?;
    for (name, text) in &spec.environment_variables {
        bind(text, &value).map_err(|error| {
            Refused::invalid(below(JobField::EnvironmentVariables, &shorten(name)), remedy(error))
        })?;
    }
    for (name, service) in &spec.services {
        let folder = service.properties.get(LOG_DIR).map_or("", String::as_str);
        bind(folder, &value).map_err(|error| {
            let entry = format!("{}.properties", shorten(name));
            Refused::invalid(below(JobField::Services, &entry), remedy(error))
        })?;
    }
    Ok(())
}

/// An entry of a field whose keys are data.
pub(super) fn below(field: JobField, entry: &str) -> Target {
    Target::Below(field.into(), entry.into())
}

fn check_distribution(spec: &JobSpec) -> Result<(), Refused> {
    let most = limits::PROCESSES_PER_NODE_MAX;
    match spec.distribution {
        None => Ok(()),
        Some(Distribution::PyTorch { processes } | Distribution::Mpi { processes }) => {
            match (1..=most).contains(&processes) {
                true => Ok(()),
                false => {
                    let (value, max) = (u64::from(processes), u64::from(most));
                    let rule = Rule::OutOfRange { value, min: 1, max };
                    Err(Refused::invalid(JobField::Processes, rule))
                }
            }
        }
        Some(Distribution::TensorFlow { workers, parameter_servers }) => {
            let total = workers.checked_add(parameter_servers);
            match total == Some(spec.nodes) && workers > 0 {
                true => Ok(()),
                false => {
                    let nodes = spec.nodes;
                    let rule = JobRule::NodesForWorkers { workers, parameter_servers, nodes };
                    Err(Refused::invalid(JobField::Workers, rule))
                }
            }
        }
    }
}
