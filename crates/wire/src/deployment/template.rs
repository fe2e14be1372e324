//! Turns the text of a whole template into the resources to create.

use std::collections::BTreeSet;

use muster_core::DeployWhat;
use muster_core::model::{LeftOut, WorkspaceKey};
use serde_json::{Map, Value, json};

use super::evaluate::{Computed, Fault, Machine};
use super::expression::{self, Expression, Meaning};
use super::resources::{COMPUTES, Entry, Home, LEFT_OUT, WORKSPACES};
use super::{OUTPUTS_BYTES_MAX, Plan, Setting, functions, order, parameters};
use crate::error::ArmError;
use crate::json::{Field, JsonText, kind, shorten};
use crate::{compute, workspace};

/// Sections that are not supported.
const NOT_READ: [&str; 3] = ["functions", "imports", "extensions"];

/// Everything in the plan except the hash.
pub(super) fn read(
    template: &Value,
    given: Option<&Value>,
    setting: &Setting<'_>,
    digest: &dyn Fn(&str) -> String,
) -> Result<Plan, ArmError> {
    check_form(template)?;
    let mut machine = Machine::new(setting);
    let names = (
        setting.subscription.to_owned(),
        setting.resource_group.to_owned(),
        setting.deployment.to_owned(),
    );
    let frame = machine.open(template, given, None, names)?;
    // Unused parameters are checked as well, because a wrong value is a mistake.
    let declared: Vec<String> = machine.frames[frame].parameters.keys().cloned().collect();
    for name in declared {
        machine.parameter(&name, frame)?;
    }
    if let Some(resources) = template.get("resources") {
        let home = Home::of_template("resources", setting.subscription, setting.resource_group);
        machine.collect(resources, home)?;
    }
    machine.may_refer = true;
    let order = order::of(&machine.entries)?;
    let mut plan = Plan {
        template_hash: String::new(),
        steps: Vec::new(),
        left_out: Vec::new(),
        outputs: None,
    };
    let mut seen = BTreeSet::new();
    for at in order {
        let entry = &machine.entries[at];
        if !seen.insert(entry.id.to_ascii_lowercase()) {
            let message =
                format!("'{}' is in the template twice; remove one of them", shorten(&entry.name));
            return Err(Fault::new(message).at(&entry.place).into());
        }
        if entry.is_nested() {
            continue;
        }
        if is_left_out(&entry.kind) {
            let (resource, kind) = (entry.id.as_str().into(), entry.kind.as_str().into());
            plan.left_out.push(LeftOut { resource, kind });
            continue;
        }
        plan.steps.push(machine.step(at, digest)?);
    }
    plan.outputs = outputs(&mut machine, template, frame)?;
    Ok(plan)
}

/// Checks that every expression can be parsed and uses functions that exist, before anything is computed.
fn check_form(template: &Value) -> Result<(), ArmError> {
    let Value::Object(map) = template else {
        let message = format!("the template is {}; give a JSON object", kind(template));
        return Err(ArmError::invalid_template("template", message));
    };
    for section in NOT_READ {
        let is_filled = match map.get(section) {
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(map)) => !map.is_empty(),
            _ => false,
        };
        if is_filled {
            let message =
                format!("{section} of a template are not supported; write out what they do");
            return Err(ArmError::invalid_template(section, message));
        }
    }
    check_texts(template).map_err(|(why, place)| {
        Fault::new(why).at(place.strip_prefix('.').unwrap_or(&place)).into()
    })
}

/// Returns what is wrong and where. The place is only put together after an error, because a template has many texts.
fn check_texts(value: &Value) -> Result<(), (String, String)> {
    let here = |why: String| (why, String::new());
    match value {
        Value::String(text) => match expression::read(text).map_err(here)? {
            Meaning::Computed(found) => check_names(&found).map_err(here),
            Meaning::Literal(_) => Ok(()),
        },
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            check_texts(item).map_err(|(why, place)| (why, format!("[{index}]{place}")))
        }),
        Value::Object(map) => map
            .iter()
            .filter(|(key, _)| !matches!(key.as_str(), "metadata" | "allowedValues"))
            .try_for_each(|(key, item)| {
                let key = || shorten(key);
                check_texts(item).map_err(|(why, place)| (why, format!(".{}{place}", key())))
            }),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn check_names(expression: &Expression) -> Result<(), String> {
    match expression {
        Expression::Text(_) | Expression::Number(_) => Ok(()),
        Expression::Call { name, arguments } => {
            functions::check_known(name)?;
            arguments.iter().try_for_each(check_names)
        }
        Expression::Member { of, .. } => check_names(of),
        Expression::Item { of, index } => check_names(of).and_then(|()| check_names(index)),
    }
}

fn is_left_out(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    LEFT_OUT.iter().any(|known| {
        let rest = kind.strip_prefix(known.to_ascii_lowercase().as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

impl<'t> Machine<'t> {
    fn step(&mut self, at: usize, digest: &dyn Fn(&str) -> String) -> Result<DeployWhat, ArmError> {
        let entry = &self.entries[at];
        let is_workspace = entry.kind.eq_ignore_ascii_case(WORKSPACES);
        if !is_workspace && !entry.kind.eq_ignore_ascii_case(COMPUTES) {
            return Err(unknown_kind(entry).into());
        }
        let name = entry.name.clone();
        let (home, compute) = name.split_once('/').unwrap_or((&name, ""));
        let key = WorkspaceKey::new(&entry.subscription, &entry.resource_group, home);
        let (id, place) = (entry.id.clone(), entry.place.clone());
        let body = self.body(at)?;
        // The error names the resource and its place in the template.
        let placed = |mut error: ArmError| {
            let detail = &mut error.body.error;
            detail.message = format!("{place} ({}): {}", shorten(&id), detail.message);
            error
        };
        if is_workspace {
            let wanted = workspace_wanted(&body).map_err(placed)?;
            return Ok(DeployWhat::Workspace { key, wanted: Box::new(wanted) });
        }
        let text = body.to_string();
        let wanted = compute::parse_request(text.as_bytes(), digest).map_err(placed)?;
        let (name, wanted) = (compute.into(), Box::new(wanted));
        Ok(DeployWhat::Compute { workspace: key, name, wanted })
    }

    /// The body of a PUT request for the resource.
    fn body(&mut self, at: usize) -> Computed {
        let (raw, frame) = (self.entries[at].raw, self.entries[at].frame);
        let place = self.entries[at].place.clone();
        let mut body = Map::new();
        for key in ["location", "tags", "identity", "kind"] {
            if let Some(value) = raw.get(key) {
                let found = self.resolve(value, frame);
                body.insert(
                    key.to_owned(),
                    found.map_err(|fault| fault.at(&format!("{place}.{key}")))?,
                );
            }
        }
        body.insert("properties".to_owned(), self.properties_of(at)?);
        Ok(Value::Object(body))
    }

    /// The outputs of a template: `{"name": {"type": …, "value": …}}`.
    pub(super) fn outputs(&mut self, raw: Option<&Value>, frame: usize, place: &str) -> Computed {
        let mut found = Map::new();
        for (name, output) in
            parameters::entries(raw, "outputs").map_err(|fault| fault.at(place))?
        {
            let place = format!("{place}.{}", shorten(name));
            let fault = |why: String| Fault::new(why).at(&place);
            if let Some(condition) = output.get("condition") {
                let value = self.resolve(condition, frame).map_err(|fault| fault.at(&place))?;
                if !functions::truth(&value).map_err(fault)? {
                    continue;
                }
            }
            let word = output.get("type").and_then(Value::as_str).unwrap_or_default();
            let Some((_, shown)) = TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(word))
            else {
                return Err(fault(format!("its type '{}' does not exist", shorten(word))));
            };
            let Some(value) = output.get("value") else {
                let message = "it has no value; give one, as copy loops are not supported";
                return Err(fault(message.to_owned()));
            };
            let value = self.resolve(value, frame).map_err(|fault| fault.at(&place))?;
            // A secret is not returned.
            let output = if parameters::is_secure(word) {
                json!({ "type": shown })
            } else {
                json!({ "type": shown, "value": value })
            };
            found.insert(name.clone(), output);
        }
        Ok(Value::Object(found))
    }
}

/// The types of outputs, as Azure spells them in responses.
const TYPES: [(&str, &str); 7] = [
    ("string", "String"),
    ("securestring", "SecureString"),
    ("int", "Int"),
    ("bool", "Bool"),
    ("object", "Object"),
    ("secureobject", "SecureObject"),
    ("array", "Array"),
];

fn outputs(
    machine: &mut Machine<'_>,
    template: &Value,
    frame: usize,
) -> Result<Option<JsonText>, ArmError> {
    let found = machine.outputs(template.get("outputs"), frame, "outputs")?;
    if found.as_object().is_none_or(Map::is_empty) {
        return Ok(None);
    }
    let text = found.to_string();
    if text.len() > OUTPUTS_BYTES_MAX {
        let message = format!(
            "the outputs have {} bytes; at most {OUTPUTS_BYTES_MAX} are allowed, so leave some out",
            text.len()
        );
        return Err(ArmError::invalid_template("outputs", message));
    }
    Ok(JsonText::new(&text))
}

/// In Azure, hubs, projects and feature stores are also resources of the type workspace.
fn workspace_wanted(body: &Value) -> Result<muster_core::WorkspacePatch, ArmError> {
    let root = Field::root(body);
    let field = root.get("kind")?;
    match field.string()? {
        Some(word) if !word.eq_ignore_ascii_case("Default") => Err(ArmError::not_supported(
            "kind",
            format!("kind is '{}', which is not supported; only 'Default' is", shorten(word)),
        )),
        _ => workspace::wanted(body),
    }
}

fn unknown_kind(entry: &Entry<'_>) -> Fault {
    let message = format!(
        "the resource type '{}' is not supported; {WORKSPACES} and {COMPUTES} are created, and {} are left out \
         with a note, so remove it from the template",
        shorten(&entry.kind),
        LEFT_OUT.join(", ")
    );
    Fault::new(message).at(&entry.place)
}
