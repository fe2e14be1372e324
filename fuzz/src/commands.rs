//! What a user passes to a command: files, queries, values of flags, and the small files that store a choice.
//!
//! If a file needs arguments or variables, they follow it after a line with only `%`, one per line.

use std::ffi::OsString;

use muster_cli::{Failure, inputs};
use muster_core::time::Wall;
use muster_wire::{compute, timestamp, workspace};
use serde_json::Value;

use crate::oracle;

const NOW: Wall = Wall(1_794_772_332_000_000);
/// Up to this depth, the YAML reader can read what its writer writes.
const YAML_DEPTH_MAX: usize = 60;

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// A file, and the lines that belong to it.
fn parts(data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let text = text(data)?;
    Some(match text.split_once("\n%\n") {
        Some((file, lines)) => (file, lines.lines().collect()),
        None => (text, Vec::new()),
    })
}

fn refused(failure: &Failure) {
    oracle::words(&failure.to_string());
    if let Some(hint) = failure.hinted() {
        oracle::words(hint);
    }
}

/// The request contains what was read, and a server can read it. Written as our own YAML, the file has the same
/// meaning.
pub fn compute_file(data: &[u8]) {
    let Some((file, arguments)) = parts(data) else { return };
    let body = match inputs::compute_file(file, &arguments) {
        Ok(body) => body,
        Err(failure) => return refused(&failure),
    };
    oracle::grown(&[data, data].concat(), &body);
    if let Err(error) = compute::parse_request(body.as_bytes(), &str::to_owned) {
        oracle::refusal(&error);
    }
    // JSON is YAML, so a file may be written as either, except that 1e5 is a text in YAML.
    let is_exponent = |pair: &[u8]| pair[0].is_ascii_digit() && pair[1].eq_ignore_ascii_case(&b'e');
    if arguments.is_empty()
        && !file.as_bytes().windows(2).any(is_exponent)
        && let Some(yaml) = inputs::yaml(file)
    {
        assert_eq!(inputs::compute_file(&yaml, &[]).ok().as_ref(), Some(&body), "{yaml}");
    }
}

/// The request contains what was read, and reads back as the same. A conda specification has a single spelling.
pub fn job_file(data: &[u8]) {
    let Some((file, sets)) = parts(data) else { return };
    if let Some(written) = inputs::conda_text(file) {
        assert_eq!(inputs::conda_text(&written).as_ref(), Some(&written), "{written}");
    }
    match inputs::job_file(file, &sets) {
        Ok(body) => {
            assert!(serde_json::from_str::<Value>(&body).is_ok(), "{body}");
            assert_eq!(inputs::job_file(file, &sets).ok().as_ref(), Some(&body));
        }
        Err(failure) => refused(&failure),
    }
}

pub fn workspace_file(data: &[u8]) {
    let Some((file, arguments)) = parts(data) else { return };
    match inputs::workspace_file(file, &arguments) {
        Ok(body) => {
            oracle::grown(&[data, data].concat(), &body);
            if let Err(error) = workspace::parse_request(body.as_bytes()) {
                oracle::refusal(&error);
            }
        }
        Err(failure) => refused(&failure),
    }
}

/// Valid settings, printed as a file, are valid again without the variables.
pub fn config(data: &[u8]) {
    let Some((file, lines)) = parts(data) else { return };
    let variable = |name: &str| {
        let found = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.filter(|value| !value.is_empty()).map(OsString::from)
    };
    let printed = match inputs::config(file, variable) {
        Ok(printed) => printed,
        Err(failure) => return refused(&failure),
    };
    let again = inputs::config(&printed, |_| None)
        .unwrap_or_else(|why| panic!("our own file: {why}\n{printed}"));
    let settings = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(settings(&again), settings(&printed));
}

/// The expression is the first line, and the document is the rest.
pub fn query(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (expression, document) = text.split_once('\n').unwrap_or((text, SAMPLE));
    let printed = match inputs::query(expression, document) {
        None => return,
        Some(Ok(printed)) => printed,
        Some(Err(failure)) => return refused(&failure),
    };
    let value: Value = serde_json::from_str(&printed.json).expect("our own JSON");
    if depth(&value) < YAML_DEPTH_MAX {
        let yaml: Value = serde_saphyr::from_str(&printed.yaml)
            .unwrap_or_else(|why| panic!("our own YAML: {why}\n{}", printed.yaml));
        assert!(is_same(&yaml, &value), "{}: {yaml} and {value}", printed.yaml);
    }
    let items = value.as_array().map_or(1, Vec::len);
    let lines = printed.tsv.lines().count();
    assert!(lines >= items || printed.tsv.contains('\r'), "{lines} lines for {items} items");
    if let Some(table) = printed.table {
        assert!(!table.chars().any(|c| c.is_control() && c != '\n'), "{table:?}");
        assert!(table.is_empty() || table.lines().count() == items + 2, "{table}");
    }
}

const SAMPLE: &str = r#"[{"name": "cpu", "nodes": 3, "tags": {"team": "blue"}, "at": [1, 2.5, -3]},
    {"name": "gpu", "nodes": 0, "tags": {}, "is_open": true, "at": []}]"#;

/// The two readers may differ in the last digit of a fraction.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has = |key: &String, one: &Value| other.get(key).is_some_and(|it| is_same(one, it));
            one.len() == other.len() && one.iter().all(|(key, one)| has(key, one))
        }
        (Value::Number(one), Value::Number(other)) if one.is_f64() && other.is_f64() => {
            let (one, other) = (one.as_f64().unwrap_or(0.0), other.as_f64().unwrap_or(1.0));
            one == other || ((one - other) / one).abs() < 1e-15
        }
        _ => one == other,
    }
}

fn depth(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

pub fn defaults(data: &[u8]) {
    match inputs::defaults(data) {
        Ok(written) => assert_eq!(inputs::defaults(&written).ok(), Some(written)),
        Err(failure) => refused(&failure),
    }
}

pub fn login_file(data: &[u8]) {
    match inputs::login(data) {
        Ok(written) => assert_eq!(inputs::login(&written).ok(), Some(written)),
        Err(failure) => refused(&failure),
    }
}

/// Reads one text as a duration, as a point in time, and as tags.
pub fn flag_values(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match inputs::span(text) {
        Ok(span) => {
            assert!(span.0 >= 1_000_000 && span.0 % 1_000_000 == 0, "{text}");
            assert_eq!(inputs::span(&format!("{}s", span.0 / 1_000_000)), Ok(span), "{text}");
        }
        Err(why) => oracle::words(&why),
    }
    match inputs::when(text, NOW) {
        Ok(wall) => assert_eq!(inputs::when(&timestamp::format(wall), NOW), Ok(wall), "{text}"),
        Err(why) => oracle::words(&why),
    }
    let arguments: Vec<&str> = text.split('\n').collect();
    match inputs::tags(&arguments) {
        Ok(tags) => {
            let pairs: Vec<String> =
                tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
            assert_eq!(inputs::tags(&pairs).ok(), Some(tags), "{text}");
        }
        Err(failure) => refused(&failure),
    }
}

/// Whatever the patterns are, each path is either ignored or not, and git's own folder always is. The paths follow the
/// file.
pub fn ignore_file(data: &[u8]) {
    let Some((file, paths)) = parts(data) else { return };
    match inputs::ignore_file(file, &paths) {
        Ok(left_out) => assert_eq!(left_out.len(), paths.len()),
        Err(refusal) => oracle::words(&refusal),
    }
    let git = inputs::ignore_file(file, &["a/.git"]);
    assert!(git.is_err() || git == Ok(vec![true]));
}
