//! Whether what a job reads and leaves by name can be told apart, and is all that its command names.

use super::asset::check_asset;
use super::shorten;
use crate::binding::{BindError, Name, bind};
use crate::input::Refused;
use crate::limits;
use crate::model::{Distribution, JobInput, JobSpec};

pub(super) fn check(spec: &JobSpec) -> Result<(), Refused> {
    check_names("inputs", spec.inputs.keys())?;
    check_names("outputs", spec.outputs.keys())?;
    for (name, input) in &spec.inputs {
        let JobInput::Literal(text) = input else { continue };
        if text.len() > limits::LITERAL_BYTES_MAX || text.contains('\0') {
            return Err(Refused::invalid(
                &format!("inputs.{name}"),
                format!(
                    "the input '{name}' has {} bytes or a NUL byte in it; a value may have {} bytes, so put more \
                     into a file",
                    text.len(),
                    limits::LITERAL_BYTES_MAX
                ),
            ));
        }
    }
    for (name, output) in &spec.outputs {
        let Some(wanted) = &output.register else { continue };
        check_asset(output.kind.asset(), &wanted.name, wanted.version.as_deref())
            .map_err(|refused| Refused { target: format!("outputs.{name}").into(), ..refused })?;
    }
    check_named(spec)?;
    check_distribution(spec)
}

/// They become variables and folders.
fn check_names<'n>(
    what: &str,
    names: impl ExactSizeIterator<Item = &'n String>,
) -> Result<(), Refused> {
    if names.len() > limits::JOB_INPUTS_MAX {
        return Err(Refused::invalid(
            what,
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
                what,
                format!(
                    "{:?} among the {what} cannot be a name; use up to {} letters, digits and '_', and no digit first",
                    shorten(name),
                    limits::INPUT_NAME_BYTES_MAX
                ),
            ));
        }
    }
    Ok(())
}

/// Whatever the command and the variables name is there.
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
    bind(&spec.command, &value).map_err(|error| Refused::invalid("command", remedy(error)))?;
    for (name, text) in &spec.environment_variables {
        bind(text, &value).map_err(|error| {
            Refused::invalid(&format!("environmentVariables.{}", shorten(name)), remedy(error))
        })?;
    }
    Ok(())
}

fn check_distribution(spec: &JobSpec) -> Result<(), Refused> {
    let most = limits::PROCESSES_PER_NODE_MAX;
    match spec.distribution {
        None => Ok(()),
        // Each node would be a world of its own.
        Some(Distribution::Mpi { .. }) if spec.nodes > 1 => Err(Refused::invalid(
            "distribution.distributionType",
            format!(
                "MPI over {} nodes is not supported in this version; use one node, or distribute by PyTorch",
                spec.nodes
            ),
        )),
        Some(Distribution::PyTorch { processes } | Distribution::Mpi { processes }) => {
            match (1..=most).contains(&processes) {
                true => Ok(()),
                false => Err(Refused::invalid(
                    "distribution.processCountPerInstance",
                    format!("processCountPerInstance is {processes}; give 1 to {most}"),
                )),
            }
        }
        Some(Distribution::TensorFlow { workers, parameter_servers }) => {
            let total = workers.checked_add(parameter_servers);
            match total == Some(spec.nodes) && workers > 0 {
                true => Ok(()),
                false => Err(Refused::invalid(
                    "distribution.workerCount",
                    format!(
                        "there are {workers} workers and {parameter_servers} parameter servers on {} nodes, and each \
                         has a node of its own; make instanceCount their sum",
                        spec.nodes
                    ),
                )),
            }
        }
    }
}
