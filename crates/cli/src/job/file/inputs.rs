//! Inputs and outputs, and whether the command uses only those that exist.

use muster_wire::yaml::tree::Value;
use serde_json::{Map, Value as Json, json};

use super::{Data, parts};
use crate::document::reader::{self, Reader};
use crate::failure::{CliResult, Failure, quoted};
use crate::nearest;

const KINDS: [(&str, &str); 6] = [
    ("uri_file", "uri_file"),
    ("uri_folder", "uri_folder"),
    ("mltable", "mltable"),
    ("custom_model", "custom_model"),
    ("mlflow_model", "mlflow_model"),
    ("triton_model", "triton_model"),
];
/// The types of literal values: the reader of the command knows what to do with them.
const LITERALS: [&str; 5] = ["string", "number", "integer", "boolean", "bool"];
const INPUT_MODES: [(&str, &str); 7] = [
    ("ro_mount", "ReadOnlyMount"),
    ("rw_mount", "ReadWriteMount"),
    ("mount", "ReadOnlyMount"),
    ("download", "Download"),
    ("direct", "Direct"),
    ("eval_mount", "EvalMount"),
    ("eval_download", "EvalDownload"),
];
const OUTPUT_MODES: [(&str, &str); 4] = [
    ("rw_mount", "ReadWriteMount"),
    ("mount", "ReadWriteMount"),
    ("upload", "Upload"),
    ("direct", "Direct"),
];

type Named = Map<String, Json>;

pub fn inputs(job: &Reader<'_>) -> CliResult<(Named, Vec<(String, Data)>)> {
    let (mut inputs, mut data) = (Map::new(), Vec::new());
    for entry in job.named("inputs")? {
        check_name(job, "inputs", &entry.key, entry.place)?;
        let name = format!("inputs.{}", entry.key);
        if let Some(value) = entry.value.as_python() {
            inputs.insert(entry.key.clone(), literal(value));
            continue;
        }
        let known = ["type", "path", "mode", "value", "datastore", "path_on_compute", "default"];
        let known = [&known[..], &["optional", "description", "min", "max", "enum"]].concat();
        let said = Reader::of(job.source, &name, &entry.value, &known)?;
        let is_literal = said.text("type")?.is_some_and(|kind| LITERALS.contains(&kind.as_str()));
        let value = said.get("value").or_else(|| said.get("default"));
        if is_literal || (value.is_some() && said.get("path").is_none()) {
            let Some(value) = value.and_then(|node| node.as_python()) else {
                return Err(said.wrong("value", said.node, "the value"));
            };
            inputs.insert(entry.key.clone(), literal(value));
            continue;
        }
        let kind = said.choice("type", &KINDS)?.unwrap_or("uri_folder");
        let Some(path) = said.text("path")?.filter(|path| !path.is_empty()) else {
            let at = reader::place(job.source, entry.place);
            return Err(Failure::refused(format!(
                "{at}{name} has no path; add the path of its data"
            )));
        };
        let mut input = Map::new();
        input.insert("jobInputType".to_owned(), kind.into());
        if let Some(mode) = said.choice("mode", &INPUT_MODES)? {
            input.insert("mode".to_owned(), mode.into());
        }
        if let Some(place) = said.text("path_on_compute")? {
            input.insert("pathOnCompute".to_owned(), place.into());
        }
        match source_of(&said, kind, &path)? {
            Ok(uri) => {
                input.insert("uri".to_owned(), uri.into());
            }
            Err(need) => data.push((entry.key.clone(), need)),
        }
        inputs.insert(entry.key.clone(), input.into());
    }
    Ok((inputs, data))
}

fn literal(value: String) -> Json {
    json!({ "jobInputType": "literal", "value": value })
}

/// The location of the data, or what has to be done to find it out.
fn source_of(said: &Reader<'_>, kind: &str, path: &str) -> CliResult<Result<String, Data>> {
    let is_model = kind.ends_with("_model");
    let starts =
        |start: &str| path.get(..start.len()).is_some_and(|it| it.eq_ignore_ascii_case(start));
    // The server decides which addresses can be read.
    if path.contains("://") || starts("/subscriptions/") || starts("runs:/") {
        return Ok(Ok(path.to_owned()));
    }
    let node = said.get("path").unwrap_or(said.node);
    if let Some(reference) = path.strip_prefix("azureml:") {
        if reference.starts_with('/') {
            return Ok(Ok(reference.to_owned()));
        }
        if let Some((name, label)) = reference.rsplit_once('@') {
            let (name, label) = (name.to_owned(), label.to_owned());
            return Ok(Err(Data::Label { is_model, name, label }));
        }
        return match reference.split_once(':') {
            Some((name, version)) => {
                let (name, version) = (name.to_owned(), version.to_owned());
                Ok(Err(Data::Version { is_model, name, version }))
            }
            None => Err(said.wrong("path", node, "azureml:NAME:VERSION or azureml:NAME@latest")),
        };
    }
    Ok(Err(Data::Local {
        path: parts::local(said, path),
        kind: kind.to_owned(),
        datastore: said.text("datastore")?.map(|name| parts::without_prefix(&name)),
        at: node.place,
        file: said.source.name.clone(),
    }))
}

pub fn outputs(job: &Reader<'_>) -> CliResult<Named> {
    let mut outputs = Map::new();
    for entry in job.named("outputs")? {
        check_name(job, "outputs", &entry.key, entry.place)?;
        let mut output = Map::new();
        if matches!(entry.value.value, Value::Null) {
            output.insert("jobOutputType".to_owned(), "uri_folder".into());
            outputs.insert(entry.key.clone(), output.into());
            continue;
        }
        let name = format!("outputs.{}", entry.key);
        let known = ["type", "path", "mode", "name", "version", "description"];
        let said = Reader::of(job.source, &name, &entry.value, &known)?;
        let kind = said.choice("type", &KINDS)?.unwrap_or("uri_folder");
        output.insert("jobOutputType".to_owned(), kind.into());
        if let Some(mode) = said.choice("mode", &OUTPUT_MODES)? {
            output.insert("mode".to_owned(), mode.into());
        }
        for (key, name) in [("path", "uri"), ("name", "assetName")] {
            if let Some(text) = said.text(key)? {
                output.insert(name.to_owned(), text.into());
            }
        }
        if let Some(version) = said.get("version").and_then(|node| node.as_python()) {
            output.insert("assetVersion".to_owned(), version.into());
        }
        outputs.insert(entry.key.clone(), output.into());
    }
    Ok(outputs)
}

fn check_name(job: &Reader<'_>, of: &str, name: &str, at: (usize, usize)) -> CliResult {
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins_well && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(());
    }
    let at = reader::place(job.source, at);
    let name = quoted(name);
    Err(Failure::refused(format!(
        "{at}{of} has {name}; a name has letters, digits and underscores, and does not begin with a digit"
    )))
}

/// Finds `${{inputs.x}}` and `${{outputs.y}}` that do not exist. Those in `$[[…]]` may be missing.
pub fn check_command(
    job: &Reader<'_>,
    command: &str,
    inputs: &Named,
    data: &[(String, Data)],
    outputs: &Named,
) -> CliResult {
    let at = job.get("command").map_or(job.node.place, |node| node.place);
    let mut rest = command;
    while let Some(start) = rest.find("${{") {
        let inside = &rest[start + 3..];
        let Some(end) = inside.find("}}") else { break };
        let (of, name) = inside[..end].trim().split_once('.').unwrap_or(("", ""));
        let known = match of {
            "inputs" => inputs,
            "outputs" => outputs,
            _ => {
                rest = &inside[end + 2..];
                continue;
            }
        };
        let is_known = known.contains_key(name) || data.iter().any(|(known, _)| known == name);
        let is_optional = command[..command.len() - rest.len() + start].matches("$[[").count()
            > command[..command.len() - rest.len() + start].matches("]]").count();
        if !is_known && !is_optional {
            let at = reader::place(job.source, at);
            let shown = format!("${{{{{of}.{name}}}}}");
            let failure = Failure::refused(format!(
                "{at}the command uses {}, but there is no {of}.{}",
                quoted(&shown),
                quoted(name).trim_matches('\'')
            ));
            let names: Vec<String> = known.keys().cloned().collect();
            return Err(failure.hint(match nearest::nearest(name, &names) {
                Some(nearest) => format!("did you mean {}?", quoted(nearest)),
                None => format!("add it to {of}:"),
            }));
        }
        rest = &inside[end + 2..];
    }
    Ok(())
}
