//! Builds the request from the user's document: each kind has its own properties.

use std::path::{Path, PathBuf};

use muster_core::model::{AssetKind, WorkspaceKey};
use muster_wire::JsonText;
use muster_wire::asset::{AssetProperties, DataType};
use muster_wire::yaml::tree::{self, Value as Node};
use serde_json::{Map, Value, json};

use super::{component, environment, files, missing};
use crate::client::Client;
use crate::document::{Fields, text, texts};
use crate::failure::{CliResult, Failure, brief, quoted};
use crate::upload::Local;

/// Where a document comes from, and the server that resolves its references.
pub struct DraftContext<'a> {
    pub client: &'a Client,
    pub workspace: &'a WorkspaceKey,
    /// The folder that its paths are relative to.
    pub base: PathBuf,
    /// Whether nothing is to be uploaded or created.
    pub is_dry: bool,
    /// Whether the type of data is not validated.
    pub skips_validation: bool,
}

/// The properties of the version that the document describes, with its references resolved: files are uploaded, and
/// inline assets are created.
pub async fn properties(
    context: &DraftContext<'_>,
    kind: AssetKind,
    document: &Fields,
) -> CliResult<AssetProperties> {
    let about = AssetProperties {
        description: text(document, "description"),
        tags: texts(document, "tags"),
        ..AssetProperties::default()
    };
    Ok(match kind {
        AssetKind::Environment => {
            let of = environment::settled(context, document).await?;
            AssetProperties { description: about.description, tags: about.tags, ..of }
        }
        AssetKind::Data => data(context, document, about).await?,
        AssetKind::Model => model(context, document, about).await?,
        AssetKind::Component => {
            let spec = component::settled(context, document).await?;
            let spec = JsonText::new(&Value::Object(spec).to_string());
            let properties = document.get("properties").map(Value::to_string);
            let properties = properties.and_then(|properties| JsonText::new(&properties));
            AssetProperties { component_spec: spec, properties, ..about }
        }
        AssetKind::Code => return Err(Failure::error("code cannot be created from a file")),
    })
}

async fn data(
    context: &DraftContext<'_>,
    document: &Fields,
    about: AssetProperties,
) -> CliResult<AssetProperties> {
    let word = text(document, "type").unwrap_or_else(|| "uri_folder".to_owned());
    let data_type = match word.as_str() {
        "uri_file" => DataType::UriFile,
        "uri_folder" => DataType::UriFolder,
        "mltable" => DataType::MlTable,
        other => {
            let words = format!("type is {}; use uri_file, uri_folder or mltable", quoted(other));
            return Err(Failure::refused(words));
        }
    };
    let path = path(document)?;
    let local = files::local("path", &path, &context.base)?;
    let referenced_uris = match &local {
        Some(local) => {
            check_type(&path, local, data_type)?;
            let is_table = data_type == DataType::MlTable && !context.skips_validation;
            is_table.then(|| referenced(local.path())).transpose()?
        }
        None => None,
    };
    let placed =
        files::place(context, &path, local.as_ref(), text(document, "datastore").as_deref())
            .await?;
    let (data_uri, data_type) = (Some(placed), Some(data_type));
    Ok(AssetProperties { data_uri, data_type, referenced_uris, ..about })
}

async fn model(
    context: &DraftContext<'_>,
    document: &Fields,
    about: AssetProperties,
) -> CliResult<AssetProperties> {
    let path = path(document)?;
    let local = files::local("path", &path, &context.base)?;
    let placed =
        files::place(context, &path, local.as_ref(), text(document, "datastore").as_deref())
            .await?;
    let flavors = match document.get("flavors").filter(|flavors| !flavors.is_null()) {
        None => None,
        Some(Value::Object(all)) => {
            let wrapped = |(name, data): (&String, &Value)| (name.clone(), json!({ "data": data }));
            let all: Map<_, _> = all.iter().map(wrapped).collect();
            JsonText::new(&Value::Object(all).to_string())
        }
        Some(_) => {
            return Err(Failure::refused("flavors is not a mapping; give names with fields"));
        }
    };
    let properties =
        serde_json::to_string(&texts(document, "properties")).expect("texts under names are JSON");
    Ok(AssetProperties {
        model_uri: Some(placed),
        model_type: text(document, "type"),
        stage: text(document, "stage"),
        flavors,
        properties: JsonText::new(&properties),
        ..about
    })
}

fn path(document: &Fields) -> CliResult<String> {
    text(document, "path").ok_or_else(|| {
        missing("path", "give --path, or path in the file: a local path, azureml://… or https://…")
    })
}

/// Checks that a folder is not given as a single file, or the other way round.
fn check_type(path: &str, local: &Local, kind: DataType) -> CliResult {
    let shown = quoted(path);
    match (kind, local.is_folder()) {
        (DataType::UriFile, true) => Err(Failure::refused(format!(
            "{shown} is a folder, but the type is uri_file; give a file, or use uri_folder"
        ))),
        (DataType::UriFolder | DataType::MlTable, false) => Err(Failure::refused(format!(
            "{shown} is a file, but the type is a folder; use uri_file, or give a folder"
        ))),
        _ => Ok(()),
    }
}

/// The other paths that a table refers to.
fn referenced(folder: &Path) -> CliResult<Vec<String>> {
    const BYTES_MAX: u64 = 1 << 20;
    let file = folder.join("MLTable");
    let shown = quoted(&file.display().to_string());
    let text = files::read_text(&file, BYTES_MAX).map_err(|why| {
        Failure::refused(why)
            .hint("a table is a folder with an MLTable file; give one, or add --skip-validation")
    })?;
    let no_table = |(line, column): (usize, usize), words: &str| {
        Failure::refused(format!(
            "{shown}, line {line}, column {column} is not a valid table: {words}"
        ))
    };
    let table = tree::parse(&text).map_err(|why| no_table(why.place, &brief(&why.words)))?;
    let paths = match table.get("paths").map(|paths| (paths.place, &paths.value)) {
        None | Some((_, Node::Null)) => return Ok(Vec::new()),
        Some((_, Node::List(paths))) => paths,
        Some((place, _)) => return Err(no_table(place, "paths is not a list")),
    };
    let named = |path: &tree::Node| {
        ["pattern", "file", "folder"].iter().find_map(|kind| path.get(kind)?.as_python())
    };
    Ok(paths.iter().filter_map(named).collect())
}
