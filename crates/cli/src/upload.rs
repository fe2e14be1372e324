//! Uploads local files and folders to the storage of a workspace, and downloads them. Paths and metadata are exactly
//! those of azure-ai-ml, so that neither client uploads again what the other has uploaded.

mod fetch;
mod hash;
mod includes;
mod local;
mod send;
mod zip;

pub use fetch::download;
pub use hash::of_text;
pub use includes::{Includes, component_code};
pub use local::{Local, Unwanted, linked, read_ignore};

use std::hash::{BuildHasher as _, RandomState};

use muster_core::model::{AssetKind, DEFAULT_DATASTORE, WorkspaceKey};
use muster_wire::asset::{AssetResource, PendingUpload};
use muster_wire::datastore::{DatastoreResource, Secrets};
use muster_wire::{AssetRoute, Page, Route, StorageRoute};
use serde_json::json;

use crate::client::{Client, Container};
use crate::failure::{CliResult, Failure, quoted};

const FOLDER: &str = "LocalUpload";
const STATUS: (&str, &str) = ("upload_status", "completed");

/// An upload in storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uploaded {
    pub datastore: String,
    /// The path in the datastore's container, without a slash at its end.
    pub path: String,
    /// The address of the container, without a signature.
    pub container_url: String,
    /// The name and version that were recorded with the upload; those of the first upload, if it existed already.
    pub name: String,
    pub version: String,
    pub was_there: bool,
}

impl Uploaded {
    /// `azureml://datastores/NAME/paths/PATH`.
    pub fn uri(&self) -> String {
        format!("azureml://datastores/{}/paths/{}", self.datastore, self.path)
    }

    /// The same as a web address, joined as azure-ai-ml does it: the account is lost, but the server finds it anyway.
    pub fn url(&self) -> String {
        format!("{}/{}", without_account(&self.container_url), self.path)
    }
}

fn without_account(url: &str) -> String {
    let mut parts = url.splitn(5, '/');
    match (parts.next(), parts.nth(1), parts.next(), parts.next()) {
        (Some(scheme), Some(host), Some(_), Some(path)) => format!("{scheme}//{host}/{path}"),
        _ => url.to_owned(),
    }
}

/// The path of an upload, without uploading it.
pub fn path_of(local: &Local) -> CliResult<String> {
    Ok(format!("{FOLDER}/{}/{}", local.object_hash()?, local.name()))
}

/// Uploads the files, unless they exist already. `noted` is the name and version of the asset, if there is one.
pub async fn to_datastore(
    client: &Client,
    workspace: &WorkspaceKey,
    local: &Local,
    datastore: Option<&str>,
    noted: Option<(&str, &str)>,
) -> CliResult<Uploaded> {
    let (datastore, container) = open(client, workspace, datastore).await?;
    let path = path_of(local)?;
    let top = path.strip_suffix(local.name()).unwrap_or(&path);
    let first = format!("{top}{}", local.target(&local.files()[0]));
    let known = container.metadata(&first).await?.unwrap_or_default();
    let made_up = (uuid(), uuid());
    let (name, version) = noted.unwrap_or((&made_up.0, &made_up.1));
    let was_there = known.get(STATUS.0).is_some_and(|status| status == STATUS.1);
    let said = |key: &str, new: &str| match known.get(key).filter(|_| was_there) {
        Some(known) => known.clone(),
        None => new.to_owned(),
    };
    if !was_there {
        send::all(&container, local, top).await?;
        container.note(&first, &[STATUS, ("name", name), ("version", version)]).await?;
    }
    Ok(Uploaded {
        datastore,
        container_url: container.url().to_owned(),
        name: said("name", name),
        version: said("version", version),
        path,
        was_there,
    })
}

/// The id of a code asset with these files: an existing one, or a new one.
pub async fn code(client: &Client, workspace: &WorkspaceKey, local: &Local) -> CliResult<String> {
    let hash = local.content_hash()?;
    let (workspace, kind, name) = (workspace.clone(), AssetKind::Code, uuid());
    let versions = AssetRoute::AssetVersions {
        workspace: workspace.clone(),
        kind,
        name: name.as_str().into(),
    };
    let query = [("hash", hash.as_str()), ("hashVersion", hash::CONTENT_VERSION)];
    let known: Page<AssetResource> = client.get_with(&Route::Assets(versions), &query).await?;
    if let Some(known) = known.value.into_iter().next() {
        return Ok(known.id);
    }
    let (name, version): (Box<str>, Box<str>) = (name.into(), "1".into());
    let place = AssetRoute::AssetUpload {
        workspace: workspace.clone(),
        kind,
        name: name.clone(),
        version: version.clone(),
    };
    let wanted = json!({ "pendingUploadType": "TemporaryBlobReference" }).to_string();
    let place: PendingUpload = client.post_body(&Route::Assets(place), wanted).await?.document()?;
    let place = place.blob_reference_for_consumption;
    let sas = place.credential.sas_uri.split_once('?').map_or("", |(_, sas)| sas).to_owned();
    send::all(&client.container(&place.blob_uri, &sas), local, "").await?;
    let body = json!({ "properties": {
        "codeUri": format!("{}/{}", place.blob_uri, local.name()),
        "isAnonymous": true,
        "isArchived": false,
        "properties": { "hash_sha256": hash, "hash_version": hash::CONTENT_VERSION },
    }});
    let route = Route::Assets(AssetRoute::AssetVersion { workspace, kind, name, version });
    let made: AssetResource = client.put(&route, body.to_string()).await?.document()?;
    Ok(made.id)
}

/// The id of a new code asset with files at another address.
pub async fn code_at(client: &Client, workspace: &WorkspaceKey, uri: &str) -> CliResult<String> {
    let (workspace, kind) = (workspace.clone(), AssetKind::Code);
    let (name, version) = (uuid().into(), "1".into());
    let route = Route::Assets(AssetRoute::AssetVersion { workspace, kind, name, version });
    let about = json!({ "codeUri": uri, "isAnonymous": true, "isArchived": false });
    let body = json!({ "properties": about }).to_string();
    let made: AssetResource = client.put(&route, body).await?.document()?;
    Ok(made.id)
}

/// A datastore's container, with credentials.
pub async fn open(
    client: &Client,
    workspace: &WorkspaceKey,
    datastore: Option<&str>,
) -> CliResult<(String, Container)> {
    let name: Box<str> = datastore.unwrap_or(DEFAULT_DATASTORE).into();
    let workspace = workspace.clone();
    let route = StorageRoute::Datastore { workspace: workspace.clone(), name: name.clone() };
    let found: DatastoreResource = client.get(&Route::Storage(route)).await?;
    let route = Route::Storage(StorageRoute::DatastoreSecrets { workspace, name });
    let wanted = json!({ "expirableSecret": true, "expireAfterHours": 1 }).to_string();
    let secrets: Secrets = client.post_body(&route, wanted).await?.document()?;
    let about = found.properties;
    let (Some(account), Some(container), Secrets::Sas { sas_token }) =
        (about.account_name, about.container_name, secrets)
    else {
        return Err(elsewhere(&found.name));
    };
    // The account of a datastore on this server contains its address; other accounts are a plain name.
    if !account.contains('/') {
        return Err(elsewhere(&found.name));
    }
    let suffix = about.endpoint.unwrap_or_default();
    let url = format!("https://{account}.blob.{suffix}/{container}");
    Ok((found.name, client.container(&url, &sas_token)))
}

fn elsewhere(name: &str) -> Failure {
    Failure::refused(format!("datastore {} is not on this server", quoted(name)))
        .hint("upload the files there with its own tools, and give their address")
}

/// A unique name.
pub fn uuid() -> String {
    // The hasher's keys come from the operating system's random numbers, which is random enough here.
    let random = || RandomState::new().hash_one("uuid");
    let bits = (u128::from(random()) << 64) | u128::from(random());
    // Version 4, variant 1.
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let text = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_joined_as_azures_client_joins_it() {
        let url = "https://localhost:7444/muster.blob.muster.internal/azureml-1/LocalUpload/a/b";
        assert_eq!(without_account(url), "https://localhost:7444/azureml-1/LocalUpload/a/b");
        assert_eq!(without_account("x"), "x");
    }
}
