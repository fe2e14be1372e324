//! Turns the job of a file into a request: files are uploaded and references are resolved.

use std::path::Path;

use muster_core::model::{AssetKind, WorkspaceKey};
use muster_wire::asset::{self, AssetResource};
use muster_wire::{AssetRoute, Page, Route};
use serde_json::{Map, Value as Json};

use super::environment::Environment;
use super::{Code, Data, JobDraft};
use crate::client::Client;
use crate::document::reader::{self, Source};
use crate::environment::{self, Described};
use crate::failure::{CliResult, Failure, quoted};
use crate::upload::{self, Includes, Local};

const LATEST: &str = "latest";

/// The request for a job, and what had to be created for it.
pub struct Settled {
    /// The body's `properties`.
    pub properties: Map<String, Json>,
    /// Descriptions of the requests and uploads that a dry run leaves out.
    pub left_out: Vec<String>,
    /// The properties that refer to something that a dry run did not create, so that the server cannot know it.
    pub unmade: Vec<&'static str>,
}

/// With `dry`, nothing is uploaded, and references are those that an upload would result in.
pub async fn settle(
    client: &Client,
    workspace: &WorkspaceKey,
    wanted: JobDraft,
    dry: bool,
) -> CliResult<Settled> {
    let (mut left_out, mut unmade) = (Vec::new(), Vec::new());
    let mut properties = wanted.properties;
    let id = muster_wire::path::workspace_id(workspace);
    if let Some(compute) = properties.get_mut("computeId") {
        let name = compute.as_str().unwrap_or_default();
        if !name.starts_with('/') {
            *compute = format!("{id}/computes/{name}").into();
        }
    }
    // Everything is checked before anything is uploaded, so that missing files are reported at once.
    let code = looked_at_code(wanted.code, &wanted.includes)?;
    let mut data = Vec::new();
    for (name, need) in wanted.data {
        let local = looked_at_data(&name, &need)?;
        data.push((name, need, local));
    }
    if let Some((code, local)) = code {
        if dry && matches!(code, Code::Address(_) | Code::Local { .. }) {
            unmade.push("codeId");
        }
        let id = match (code, local) {
            (Code::Id(id), _) => id,
            (Code::Address(uri), _) if dry => {
                left_out.push(format!("the code at {}", quoted(&uri)));
                asset::id(workspace, AssetKind::Code, &upload::of_text(&uri), "1")
            }
            (Code::Address(uri), _) => upload::code_at(client, workspace, &uri).await?,
            (Code::Asset(name, version), _) => {
                asset::id(workspace, AssetKind::Code, &name, &version)
            }
            (Code::Local { .. }, Some(local)) if dry => {
                left_out.push(format!("the code in {}", local.path().display()));
                let hash = local.content_hash()?;
                asset::id(workspace, AssetKind::Code, &hash, "1")
            }
            (Code::Local { .. }, Some(local)) => upload::code(client, workspace, &local).await?,
            (Code::Local { .. }, None) => unreachable!("it was checked above"),
        };
        properties.insert("codeId".to_owned(), id.into());
    }
    for (name, need, local) in data {
        let uri = match (need, local) {
            (Data::Local { kind, datastore, .. }, Some(local)) => {
                let uri = if dry {
                    left_out.push(format!("inputs.{name} from {}", local.path().display()));
                    let store = datastore.as_deref().unwrap_or("workspaceblobstore");
                    format!("azureml://datastores/{store}/paths/{}", upload::path_of(&local)?)
                } else {
                    let store = datastore.as_deref();
                    upload::to_datastore(client, workspace, &local, store, None).await?.uri()
                };
                match kind.as_str() {
                    "uri_folder" => format!("{uri}/"),
                    _ => uri,
                }
            }
            (Data::Version { is_model, name, version }, _) => {
                asset::id(workspace, kind_of(is_model), &name, &version)
            }
            (Data::Label { is_model, name, label }, _) => {
                labelled(client, workspace, kind_of(is_model), &name, &label).await?
            }
            (Data::Local { .. }, None) => unreachable!("it was checked above"),
        };
        if let Some(input) = properties.get_mut("inputs").and_then(|all| all.get_mut(&name)) {
            input["uri"] = uri.into();
        }
    }
    if let Some(environment) = wanted.environment {
        let before = left_out.len();
        let id = environment_id(client, workspace, environment, dry, &mut left_out).await?;
        if left_out.len() > before {
            unmade.push("environmentId");
        }
        properties.insert("environmentId".to_owned(), id.into());
    }
    Ok(Settled { properties, left_out, unmade })
}

fn kind_of(is_model: bool) -> AssetKind {
    if is_model { AssetKind::Model } else { AssetKind::Data }
}

/// The code, with the files to upload.
fn looked_at_code(
    code: Option<Code>,
    includes: &Includes,
) -> CliResult<Option<(Code, Option<Local>)>> {
    let path = match &code {
        Some(Code::Local { path, .. }) => Some(path.as_path()),
        Some(Code::Address(_) | Code::Id(_) | Code::Asset(..)) => {
            return Ok(code.map(|code| (code, None)));
        }
        None => None,
    };
    if !includes.paths.is_empty() {
        let local = upload::component_code("component", path, includes)?;
        let (path, file) = (includes.base.clone(), String::new());
        return Ok(Some((Code::Local { path, at: (0, 0), file }, Some(local))));
    }
    let Some(Code::Local { path, at, file }) = &code else { return Ok(None) };
    let local = looked_at("code", path, *at, file)?;
    Ok(code.map(|code| (code, Some(local))))
}

fn looked_at_data(name: &str, data: &Data) -> CliResult<Option<Local>> {
    let Data::Local { path, kind, at, file, .. } = data else { return Ok(None) };
    let what = format!("inputs.{name}.path");
    let local = looked_at(&what, path, *at, file)?;
    let wanted = match (kind.as_str(), local.is_folder()) {
        ("uri_file", true) => "a folder, but its type is uri_file; use uri_folder",
        ("uri_folder", false) => "a file, but its type is uri_folder; use uri_file",
        ("mltable", false) => "a file; give the folder with its MLTable file",
        _ => return Ok(Some(local)),
    };
    let source = Source { name: file.clone(), folder: Path::new(".").to_owned() };
    Err(Failure::refused(format!("{}{what} is {wanted}", reader::place(&source, *at))))
}

/// Errors name the place in the file that refers to it.
fn looked_at(what: &str, path: &Path, at: (usize, usize), file: &str) -> CliResult<Local> {
    let source = Source { name: file.to_owned(), folder: Path::new(".").to_owned() };
    let place = reader::place(&source, at);
    let named = format!("{place}{what}");
    if what == "code" { Local::read_code(&named, path) } else { Local::read(&named, path) }
}

/// The latest version, or the one with another label.
async fn labelled(
    client: &Client,
    workspace: &WorkspaceKey,
    kind: AssetKind,
    name: &str,
    label: &str,
) -> CliResult<String> {
    if label != LATEST {
        return Err(Failure::refused(format!("unknown label {}", quoted(label)))
            .hint("use 'latest', or a version: azureml:NAME:VERSION"));
    }
    let route = AssetRoute::AssetVersions { workspace: workspace.clone(), kind, name: name.into() };
    let query = [("$orderBy", "createdtime desc"), ("$top", "1"), ("listViewType", "ActiveOnly")];
    let found: Page<AssetResource> = client.get_with(&Route::Assets(route), &query).await?;
    let newest = found.value.into_iter().next();
    newest.map(|newest| newest.id).ok_or_else(|| {
        Failure::not_found(format!("{} has no versions", quoted(name)))
            .hint("create it first, or use another")
    })
}

async fn environment_id(
    client: &Client,
    workspace: &WorkspaceKey,
    environment: Environment,
    dry: bool,
    left_out: &mut Vec<String>,
) -> CliResult<String> {
    let kind = AssetKind::Environment;
    let described = match environment {
        Environment::Id(id) => return Ok(id),
        Environment::Version { name, version } => {
            return Ok(asset::id(workspace, kind, &name, &version));
        }
        Environment::Label { name, label } => {
            return labelled(client, workspace, kind, &name, &label).await;
        }
        Environment::File { path, at, file } => {
            let source = Source { name: file, folder: Path::new(".").to_owned() };
            let (source, node) = reader::read_tree(&path).map_err(|failure| {
                let place = reader::place(&source, at);
                Failure::refused(format!("{place}environment: {failure}"))
            })?;
            Described::read(&source, "", &node)?
        }
        Environment::Inline(described) => *described,
    };
    let (id, version) = environment::nameless(client, workspace, &described, dry).await?;
    if dry {
        left_out.push(format!("environment {}:{version}", environment::NAMELESS));
    }
    Ok(id)
}
