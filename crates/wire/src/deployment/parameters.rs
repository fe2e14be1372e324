//! The parameters of a template: their declarations, their values, and whether the two match.

use serde_json::Value;

use super::NAMES_MAX;
use super::evaluate::{Fault, Slot};
use crate::json::{kind, shorten};

/// The declaration of a parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Declared<'t>(&'t Value);

const KINDS: [&str; 7] =
    ["string", "securestring", "int", "bool", "object", "secureobject", "array"];

/// The name in lower case, the declaration and the value.
type Parameter<'t> = (String, (Declared<'t>, Slot<'t>));

/// Each parameter with its value, or with the expression for it. `given` are the values, and `given_frame` the frame
/// that they are computed in; `None` if they are literal values.
pub(super) fn read<'t>(
    declared: Option<&'t Value>,
    given: Option<&'t Value>,
    given_frame: Option<usize>,
    frame: usize,
) -> Result<Vec<Parameter<'t>>, Fault> {
    let declared = entries(declared, "parameters")?;
    let given = entries(given, "parameters")?;
    if let Some((name, _)) = given.iter().find(|(name, _)| find(&declared, name).is_none()) {
        let names: Vec<&str> = declared.iter().map(|(name, _)| name.as_str()).take(24).collect();
        return Err(Fault::new(format!(
            "a value is given for the parameter '{}', which the template does not declare; the declared parameters are: {}",
            shorten(name),
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        )));
    }
    let mut found = Vec::new();
    for (name, declaration) in &declared {
        let place = format!("parameters.{}", shorten(name));
        let fault = |message: String| Fault::new(message).at(&place);
        check_declaration(declaration).map_err(fault)?;
        let slot = match find(&given, name) {
            Some(given) if given.get("reference").is_some() => {
                return Err(fault(
                    "its value refers to a key vault, which is not supported; give the value itself"
                        .to_owned(),
                ));
            }
            Some(given) => match (given.get("value").filter(|value| !value.is_null()), given_frame)
            {
                (Some(value), Some(frame)) => Some(Slot::Raw(value, frame)),
                (Some(value), None) => {
                    check(&Declared(declaration), value).map_err(fault)?;
                    Some(Slot::Done(value.clone()))
                }
                (None, _) => None,
            },
            None => None,
        };
        let is_nullable = declaration.get("nullable").and_then(Value::as_bool) == Some(true);
        let slot = match (slot, declaration.get("defaultValue")) {
            (Some(slot), _) => slot,
            (None, Some(default)) => Slot::Raw(default, frame),
            (None, None) if is_nullable => Slot::Raw(&Value::Null, frame),
            (None, None) => {
                return Err(fault(
                    "it has neither a value nor a defaultValue; give one".to_owned(),
                ));
            }
        };
        found.push((name.to_ascii_lowercase(), (Declared(declaration), slot)));
    }
    Ok(found)
}

fn find<'t>(entries: &[(&'t String, &'t Value)], name: &str) -> Option<&'t Value> {
    entries.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}

/// The entries of an object that may be absent.
pub(super) fn entries<'t>(
    value: Option<&'t Value>,
    what: &str,
) -> Result<Vec<(&'t String, &'t Value)>, Fault> {
    let map = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(map)) => map,
        Some(other) => {
            let message = format!("{what} is {}; give a JSON object", kind(other));
            return Err(Fault::new(message).at(what));
        }
    };
    if map.len() > NAMES_MAX {
        let message = format!(
            "there are {} {what}; at most {NAMES_MAX} are allowed, so put some into objects",
            map.len()
        );
        return Err(Fault::new(message).at(what));
    }
    Ok(map.iter().collect())
}

fn check_declaration(declaration: &Value) -> Result<(), String> {
    let word = declaration.get("type").and_then(Value::as_str).unwrap_or_default();
    if KINDS.iter().any(|known| known.eq_ignore_ascii_case(word)) {
        return Ok(());
    }
    Err(format!("its type is '{}'; give {}", shorten(word), KINDS.join(", ")))
}

pub(super) fn is_secure(word: &str) -> bool {
    word.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("secure"))
}

/// Checks a value against the declaration of its parameter.
pub(super) fn check(declared: &Declared<'_>, value: &Value) -> Result<(), String> {
    let declared = declared.0;
    let word = declared.get("type").and_then(Value::as_str).unwrap_or_default();
    let wanted = word.to_ascii_lowercase();
    let fits = match wanted.as_str() {
        "string" | "securestring" => value.is_string(),
        "int" => value.is_i64() || value.is_u64(),
        "bool" => value.is_boolean(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    let may_be_null = declared.get("nullable").and_then(Value::as_bool) == Some(true);
    if value.is_null() && may_be_null {
        return Ok(());
    }
    if !fits {
        return Err(format!("its value is {}, but its type is {wanted}", kind(value)));
    }
    if let Some(Value::Array(allowed)) = declared.get("allowedValues") {
        let is_allowed = match value {
            Value::Array(items) => items.iter().all(|item| allowed.contains(item)),
            other => allowed.contains(other),
        };
        if !is_allowed {
            let words: Vec<String> = allowed.iter().take(24).map(Value::to_string).collect();
            let shown = match value {
                Value::String(text) if !is_secure(word) => format!("'{}'", shorten(text)),
                other => kind(other).to_owned(),
            };
            return Err(format!("its value is {shown}; give {}", shorten_list(&words)));
        }
    }
    check_bounds(declared, value)
}

fn shorten_list(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| shorten(word)).collect();
    words.join(" or ")
}

fn check_bounds(declared: &Value, value: &Value) -> Result<(), String> {
    let bound = |name: &str| declared.get(name).and_then(Value::as_i64);
    let length = match value {
        Value::String(text) => Some(text.chars().count()),
        Value::Array(items) => Some(items.len()),
        _ => None,
    };
    let length = length.and_then(|length| i64::try_from(length).ok());
    for (measured, what, least, most) in [
        (length, "length", "minLength", "maxLength"),
        (value.as_i64(), "value", "minValue", "maxValue"),
    ] {
        let Some(measured) = measured else { continue };
        if let Some(least) = bound(least).filter(|least| measured < *least) {
            return Err(format!("its {what} is {measured}; give at least {least}"));
        }
        if let Some(most) = bound(most).filter(|most| measured > *most) {
            return Err(format!("its {what} is {measured}; give at most {most}"));
        }
    }
    Ok(())
}
