//! The curated environments of Azure's service: their substitutes, shown as if they were in the workspace. Also shows
//! how environments were built.

use axum::http::StatusCode;
use axum::response::Response;
use muster_core::model::{
    Asset, AssetContainer, AssetKind, AssetSpec, Caller, ContainerSpec, Workspace, WorkspaceKey,
};
use muster_store::ContainerView;
use muster_wire::asset::{self, Body, EnvironmentBody, View};
use muster_wire::job::Resolve as _;
use muster_wire::{ArmError, Page};

use super::super::first_use::home;
use super::super::job_data::Names;
use super::super::{Call, Failed};
use crate::http::respond::document;

const KIND: AssetKind = AssetKind::Environment;
/// All versions are the same here; this is the one that is listed.
const LATEST: &str = "1";

/// Lists the substitute environments.
pub async fn substitutes(call: &Call, key: WorkspaceKey) -> Result<Response, Failed> {
    home(call, &key).await?;
    let all = call.app.environments.substitutes().collect();
    Ok(document(StatusCode::OK, &Page::whole(all)))
}

pub async fn substitute(call: &Call, key: WorkspaceKey, name: &str) -> Result<Response, Failed> {
    home(call, &key).await?;
    Ok(document(StatusCode::OK, &call.app.environments.substitute(name)?))
}

/// The build log of an environment in the workspace, or of a curated one of that name.
pub async fn build_log(
    call: &Call,
    key: WorkspaceKey,
    name: &str,
    version: &str,
) -> Result<Response, Failed> {
    let home = home(call, &key).await?;
    let environments = &call.app.environments;
    let found = call.app.readers.look_up(|reader| reader.asset(home.id, KIND, name, version))?;
    let environment = match found.is_none() && environments.is_curated(name) {
        true => environments.resolve_curated(name)?,
        false => {
            let names = Names { app: &call.app, home: &home };
            let id = asset::id(&home.key, KIND, name, version);
            let resolved = names.environment(&id);
            resolved.map_err(|words| ArmError::not_found(KIND.as_str(), words))?
        }
    };
    // This reads files.
    let log = tokio::task::block_in_place(|| environments.build_log(&environment));
    Ok(document(StatusCode::OK, &log))
}

/// A curated environment as a version in the workspace. It is not stored.
pub fn curated(
    call: &Call,
    home: &Workspace,
    name: &str,
    version: &str,
) -> Result<Asset, ArmError> {
    let substitute = call.app.environments.substitute(name)?;
    let image = name.to_ascii_lowercase().replacen("azureml-", "", 1);
    let body = EnvironmentBody {
        image: Some(format!("mcr.microsoft.com/azureml/curated/{image}:{version}")),
        ..EnvironmentBody::default()
    };
    let by = Caller { object_id: "".into(), name: "Microsoft".into() };
    Ok(Asset {
        workspace: home.id,
        kind: KIND,
        name: name.into(),
        version: version.into(),
        about: AssetSpec {
            description: Some(substitute.notes.join("; ").into()),
            body: Body::Environment(body).to_text(),
            ..AssetSpec::default()
        },
        is_archived: false,
        created_at: home.created_at,
        created_by: by.clone(),
        changed_at: home.created_at,
        changed_by: by,
    })
}

/// A curated environment as a container of versions.
pub fn curated_container(
    call: &Call,
    home: &Workspace,
    name: &str,
) -> Result<ContainerView, ArmError> {
    let latest = curated(call, home, name, LATEST)?;
    let container = AssetContainer {
        workspace: home.id,
        kind: KIND,
        name: name.into(),
        about: ContainerSpec {
            description: latest.about.description.clone(),
            ..ContainerSpec::default()
        },
        is_archived: false,
        is_anonymous: false,
        versions: 1,
        highest: 1,
        created_at: latest.created_at,
        created_by: latest.created_by.clone(),
        changed_at: latest.changed_at,
        changed_by: latest.changed_by.clone(),
    };
    Ok(ContainerView { container, latest: Some(latest) })
}

/// Its only version, unless the request is for archived versions.
pub fn curated_versions(call: &Call, home: &Workspace, name: &str) -> Result<Response, ArmError> {
    let found = curated(call, home, name, LATEST)?;
    let value = match View::parse(&call.query)? {
        View::Archived => Vec::new(),
        View::Active | View::All => vec![asset::resource(&home.key, &found)?],
    };
    Ok(document(StatusCode::OK, &Page::whole(value)))
}
