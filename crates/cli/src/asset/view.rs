//! How assets and versions are displayed: the entities that `az ml` prints.

use std::collections::BTreeMap;

use muster_core::model::AssetKind;
use muster_wire::asset::{AssetResource, Build, ContainerResource, DataType};
use muster_wire::yaml::tree;
use muster_wire::{JsonText, SystemData};
use serde::Serialize;
use serde_json::{Map, Value};

use super::id_of;
use crate::compute::resource_group;
use crate::output;

/// One version, or an asset with all its versions.
#[derive(Debug, Serialize)]
pub struct Entity {
    id: Option<String>,
    #[serde(rename = "resourceGroup")]
    resource_group: Option<String>,
    pub name: String,
    pub version: Option<String>,
    latest_version: Option<String>,
    description: Option<String>,
    tags: Option<BTreeMap<String, String>>,
    properties: Option<Value>,
    creation_context: Option<Creation>,
    #[serde(rename = "type")]
    kind: Option<String>,
    path: Option<String>,
    pub stage: Option<String>,
    flavors: Option<Value>,
    job_name: Option<String>,
    image: Option<String>,
    conda_file: Option<Value>,
    build: Option<BuildContext>,
    inference_config: Option<Value>,
    os_type: Option<String>,
    /// The specification of a component. Where a field above has the same name, this one counts.
    #[serde(flatten)]
    spec: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct BuildContext {
    path: String,
    dockerfile_path: String,
}

#[derive(Debug, Serialize)]
struct Creation {
    created_at: Option<String>,
    created_by: Option<String>,
    created_by_type: Option<String>,
    last_modified_at: Option<String>,
    last_modified_by: Option<String>,
    last_modified_by_type: Option<String>,
}

impl Creation {
    fn of(data: &SystemData) -> Creation {
        let time = |at: &Option<String>| at.as_deref().map(python_time);
        Creation {
            created_at: time(&data.created_at),
            created_by: data.created_by.clone(),
            created_by_type: data.created_by_type.clone(),
            last_modified_at: time(&data.last_modified_at),
            last_modified_by: data.last_modified_by.clone(),
            last_modified_by_type: data.last_modified_by_type.clone(),
        }
    }
}

/// Python's format: with six decimals of a second or none, and an offset.
fn python_time(at: &str) -> String {
    let Some(bare) = at.strip_suffix('Z') else { return at.to_owned() };
    match bare.split_once('.') {
        Some((seconds, digits)) => format!("{seconds}.{digits:0<6}+00:00"),
        None => format!("{bare}+00:00"),
    }
}

pub fn version(kind: AssetKind, found: &AssetResource) -> Entity {
    let about = &found.properties;
    let bag = about.properties.as_ref().and_then(value);
    let (name, version) = name_of(found);
    let is_component = kind == AssetKind::Component;
    Entity {
        id: Some(match kind {
            AssetKind::Data => found.id.clone(),
            _ => id_of(found),
        }),
        resource_group: resource_group(&found.id),
        name,
        version: Some(version),
        latest_version: None,
        description: about.description.clone(),
        tags: Some(about.tags.clone()).filter(|_| !is_component),
        properties: bag.filter(|_| matches!(kind, AssetKind::Data | AssetKind::Model)),
        creation_context: found.system_data.as_ref().map(Creation::of),
        kind: about.model_type.clone().or_else(|| about.data_type.map(data_type)),
        path: about.data_uri.clone().or_else(|| about.model_uri.clone()),
        stage: about.stage.clone(),
        flavors: about.flavors.as_ref().and_then(flavors),
        job_name: about.job_name.clone(),
        image: about.image.clone(),
        conda_file: about.conda_file.as_deref().map(conda),
        build: about.build.as_ref().map(build),
        inference_config: about.inference_config.as_ref().and_then(value).map(snake),
        os_type: about.os_type.as_deref().map(str::to_ascii_lowercase),
        spec: about.component_spec.as_ref().map(spec).unwrap_or_default(),
    }
}

/// An asset in the form that `az ml` lists.
pub fn container(kind: AssetKind, found: &ContainerResource) -> Entity {
    let about = &found.properties;
    let (is_data, is_model) = (kind == AssetKind::Data, kind == AssetKind::Model);
    Entity {
        id: Some(format!("azureml:{}", found.id)).filter(|_| !is_data),
        resource_group: resource_group(&found.id).filter(|_| !is_data),
        name: found.name.clone(),
        version: None,
        latest_version: about.latest_version.clone(),
        description: about.description.clone(),
        tags: Some(about.tags.clone()).filter(|_| kind != AssetKind::Component),
        properties: about.properties.as_ref().and_then(value).filter(|_| is_data || is_model),
        creation_context: found.system_data.as_ref().map(Creation::of),
        kind: match is_model {
            true => Some("custom_model".to_owned()),
            false => about.data_type.map(data_type),
        },
        path: None,
        stage: None,
        flavors: None,
        job_name: None,
        image: None,
        conda_file: None,
        build: None,
        inference_config: None,
        os_type: None,
        spec: Map::new(),
    }
}

/// The name and the version in an id.
pub fn name_of(found: &AssetResource) -> (String, String) {
    let mut parts = found.id.rsplit('/');
    let version = parts.next().unwrap_or_default().to_owned();
    (parts.nth(1).unwrap_or_default().to_owned(), version)
}

fn value(text: &JsonText) -> Option<Value> {
    serde_json::from_str(text.as_str()).ok()
}

fn data_type(kind: DataType) -> String {
    match kind {
        DataType::UriFile => "uri_file",
        DataType::UriFolder => "uri_folder",
        DataType::MlTable => "mltable",
    }
    .to_owned()
}

/// `{"name": {"data": {…}}}` without the level in between. An empty mapping is left out.
fn flavors(text: &JsonText) -> Option<Value> {
    let Some(Value::Object(all)) = value(text) else { return None };
    let inner = |flavor: Value| match flavor {
        Value::Object(mut flavor) => flavor.remove("data").unwrap_or_default(),
        other => other,
    };
    let all: Map<_, _> = all.into_iter().map(|(name, flavor)| (name, inner(flavor))).collect();
    Some(Value::Object(all)).filter(|all| all.as_object().is_some_and(|all| !all.is_empty()))
}

/// Invalid YAML is returned as a string.
fn conda(text: &str) -> Value {
    let read = tree::parse(text).ok().and_then(|node| serde_json::to_value(node).ok());
    read.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn build(build: &Build) -> BuildContext {
    BuildContext { path: build.context_uri.clone(), dockerfile_path: build.dockerfile_path.clone() }
}

/// `livenessRoute` → `liveness_route`, at every depth.
fn snake(value: Value) -> Value {
    super::renamed(value, &|key| {
        let mut name = String::new();
        for letter in key.chars() {
            if letter.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    })
}

/// Removes the fields that are known from the id.
fn spec(text: &JsonText) -> Map<String, Value> {
    let Some(Value::Object(mut spec)) = value(text) else { return Map::new() };
    for known in ["name", "version", "id", "creation_context", "_source"] {
        spec.remove(known);
    }
    spec
}

pub fn print_table(kind: AssetKind, found: &[Entity]) -> crate::failure::CliResult {
    let header = match found.first().is_some_and(|one| one.version.is_some()) {
        true => ["Name", "Version", "Source", "Created on"],
        false => ["Name", "Latest version", "Type", "Created on"],
    };
    let nothing = match kind {
        AssetKind::Data => "no data assets".to_owned(),
        kind => format!("no {}s", kind.as_str()),
    };
    output::table(&header, found.iter().map(row).collect(), &nothing)
}

fn row(one: &Entity) -> Vec<String> {
    let version = one.version.as_ref().or(one.latest_version.as_ref());
    let spec_type = one.spec.get("type").and_then(Value::as_str).map(str::to_owned);
    let build = one.build.as_ref().map(|build| build.path.clone());
    let source =
        one.image.clone().or(build).or(one.path.clone()).or(one.kind.clone()).or(spec_type);
    let created = one.creation_context.as_ref().and_then(|creation| creation.created_at.clone());
    vec![
        one.name.clone(),
        version.cloned().unwrap_or_default(),
        source.unwrap_or_default(),
        created.unwrap_or_default().replace("+00:00", "Z"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_python_has_them() {
        for (at, wanted) in [
            ("2026-11-17T06:51:23.42973Z", "2026-11-17T06:51:23.429730+00:00"),
            ("2026-11-17T06:51:23Z", "2026-11-17T06:51:23+00:00"),
            ("now", "now"),
        ] {
            assert_eq!(python_time(at), wanted);
        }
    }

    #[test]
    fn flavors_and_routes_are_as_in_the_file() {
        let text = JsonText::new(r#"{"python_function":{"data":{"a":"b"}}}"#).unwrap();
        assert_eq!(flavors(&text).unwrap().to_string(), r#"{"python_function":{"a":"b"}}"#);
        assert_eq!(flavors(&JsonText::empty_object()), None);
        let routes = serde_json::json!({"livenessRoute": {"port": 1}});
        assert_eq!(snake(routes).to_string(), r#"{"liveness_route":{"port":1}}"#);
    }
}
