//! Datastores, and the credentials that open them.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::limits::DATASTORES_MAX;
use muster_core::model::{AccountCredentials, Datastore, Workspace, WorkspaceKey};
use muster_core::time::Wall;
use muster_core::{ErrorChain, Input, Refused, Reply};
use muster_store::storage::StorageCommand;
use muster_wire::blob::{Right, Sas, SasScope};
use muster_wire::datastore::{self, Collected, Own, Secrets};
use muster_wire::routes::storage::{Delete, Endpoint, Get, Post, Put};
use muster_wire::{ArmError, Page, cloud};

use super::first_use::home;
use super::{Call, Failed, unexpected};
use crate::blobs::Removed;
use crate::clock;
use crate::http::respond::document;
use crate::{sizes, storage};

const EVERYTHING: [Right; 5] =
    [Right::Read, Right::Create, Right::Write, Right::Delete, Right::List];

pub async fn handle(call: &Call, endpoint: Endpoint) -> Result<Response, Failed> {
    match endpoint {
        Endpoint::Get(Get::Datastores(key)) => list(call, key).await,
        Endpoint::Get(Get::Datastore { workspace, name }) => get(call, workspace, &name).await,
        Endpoint::Put(Put::Datastore { workspace, name }) => put(call, workspace, name).await,
        Endpoint::Delete(Delete::Datastore { workspace, name }) => {
            delete(call, workspace, name).await
        }
        Endpoint::Post(Post::DatastoreSecrets { workspace, name }) => {
            secrets(call, workspace, &name).await
        }
        Endpoint::Get(Get::StorageSizes) => list_sizes(call).await,
        Endpoint::Post(Post::CollectGarbage) => collect_garbage(call).await,
    }
}

/// The address of this server's own containers.
pub fn own_account(call: &Call) -> String {
    let url = &call.app.files_url;
    format!("{}/muster", url.split_once("://").map_or(&**url, |(_, host)| host))
}

fn own(account: &str) -> Own<'_> {
    Own { account, suffix: cloud::DOMAIN }
}

fn find(call: &Call, home: &Workspace, name: &str) -> Result<Option<Datastore>, Failed> {
    Ok(call.app.readers.look_up(|reader| reader.datastore(home.id, name))?)
}

fn no_such(name: &str) -> Failed {
    let message = format!(
        "datastore '{name}' does not exist in this workspace; check the name, or list the existing ones"
    );
    ArmError::not_found("datastore", message).into()
}

/// Creates a container of the workspace, unless it exists.
pub async fn ensure(call: &Call, home: &Workspace, container: &str) -> Result<(), Failed> {
    let found = call.app.storage.readers.look_up(|reader| reader.container(container))?;
    if found.is_some_and(|found| found.workspace == home.id) {
        return Ok(());
    }
    let (name, owner) = (container.into(), home.key.clone());
    let command = StorageCommand::MakeContainer { name, workspace: home.id, owner };
    let found = call.app.storage.submit(command).await;
    match found.map_err(|why| ArmError::unavailable(why.to_string()))? {
        Ok(_) => Ok(()),
        // The response does not reveal which workspace has it.
        Err(_) => {
            let message = format!("the container name '{container}' is taken; choose another one");
            Err(Refused::conflict("properties.containerName", message).into())
        }
    }
}

async fn list(call: &Call, key: WorkspaceKey) -> Result<Response, Failed> {
    let home = home(call, &key).await?;
    let account = own_account(call);
    let own = own(&account);
    let mut value = vec![datastore::own_resource(&home, true, own)];
    let only_default =
        call.query.get("isDefault").is_some_and(|it| it.eq_ignore_ascii_case("true"));
    if !only_default {
        let id = home.id;
        let others = call.app.readers.read(move |reader| reader.datastores(id)).await?;
        value.push(datastore::own_resource(&home, false, own));
        value.extend(others.iter().map(|found| datastore::resource(&home.key, found, own)));
    }
    Ok(document(StatusCode::OK, &Page::whole(value)))
}

async fn get(call: &Call, key: WorkspaceKey, name: &str) -> Result<Response, Failed> {
    let home = home(call, &key).await?;
    let account = own_account(call);
    let found = match datastore::is_own(name) {
        Some(is_default) => {
            ensure(call, &home, &datastore::own_container(home.id, is_default)).await?;
            datastore::own_resource(&home, is_default, own(&account))
        }
        None => {
            let found = find(call, &home, name)?.ok_or_else(|| no_such(name))?;
            datastore::resource(&home.key, &found, own(&account))
        }
    };
    Ok(document(StatusCode::OK, &found))
}

async fn put(call: &Call, key: WorkspaceKey, name: Box<str>) -> Result<Response, Failed> {
    let account = own_account(call);
    let mut wanted = datastore::parse_request(&call.body, own(&account))?;
    let home = home(call, &key).await?;
    let is_new = find(call, &home, &name)?.is_none();
    let id = home.id;
    if is_new
        && call.app.readers.read(move |reader| reader.datastores(id)).await?.len() >= DATASTORES_MAX
    {
        let message =
            format!("the workspace has {DATASTORES_MAX} datastores, the most allowed; delete some");
        return Err(Refused::conflict("datastore", message).into());
    }
    match &mut wanted.spec.account {
        None => ensure(call, &home, &wanted.spec.container).await?,
        Some(account) => {
            let seal = |secret: Box<str>| call.app.keyring.seal(&place(&home, &name), &secret);
            let sealed = wanted.secret.map(seal).transpose();
            account.secret = sealed.map_err(|_| ArmError::internal("seal"))?.map(Into::into);
        }
    }
    let (wanted, by) = (Box::new(wanted.spec), call.caller.clone());
    match call
        .submit(Input::PutDatastore { workspace: key.clone(), name: name.clone(), wanted, by })
        .await?
    {
        Reply::Datastore(_) => {}
        other => return Err(unexpected(&other)),
    }
    let mut response = get(call, key, &name).await?;
    if is_new {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

/// The context of a sealed secret, which binds it to its datastore.
fn place(home: &Workspace, name: &str) -> String {
    format!("datastore {} {}", home.id, name.to_ascii_lowercase())
}

async fn delete(call: &Call, key: WorkspaceKey, name: Box<str>) -> Result<Response, Failed> {
    let home = home(call, &key).await?;
    let is_there = datastore::is_own(&name).is_some() || find(call, &home, &name)?.is_some();
    if !is_there {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    call.submit(Input::DeleteDatastore { workspace: key, name }).await?;
    Ok(StatusCode::OK.into_response())
}

async fn secrets(call: &Call, key: WorkspaceKey, name: &str) -> Result<Response, Failed> {
    let hours = datastore::parse_secrets_request(&call.body)?;
    let home = home(call, &key).await?;
    let own = datastore::is_own(name);
    let found = match own {
        Some(_) => None,
        None => Some(find(call, &home, name)?.ok_or_else(|| no_such(name))?.about),
    };
    let container = match (&found, own) {
        (Some(spec), _) => spec.container.to_string(),
        (None, is_default) => datastore::own_container(home.id, is_default.unwrap_or(true)),
    };
    let secrets = match found.and_then(|spec| spec.account) {
        None => {
            ensure(call, &home, &container).await?;
            let lifetime = Duration::from_secs(hours * 3_600);
            Secrets::Sas { sas_token: signed(call, &container, &EVERYTHING, lifetime) }
        }
        Some(account) => {
            let opened = account.secret.as_deref();
            let opened =
                opened.and_then(|sealed| call.app.keyring.unseal(&place(&home, name), sealed));
            match (account.opened_by, opened) {
                (AccountCredentials::AccountKey, Some(key)) => Secrets::AccountKey { key },
                (AccountCredentials::Sas, Some(sas_token)) => Secrets::Sas { sas_token },
                (AccountCredentials::None, _) => {
                    let message =
                        "the datastore has no secret: it is opened with the identity of the caller";
                    return Err(Refused::conflict("datastore", message).into());
                }
                (_, None) => {
                    let message = "the secret was sealed with another key of the server; put the datastore again";
                    return Err(Refused::conflict("datastore", message).into());
                }
            }
        }
    };
    Ok(document(StatusCode::OK, &secrets))
}

/// A SAS query that gives access to a container for a limited time.
pub fn signed(call: &Call, container: &str, rights: &[Right], lifetime: Duration) -> String {
    let expires = Wall(clock::stamp() * 1_000_000 + lifetime.as_micros() as u64);
    let mut sas = Sas::new(SasScope::Container, rights, expires);
    let text = sas.signed_text(container, None, "").expect("a container can always be signed");
    sas.signature = call.app.keyring.sign_blob_address(&text);
    sas.to_query()
}

async fn list_sizes(call: &Call) -> Result<Response, Failed> {
    let sizes = sizes::sizes(&call.app).await.map_err(|failed| {
        tracing::error!(error = %ErrorChain(&failed), "cannot measure what is stored");
        ArmError::unavailable(
            "the size of what is stored could not be measured; see the server's log",
        )
    })?;
    Ok(document(StatusCode::OK, &Page::whole(sizes.to_vec())))
}

async fn collect_garbage(call: &Call) -> Result<Response, Failed> {
    let wanted = datastore::parse_garbage(&call.body)?;
    if wanted.dry_run {
        call.changes_nothing();
    }
    let app = &call.app;
    let mut retention = app.retention;
    if let Some(seconds) = wanted.grace_seconds {
        retention.grace = Duration::from_secs(seconds.into());
    }
    if let Some(seconds) = wanted.block_seconds {
        retention.blocks = Duration::from_secs(seconds.into());
    }
    let collected =
        storage::gc(&app.storage, &app.blobs, &app.readers, retention, wanted.dry_run).await;
    let collected = collected.map_err(|failed| {
        if let storage::GarbageError::BackUp = failed {
            return ArmError::unavailable(failed.to_string());
        }
        tracing::error!(error = %ErrorChain(&failed), "cannot look for unreferenced files");
        ArmError::unavailable("the files could not be examined; see the server's log")
    })?;
    let Removed { files, bytes, kept } = collected;
    let collected = Collected { files, bytes, kept, dry_run: wanted.dry_run };
    Ok(document(StatusCode::OK, &collected))
}
