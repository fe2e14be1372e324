//! Functions for texts.

use serde_json::Value;

use super::super::check_size;
use super::{FunctionResult, clamp, list, text, whole, wrong};

/// Wider than any name or number that a template pads.
const PAD_MAX: i64 = 4_096;
/// Each delimiter is searched for in the whole text.
const SPLIT_MARKS_MAX: usize = 16;

/// A value as it appears inside a text.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    }
}

pub fn string(arguments: &[Value]) -> FunctionResult {
    Ok(Value::String(text_of(&arguments[0])))
}

pub fn json(arguments: &[Value]) -> FunctionResult {
    // The message gives only the position, because the text may contain secrets.
    serde_json::from_str(text(&arguments[0])?).map_err(|why| {
        format!("the string is not JSON: line {} column {}", why.line(), why.column())
    })
}

pub fn to_lower(arguments: &[Value]) -> FunctionResult {
    Ok(text(&arguments[0])?.to_lowercase().into())
}

pub fn to_upper(arguments: &[Value]) -> FunctionResult {
    Ok(text(&arguments[0])?.to_uppercase().into())
}

pub fn trim(arguments: &[Value]) -> FunctionResult {
    Ok(text(&arguments[0])?.trim().into())
}

pub fn starts_with(arguments: &[Value]) -> FunctionResult {
    let (text, start) = (text(&arguments[0])?.to_lowercase(), text(&arguments[1])?.to_lowercase());
    Ok(text.starts_with(&start).into())
}

pub fn ends_with(arguments: &[Value]) -> FunctionResult {
    let (text, end) = (text(&arguments[0])?.to_lowercase(), text(&arguments[1])?.to_lowercase());
    Ok(text.ends_with(&end).into())
}

pub fn index_of(arguments: &[Value]) -> FunctionResult {
    let (text, part) = (text(&arguments[0])?.to_lowercase(), text(&arguments[1])?.to_lowercase());
    Ok(place(&text, text.find(&part)))
}

pub fn last_index_of(arguments: &[Value]) -> FunctionResult {
    let (text, part) = (text(&arguments[0])?.to_lowercase(), text(&arguments[1])?.to_lowercase());
    Ok(place(&text, text.rfind(&part)))
}

/// The position in characters; -1 if there is none.
fn place(text: &str, at: Option<usize>) -> Value {
    at.map_or(Value::from(-1), |at| text[..at].chars().count().into())
}

pub fn replace(arguments: &[Value]) -> FunctionResult {
    let (whole, old, new) = (text(&arguments[0])?, text(&arguments[1])?, text(&arguments[2])?);
    if old.is_empty() {
        return Err("the text to replace is empty; give at least one character".to_owned());
    }
    // The size is checked before the result is built, because the result may be much longer.
    let added = whole.matches(old).count().saturating_mul(new.len());
    check_size(whole.len().saturating_add(added))?;
    Ok(whole.replace(old, new).into())
}

pub fn split(arguments: &[Value]) -> FunctionResult {
    let whole = text(&arguments[0])?;
    let marks: Vec<&str> = match &arguments[1] {
        Value::Array(marks) => marks.iter().map(text).collect::<Result<_, _>>()?,
        mark => vec![text(mark)?],
    };
    if marks.iter().any(|mark| mark.is_empty()) {
        return Err("the delimiter is empty; give at least one character".to_owned());
    }
    if marks.len() > SPLIT_MARKS_MAX {
        let got = marks.len();
        return Err(format!("there are {got} delimiters; give at most {SPLIT_MARKS_MAX}"));
    }
    let mut parts = vec![whole];
    for mark in marks {
        parts = parts.into_iter().flat_map(|part| part.split(mark)).collect();
    }
    Ok(Value::Array(parts.into_iter().map(Value::from).collect()))
}

pub fn join(arguments: &[Value]) -> FunctionResult {
    let parts: Vec<String> = list(&arguments[0])?.iter().map(text_of).collect();
    let mark = text(&arguments[1])?;
    check_size(parts.len().saturating_mul(mark.len()))?;
    Ok(parts.join(mark).into())
}

pub fn substring(arguments: &[Value]) -> FunctionResult {
    let (text, start) = (text(&arguments[0])?, whole(&arguments[1])?);
    let length = text.chars().count();
    let count = match arguments.get(2) {
        Some(count) => whole(count)?,
        None => i64::MAX,
    };
    let is_inside = usize::try_from(start).is_ok_and(|start| start <= length) && count >= 0;
    if !is_inside {
        return Err(format!("the string has {length} characters; give a start within them"));
    }
    let found = text.chars().skip(clamp(start, length)).take(clamp(count, length));
    Ok(Value::String(found.collect()))
}

pub fn pad_left(arguments: &[Value]) -> FunctionResult {
    let (text, width) = (text_of(&arguments[0]), whole(&arguments[1])?);
    if width > PAD_MAX {
        return Err(format!("the width is {width}; give at most {PAD_MAX}"));
    }
    let fill = match arguments.get(2) {
        None => ' ',
        Some(fill) => {
            let mut signs = self::text(fill)?.chars();
            match (signs.next(), signs.next()) {
                (Some(sign), None) => sign,
                _ => return Err(wrong(fill, "one character to fill with")),
            }
        }
    };
    let missing = clamp(width, usize::MAX).saturating_sub(text.chars().count());
    Ok(Value::String(std::iter::repeat_n(fill, missing).chain(text.chars()).collect()))
}

/// `{0}` is replaced with the first argument after the text, and `{{` with a brace.
pub fn format(arguments: &[Value]) -> FunctionResult {
    let mut rest = text(&arguments[0])?;
    let mut made = String::new();
    while let Some(at) = rest.find(['{', '}']) {
        made.push_str(&rest[..at]);
        let (brace, after) = rest[at..].split_at(1);
        if let Some(after) = after.strip_prefix(brace) {
            made.push_str(brace);
            rest = after;
            continue;
        }
        let end = after.find('}').filter(|_| brace == "{");
        let place = end.and_then(|end| after[..end].parse::<usize>().ok());
        let (Some(end), Some(place)) = (end, place) else {
            return Err(
                "a brace is not part of a placeholder such as {0}; write a literal brace twice"
                    .to_owned(),
            );
        };
        let value = place.checked_add(1).and_then(|place| arguments.get(place));
        let value = value.ok_or_else(|| format!("there is no argument for {{{place}}}"))?;
        made.push_str(&text_of(value));
        check_size(made.len())?;
        rest = &after[end + 1..];
    }
    made.push_str(rest);
    Ok(made.into())
}
