//! Deployments: templates of Azure Resource Manager, turned into the resources to create.
//!
//! [`plan`] reads a template, computes its expressions, and returns a typed [`Plan`]. It is a pure function of its
//! arguments. Every template is treated as hostile: the limits below bound the depth, the length and the amount of
//! computation.

mod document;
mod evaluate;
mod expression;
mod functions;
mod members;
mod order;
mod parameters;
mod relaxed;
mod resources;
mod template;
#[cfg(test)]
mod tests;
mod what_if;

use std::collections::BTreeMap;

pub use document::{
    DeploymentDocument, DeploymentProperties, OperationLine, Progress, ValidationDocument,
    document, filter, operations, status, validation,
};
use muster_core::DeployWhat;
use muster_core::model::LeftOut;
use muster_core::time::Wall;
use serde_json::Value;
use sha2::{Digest, Sha256};
pub use what_if::{WhatIfDocument, what_if};

use crate::error::ArmError;
use crate::json::{Field, JsonText, parse_object, shorten};
use crate::unserved::Unserved;

/// Azure accepts four megabytes, most of it for resources that Muster does not create.
pub const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The most resources of a template, including those in nested templates.
pub const RESOURCES_MAX: usize = 200;
/// The most levels of nested templates.
pub const NESTING_MAX: usize = 4;
/// The most levels of an expression, or of a value.
const DEPTH_MAX: usize = 64;
/// The most levels of names that are defined by other names, and of the expressions in them.
const LEVELS_MAX: usize = 128;
/// The most parameters, variables or outputs of one template; Azure has the same limit for two of the three.
const NAMES_MAX: usize = 256;
/// The size limit for stored outputs.
const OUTPUTS_BYTES_MAX: usize = 64 * 1024;
/// The longest text that a function may return.
const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// The most function calls and visited values for a whole template.
const STEPS_MAX: usize = 200_000;
/// The limit for the total size of all values that are computed or copied.
const WORK_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Where and when a template is deployed, for its expressions.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    pub subscription: &'a str,
    pub resource_group: &'a str,
    pub location: &'a str,
    pub tags: &'a BTreeMap<String, String>,
    pub tenant: &'a str,
    pub deployment: &'a str,
    pub now: Wall,
    /// The seed of `newGuid()`, which differs for every deployment.
    pub seed: [u8; 16],
}

/// What deploying a template would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub template_hash: String,
    /// In an order in which the resources can be created.
    pub steps: Vec<DeployWhat>,
    pub left_out: Vec<LeftOut>,
    pub outputs: Option<JsonText>,
}

/// Reads the body of a deployment. `digest` turns a password into the digest that is stored.
pub fn plan(
    body: &[u8],
    setting: &Setting<'_>,
    digest: &dyn Fn(&str) -> String,
) -> Result<Plan, ArmError> {
    let value = parse_body(body)?;
    let properties = Field::root(&value).get("properties")?;
    check_mode(&properties)?;
    for link in ["templateLink", "parametersLink", "onErrorDeployment"] {
        let link = properties.get(link)?;
        if link.is_filled() {
            return Err(ArmError::not_supported(
                &link.path,
                format!(
                    "{} is not supported; send the template and its values in the body",
                    link.path
                ),
            ));
        }
    }
    let template = properties.get("template")?;
    let Some(found) = template.value() else {
        return Err(template.missing("send the template as a JSON object"));
    };
    let values = properties.get("parameters")?;
    refuse_other_kinds(&values)?;
    let hash = Sha256::digest(found.to_string());
    let template_hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let read = template::read(found, values.value(), setting, digest)?;
    Ok(Plan { template_hash, ..read })
}

/// azure-ai-ml creates feature stores with the same template as workspaces.
fn refuse_other_kinds(values: &Field<'_>) -> Result<(), ArmError> {
    let kind = values.value().and_then(|values| values.get("kind")?.get("value")?.as_str());
    match kind.filter(|kind| kind.eq_ignore_ascii_case("featurestore")) {
        Some(_) => match Unserved::of_noun("feature-store") {
            Some(thing) => Err(ArmError::not_supported("parameters.kind", thing.to_string())),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

/// Templates may use a more relaxed syntax than JSON.
fn parse_body(body: &[u8]) -> Result<Value, ArmError> {
    parse_object(body, BODY_BYTES_MAX).or_else(|refused| match std::str::from_utf8(body) {
        Ok(text) if body.len() <= BODY_BYTES_MAX => {
            parse_object(relaxed::to_strict(text).as_bytes(), 2 * BODY_BYTES_MAX)
        }
        _ => Err(refused),
    })
}

fn check_mode(properties: &Field<'_>) -> Result<(), ArmError> {
    let mode = properties.get("mode")?;
    match mode.string()? {
        None => Err(mode.missing("give 'Incremental'")),
        Some(word) if word.eq_ignore_ascii_case("Incremental") => Ok(()),
        Some(word) => Err(ArmError::not_supported(
            &mode.path,
            format!(
                "properties.mode is '{}', which is not supported: it would delete everything that the template does not \
                 name; give 'Incremental', and delete resources by name",
                shorten(word)
            ),
        )),
    }
}

/// Checks that a text of this size may be built.
fn check_size(bytes: usize) -> Result<(), String> {
    if bytes <= TEXT_BYTES_MAX {
        return Ok(());
    }
    Err(format!(
        "the result has more than {TEXT_BYTES_MAX} bytes, which is the limit; make it shorter"
    ))
}

/// The size of a value, or an error if it is nested too deeply.
fn weigh(value: &Value) -> Result<usize, String> {
    fn inner(value: &Value, depth: usize) -> Result<usize, String> {
        if depth > DEPTH_MAX {
            return Err(format!(
                "a value is nested deeper than {DEPTH_MAX} levels; make it flatter"
            ));
        }
        let mut weight = 16;
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => weight += text.len(),
            Value::Array(items) => {
                for item in items {
                    weight += inner(item, depth + 1)?;
                }
            }
            Value::Object(map) => {
                for (key, item) in map {
                    weight += key.len() + inner(item, depth + 1)?;
                }
            }
        }
        Ok(weight)
    }
    inner(value, 0)
}
