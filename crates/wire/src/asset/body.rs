//! The content of each kind of asset: read from a request, stored as text, shown in a response.
//!
//! Equal content has equal text, so alternative spellings of clients are converted to a single one here.

use muster_core::model::{Asset, AssetKind, DataKind, WorkspaceKey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AssetLocation, AssetProperties};
use crate::error::ArmError;
use crate::json::Field;
use crate::{JsonText, Unreadable, from_json, to_json};

/// The limit for the name of an image, or of a file next to another.
const NAME_BYTES_MAX: usize = 1_024;
const WORD_BYTES_MAX: usize = 255;
const REFERENCED_URIS_MAX: usize = 1_000;
const DOCKERFILE: &str = "Dockerfile";
/// The keys of a component's specification that may change without making it a different component.
const METADATA: [&str; 5] = ["display_name", "description", "tags", "$schema", "_source"];
/// Keys that clients copy into the specification from an earlier response: its creator and its location.
const COPIED: [&str; 2] = ["id", "creation_context"];
/// Azure's name for a model of no special type.
const CUSTOM_MODEL: &str = "custom_model";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    Code(CodeBody),
    Environment(EnvironmentBody),
    Data(DataBody),
    Model(ModelBody),
    Component(ComponentBody),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CodeBody {
    pub code_uri: String,
}

/// An image, or the files that one is built from, or packages alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// YAML or JSON, as the client wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conda_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inference_config: Option<JsonText>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Build {
    pub context_uri: String,
    pub dockerfile_path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataBody {
    pub data_uri: String,
    pub data_type: DataType,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub referenced_uris: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataType {
    UriFile,
    UriFolder,
    #[serde(rename = "mltable")]
    MlTable,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelBody {
    pub model_uri: String,
    pub model_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavors: Option<JsonText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
}

/// The specification without the keys in `METADATA`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentBody {
    pub spec: JsonText,
}

impl Body {
    /// The body of a stored version.
    pub fn of(asset: &Asset) -> Result<Body, Unreadable> {
        Body::parse_text(asset.kind, &asset.about.body)
    }

    /// The body of a version from its stored text.
    pub fn parse_text(kind: AssetKind, text: &str) -> Result<Body, Unreadable> {
        let text = text.as_bytes();
        Ok(match kind {
            AssetKind::Code => Body::Code(from_json(text)?),
            AssetKind::Environment => Body::Environment(from_json(text)?),
            AssetKind::Data => Body::Data(from_json(text)?),
            AssetKind::Model => Body::Model(from_json(text)?),
            AssetKind::Component => Body::Component(ComponentBody { spec: from_json(text)? }),
        })
    }

    pub fn to_text(&self) -> Box<str> {
        match self {
            Body::Code(body) => to_json(body),
            Body::Environment(body) => to_json(body),
            Body::Data(body) => to_json(body),
            Body::Model(body) => to_json(body),
            Body::Component(body) => to_json(&body.spec),
        }
        .into()
    }

    /// Also returns the part that may change later.
    pub(super) fn parse(
        kind: AssetKind,
        key: &WorkspaceKey,
        properties: &Field<'_>,
    ) -> Result<(Body, Option<Box<str>>), ArmError> {
        Ok(match kind {
            AssetKind::Code => {
                let code_uri = place(key, &properties.get("codeUri")?)?;
                (Body::Code(CodeBody { code_uri }), None)
            }
            AssetKind::Environment => (Body::Environment(environment(key, properties)?), None),
            AssetKind::Data => (Body::Data(data(key, properties)?), None),
            AssetKind::Model => {
                let stage = word(&properties.get("stage")?)?;
                let metadata = stage.map(|stage| Value::from(stage).to_string().into());
                (Body::Model(model(key, properties)?), metadata)
            }
            AssetKind::Component => component(&properties.get("componentSpec")?)?,
        })
    }

    pub(super) fn show(self, metadata: Option<&str>, properties: &mut AssetProperties) {
        match self {
            Body::Code(body) => properties.code_uri = Some(body.code_uri),
            Body::Environment(body) => {
                properties.environment_type = Some("UserCreated".to_owned());
                properties.os_type = Some("Linux".to_owned());
                properties.image = body.image;
                properties.conda_file = body.conda_file;
                properties.build = body.build;
                properties.inference_config = body.inference_config;
            }
            Body::Data(body) => {
                properties.data_uri = Some(body.data_uri);
                properties.data_type = Some(body.data_type);
                properties.referenced_uris =
                    Some(body.referenced_uris).filter(|uris| !uris.is_empty());
            }
            Body::Model(body) => {
                properties.model_uri = Some(body.model_uri);
                properties.model_type = Some(body.model_type);
                // Clients access it without checking that it is present.
                properties.flavors = Some(body.flavors.unwrap_or_else(JsonText::empty_object));
                properties.job_name = body.job_name;
                properties.stage =
                    metadata.and_then(|metadata| from_json(metadata.as_bytes()).ok());
            }
            Body::Component(body) => properties.component_spec = Some(body.whole(metadata)),
        }
    }
}

impl ComponentBody {
    /// Adds the name and the version, unless the specification already has them.
    pub(super) fn kept_as(self, name: &str, version: &str) -> ComponentBody {
        let Ok(Value::Object(mut spec)) = serde_json::from_str(self.spec.as_str()) else {
            return self;
        };
        for (key, value) in [("name", name), ("version", version)] {
            let said = spec.entry(key).or_insert(Value::Null);
            if said.is_null() {
                *said = value.into();
            }
        }
        JsonText::new(&Value::Object(spec).to_string()).map_or(self, |spec| ComponentBody { spec })
    }

    /// The specification as it was submitted.
    pub fn whole(self, metadata: Option<&str>) -> JsonText {
        let object = |text: &str| match serde_json::from_str(text) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        };
        let Some(metadata) = metadata else { return self.spec };
        let mut spec = object(self.spec.as_str());
        spec.extend(object(metadata));
        JsonText::new(&Value::Object(spec).to_string()).unwrap_or(self.spec)
    }
}

/// The asset that is registered from an output of a job. `uri` is spelt as [`AssetLocation::to_uri`] does.
pub fn of_output(kind: DataKind, uri: String, job: &str) -> Body {
    let data = |data_type| {
        let data_uri = uri.clone();
        Body::Data(DataBody { data_uri, data_type, referenced_uris: Vec::new() })
    };
    match kind {
        DataKind::UriFile => data(DataType::UriFile),
        DataKind::UriFolder => data(DataType::UriFolder),
        DataKind::MlTable => data(DataType::MlTable),
        DataKind::CustomModel | DataKind::MlflowModel | DataKind::TritonModel => {
            Body::Model(ModelBody {
                model_uri: uri.clone(),
                model_type: crate::job::kind_text(kind).to_owned(),
                flavors: None,
                job_name: Some(job.to_owned()),
            })
        }
    }
}

/// The location of the files, in the spelling that is stored.
fn place(key: &WorkspaceKey, field: &Field<'_>) -> Result<String, ArmError> {
    let text = field.string()?.filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| field.missing("give the location of its files"))?;
    let place = AssetLocation::parse(text, key);
    let place = place.map_err(|why| field.invalid(format!("{}: {why}", field.path)))?;
    Ok(place.to_uri(key))
}

/// A short text on one line, if it is present and not empty.
fn word(field: &Field<'_>) -> Result<Option<String>, ArmError> {
    let Some(text) = field.string()?.filter(|text| !text.is_empty()) else { return Ok(None) };
    if text.len() > WORD_BYTES_MAX || text.chars().any(char::is_control) {
        let message = format!(
            "{} has {} bytes; give a single line of at most {WORD_BYTES_MAX} bytes",
            field.path,
            text.len()
        );
        return Err(field.invalid(message));
    }
    Ok(Some(text.to_owned()))
}

/// An object that is not empty.
fn object(field: &Field<'_>) -> Result<Option<JsonText>, ArmError> {
    field.entries()?;
    let filled = field.value().filter(|_| field.is_filled());
    Ok(filled.and_then(|value| JsonText::new(&value.to_string())))
}

fn environment(key: &WorkspaceKey, properties: &Field<'_>) -> Result<EnvironmentBody, ArmError> {
    let system = properties.get("osType")?;
    system.choice(&[("Linux", ())])?;
    let rebuild = properties.only_checked().get("autoRebuild")?;
    rebuild.choice(&[("Disabled", ()), ("OnBaseImageUpdate", ())])?;
    let at = properties.get("image")?;
    let image = at.string()?.filter(|image| !image.is_empty());
    if let Some(image) = image
        && (image.len() > NAME_BYTES_MAX
            || image.chars().any(|c| c.is_control() || c.is_whitespace()))
    {
        let message = format!(
            "{} is not the name of an image; give 1 to {NAME_BYTES_MAX} bytes without spaces",
            at.path
        );
        return Err(at.invalid(message));
    }
    let conda = properties.get("condaFile")?;
    let conda_file = conda.string()?.filter(|text| !text.is_empty());
    let at = properties.get("build")?;
    let build = match at.is_filled() {
        false => None,
        true => Some(Build {
            context_uri: place(key, &at.get("contextUri")?)?,
            dockerfile_path: dockerfile(&at.get("dockerfilePath")?)?,
        }),
    };
    if build.is_some() && image.is_some() {
        let message = "an environment has either an image or a build context, not both; leave one of them out";
        return Err(at.invalid(message.to_owned()));
    }
    if build.is_none() && image.is_none() && conda_file.is_none() {
        let message =
            "an environment needs an image, a build context or a conda file; give one of them";
        return Err(properties.invalid(message.to_owned()));
    }
    Ok(EnvironmentBody {
        image: image.map(str::to_owned),
        conda_file: conda_file.map(str::to_owned),
        build,
        inference_config: object(&properties.get("inferenceConfig")?)?,
    })
}

/// The path of the Dockerfile, which must be inside the context.
fn dockerfile(field: &Field<'_>) -> Result<String, ArmError> {
    let path = word(field)?.unwrap_or_else(|| DOCKERFILE.to_owned());
    let path = path.strip_prefix("./").unwrap_or(&path);
    match is_inside(path) {
        true => Ok(path.to_owned()),
        false => {
            let message = format!("{} leads out of the context; give a path inside it", field.path);
            Err(field.invalid(message))
        }
    }
}

fn data(key: &WorkspaceKey, properties: &Field<'_>) -> Result<DataBody, ArmError> {
    let types = [
        ("uri_file", DataType::UriFile),
        ("uri_folder", DataType::UriFolder),
        ("mltable", DataType::MlTable),
    ];
    let field = properties.get("dataType")?;
    let data_type = field.choice(&types)?;
    let data_type =
        data_type.ok_or_else(|| field.missing("give uri_file, uri_folder or mltable"))?;
    let data_uri = place(key, &properties.get("dataUri")?)?;
    let field = properties.get("referencedUris")?;
    let referenced = field.items()?.unwrap_or_default();
    if referenced.len() > REFERENCED_URIS_MAX {
        let message = format!(
            "{} has {} entries; at most {REFERENCED_URIS_MAX} are allowed",
            field.path,
            referenced.len()
        );
        return Err(field.invalid(message));
    }
    let referenced_uris = referenced.iter().map(|field| referenced_uri(key, field));
    let referenced_uris = referenced_uris.collect::<Result<_, _>>()?;
    Ok(DataBody { data_uri, data_type, referenced_uris })
}

/// A file that a table references: a path relative to the table, or any location.
fn referenced_uri(key: &WorkspaceKey, field: &Field<'_>) -> Result<String, ArmError> {
    let text = field.string()?.unwrap_or("");
    let is_short = text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control);
    match is_short && is_inside(text.strip_prefix("./").unwrap_or(text)) {
        true => Ok(text.to_owned()),
        false => place(key, field),
    }
}

/// Whether a path stays inside the folder in which it starts. A URL is not such a path.
fn is_inside(path: &str) -> bool {
    let is_part = |part: &str| !matches!(part, "" | "." | ".." | "~");
    !path.contains([':', '\\', '%']) && path.split('/').all(is_part)
}

fn model(key: &WorkspaceKey, properties: &Field<'_>) -> Result<ModelBody, ArmError> {
    let field = properties.get("modelType")?;
    let model_type = word(&field)?;
    let known = [CUSTOM_MODEL, "mlflow_model", "triton_model"];
    let plain = |text: &str| text.replace(['_', '-'], "").to_ascii_lowercase();
    let model_type = match model_type {
        None => CUSTOM_MODEL.to_owned(),
        Some(text) => match known.into_iter().find(|known| plain(known) == plain(&text)) {
            Some(known) => known.to_owned(),
            None => return Err(field.unknown(&text, &known)),
        },
    };
    Ok(ModelBody {
        model_uri: place(key, &properties.get("modelUri")?)?,
        model_type,
        flavors: object(&properties.get("flavors")?)?,
        job_name: word(&properties.get("jobName")?)?,
    })
}

fn component(field: &Field<'_>) -> Result<(Body, Option<Box<str>>), ArmError> {
    field.entries()?;
    let Some(Value::Object(whole)) = field.value().filter(|_| field.is_filled()) else {
        return Err(field.missing("give the specification of the component"));
    };
    // The type decides what the component does, so it must be a plain word.
    word(&field.get("type")?)?;
    let (metadata, spec): (Map<_, _>, Map<_, _>) = whole
        .iter()
        .filter(|(key, _)| !COPIED.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .partition(|(key, _)| METADATA.contains(&key.as_str()));
    let spec = JsonText::new(&Value::Object(spec).to_string());
    let spec = spec.ok_or_else(|| field.missing("give the specification of the component"))?;
    let metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
    let metadata = metadata.map(|metadata| Value::Object(metadata).to_string().into());
    Ok((Body::Component(ComponentBody { spec }), metadata))
}
