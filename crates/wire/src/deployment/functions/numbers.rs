//! Arithmetic, comparison and logic.

use std::cmp::Ordering;

use serde_json::Value;

use super::{FunctionResult, list, text, whole, wrong};

fn arithmetic(arguments: &[Value], compute: fn(i64, i64) -> Option<i64>) -> FunctionResult {
    let (a, b) = (whole(&arguments[0])?, whole(&arguments[1])?);
    let found =
        compute(a, b).ok_or("the result does not fit in a 64-bit number; give other numbers")?;
    Ok(found.into())
}

pub fn add(arguments: &[Value]) -> FunctionResult {
    arithmetic(arguments, i64::checked_add)
}

pub fn sub(arguments: &[Value]) -> FunctionResult {
    arithmetic(arguments, i64::checked_sub)
}

pub fn mul(arguments: &[Value]) -> FunctionResult {
    arithmetic(arguments, i64::checked_mul)
}

pub fn div(arguments: &[Value]) -> FunctionResult {
    arithmetic(arguments, i64::checked_div)
}

pub fn modulo(arguments: &[Value]) -> FunctionResult {
    arithmetic(arguments, i64::checked_rem)
}

fn compare(arguments: &[Value]) -> Result<Ordering, String> {
    if let (Value::String(a), Value::String(b)) = (&arguments[0], &arguments[1]) {
        return Ok(a.cmp(b));
    }
    Ok(whole(&arguments[0])?.cmp(&whole(&arguments[1])?))
}

pub fn less(arguments: &[Value]) -> FunctionResult {
    Ok(compare(arguments)?.is_lt().into())
}

pub fn less_or_equals(arguments: &[Value]) -> FunctionResult {
    Ok(compare(arguments)?.is_le().into())
}

pub fn greater(arguments: &[Value]) -> FunctionResult {
    Ok(compare(arguments)?.is_gt().into())
}

pub fn greater_or_equals(arguments: &[Value]) -> FunctionResult {
    Ok(compare(arguments)?.is_ge().into())
}

fn numbers(arguments: &[Value]) -> Result<Vec<i64>, String> {
    let given = match arguments {
        [only @ Value::Array(_)] => list(only)?,
        several => several,
    };
    given.iter().map(whole).collect()
}

pub fn min(arguments: &[Value]) -> FunctionResult {
    let found = numbers(arguments)?.into_iter().min();
    found.map(Value::from).ok_or_else(|| "the array is empty; give at least one number".to_owned())
}

pub fn max(arguments: &[Value]) -> FunctionResult {
    let found = numbers(arguments)?.into_iter().max();
    found.map(Value::from).ok_or_else(|| "the array is empty; give at least one number".to_owned())
}

pub fn int(arguments: &[Value]) -> FunctionResult {
    match &arguments[0] {
        Value::Number(number) if number.is_i64() => Ok(arguments[0].clone()),
        Value::String(text) => {
            let found = text.trim().parse::<i64>();
            found.map(Value::from).map_err(|_| "the string is not a whole number".to_owned())
        }
        other => Err(wrong(other, "a whole number, or one as a string")),
    }
}

/// The values that a template accepts as true or false.
pub fn truth(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(yes) => Ok(*yes),
        Value::Number(number) if number.is_i64() => Ok(number.as_i64() != Some(0)),
        Value::String(word) if word.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(word) if word.eq_ignore_ascii_case("false") => Ok(false),
        other => Err(wrong(other, "true or false")),
    }
}

pub fn boolean(arguments: &[Value]) -> FunctionResult {
    truth(&arguments[0]).map(Value::Bool)
}

pub fn not(arguments: &[Value]) -> FunctionResult {
    match &arguments[0] {
        Value::Bool(yes) => Ok(Value::Bool(!yes)),
        other => match text(other) {
            Ok(_) => truth(other).map(|yes| Value::Bool(!yes)),
            Err(_) => Err(wrong(other, "true or false")),
        },
    }
}
