//! Versioned assets, with one handler for all kinds. Kinds with files have a container of blobs for each version, in
//! which clients choose the names.

mod environment;
mod resolve;

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::model::{Asset, AssetKind, Workspace, WorkspaceKey};
use muster_core::storage::{upload_container, upload_containers};
use muster_core::{AssetAction, AssetRequest, Input, KnownAsset, Reply};
use muster_store::{Archived, AssetOrder, AssetQuery, ContainerView};
use muster_wire::asset::{self, AssetResource, Body, Reference, View, Which};
use muster_wire::blob::Right;
use muster_wire::routes::assets::{Delete, Endpoint, Get, Post, Put};
use muster_wire::{ArmError, AssetRoute, Page, Route, cloud};
pub use resolve::resolve;

use super::datastore::{ensure, own_account, signed};
use super::first_use::home;
use super::job_data::place_of;
use super::{Call, Failed, paging, unexpected};
use crate::http::respond::document;
use crate::readers::WorldReader;
use crate::{secrets, storage};

/// The rights of a client that uploads files, which do not include deleting existing ones.
const RIGHTS: [Right; 4] = [Right::Read, Right::Create, Right::Write, Right::List];
const LIFETIME: Duration = Duration::from_secs(3_600);

/// The name and kind of an asset in a workspace.
struct Named {
    workspace: WorkspaceKey,
    kind: AssetKind,
    name: Box<str>,
}

pub async fn handle(call: &Call, endpoint: Endpoint) -> Result<Response, Failed> {
    match endpoint {
        Endpoint::Get(Get::AssetContainers { workspace, kind }) => {
            containers(call, workspace, kind).await
        }
        Endpoint::Get(Get::AssetContainer { workspace, kind, name }) => {
            let home = home(call, &workspace).await?;
            let found = match asset::is_curated(kind, &name) {
                true => environment::curated_container(call, &home, &name)?,
                false => find_container(call, &home, kind, &name)?,
            };
            Ok(container_document(StatusCode::OK, &home, &found))
        }
        Endpoint::Put(Put::AssetContainer { workspace, kind, name }) => {
            put_container(call, Named { workspace, kind, name }).await
        }
        Endpoint::Delete(Delete::AssetContainer { workspace, kind, name }) => {
            delete(call, Named { workspace, kind, name }, AssetAction::DeleteContainer).await
        }
        Endpoint::Get(Get::AssetVersions { workspace, kind, name }) => {
            versions(call, Named { workspace, kind, name }).await
        }
        Endpoint::Get(Get::AssetVersion { workspace, kind, name, version }) => {
            let home = home(call, &workspace).await?;
            let which = Which::of_version(kind, &version);
            let found = match asset::is_curated(kind, &name) {
                true => environment::curated(call, &home, &name, &version)?,
                false => resolve(&call.app, &home, &Reference::Workspace { kind, name, which })?,
            };
            Ok(document(StatusCode::OK, &asset::resource(&home.key, &found)?))
        }
        Endpoint::Put(Put::AssetVersion { workspace, kind, name, version }) => {
            put(call, Named { workspace, kind, name }, version).await
        }
        Endpoint::Delete(Delete::AssetVersion { workspace, kind, name, version }) => {
            delete(call, Named { workspace, kind, name }, AssetAction::Delete { version }).await
        }
        Endpoint::Post(Post::AssetUpload { workspace, kind, name, version }) => {
            upload(call, Named { workspace, kind, name }, &version).await
        }
        Endpoint::Get(Get::Substitutes(workspace)) => {
            environment::substitutes(call, workspace).await
        }
        Endpoint::Get(Get::Substitute { workspace, name }) => {
            environment::substitute(call, workspace, &name).await
        }
        Endpoint::Get(Get::BuildLog { workspace, name, version }) => {
            environment::build_log(call, workspace, &name, &version).await
        }
    }
}

fn archived(view: View) -> Archived {
    match view {
        View::Active => Archived::No,
        View::Archived => Archived::Yes,
        View::All => Archived::Both,
    }
}

async fn containers(
    call: &Call,
    workspace: WorkspaceKey,
    kind: AssetKind,
) -> Result<Response, Failed> {
    let archived = archived(View::parse(&call.query)?);
    let size = call.page_size(paging::LARGE)?;
    let home = home(call, &workspace).await?;
    let (id, after) = (home.id, call.query.skip().map(str::to_owned));
    let page = call
        .app
        .readers
        .read(move |reader| reader.asset_containers(id, kind, archived, after.as_deref(), size));
    let page = page.await?;
    let show = |view: &ContainerView| {
        asset::container_resource(&home.key, &view.container, view.latest.as_ref())
    };
    let value = page.items.iter().map(show).collect();
    let route = Route::Assets(AssetRoute::AssetContainers { workspace, kind });
    let next = page.next.and_then(|token| call.next_link(&route, &token));
    Ok(document(StatusCode::OK, &Page::new(value, next)))
}

fn find_container(
    call: &Call,
    home: &Workspace,
    kind: AssetKind,
    name: &str,
) -> Result<ContainerView, Failed> {
    let found = call.app.readers.look_up(|reader| reader.asset_container(home.id, kind, name))?;
    found.ok_or_else(|| {
        let message = format!(
            "{} '{name}' does not exist in this workspace; check the name, or list the existing ones",
            kind.as_str()
        );
        ArmError::not_found(kind.as_str(), message).into()
    })
}

fn container_document(status: StatusCode, home: &Workspace, found: &ContainerView) -> Response {
    let shown = asset::container_resource(&home.key, &found.container, found.latest.as_ref());
    document(status, &shown)
}

/// `$top` is the size of a page, as in every list; some clients read only the first page.
async fn versions(call: &Call, named: Named) -> Result<Response, Failed> {
    let query = AssetQuery {
        kind: named.kind,
        name: named.name.clone(),
        archived: archived(View::parse(&call.query)?),
        order: match asset::is_oldest_first(&call.query)? {
            true => AssetOrder::OldestFirst,
            false => AssetOrder::NewestFirst,
        },
    };
    let size = call.page_size(paging::LARGE)?;
    let home = home(call, &named.workspace).await?;
    if asset::is_curated(named.kind, &named.name) {
        return Ok(environment::curated_versions(call, &home, &named.name)?);
    }
    let id = home.id;
    let hash = call.query.get("hash").filter(|hash| !hash.is_empty()).map(str::to_owned);
    if let (AssetKind::Code, Some(hash)) = (named.kind, hash) {
        let find =
            move |reader: &mut WorldReader| reader.assets_with_hash(id, AssetKind::Code, &hash);
        let found = call.app.readers.read(move |reader| find(reader)).await?;
        return Ok(document(StatusCode::OK, &Page::whole(resources(&home, &found)?)));
    }
    let after = call.query.skip().map(str::to_owned);
    let page =
        call.app.readers.read(move |reader| reader.assets(id, &query, after.as_deref(), size));
    let page = page.await?;
    let Named { workspace, kind, name } = named;
    let route = Route::Assets(AssetRoute::AssetVersions { workspace, kind, name });
    let next = page.next.and_then(|token| call.next_link(&route, &token));
    Ok(document(StatusCode::OK, &Page::new(resources(&home, &page.items)?, next)))
}

fn resources(home: &Workspace, found: &[Asset]) -> Result<Vec<AssetResource>, Failed> {
    Ok(found.iter().map(|found| asset::resource(&home.key, found)).collect::<Result<_, _>>()?)
}

fn request(call: &Call, named: Named, action: AssetAction) -> Input {
    let Named { workspace, kind, name } = named;
    let (by, known) = (call.caller.clone(), KnownAsset::default());
    Input::ChangeAsset(Box::new(AssetRequest { workspace, kind, name, action, by, known }))
}

async fn put(call: &Call, named: Named, version: Box<str>) -> Result<Response, Failed> {
    let wanted = asset::parse_request(named.kind, &named.workspace, &call.body)?;
    let wanted = wanted.kept_as(named.kind, &named.name, &version);
    refuse_curated(&named)?;
    if asset::is_default_version(named.kind, &version) {
        let message = format!("version '{version}' means the latest version; choose another one");
        return Err(ArmError::invalid_property("version", message).into());
    }
    let home = home(call, &named.workspace).await?;
    check_files(call, &home, named.kind, &wanted)?;
    let asset::VersionRequest { spec, is_archived } = wanted;
    let action = AssetAction::Put { version, wanted: spec, is_archived };
    match call.submit(request(call, named, action)).await? {
        Reply::Asset { asset, is_new } => {
            let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
            Ok(document(status, &asset::resource(&home.key, &asset)?))
        }
        other => Err(unexpected(&other)),
    }
}

/// Refuses names that are reserved for the environments that come with the service.
fn refuse_curated(named: &Named) -> Result<(), Failed> {
    if !asset::is_curated(named.kind, &named.name) {
        return Ok(());
    }
    let message = format!(
        "environment '{}': names that begin with 'AzureML-' are reserved for environments that come with the service; \
         choose another name",
        named.name
    );
    Err(ArmError::invalid_property("name", message).into())
}

/// Code must be in a container of this workspace. Other assets may be anywhere except in a container of another
/// workspace.
fn check_files(
    call: &Call,
    home: &Workspace,
    kind: AssetKind,
    wanted: &asset::VersionRequest,
) -> Result<(), Failed> {
    let body =
        Body::parse_text(kind, &wanted.spec.body).map_err(|_| ArmError::internal("asset-body"))?;
    let (target, uri) = match &body {
        Body::Code(body) => ("properties.codeUri", &body.code_uri),
        Body::Data(body) => ("properties.dataUri", &body.data_uri),
        Body::Model(body) => ("properties.modelUri", &body.model_uri),
        Body::Environment(body) => match &body.build {
            Some(build) => ("properties.build.contextUri", &build.context_uri),
            None => return Ok(()),
        },
        Body::Component(_) => return Ok(()),
    };
    let elsewhere = || {
        let message = "its files must be in a container of this workspace; request one with startPendingUpload";
        Failed(ArmError::invalid_property(target, message))
    };
    let is_here = uri.starts_with(&*call.app.files_url);
    let is_well = match is_here || kind == AssetKind::Code {
        true => place_of(&call.app, home, uri).is_some(),
        false => true,
    };
    if is_well { Ok(()) } else { Err(elsewhere()) }
}

async fn put_container(call: &Call, named: Named) -> Result<Response, Failed> {
    let (wanted, is_archived) = asset::parse_container(&call.body)?;
    refuse_curated(&named)?;
    let home = home(call, &named.workspace).await?;
    let (kind, name) = (named.kind, named.name.clone());
    let action = AssetAction::PutContainer { wanted, is_archived };
    let status = match call.submit(request(call, named, action)).await? {
        Reply::AssetContainer { is_new: true } => StatusCode::CREATED,
        Reply::AssetContainer { is_new: false } => StatusCode::OK,
        other => return Err(unexpected(&other)),
    };
    Ok(container_document(status, &home, &find_container(call, &home, kind, &name)?))
}

async fn delete(call: &Call, named: Named, action: AssetAction) -> Result<Response, Failed> {
    let home = home(call, &named.workspace).await?;
    let files = files_of(call, &home, &named, action.version()).await?;
    match call.submit(request(call, named, action)).await? {
        Reply::Noted => {
            storage::release(&call.app.storage, &call.app.readers, home.id, &files).await;
            Ok(StatusCode::OK.into_response())
        }
        Reply::NothingToDelete => Ok(StatusCode::NO_CONTENT.into_response()),
        other => Err(unexpected(&other)),
    }
}

/// The containers with the files of one version, or of all versions of the name.
async fn files_of(
    call: &Call,
    home: &Workspace,
    named: &Named,
    version: Option<&str>,
) -> Result<Vec<Box<str>>, Failed> {
    let (id, kind, name) = (home.id, named.kind, named.name.clone());
    let found = match version {
        Some(version) => {
            let find = |reader: &mut WorldReader| reader.asset(id, kind, &name, version);
            call.app.readers.look_up(find)?.into_iter().collect()
        }
        None => {
            let (archived, order) = (Archived::Both, AssetOrder::OldestFirst);
            let query = AssetQuery { kind, name, archived, order };
            let most = muster_core::limits::ASSET_VERSIONS_MAX as usize;
            let page = call.app.readers.read(move |reader| reader.assets(id, &query, None, most));
            page.await?.items
        }
    };
    let mut files: Vec<Box<str>> = Vec::new();
    for asset in &found {
        // Both the container of the upload and the one that the asset names: a client may have put other files there,
        // too.
        files.push(upload_container(kind, &upload_id(home, &asset.name, &asset.version)).into());
        files.extend(upload_containers(&asset.about.body).map(Box::from));
    }
    files.sort_unstable();
    files.dedup();
    Ok(files)
}

/// The same id for every request, so that files that were already sent need not be sent again.
fn upload_id(home: &Workspace, name: &str, version: &str) -> String {
    let place = format!("{}\0{}\0{version}", home.id, name.to_ascii_lowercase());
    secrets::hex(&secrets::sha256(place.as_bytes())[..16])
}

async fn upload(call: &Call, named: Named, version: &str) -> Result<Response, Failed> {
    let home = home(call, &named.workspace).await?;
    let id = upload_id(&home, &named.name, version);
    let container = upload_container(named.kind, &id);
    ensure(call, &home, &container).await?;
    let url = format!("https://{}.blob.{}/{container}", own_account(call), cloud::DOMAIN);
    let sas = signed(call, &container, &RIGHTS, LIFETIME);
    Ok(document(StatusCode::OK, &asset::pending(&id, &url, &sas)))
}
