//! Versioned assets: code, environments, data, models and components. All kinds share one envelope; the content of each
//! kind is in [`Body`], the location of its files in [`AssetLocation`], and the ways to refer to it in [`Reference`].

mod body;
mod location;
mod reference;
mod upload;
mod web;

use std::collections::BTreeMap;

pub use body::{
    Body, Build, CodeBody, ComponentBody, DataBody, DataType, EnvironmentBody, ModelBody, of_output,
};
pub use location::{AssetLocation, BadLocation};
use muster_core::limits::ASSET_BODY_BYTES_MAX;
use muster_core::model::{
    Asset, AssetContainer, AssetKind, AssetSpec, Caller, ContainerSpec, WorkspaceKey,
};
use muster_core::time::Wall;
pub use reference::{BadReference, Reference, Which, is_curated, is_default_version};
use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use upload::{BlobReference, PendingUpload, SasCredential, pending};
pub use web::{StorageAddress, container_of, source_elsewhere};

use crate::error::ArmError;
use crate::json::{Field, Reads, parse_object, unknown};
use crate::notes::{self, NOTE};
use crate::path::{Query, asset_word, workspace_id};
use crate::{JsonText, SystemData, to_json};

/// The body of an asset, and room for its description, tags and properties.
pub const BODY_BYTES_MAX: usize = ASSET_BODY_BYTES_MAX + 128 * 1024;
const CONTAINER_BYTES_MAX: usize = 128 * 1024;
/// A digest in hex, with room for a longer algorithm.
const HASH_BYTES_MAX: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssetResource {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub resource_type: String,
    pub properties: AssetProperties,
    #[serde(default)]
    pub system_data: Option<SystemData>,
}

/// The properties that every kind has, and those of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AssetProperties {
    pub description: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub properties: Option<JsonText>,
    pub is_anonymous: bool,
    pub is_archived: bool,
    pub provisioning_state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conda_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inference_config: Option<JsonText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_type: Option<DataType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub referenced_uris: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavors: Option<JsonText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component_spec: Option<JsonText>,
}

/// The body of a request for a version or for a name: the properties that the client was shown, with its changes.
#[derive(Serialize)]
struct Sent<'a, T> {
    properties: &'a T,
}

/// The body of a request for a version with these properties.
pub fn request_json(properties: &AssetProperties) -> String {
    to_json(&Sent { properties })
}

/// The body of a request for a name with these properties.
pub fn container_request_json(properties: &ContainerProperties) -> String {
    to_json(&Sent { properties })
}

/// The id of a version, in the spelling that clients compare.
pub fn id(key: &WorkspaceKey, kind: AssetKind, name: &str, version: &str) -> String {
    format!("{}/versions/{version}", container_id(key, kind, name))
}

fn container_id(key: &WorkspaceKey, kind: AssetKind, name: &str) -> String {
    format!("{}/{}/{name}", workspace_id(key), asset_word(kind))
}

fn type_of(kind: AssetKind) -> String {
    format!("Microsoft.MachineLearningServices/workspaces/{}", asset_word(kind))
}

/// Fails for a record that was not written by this version of Muster.
pub fn resource(key: &WorkspaceKey, asset: &Asset) -> Result<AssetResource, ArmError> {
    let about = &asset.about;
    let mut properties = AssetProperties {
        description: about.description.as_deref().map(str::to_owned),
        tags: about.tags.clone(),
        properties: Some(bag(about.properties.as_deref())),
        is_anonymous: about.is_anonymous,
        is_archived: asset.is_archived,
        provisioning_state: Some("Succeeded".to_owned()),
        ..AssetProperties::default()
    };
    let body = Body::of(asset).map_err(|_| ArmError::internal("asset-body"))?;
    // Older versions of Muster stored some components without their own version.
    let body = match body {
        Body::Component(body) => Body::Component(body.kept_as(&asset.name, &asset.version)),
        other => other,
    };
    body.show(about.metadata.as_deref(), &mut properties);
    Ok(AssetResource {
        id: id(key, asset.kind, &asset.name, &asset.version),
        name: asset.version.to_string(),
        resource_type: format!("{}/versions", type_of(asset.kind)),
        properties,
        system_data: Some(system_data(
            (asset.created_at, &asset.created_by),
            (asset.changed_at, &asset.changed_by),
        )),
    })
}

fn system_data(created: (Wall, &Caller), changed: (Wall, &Caller)) -> SystemData {
    SystemData::new(created.0, Some(&created.1.name), changed.0).modified_by(&changed.1.name)
}

fn bag(text: Option<&str>) -> JsonText {
    text.and_then(JsonText::new).unwrap_or_else(JsonText::empty_object)
}

/// A version as requested by a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRequest {
    pub spec: AssetSpec,
    pub is_archived: Option<bool>,
}

impl VersionRequest {
    /// Adds the name and the version under which it is stored to a specification that contains them: clients read those
    /// of a component from its specification, and some omit them there.
    #[must_use]
    pub fn kept_as(mut self, kind: AssetKind, name: &str, version: &str) -> VersionRequest {
        if let Ok(Body::Component(body)) = Body::parse_text(kind, &self.spec.body) {
            self.spec.body = Body::Component(body.kept_as(name, version)).to_text();
        }
        self
    }
}

/// Properties that clients were shown and send back.
const HARMLESS: [&str; 8] = [
    "id",
    "name",
    "type",
    "systemData",
    "properties.provisioningState",
    "properties.environmentType",
    "properties.latestVersion",
    "properties.nextVersion",
];

/// `key` is the workspace of the asset: everything that the asset refers to must be in it.
pub fn parse_request(
    kind: AssetKind,
    key: &WorkspaceKey,
    body: &[u8],
) -> Result<VersionRequest, ArmError> {
    let value = parse_object(body, BODY_BYTES_MAX)?;
    let reads = Reads::default();
    let properties = Field::noted(&value, &reads).get("properties")?;
    let written = parse_written(&properties)?;
    let field = properties.get("properties")?.get("hash_sha256")?;
    let hash = match kind {
        AssetKind::Code => field.text()?.filter(|hash| !hash.is_empty()),
        _ => None,
    };
    if hash.as_ref().is_some_and(|hash| hash.len() > HASH_BYTES_MAX) {
        return Err(field.invalid(format!("a hash has at most {HASH_BYTES_MAX} bytes")));
    }
    let (body, metadata) = Body::parse(kind, key, &properties)?;
    let is_anonymous = properties.get("isAnonymous")?.boolean()?.unwrap_or(false);
    let is_archived = properties.get("isArchived")?.boolean()?;
    let note = notes::without_effect(&reads.unread(&value, &HARMLESS));
    Ok(VersionRequest {
        spec: AssetSpec {
            description: written.description,
            tags: written.tags,
            properties: with_note(written.properties, note),
            is_anonymous,
            hash,
            body: body.to_text(),
            metadata,
        },
        is_archived,
    })
}

/// The property bag, with the note in it if there is one.
fn with_note(bag: Option<Box<str>>, note: Option<String>) -> Option<Box<str>> {
    let Some(note) = note else { return bag };
    let mut map: BTreeMap<String, Value> =
        bag.and_then(|bag| serde_json::from_str(&bag).ok()).unwrap_or_default();
    map.insert(NOTE.to_owned(), note.into());
    Some(to_json(&map).into())
}

/// The description, tags and properties of a version or of a name.
fn parse_written(properties: &Field<'_>) -> Result<ContainerSpec, ArmError> {
    let bag = properties.get("properties")?;
    // It must be an object before it is stored as text.
    bag.entries()?;
    Ok(ContainerSpec {
        description: properties.get("description")?.text()?,
        tags: properties.get("tags")?.string_map()?.unwrap_or_default(),
        properties: bag.value().map(|bag| without_note(bag).into()),
    })
}

/// The bag without the note that was shown in it.
fn without_note(bag: &Value) -> String {
    let mut bag = bag.clone();
    if let Value::Object(map) = &mut bag {
        map.remove(NOTE);
    }
    bag.to_string()
}

/// The description, tags and properties of a name, and whether it is archived.
pub fn parse_container(body: &[u8]) -> Result<(ContainerSpec, Option<bool>), ArmError> {
    let value = parse_object(body, CONTAINER_BYTES_MAX)?;
    let properties = Field::root(&value).get("properties")?;
    Ok((parse_written(&properties)?, properties.get("isArchived")?.boolean()?))
}

/// A name with all its versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResource {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub resource_type: String,
    pub properties: ContainerProperties,
    #[serde(default)]
    pub system_data: Option<SystemData>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerProperties {
    pub description: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub properties: Option<JsonText>,
    pub is_archived: bool,
    pub latest_version: Option<String>,
    pub next_version: Option<String>,
    pub provisioning_state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_type: Option<DataType>,
}

/// `latest` is the newest version that is not archived.
pub fn container_resource(
    key: &WorkspaceKey,
    container: &AssetContainer,
    latest: Option<&Asset>,
) -> ContainerResource {
    let data_type = latest.and_then(|latest| match Body::of(latest) {
        Ok(Body::Data(data)) => Some(data.data_type),
        _ => None,
    });
    ContainerResource {
        id: container_id(key, container.kind, &container.name),
        name: container.name.to_string(),
        resource_type: type_of(container.kind),
        properties: ContainerProperties {
            description: container.about.description.as_deref().map(str::to_owned),
            tags: container.about.tags.clone(),
            properties: Some(bag(container.about.properties.as_deref())),
            is_archived: container.is_archived,
            latest_version: latest.map(|latest| latest.version.to_string()),
            next_version: Some(container.next_version().to_string()),
            provisioning_state: Some("Succeeded".to_owned()),
            data_type,
        },
        system_data: Some(system_data(
            (container.created_at, &container.created_by),
            (container.changed_at, &container.changed_by),
        )),
    }
}

/// Which assets a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    Active,
    Archived,
    All,
}

impl View {
    /// The value of `listViewType`.
    pub fn parse(query: &Query) -> Result<View, ArmError> {
        let views =
            [("ActiveOnly", View::Active), ("ArchivedOnly", View::Archived), ("All", View::All)];
        let Some(text) = query.get("listViewType").filter(|text| !text.is_empty()) else {
            return Ok(View::Active);
        };
        let found = views.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        found
            .map(|(_, view)| *view)
            .ok_or_else(|| unknown("listViewType", text, &["ActiveOnly", "ArchivedOnly", "All"]))
    }
}

/// Whether `$orderBy` asks for the oldest version first.
pub fn is_oldest_first(query: &Query) -> Result<bool, ArmError> {
    let Some(text) = query.get("$orderBy").filter(|text| !text.trim().is_empty()) else {
        return Ok(false);
    };
    let words: Vec<String> = text.split_whitespace().map(str::to_ascii_lowercase).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["createdtime" | "createdat", "desc"] => Ok(false),
        ["createdtime" | "createdat"] | ["createdtime" | "createdat", "asc"] => Ok(true),
        _ => Err(unknown("$orderBy", text, &["createdtime desc", "createdtime asc"])),
    }
}

#[cfg(test)]
mod tests;
