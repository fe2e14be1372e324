//! Environments: as azure-ai-ml makes them, so that who makes the same with either client makes it once.

use std::path::Path;

use muster_core::model::AssetKind;
use muster_wire::asset::{AssetProperties, AssetResource, Build, request_json};
use muster_wire::yaml::from_yaml;
use muster_wire::{AssetRoute, JsonText, Route};
use serde_json::{Map, Value};

use super::draft::Desk;
use super::{fields, files, id_of};
use crate::document::{self, Fields};
use crate::failure::{Failure, Outcome, brief, quoted};
use crate::upload;

/// What azure-ai-ml calls environments that nobody gave a name.
const ANONYMOUS: &str = "CliV2AnonymousEnvironment";
/// As much as an environment may have in all.
const CONDA_BYTES_MAX: u64 = 1 << 20;

/// An environment as a document describes it.
pub struct Settled {
    pub properties: AssetProperties,
    /// The hash of its build context, if that was sent.
    hash: Option<String>,
}

/// An environment inside of another document: the id of the nameless one that is made of it.
pub async fn inline(desk: &Desk<'_>, document: &Fields) -> Outcome<String> {
    document::check(document, fields::ENVIRONMENT, "environment.", None)?;
    let mut settled = settled(desk, document).await?;
    settled.properties.is_anonymous = true;
    let version = anonymous_version(document, &settled).into();
    let (workspace, kind) = (desk.workspace.clone(), AssetKind::Environment);
    let route = AssetRoute::AssetVersion { workspace, kind, name: ANONYMOUS.into(), version };
    let route = Route::Assets(route);
    if desk.is_dry {
        return Ok(format!("azureml:{}", route.path().unwrap_or_default()));
    }
    let body = request_json(&settled.properties);
    let made: AssetResource = desk.client.put(&route, body).await?.document()?;
    Ok(id_of(&made))
}

/// What a document says about an environment. A build context that is here is sent.
pub async fn settled(desk: &Desk<'_>, document: &Fields) -> Outcome<Settled> {
    let mut properties = properties(document, &desk.base)?;
    let Some(Value::Object(build)) = document.get("build") else {
        return Ok(Settled { properties, hash: None });
    };
    let path = document::text(build, "path")
        .ok_or_else(|| super::missing("build.path", "name the folder with the Dockerfile"))?;
    let local = files::local("build.path", &path, &desk.base)?;
    let datastore = document::text(document, "datastore");
    let placed = files::place(desk, &path, local.as_ref(), datastore.as_deref()).await?;
    let context_uri = match placed.url {
        Some(url) => format!("{url}/"),
        None => placed.uri,
    };
    let dockerfile_path = document::text(build, "dockerfile_path");
    let dockerfile_path = dockerfile_path.unwrap_or_else(|| "Dockerfile".to_owned());
    properties.build = Some(Build { context_uri, dockerfile_path });
    Ok(Settled { properties, hash: placed.hash })
}

/// The same without the build context.
fn properties(document: &Fields, base: &Path) -> Outcome<AssetProperties> {
    let text = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_owned);
    let system = text("os_type").unwrap_or_else(|| "linux".to_owned());
    if !system.eq_ignore_ascii_case("linux") {
        let words = format!("os_type is {}; nodes run linux, so leave it out", quoted(&system));
        return Err(Failure::refused(words));
    }
    let (image, build) = (text("image"), document.get("build").filter(|build| !build.is_null()));
    if image.is_some() == build.is_some() {
        let what = if image.is_some() { "both" } else { "neither" };
        return Err(Failure::refused(format!(
            "an environment is made of an image or of a build context, and {what} is given; give one of them"
        )));
    }
    let conda_file = document.get("conda_file").filter(|conda| !conda.is_null());
    let conda_file = conda_file.map(|conda| conda_text(conda, base)).transpose()?;
    let inference = document.get("inference_config").filter(|it| !it.is_null());
    Ok(AssetProperties {
        image,
        conda_file,
        os_type: text("os_type").map(|_| "Linux".to_owned()),
        inference_config: inference.and_then(|it| JsonText::new(&camel(it.clone()).to_string())),
        ..AssetProperties::default()
    })
}

/// The content of a conda file, which is named or stands there itself, as azure-ai-ml sends it.
fn conda_text(conda: &Value, base: &Path) -> Outcome<String> {
    let read = match conda {
        Value::Object(_) => conda.clone(),
        Value::String(path) => {
            let path = base.join(path);
            let text = files::read_text(&path, CONDA_BYTES_MAX)
                .map_err(|why| Failure::refused(format!("conda_file: {why}")))?;
            from_yaml(&text).map_err(|why| {
                let place =
                    why.place.map(|(line, column)| format!(", line {line}, column {column}"));
                let (name, place) =
                    (quoted(&path.display().to_string()), place.unwrap_or_default());
                Failure::refused(format!("{name}{place} is no YAML: {}", brief(&why.words)))
            })?
        }
        _ => Value::Null,
    };
    match read {
        Value::Object(map) => Ok(yaml(&Value::Object(map))),
        _ => Err(Failure::refused(
            "conda_file holds no packages; give a file, or fields such as dependencies",
        )),
    }
}

/// `liveness_route` → `livenessRoute`, at every depth.
fn camel(value: Value) -> Value {
    super::renamed(value, &|key| {
        let mut words = key.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |name, word| {
            let mut letters = word.chars();
            let capital = letters.next().map(|c| c.to_ascii_uppercase());
            name + &capital.into_iter().chain(letters).collect::<String>()
        })
    })
}

/// The version that azure-ai-ml gives to one without a name.
fn anonymous_version(document: &Fields, settled: &Settled) -> String {
    // It puts the first hash between all letters of the second, by a slip that is kept.
    let between = |first: &str, second: &str| {
        let second = upload::of_text(second);
        second.chars().map(String::from).collect::<Vec<_>>().join(first)
    };
    let all = match &settled.properties {
        AssetProperties { image: Some(image), conda_file, inference_config, .. } => {
            let mut all = upload::of_text(image);
            // As it writes these is nobody's to copy: they are for serving.
            if let Some(config) = inference_config {
                all = between(&all, config.as_str());
            }
            match conda_file {
                Some(conda) => between(&all, conda),
                None => all,
            }
        }
        _ => {
            let all = upload::of_text(settled.hash.as_deref().unwrap_or_default());
            let build = document.get("build").and_then(Value::as_object);
            match build.and_then(|build| document::text(build, "dockerfile_path")) {
                Some(dockerfile) => between(&all, &dockerfile),
                None => all,
            }
        }
    };
    upload::of_text(&all)
}

/// YAML as Python's writer has it for plain documents: sorted, lists flush with their names. The same content must be
/// the same text, also between clients.
pub fn yaml(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

fn write(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => write_map(map, indent, text),
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                text.push_str("- ");
                write(item, indent + 2, text);
                text.push_str(&" ".repeat(indent));
            }
            text.truncate(text.len() - indent);
        }
        plain => {
            text.push_str(&scalar(plain));
            text.push('\n');
        }
    }
}

fn write_map(map: &Map<String, Value>, indent: usize, text: &mut String) {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            text.push_str(&" ".repeat(indent));
        }
        text.push_str(&scalar(&Value::String(key.clone())));
        text.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                text.push('\n');
                text.push_str(&" ".repeat(indent + 2));
                write(value, indent + 2, text);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                text.push_str(&" ".repeat(indent));
                write(value, indent, text);
            }
            plain => {
                text.push(' ');
                write(plain, indent, text);
            }
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        Value::String(text) if text.chars().any(char::is_control) => {
            serde_json::to_string(text).expect("a text is JSON")
        }
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        other => other.to_string(),
    }
}

/// Whether a text means itself without quotes, as far as it is sure.
fn is_plain(text: &str) -> bool {
    let is_letter =
        |c: char| c.is_ascii_alphanumeric() || "_./=<>,*+()@~^;!$\\\"[]{}'?%&|-: #".contains(c);
    let is_start = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '/' | '.');
    // Options of pip's.
    let starts_well = text.trim_start_matches('-').starts_with(is_start);
    let word = text.to_ascii_lowercase();
    let means_more = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let is_number = text.starts_with('.') && text[1..].starts_with(|c: char| c.is_ascii_digit());
    starts_well
        && !is_number
        && text.chars().all(is_letter)
        && !means_more.contains(&word.as_str())
        && ![".inf", ".nan"].contains(&word.as_str())
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with([':', ' '])
        // Longer ones are folded there, which nobody has to copy.
        && text.len() <= 60
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conda_files_are_written_as_azures_client_writes_them() {
        let conda = json!({"name": "x", "channels": ["conda-forge"],
            "dependencies": ["python=3.10", {"pip": ["--pre", "torch[cpu]==2.1; python_version<'3.12'"]}],
            "variables": {"A": "1", "B": "yes"}, "empty": {}, "none": []});
        // Made with azure-ai-ml's dump_yaml(sort_keys=True).
        let wanted = "channels:\n- conda-forge\ndependencies:\n- python=3.10\n- pip:\n  - --pre\n  \
                      - torch[cpu]==2.1; python_version<'3.12'\nempty: {}\nname: x\nnone: []\nvariables:\n  \
                      A: '1'\n  B: 'yes'\n";
        assert_eq!(yaml(&conda), wanted);
    }

    #[test]
    fn whatever_is_written_is_read_as_the_same() {
        let all = json!({"a": ["x: y", "", " x", "- x", "3.10", "1e5", "~", "null", "#x", "é", "a\nb", "'", "\"",
            "a'b", "{x}", "*x", "x #y", "x:", 3, 1.5, true, null, [["a"], []], {"b": {"c": [1]}}, ".5", "=", "<<"]});
        let read: Value = from_yaml(&yaml(&all)).unwrap();
        assert_eq!(read, all, "{}", yaml(&all));
    }

    #[test]
    fn a_nameless_one_has_the_version_that_azures_client_gives_it() {
        let of = |image: &str, conda: Option<&str>| {
            let (image, conda_file) = (Some(image.to_owned()), conda.map(str::to_owned));
            let properties = AssetProperties { image, conda_file, ..AssetProperties::default() };
            anonymous_version(&Fields::new(), &Settled { properties, hash: None })
        };
        // Both as azure-ai-ml 1.35.2 has them.
        assert_eq!(
            of("ubuntu:22.04", None),
            "8572c0d1256327d102a551a9efb331be20eb33dbb64beae87d71128fc5d457ff"
        );
        assert_eq!(
            of("ubuntu:22.04", Some("dependencies:\n- pip\n")),
            "7a56a0e7d700dedbe11e2f3d2d6d5801982394f44c4522e3eb58629e6aa94e9c"
        );
    }

    #[test]
    fn routes_are_spelt_as_the_server_has_them() {
        let config = json!({"liveness_route": {"port": 80, "path": "/"}});
        assert_eq!(camel(config), json!({"livenessRoute": {"port": 80, "path": "/"}}));
    }
}
