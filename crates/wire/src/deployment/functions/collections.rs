//! Functions for arrays and objects, some of which also accept texts.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{FunctionResult, clamp, list, text, text_of, whole, wrong};

const RANGE_MAX: i64 = 10_000;

pub fn array(arguments: &[Value]) -> FunctionResult {
    Ok(match &arguments[0] {
        Value::Array(_) => arguments[0].clone(),
        other => Value::Array(vec![other.clone()]),
    })
}

pub fn coalesce(arguments: &[Value]) -> FunctionResult {
    Ok(arguments.iter().find(|value| !value.is_null()).cloned().unwrap_or(Value::Null))
}

/// Concatenates arrays to an array, and anything else to a text.
pub fn concat(arguments: &[Value]) -> FunctionResult {
    if arguments.iter().any(Value::is_array) {
        let lists: Result<Vec<&[Value]>, String> = arguments.iter().map(list).collect();
        return Ok(Value::Array(lists?.concat()));
    }
    let texts: Result<Vec<String>, String> = arguments.iter().map(plain).collect();
    Ok(Value::String(texts?.concat()))
}

fn plain(value: &Value) -> Result<String, String> {
    match value {
        Value::Object(_) | Value::Array(_) | Value::Null => {
            Err(wrong(value, "strings, or arrays only"))
        }
        other => Ok(text_of(other)),
    }
}

pub fn contains(arguments: &[Value]) -> FunctionResult {
    let (place, wanted) = (&arguments[0], &arguments[1]);
    let found = match place {
        Value::Array(items) => items.contains(wanted),
        Value::Object(map) => {
            let wanted = text(wanted)?;
            map.keys().any(|key| key.eq_ignore_ascii_case(wanted))
        }
        Value::String(whole) => whole.contains(plain(wanted)?.as_str()),
        other => return Err(wrong(other, "an array, an object or a string")),
    };
    Ok(Value::Bool(found))
}

pub fn create_array(arguments: &[Value]) -> FunctionResult {
    Ok(Value::Array(arguments.to_vec()))
}

pub fn create_object(arguments: &[Value]) -> FunctionResult {
    let (pairs, rest) = arguments.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("the number of arguments is odd; give a value for each key".to_owned());
    }
    let entry = |[key, value]: &[Value; 2]| Ok((text(key)?.to_owned(), value.clone()));
    let map: Result<Map<String, Value>, String> = pairs.iter().map(entry).collect();
    Ok(Value::Object(map?))
}

pub fn empty(arguments: &[Value]) -> FunctionResult {
    Ok(Value::Bool(match &arguments[0] {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        other => return Err(wrong(other, "a string, an array or an object")),
    }))
}

pub fn equals(arguments: &[Value]) -> FunctionResult {
    Ok(Value::Bool(arguments[0] == arguments[1]))
}

pub fn first(arguments: &[Value]) -> FunctionResult {
    Ok(match &arguments[0] {
        Value::Array(items) => items.first().cloned().unwrap_or(Value::Null),
        other => Value::String(text(other)?.chars().take(1).collect()),
    })
}

pub fn last(arguments: &[Value]) -> FunctionResult {
    Ok(match &arguments[0] {
        Value::Array(items) => items.last().cloned().unwrap_or(Value::Null),
        other => Value::String(text(other)?.chars().last().into_iter().collect()),
    })
}

pub fn length(arguments: &[Value]) -> FunctionResult {
    let length = match &arguments[0] {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        other => text(other)?.chars().count(),
    };
    Ok(length.into())
}

pub fn range(arguments: &[Value]) -> FunctionResult {
    let (start, count) = (whole(&arguments[0])?, whole(&arguments[1])?);
    let end = start.checked_add(count).filter(|_| (0..=RANGE_MAX).contains(&count));
    let end = end.ok_or_else(|| format!("the count is {count}; give 0 to {RANGE_MAX}"))?;
    Ok(Value::Array((start..end).map(Value::from).collect()))
}

pub fn skip(arguments: &[Value]) -> FunctionResult {
    let count = whole(&arguments[1])?;
    Ok(match &arguments[0] {
        Value::Array(items) => Value::Array(items[clamp(count, items.len())..].to_vec()),
        other => Value::String(text(other)?.chars().skip(clamp(count, usize::MAX)).collect()),
    })
}

pub fn take(arguments: &[Value]) -> FunctionResult {
    let count = whole(&arguments[1])?;
    Ok(match &arguments[0] {
        Value::Array(items) => Value::Array(items[..clamp(count, items.len())].to_vec()),
        other => Value::String(text(other)?.chars().take(clamp(count, usize::MAX)).collect()),
    })
}

/// For arrays, each item once; for objects, later values win, recursively.
pub fn union(arguments: &[Value]) -> FunctionResult {
    if let Value::Object(_) = &arguments[0] {
        let mut all = Map::new();
        for argument in arguments {
            let Value::Object(map) = argument else { return Err(wrong(argument, "objects only")) };
            merge(&mut all, map);
        }
        return Ok(Value::Object(all));
    }
    // Items are compared by their text, because comparing every pair takes too long for long arrays.
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    for argument in arguments {
        for item in list(argument)? {
            if seen.insert(item.to_string()) {
                all.push(item.clone());
            }
        }
    }
    Ok(Value::Array(all))
}

fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

pub fn intersection(arguments: &[Value]) -> FunctionResult {
    if let Value::Object(first) = &arguments[0] {
        let mut kept = first.clone();
        for argument in arguments {
            let Value::Object(map) = argument else { return Err(wrong(argument, "objects only")) };
            kept.retain(|key, value| map.get(key) == Some(value));
        }
        return Ok(Value::Object(kept));
    }
    let mut kept = list(&arguments[0])?.to_vec();
    for argument in arguments {
        let items: BTreeSet<String> = list(argument)?.iter().map(Value::to_string).collect();
        kept.retain(|item| items.contains(&item.to_string()));
    }
    Ok(Value::Array(kept))
}
