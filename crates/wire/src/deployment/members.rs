//! Access to members of values, and the time as templates write it.

use serde_json::Value;

use super::evaluate::{Computed, Fault};
use crate::json::{kind, shorten};

pub(super) fn member(of: Value, name: &str) -> Computed {
    let Value::Object(mut map) = of else {
        let message = format!("there is no '{}' in {}", shorten(name), kind(&of));
        return Err(Fault::new(message));
    };
    if let Some(found) = map.remove(name) {
        return Ok(found);
    }
    let found = map.keys().find(|key| key.eq_ignore_ascii_case(name)).cloned();
    found.and_then(|key| map.remove(&key)).ok_or_else(|| {
        let names: Vec<String> = map.keys().take(12).map(|key| shorten(key)).collect();
        Fault::new(format!(
            "there is no property '{}'; there are: {}",
            shorten(name),
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        ))
    })
}

pub(super) fn item(of: Value, index: &Value) -> Computed {
    match (of, index) {
        (Value::Array(mut items), Value::Number(number)) => {
            let count = items.len();
            let place = number.as_u64().and_then(|place| usize::try_from(place).ok());
            let place = place.filter(|place| *place < count);
            place.map(|place| items.swap_remove(place)).ok_or_else(|| {
                Fault::new(format!(
                    "there is no item {number} in an array of {count}; count from 0"
                ))
            })
        }
        (of @ Value::Object(_), Value::String(name)) => member(of, name),
        (of, index) => {
            Err(Fault::new(format!("{} cannot be used as an index of {}", kind(index), kind(&of))))
        }
    }
}

/// Without a format, or with a format that has no letters except those of dates.
pub(super) fn utc_now(now: &str, format: Option<&Value>) -> Result<Value, String> {
    let digits: String = now.chars().filter(char::is_ascii_digit).collect();
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    let Some(format) = format else {
        let (day, time) = (part(0, 8), part(8, 14));
        return Ok(format!("{day}T{time}Z").into());
    };
    let format = format.as_str().ok_or("the format is not a string")?;
    let (mut made, mut rest) = (String::new(), format);
    let parts = [("yyyy", (0, 4)), ("MM", (4, 6)), ("dd", (6, 8))];
    let parts = parts.into_iter().chain([("HH", (8, 10)), ("mm", (10, 12)), ("ss", (12, 14))]);
    let parts: Vec<_> = parts.collect();
    while let Some(sign) = rest.chars().next() {
        if let Some((word, (from, to))) = parts.iter().find(|(word, _)| rest.starts_with(word)) {
            made.push_str(part(*from, *to));
            rest = &rest[word.len()..];
        } else if sign.is_ascii_alphabetic() && !matches!(sign, 'T' | 'Z') {
            return Err(format!("the format has '{sign}'; use yyyy, MM, dd, HH, mm, ss, T and Z"));
        } else {
            made.push(sign);
            rest = &rest[sign.len_utf8()..];
        }
    }
    Ok(made.into())
}
