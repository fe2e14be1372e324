//! Evaluates the expressions of a template.
//!
//! Parameters, variables and the results of `reference()` are computed once, when they are first needed. A definition
//! that depends on itself is an error.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::expression::{self, Expression, Meaning};
use super::functions::{self, ResourceIds, check_count};
use super::members::{item, member, utc_now};
use super::parameters::{self, Declared};
use super::resources::Entry;
use super::{LEVELS_MAX, STEPS_MAX, Setting, WORK_BYTES_MAX, weigh};
use crate::error::ArmError;
use crate::json::{kind, shorten};
use crate::timestamp;

/// What is wrong, and where in the template. The innermost place is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    place: Option<String>,
    message: String,
}

impl Fault {
    pub(super) fn new(message: impl Into<String>) -> Fault {
        Fault { place: None, message: message.into() }
    }

    pub(super) fn at(mut self, place: &str) -> Fault {
        self.place.get_or_insert_with(|| place.to_owned());
        self
    }
}

impl From<String> for Fault {
    fn from(message: String) -> Fault {
        Fault::new(message)
    }
}

impl From<Fault> for ArmError {
    fn from(fault: Fault) -> ArmError {
        let place = fault.place.as_deref().unwrap_or("template");
        ArmError::invalid_template(place, format!("{place}: {}", fault.message))
    }
}

pub(super) type Computed = Result<Value, Fault>;

/// A value that is computed when it is first needed.
#[derive(Debug, Clone)]
pub(super) enum Slot<'t> {
    /// The raw value, and the frame whose names it uses.
    Raw(&'t Value, usize),
    Busy,
    Done(Value),
}

/// The names of one template, and where it is deployed.
#[derive(Debug)]
pub(super) struct Frame<'t> {
    pub(super) subscription: String,
    pub(super) resource_group: String,
    pub(super) deployment: String,
    /// The keys are in lower case, as all names are.
    pub(super) parameters: BTreeMap<String, (Declared<'t>, Slot<'t>)>,
    pub(super) variables: BTreeMap<String, Slot<'t>>,
}

pub(super) struct Machine<'t> {
    pub(super) setting: &'t Setting<'t>,
    pub(super) frames: Vec<Frame<'t>>,
    pub(super) entries: Vec<Entry<'t>>,
    /// False until all resources are known.
    pub(super) may_refer: bool,
    steps: usize,
    work_bytes: usize,
    depth: usize,
    guids: u64,
}

impl<'t> Machine<'t> {
    pub(super) fn new(setting: &'t Setting<'t>) -> Machine<'t> {
        Machine {
            setting,
            frames: Vec::new(),
            entries: Vec::new(),
            may_refer: false,
            steps: 0,
            work_bytes: 0,
            depth: 0,
            guids: 0,
        }
    }

    /// A value of the template with all expressions in it computed.
    pub(super) fn resolve(&mut self, value: &Value, frame: usize) -> Computed {
        self.descend(|machine| match value {
            Value::String(text) => machine.resolve_text(text, frame),
            Value::Array(items) => {
                let items: Result<_, Fault> =
                    items.iter().map(|item| machine.resolve(item, frame)).collect();
                Ok(Value::Array(items?))
            }
            Value::Object(map) => {
                refuse_copy(map)?;
                let mut found = Map::new();
                for (key, item) in map {
                    let item = machine.resolve(item, frame)?;
                    found.insert(machine.resolve_key(key, frame)?, item);
                }
                Ok(Value::Object(found))
            }
            plain => Ok(plain.clone()),
        })
    }

    fn resolve_text(&mut self, text: &str, frame: usize) -> Computed {
        match expression::read(text)? {
            Meaning::Literal(text) => self.spent(Value::from(text)),
            Meaning::Computed(expression) => self.evaluate(&expression, frame),
        }
    }

    /// Keys may be computed, too: user-assigned identities have their ids as keys.
    fn resolve_key(&mut self, key: &str, frame: usize) -> Result<String, Fault> {
        if !key.starts_with('[') {
            return Ok(key.to_owned());
        }
        match self.resolve_text(key, frame)? {
            Value::String(key) => Ok(key),
            other => Err(Fault::new(format!("a name is {}; give a string", kind(&other)))),
        }
    }

    /// Runs `go` one level deeper.
    fn descend<T>(&mut self, go: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(Fault::new(format!(
                "the template takes more than {STEPS_MAX} steps to compute; make it smaller"
            )));
        }
        self.depth += 1;
        let found = if self.depth > LEVELS_MAX {
            Err(Fault::new(format!(
                "names and expressions depend on each other over more than {LEVELS_MAX} levels; make it flatter"
            )))
        } else {
            go(self)
        };
        self.depth -= 1;
        found
    }

    /// Counts the size of every value that is created or copied.
    fn spent(&mut self, value: Value) -> Computed {
        self.work_bytes += weigh(&value)?;
        if self.work_bytes > WORK_BYTES_MAX {
            return Err(Fault::new(format!(
                "the template computes more than {WORK_BYTES_MAX} bytes in all; make it smaller"
            )));
        }
        Ok(value)
    }

    fn evaluate(&mut self, expression: &Expression, frame: usize) -> Computed {
        self.descend(|machine| match expression {
            Expression::Text(text) => machine.spent(Value::from(text.as_str())),
            Expression::Number(number) => Ok(Value::from(*number)),
            Expression::Call { name, arguments } => machine.call(name, arguments, frame),
            Expression::Member { of, name } => {
                let of = machine.evaluate(of, frame)?;
                member(of, name)
            }
            Expression::Item { of, index } => {
                let of = machine.evaluate(of, frame)?;
                let index = machine.evaluate(index, frame)?;
                item(of, &index)
            }
        })
    }

    fn call(&mut self, name: &str, arguments: &[Expression], frame: usize) -> Computed {
        match (name, arguments) {
            // Only the chosen branch is computed, because the other one may be invalid.
            ("if", [test, then, otherwise]) => {
                let is_so = self.truth(test, frame)?;
                return self.evaluate(if is_so { then } else { otherwise }, frame);
            }
            ("and" | "or", [_, ..]) => {
                let ends = name == "or";
                for argument in arguments {
                    if self.truth(argument, frame)? == ends {
                        return Ok(Value::Bool(ends));
                    }
                }
                return Ok(Value::Bool(!ends));
            }
            _ => {}
        }
        let values: Result<Vec<Value>, Fault> =
            arguments.iter().map(|argument| self.evaluate(argument, frame)).collect();
        let values = values?;
        let found = if functions::OF_THE_EVALUATOR.contains(&name) {
            self.call_own(name, &values, frame)?
        } else {
            functions::call(name, &values)?
        };
        self.spent(found)
    }

    fn truth(&mut self, expression: &Expression, frame: usize) -> Result<bool, Fault> {
        let value = self.evaluate(expression, frame)?;
        functions::truth(&value).map_err(Fault::new)
    }

    fn call_own(&mut self, name: &str, values: &[Value], frame: usize) -> Computed {
        let (least, most) = match name {
            "if" => (3, 3),
            "and" | "or" | "reference" => (1, if name == "reference" { 3 } else { usize::MAX }),
            "parameters" | "variables" => (1, 1),
            "deployment" | "newguid" | "resourcegroup" | "subscription" | "tenant" => (0, 0),
            "utcnow" => (0, 1),
            _ => (2, usize::MAX),
        };
        check_count(name, values.len(), least, most)?;
        let setting = self.setting;
        let here = &self.frames[frame];
        let ids =
            ResourceIds { subscription: &here.subscription, resource_group: &here.resource_group };
        let found = match name {
            "parameters" => return self.parameter(word(&values[0])?, frame),
            "variables" => return self.variable(word(&values[0])?, frame),
            "reference" => return self.reference(word(&values[0])?, values.get(2).is_some()),
            "resourceid" => ids.resource_id(values),
            "subscriptionresourceid" => ids.subscription_resource_id(values),
            "tenantresourceid" => functions::tenant_resource_id(values),
            "extensionresourceid" => functions::extension_resource_id(values),
            "deployment" => {
                Ok(json!({"name": here.deployment, "properties": {"mode": "Incremental"}}))
            }
            "resourcegroup" => Ok(self.group(frame)),
            "subscription" => Ok(json!({
                "id": format!("/subscriptions/{}", here.subscription),
                "subscriptionId": here.subscription,
                "tenantId": setting.tenant,
                "displayName": here.subscription,
            })),
            "tenant" => Ok(json!({"tenantId": setting.tenant})),
            "utcnow" => utc_now(&timestamp::format(setting.now), values.first()),
            "newguid" => {
                self.guids += 1;
                let mut hasher = Sha256::new();
                hasher.update(setting.seed);
                hasher.update(self.guids.to_be_bytes());
                Ok(functions::guid(hasher.finalize().into(), 4).into())
            }
            other => Err(format!("{other}() does not take these arguments")),
        };
        found.map_err(|why| Fault::new(format!("{name}(): {why}")))
    }

    fn group(&self, frame: usize) -> Value {
        let (here, setting) = (&self.frames[frame], self.setting);
        json!({
            "id": format!("/subscriptions/{}/resourceGroups/{}", here.subscription, here.resource_group),
            "name": here.resource_group,
            "type": "Microsoft.Resources/resourceGroups",
            "location": setting.location,
            "tags": setting.tags,
            "properties": {"provisioningState": "Succeeded"},
        })
    }

    pub(super) fn parameter(&mut self, name: &str, frame: usize) -> Computed {
        let folded = name.to_ascii_lowercase();
        let Some((declared, slot)) = self.frames[frame].parameters.get_mut(&folded) else {
            return Err(Fault::new(format!(
                "there is no parameter '{}'; declare it in the template's parameters",
                shorten(name)
            )));
        };
        let (declared, slot) = (*declared, std::mem::replace(slot, Slot::Busy));
        let place = format!("parameters.{}", shorten(name));
        let (value, is_new) = self.fill(slot).map_err(|fault| fault.at(&place))?;
        if is_new {
            parameters::check(&declared, &value).map_err(|why| Fault::new(why).at(&place))?;
        }
        if let Some((_, slot)) = self.frames[frame].parameters.get_mut(&folded) {
            *slot = Slot::Done(value.clone());
        }
        Ok(value)
    }

    pub(super) fn variable(&mut self, name: &str, frame: usize) -> Computed {
        let folded = name.to_ascii_lowercase();
        let Some(slot) = self.frames[frame].variables.get_mut(&folded) else {
            return Err(Fault::new(format!(
                "there is no variable '{}'; define it in the template's variables",
                shorten(name)
            )));
        };
        let slot = std::mem::replace(slot, Slot::Busy);
        let place = format!("variables.{}", shorten(name));
        let (value, _) = self.fill(slot).map_err(|fault| fault.at(&place))?;
        self.frames[frame].variables.insert(folded, Slot::Done(value.clone()));
        Ok(value)
    }

    /// The value in a slot, and whether it has just been computed.
    fn fill(&mut self, slot: Slot<'t>) -> Result<(Value, bool), Fault> {
        match slot {
            Slot::Raw(raw, frame) => Ok((self.resolve(raw, frame)?, true)),
            Slot::Busy => {
                Err(Fault::new("its definition refers to itself; give it a value of its own"))
            }
            Slot::Done(value) => Ok((value, false)),
        }
    }

    /// The definition of a resource in the template; nothing else is known before the resource is created.
    fn reference(&mut self, wanted: &str, is_full: bool) -> Computed {
        if !self.may_refer {
            return Err(Fault::new(
                "reference() can be used in properties and outputs only, because names, types, conditions and \
                 dependencies are computed before anything is created",
            ));
        }
        let Some(at) = self.entries.iter().position(|entry| entry.is_called(wanted)) else {
            return Err(Fault::new(format!(
                "reference('{}') does not refer to a resource of this template; only those can be \
                 referred to, so write the value itself",
                shorten(wanted)
            )));
        };
        let properties = self.properties_of(at)?;
        if !is_full {
            return Ok(properties);
        }
        let (raw, frame) = (self.entries[at].raw, self.entries[at].frame);
        let mut full = Map::new();
        for key in ["location", "tags", "identity", "kind", "sku"] {
            if let Some(value) = raw.get(key) {
                full.insert(key.to_owned(), self.resolve(value, frame)?);
            }
        }
        full.insert("resourceId".to_owned(), self.entries[at].id.as_str().into());
        full.insert("properties".to_owned(), properties);
        Ok(Value::Object(full))
    }

    /// The computed properties of a resource; for a nested template, its outputs.
    pub(super) fn properties_of(&mut self, at: usize) -> Computed {
        let place = format!("{}.properties", self.entries[at].place);
        let slot = std::mem::replace(&mut self.entries[at].properties, Slot::Busy);
        let found = match slot {
            Slot::Done(value) => Ok(value),
            Slot::Busy => {
                Err(Fault::new("it refers to itself; remove one of the reference() calls"))
            }
            Slot::Raw(raw, frame) => match self.entries[at].inner {
                Some(inner) => {
                    let outputs = raw.get("template").and_then(|inner| inner.get("outputs"));
                    let outputs = self.outputs(outputs, inner, &place);
                    outputs.map(|outputs| json!({"outputs": outputs}))
                }
                None => self.resolve(raw, frame),
            },
        };
        let mut found = found.map_err(|fault| fault.at(&place))?;
        if let Value::Object(map) = &mut found {
            map.entry("provisioningState").or_insert_with(|| "Succeeded".into());
        }
        self.entries[at].properties = Slot::Done(found.clone());
        self.spent(found)
    }
}

fn word(value: &Value) -> Result<&str, Fault> {
    value.as_str().ok_or_else(|| Fault::new(format!("a name is {}; give a string", kind(value))))
}

pub(super) fn refuse_copy(map: &Map<String, Value>) -> Result<(), Fault> {
    let is_loop = |value: &Value| value.get("count").is_some();
    let found = match map.get("copy") {
        Some(Value::Array(loops)) => loops.iter().any(is_loop),
        Some(value) => is_loop(value),
        None => false,
    };
    if !found {
        return Ok(());
    }
    Err(Fault::new("copy loops are not supported; write out each copy"))
}
