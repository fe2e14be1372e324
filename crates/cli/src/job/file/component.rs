//! A job that runs a component from a file: the component's values apply where the job has none.

use std::path::Path;

use muster_wire::yaml::tree::{Entry, Node, Value};

use crate::document::reader::{self, Reader, Source};
use crate::failure::{CliResult, Failure};
use crate::upload::Includes;

const TAKEN: [&str; 6] =
    ["command", "code", "environment", "distribution", "resources", "environment_variables"];
const FIELDS: &[&str] = &[
    "name",
    "version",
    "type",
    "display_name",
    "description",
    "tags",
    "properties",
    "command",
    "code",
    "environment",
    "environment_variables",
    "inputs",
    "outputs",
    "resources",
    "distribution",
    "is_deterministic",
    "additional_includes",
    "successful_return_code",
    "id",
    "creation_context",
    "instance_count",
];

/// The job with the values of its component, and the additional includes of the component's code.
pub fn merged(source: &Source, job: &Node) -> CliResult<Option<(Node, Includes)>> {
    let Some(component) = job.get("component").filter(|node| !node.is_null()) else {
        return Ok(None);
    };
    let (from, component) = match component.as_text() {
        None => (source.clone(), component.clone()),
        Some(text) if text.starts_with("azureml:") => {
            return Err(Failure::refused(format!(
                "{}component is a registered component, which jobs cannot run in this version",
                reader::place(source, component.place)
            ))
            .hint("give its file instead: component: file:./component.yml"));
        }
        Some(text) => {
            let path = source.folder.join(text.strip_prefix("file:").unwrap_or(text));
            reader::read_tree(&path).map_err(|failure| {
                let at = reader::place(source, component.place);
                Failure::refused(format!("{at}component: {failure}"))
            })?
        }
    };
    let said = Reader::of(&from, "component", &component, FIELDS)?;
    let Value::Map(mut entries) = job.value.clone() else { return Ok(None) };
    entries.retain(|entry| entry.key != "component");
    // The includes belong to the component's code.
    let has_own_code = entries.iter().any(|entry| entry.key == "code" && !entry.value.is_null());
    let paths = if has_own_code { Vec::new() } else { includes(&said)? };
    let includes = Includes { base: from.folder.clone(), paths };
    for key in TAKEN {
        let is_said = entries.iter().any(|entry| entry.key == key && !entry.value.is_null());
        if let Some(value) = said.get(key).filter(|_| !is_said) {
            let value = rooted(key, value.clone(), &from.folder);
            entries.push(Entry { key: key.to_owned(), place: value.place, value });
        }
    }
    take_inputs(&said, &mut entries)?;
    take_outputs(&said, &mut entries)?;
    Ok(Some((Node { place: job.place, value: Value::Map(entries) }, includes)))
}

fn includes(said: &Reader<'_>) -> CliResult<Vec<String>> {
    let name = "additional_includes";
    let Some(node) = said.get(name) else { return Ok(Vec::new()) };
    let wrong = |node: &Node| said.wrong(name, node, "a list of local files and folders");
    let Value::List(all) = &node.value else { return Err(wrong(node)) };
    all.iter().map(|one| one.as_text().map(str::to_owned).ok_or_else(|| wrong(one))).collect()
}

/// Paths in a component are relative to the component's file.
fn rooted(key: &str, mut node: Node, folder: &Path) -> Node {
    let root = |node: &mut Node| {
        let Value::Text(text) = &mut node.value else { return };
        let is_local = !text.contains("://") && !text.starts_with("azureml:");
        if is_local && !text.starts_with('/') {
            let path = folder.canonicalize().unwrap_or(folder.to_owned());
            let path = path.join(text.strip_prefix("file:").unwrap_or(text));
            *text = path.display().to_string();
        }
    };
    match (key, &mut node.value) {
        ("code", _) => root(&mut node),
        ("environment", Value::Map(entries)) => {
            for entry in entries {
                match entry.key.as_str() {
                    "conda_file" => root(&mut entry.value),
                    "build" => {
                        if let Value::Map(inner) = &mut entry.value.value {
                            inner
                                .iter_mut()
                                .filter(|it| it.key == "path")
                                .for_each(|it| root(&mut it.value));
                        }
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
    node
}

/// Adds the defaults of inputs that the job does not give.
fn take_inputs(said: &Reader<'_>, entries: &mut Vec<Entry>) -> CliResult {
    let mut given = taken(entries, "inputs");
    for input in said.named("inputs")? {
        let default = input.value.get("default").filter(|node| !node.is_null());
        if let Some(default) = default.filter(|_| !given.iter().any(|it| it.key == input.key)) {
            given.push(Entry { value: default.clone(), ..input.clone() });
        }
    }
    put_back(entries, "inputs", given);
    Ok(())
}

fn take_outputs(said: &Reader<'_>, entries: &mut Vec<Entry>) -> CliResult {
    let mut given = taken(entries, "outputs");
    for output in said.named("outputs")? {
        if !given.iter().any(|it| it.key == output.key) {
            given.push(output.clone());
        }
    }
    put_back(entries, "outputs", given);
    Ok(())
}

fn taken(entries: &mut Vec<Entry>, key: &str) -> Vec<Entry> {
    let at = entries.iter().position(|entry| entry.key == key);
    match at.map(|at| entries.remove(at).value.value) {
        Some(Value::Map(given)) => given,
        _ => Vec::new(),
    }
}

fn put_back(entries: &mut Vec<Entry>, key: &str, given: Vec<Entry>) {
    let Some(place) = given.first().map(|entry| entry.place) else { return };
    let value = Node { place, value: Value::Map(given) };
    entries.push(Entry { key: key.to_owned(), place, value });
}
