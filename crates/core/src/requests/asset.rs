//! Requests about assets, whose content never changes. Whether their files exist is not checked here.

use super::{check_tags, check_text, find_workspace, shorten, workspace_to_change};
use crate::change::Change;
use crate::ids::WorkspaceId;
use crate::input::{AssetAction, AssetRequest, InputResult, KnownAsset, Refused, Reply};
use crate::limits;
use crate::model::{
    Asset, AssetContainer, AssetKind, AssetSpec, ContainerSpec, Scope, check_path_name,
};
use crate::refusal::Field;
use crate::step::Transaction;

pub(crate) fn change(tx: &mut Transaction<'_>, request: &AssetRequest) -> InputResult {
    let AssetRequest { workspace: key, kind, name, .. } = request;
    check_asset(*kind, name, request.action.version())?;
    match &request.action {
        AssetAction::Put { version, wanted, is_archived } => {
            check_spec(*kind, name, wanted)?;
            let workspace = workspace_to_change(tx, key, (kind.as_str(), name, "changed"))?;
            let KnownAsset { asset, container } = known(tx, workspace, request);
            match asset {
                Some(asset) => rewrite(tx, request, (asset, container), wanted, *is_archived),
                None => {
                    let container = container.unwrap_or_else(|| empty(tx, workspace, request));
                    make(tx, (request, container), version, wanted, *is_archived)
                }
            }
        }
        AssetAction::PutContainer { wanted, is_archived } => {
            check_written(
                &wanted.tags,
                wanted.description.as_deref(),
                wanted.properties.as_deref(),
            )?;
            let workspace = workspace_to_change(tx, key, (kind.as_str(), name, "changed"))?;
            put_container(tx, workspace, request, wanted, *is_archived)
        }
        AssetAction::Delete { version } => {
            let workspace = workspace_to_delete_in(tx, request)?;
            let known = known(tx, workspace, request);
            Ok(delete(tx, known, version))
        }
        AssetAction::DeleteContainer => {
            let workspace = workspace_to_delete_in(tx, request)?;
            if known(tx, workspace, request).container.is_none() {
                return Ok(Reply::NothingToDelete);
            }
            let (kind, name) = (*kind, name.to_ascii_lowercase().into());
            tx.emit(Change::AssetContainerGone { workspace, kind, name });
            Ok(Reply::Noted)
        }
    }
}

/// What the rows showed, updated with what this step has changed since they were read.
fn known(tx: &Transaction<'_>, workspace: WorkspaceId, request: &AssetRequest) -> KnownAsset {
    let mut known = request.known.clone();
    // The row may belong to a deleted workspace of the same name.
    known.asset = known.asset.filter(|asset| asset.workspace == workspace);
    known.container = known.container.filter(|container| container.workspace == workspace);
    let is_it = |of: WorkspaceId, kind: AssetKind, name: &str| {
        of == workspace && kind == request.kind && name.eq_ignore_ascii_case(&request.name)
    };
    for change in &tx.changes {
        match change {
            Change::AssetChanged(asset)
                if is_it(asset.workspace, asset.kind, &asset.name)
                    && Some(&*asset.version) == request.action.version() =>
            {
                known.asset = Some((**asset).clone());
            }
            Change::AssetGone { workspace, kind, name, version }
                if is_it(*workspace, *kind, name)
                    && Some(&**version) == request.action.version() =>
            {
                known.asset = None;
            }
            Change::AssetContainerChanged(container)
                if is_it(container.workspace, container.kind, &container.name) =>
            {
                known.container = Some((**container).clone());
            }
            Change::AssetContainerGone { workspace, kind, name }
                if is_it(*workspace, *kind, name) =>
            {
                known = KnownAsset::default();
            }
            _ => {}
        }
    }
    known
}

fn make(
    tx: &mut Transaction<'_>,
    (request, mut container): (&AssetRequest, AssetContainer),
    version: &str,
    wanted: &AssetSpec,
    is_archived: Option<bool>,
) -> InputResult {
    let (now, is_first) = (tx.now.wall, container.versions == 0);
    if container.versions >= limits::ASSET_VERSIONS_MAX {
        let message = format!(
            "{} '{}' has {} versions, which is the maximum for one name; delete some, or choose another name",
            request.kind.as_str(),
            request.name,
            limits::ASSET_VERSIONS_MAX
        );
        return Err(Refused::conflict("version", message));
    }
    container.versions += 1;
    container.is_anonymous = wanted.is_anonymous && (is_first || container.is_anonymous);
    container.highest = container.highest.max(number(version).unwrap_or(0));
    let asset = Box::new(Asset {
        workspace: container.workspace,
        kind: request.kind,
        // The spelling of the first version is kept.
        name: container.name.clone(),
        version: version.into(),
        about: wanted.clone(),
        is_archived: is_archived.unwrap_or(false),
        created_at: now,
        created_by: request.by.clone(),
        changed_at: now,
        changed_by: request.by.clone(),
    });
    tx.emit(Change::AssetContainerChanged(Box::new(container)));
    tx.emit(Change::AssetChanged(asset.clone()));
    Ok(Reply::Asset { asset, is_new: true })
}

/// Replaces the description and tags of a version. Repeating a request changes nothing.
fn rewrite(
    tx: &mut Transaction<'_>,
    request: &AssetRequest,
    (asset, container): (Asset, Option<AssetContainer>),
    wanted: &AssetSpec,
    is_archived: Option<bool>,
) -> InputResult {
    if asset.about.body != wanted.body || asset.about.hash != wanted.hash {
        let message = format!(
            "{} '{}' already has a version '{}' with other content, and versions cannot be changed; \
             choose another version",
            asset.kind.as_str(),
            asset.name,
            asset.version
        );
        return Err(Refused::conflict("version", message));
    }
    let changed = Asset {
        about: AssetSpec {
            // An anonymous asset can be given a name, but a name cannot be removed again.
            is_anonymous: asset.about.is_anonymous && wanted.is_anonymous,
            ..wanted.clone()
        },
        is_archived: is_archived.unwrap_or(asset.is_archived),
        ..asset.clone()
    };
    if changed == asset {
        return Ok(Reply::Asset { asset: Box::new(asset), is_new: false });
    }
    if let Some(container) =
        container.filter(|container| container.is_anonymous && !changed.about.is_anonymous)
    {
        let container = AssetContainer { is_anonymous: false, ..container };
        tx.emit(Change::AssetContainerChanged(Box::new(container)));
    }
    let asset =
        Box::new(Asset { changed_at: tx.now.wall, changed_by: request.by.clone(), ..changed });
    tx.emit(Change::AssetChanged(asset.clone()));
    Ok(Reply::Asset { asset, is_new: false })
}

fn put_container(
    tx: &mut Transaction<'_>,
    workspace: WorkspaceId,
    request: &AssetRequest,
    wanted: &ContainerSpec,
    is_archived: Option<bool>,
) -> InputResult {
    let known = known(tx, workspace, request).container;
    let is_new = known.is_none();
    let before = known.clone().unwrap_or_else(|| empty(tx, workspace, request));
    let after = AssetContainer {
        about: wanted.clone(),
        is_archived: is_archived.unwrap_or(before.is_archived),
        ..before.clone()
    };
    if is_new || after != before {
        let (changed_at, changed_by) = (tx.now.wall, request.by.clone());
        let container = Box::new(AssetContainer { changed_at, changed_by, ..after });
        tx.emit(Change::AssetContainerChanged(container));
    }
    Ok(Reply::AssetContainer { is_new })
}

/// Deletes a version. The container is deleted together with its last version.
fn delete(tx: &mut Transaction<'_>, known: KnownAsset, version: &str) -> Reply {
    let (Some(asset), Some(container)) = (known.asset, known.container) else {
        return Reply::NothingToDelete;
    };
    let (workspace, kind) = (asset.workspace, asset.kind);
    let name: Box<str> = asset.name.to_ascii_lowercase().into();
    if container.versions <= 1 {
        tx.emit(Change::AssetContainerGone { workspace, kind, name });
        return Reply::Noted;
    }
    let container = AssetContainer { versions: container.versions - 1, ..container };
    tx.emit(Change::AssetGone { workspace, kind, name, version: version.into() });
    tx.emit(Change::AssetContainerChanged(Box::new(container)));
    Reply::Noted
}

fn workspace_to_delete_in(
    tx: &Transaction<'_>,
    request: &AssetRequest,
) -> Result<WorkspaceId, Refused> {
    let id = find_workspace(tx, &request.workspace)?.id;
    match tx.world.governance().against_delete(&Scope::workspace(&request.workspace)) {
        Some(lock) => {
            Err(super::governance::locked(request.kind.as_str(), &request.name, "deleted", lock))
        }
        None => Ok(id),
    }
}

fn empty(tx: &Transaction<'_>, workspace: WorkspaceId, request: &AssetRequest) -> AssetContainer {
    AssetContainer {
        workspace,
        kind: request.kind,
        name: request.name.clone(),
        about: ContainerSpec::default(),
        is_archived: false,
        is_anonymous: false,
        versions: 0,
        highest: 0,
        created_at: tx.now.wall,
        created_by: request.by.clone(),
        changed_at: tx.now.wall,
        changed_by: request.by.clone(),
    }
}

/// The version as a number, unless it is so large that there might be no next one.
fn number(version: &str) -> Option<u64> {
    let is_number = version.len() <= 18 && version.bytes().all(|byte| byte.is_ascii_digit());
    version.parse().ok().filter(|_| is_number)
}

/// Checks the name and the version of an asset.
pub(super) fn check_asset(
    kind: AssetKind,
    name: &str,
    version: Option<&str>,
) -> Result<(), Refused> {
    check_path_name(name, limits::ASSET_NAME_BYTES_MAX)
        .map_err(|why| Refused::invalid("name", format!("{}: {why}", kind.as_str())))?;
    version.map_or(Ok(()), |version| check_version(kind, version))
}

fn check_version(kind: AssetKind, version: &str) -> Result<(), Refused> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    let is_good = version.len() <= limits::ASSET_NAME_BYTES_MAX
        && version.starts_with(|c: char| c.is_ascii_alphanumeric())
        && version.chars().all(is_plain);
    if is_good {
        return Ok(());
    }
    let message = format!(
        "{} version {:?}: a version has 1 to {} letters, digits, '-', '_', '.' and ':', and starts with a letter or digit",
        kind.as_str(),
        shorten(version),
        limits::ASSET_NAME_BYTES_MAX
    );
    Err(Refused::invalid("version", message))
}

fn check_spec(kind: AssetKind, name: &str, wanted: &AssetSpec) -> Result<(), Refused> {
    check_written(&wanted.tags, wanted.description.as_deref(), wanted.properties.as_deref())?;
    let metadata = wanted.metadata.as_deref().map_or(0, str::len);
    let bytes = wanted.body.len() + metadata;
    if bytes > limits::ASSET_BODY_BYTES_MAX {
        let message = format!(
            "{} '{}' has {bytes} bytes; at most {} are allowed, so move large content into a file of its own",
            kind.as_str(),
            shorten(name),
            limits::ASSET_BODY_BYTES_MAX
        );
        return Err(Refused::invalid("properties", message));
    }
    Ok(())
}

fn check_written(
    tags: &std::collections::BTreeMap<String, String>,
    description: Option<&str>,
    properties: Option<&str>,
) -> Result<(), Refused> {
    check_tags(tags)?;
    check_text(Field::AssetDescription, description, limits::DESCRIPTION_BYTES_MAX)?;
    check_text(Field::AssetProperties, properties, limits::ASSET_PROPERTIES_BYTES_MAX)
}
